"""Ordinary TVM reductions in canonical form: what is rewritten, what is left and why."""

import importlib.util
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.script import tirx as T

import tvm_tilex as tx
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import OptionError
from tvm_tilex.tirx import attrs

register_pipeline()
LLVM, METAL, CUDA = (resolve_target(kind) for kind in ("llvm", "metal", "cuda"))
PERMITTED = "unordered_tree"


def tensor(*shape, dtype="float32", name="x"):
    return te.placeholder(shape, name=name, dtype=dtype)


def function(*tensors):
    return te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")


def module(func):
    return tvm.IRModule({"main": func})


def scheduled(func, target, policy=PERMITTED, **given):
    """The function after the one pass, and the reason why it was left or None."""
    schedule = tx.transform.ScheduleReductions(policy, target=target, **given)
    result = schedule(module(func))["main"]
    (outcome,) = schedule.report
    assert outcome.function == "main"
    return result, outcome.reason


def softmax(*shape, dtype="float32"):
    x = tensor(*shape, dtype=dtype)
    return function(x, topi.nn.softmax(x, axis=-1))


def layer_norm(shape, axes):
    x = tensor(*shape)
    weights = [tensor(*(shape[a] for a in axes), name=name) for name in ("w", "b")]
    return function(x, *weights, topi.nn.layer_norm(x, *weights, axes, 1e-5))


def rms_norm(shape, dtype="float32"):
    x, w = tensor(*shape, dtype=dtype), tensor(shape[-1], dtype=dtype, name="w")
    return function(x, w, topi.nn.rms_norm(x, w, [len(shape) - 1], 1e-5))


def reduced(reduce, *shape, axis=-1, keepdims=False):
    x = tensor(*shape)
    return function(x, reduce(x, axis=axis, keepdims=keepdims))


def log_softmax(*shape):
    x = tensor(*shape)
    return function(x, topi.nn.log_softmax(x))


def mean(*shape):
    x = tensor(*shape)
    return function(x, topi.divide(topi.sum(x, axis=-1), float(shape[-1])))


def residual_norm(*shape):
    """An elementwise producer and consumer around a normalization."""
    x, r = tensor(*shape), tensor(*shape, name="r")
    added = topi.add(x, r)
    average = topi.divide(topi.sum(added, axis=-1, keepdims=True), float(shape[-1]))
    centered = topi.subtract(added, average)
    return function(x, r, topi.nn.relu(topi.multiply(centered, topi.exp(average))))


REWRITTEN = {
    "softmax": softmax(5, 127),
    "softmax of four dimensions": softmax(2, 3, 4, 33),
    "softmax of one row": softmax(1, 257),
    "log_softmax": log_softmax(5, 127),
    "layer_norm": layer_norm((3, 5, 40), [2]),
    "layer_norm over two": layer_norm((6, 5, 8), [1, 2]),
    "rms_norm": rms_norm((2, 3, 65)),
    "rms_norm, float16": rms_norm((4, 64), "float16"),
    "sum": reduced(topi.sum, 7, 33),
    "sum, keepdims": reduced(topi.sum, 2, 7, 33, keepdims=True),
    "sum over two": reduced(topi.sum, 3, 4, 9, axis=(1, 2)),
    "sum of all": reduced(topi.sum, 4, 9, axis=(0, 1)),
    "max": reduced(topi.max, 7, 33),
    "min": reduced(topi.min, 7, 1),
    "mean": mean(3, 4, 33),
    "residual": residual_norm(3, 4, 33),
}


def arrays(func, seed=0):
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal([int(e) for e in p.ty.shape]).astype(str(p.ty.dtype))
        for p in func.params
    ]


def ran(func, values, pipeline):
    built = tvm.compile(module(func), target=LLVM, tir_pipeline=pipeline)
    tensors = [tvm.runtime.tensor(v) for v in values]
    built["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("name", REWRITTEN)
def test_results_on_llvm_are_those_of_the_original(name):
    func = REWRITTEN[name]
    result, reason = scheduled(func, LLVM)
    assert reason is None
    values = arrays(func)
    wanted, found = ran(func, values, "default"), ran(result, values, "tilex")
    half = wanted.dtype == np.float16
    np.testing.assert_allclose(
        found, wanted, rtol=2e-3 if half else 2e-5, atol=2e-3 if half else 3e-6
    )


@pytest.fixture(scope="module")
def simulated():
    """Call with a scheduled function and arrays: its outputs in the simulator."""
    path = Path(__file__).parents[2] / "scripts" / "benchmark" / "relax_block.py"
    spec = importlib.util.spec_from_file_location("relax_block_script", path)
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    return lambda func, values: script.Simulated(module(func), METAL).run("main", values)


@pytest.mark.parametrize("name", REWRITTEN)
def test_results_on_metal_are_those_of_the_original(name, simulated):
    func = REWRITTEN[name]
    result, _ = scheduled(func, METAL)
    values = arrays(func)
    wanted = ran(func, values, "default")
    values[-1][...] = np.nan
    simulated(result, values)
    half = wanted.dtype == np.float16
    np.testing.assert_allclose(
        values[-1], wanted, rtol=2e-3 if half else 2e-5, atol=2e-3 if half else 3e-6
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_softmax_with_float32_state_on_metal(dtype, simulated):
    result, reason = scheduled(softmax(5, 257, dtype=dtype), METAL, accumulate="float32")
    assert reason is None
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    x = np.random.default_rng(0).standard_normal((5, 257)).astype(kind)
    out = np.full_like(x, np.nan)
    simulated(result, [x, out])
    wide = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    wide /= wide.sum(1, keepdims=True)
    # Differences and exponentials are rounded to the type, as the program says.
    assert (np.abs(out.astype(np.float64) / wide - 1) < 8 * float(ml_dtypes.finfo(kind).eps)).all()


@pytest.mark.parametrize("target", [METAL, CUDA], ids=["metal", "cuda"])
@pytest.mark.parametrize("name", REWRITTEN)
def test_every_row_of_the_admission_table_is_proved(name, target):
    result, reason = scheduled(REWRITTEN[name], target)
    assert reason is None
    proof = ProofRecord.from_json(str(result.attrs[attrs.PROOF]))
    assert proof.admitted and all(row.verdict == "PROVEN" for row in proof.rows)
    assert str(result.attrs[attrs.STAGE]) == "scheduled" and attrs.PLAN in result.attrs
    assert result.attrs["tirx.is_scheduled"]


def test_the_canonical_form():
    x = tensor(6, 8)
    func = function(x, topi.nn.softmax(x, axis=-1))
    result = tx.transform.CanonicalizeReductions(PERMITTED)(module(func))["main"]
    options = str(result.attrs[attrs.OPTIONS])
    maximum = {"tilex.reduction": "maximum", "tilex.policy": PERMITTED, "tilex.value": 0}
    add = {"tilex.reduction": "add", "tilex.policy": PERMITTED, "tilex.value": 2}

    @T.prim_func(s_tir=True)
    def expected(x: T.Buffer((6, 8), "float32"), out: T.Buffer((6, 8), "float32")):
        T.func_attr(
            {
                "global_symbol": "main",
                "tirx.noalias": True,
                "tilex.stage": "reference",
                "tilex.options": options,
            }
        )
        for p in T.parallel(6, annotations={"tilex.parallel": 0}):
            row = T.alloc_local((8,))
            for i in T.serial(8, annotations={"tilex.domain": 1}):
                row[i] = x[p, i]
            peak = T.alloc_local((1,))
            peak[0] = T.float32("-inf")
            for k in T.serial(8, annotations=maximum):
                peak[0] = T.tilex.maximum(peak[0], row[k])
            weights = T.alloc_local((8,))
            for i in T.serial(8, annotations={"tilex.domain": 1}):
                weights[i] = T.exp(row[i] - peak[0])
            total = T.alloc_local((1,))
            total[0] = T.float32(0)
            for k in T.serial(8, annotations=add):
                total[0] = total[0] + weights[k]
            for i in T.serial(8, annotations={"tilex.domain": 1}):
                out[p, i] = weights[i] / total[0]

    tvm.ir.assert_structural_equal(result, expected)


def test_the_proof_does_not_trust_the_rewriting():
    """One edit of the canonical form, and ProveReductions declines it."""
    canonical = tx.transform.CanonicalizeReductions(PERMITTED)(module(softmax(6, 8)))
    text = canonical["main"].script()
    assert text.count('T.float32("-inf")') == 1
    edited = tvm.script.from_source(text.replace('T.float32("-inf")', "T.float32(-1.0)"))
    proved = tx.transform.ProveReductions(METAL)(module(edited))["main"]
    record = ProofRecord.from_json(str(proved.attrs[attrs.PROOF]))
    assert record.declined.name == "canonical state" and "starts from" in record.declined.reason


# Permission


@pytest.mark.parametrize("target", [LLVM, METAL, CUDA], ids=["llvm", "metal", "cuda"])
def test_without_permission_nothing_is_touched(target):
    for policy, words in ((None, "no policy was stated"), ("fold_left", "fixes the order")):
        func = softmax(5, 127)
        result, reason = scheduled(func, target, policy)
        assert result.same_as(func) and words in reason


def test_a_module_without_permission_is_the_same_module():
    before = module(softmax(5, 127))
    assert tx.transform.ScheduleReductions(target=METAL)(before).same_as(before)


def test_the_input_module_is_not_changed():
    func = softmax(5, 127)
    before = module(func)
    after = tx.transform.ScheduleReductions(PERMITTED, target=METAL)(before)
    assert before["main"].same_as(func) and not after["main"].same_as(func)


def test_bad_permissions_are_refused():
    with pytest.raises(OptionError, match="policy='any': use None or one of unordered_tree"):
        tx.transform.ScheduleReductions("any")
    with pytest.raises(OptionError, match="accumulate='float64': use None or 'float32'"):
        tx.transform.CanonicalizeReductions(PERMITTED, accumulate="float64")


def test_half_state_needs_a_permission_of_its_own():
    func = softmax(5, 64, dtype="float16")
    result, reason = scheduled(func, METAL)
    assert result.same_as(func)
    assert reason == "reduction type: T_softmax_maxelem is float16 state"
    result, reason = scheduled(func, METAL, accumulate="float32")
    assert reason is None
    result, reason = scheduled(func, LLVM, accumulate="float32")
    (x, out) = arrays(func)
    found = ran(result, [x, out], "tilex").astype(np.float64)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(found - wide / wide.sum(1, keepdims=True)).max() < 2e-3


@pytest.mark.parametrize("name", ["max", "softmax"])
def test_the_exact_identity_replaces_the_largest_finite_number(name):
    """Part of the permission: a row of nothing but -inf has the maximum -inf."""
    func = reduced(topi.max, 2, 33) if name == "max" else softmax(2, 33)
    x, out = arrays(func)
    x[0] = -np.inf
    result, _ = scheduled(func, LLVM)
    found = ran(result, [x, out], "tilex")
    original = ran(func, [x, out], "default")
    if name == "max":
        assert found[0] == -np.inf and original[0] == np.finfo(np.float32).min
    else:
        assert np.isnan(found[0]).all() and np.isnan(original[0]).all()
    np.testing.assert_allclose(found[1], original[1], rtol=2e-5)


# What is left


def gather_rows():
    x, i = tensor(6, 8), tensor(6, dtype="int32", name="i")
    return function(x, i, topi.sum(topi.take(x, i, axis=0), axis=-1))


def two_row_counts():
    x = tensor(6, 8)
    return function(x, topi.sum(topi.sum(x, axis=-1), axis=-1))


@T.prim_func(s_tir=True)
def aliasing(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i, k in T.grid(6, 8):
        with T.sblock("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk]


@T.prim_func(s_tir=True)
def predicated(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k < 5)
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk]


@T.prim_func(s_tir=True)
def wrong_start(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(1)
            y[vi] = y[vi] + x[vi, vk]


@T.prim_func(s_tir=True)
def reversed_row(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, 7 - vk]


@T.prim_func(s_tir=True)
def reads_another_row(
    x: T.Buffer((6, 8), "float32"), s: T.Buffer((6,), "float32"), y: T.Buffer((6, 8), "float32")
):
    """The second nest reads the sum of the row before: rows are not independent."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + x[vi, vk]
    for i, j in T.grid(6, 8):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] / s[T.max(vi - 1, 0)]


@T.prim_func(s_tir=True)
def stores_another_row(
    x: T.Buffer((6, 8), "float32"), s: T.Buffer((6,), "float32"), y: T.Buffer((6, 8), "float32")
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + x[vi, vk]
    for i, j in T.grid(6, 8):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[5 - vi, vj] = x[vi, vj] / s[vi]


@T.prim_func(s_tir=True)
def multiplies(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i, k in T.grid(6, 8):
        with T.sblock("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(1)
            y[vi] = y[vi] * x[vi, vk]


@T.prim_func(s_tir=True)
def updates_its_input(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    """``before`` must not be computed after x has changed."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    with T.sblock("root"):
        before = T.sblock_alloc_buffer((6, 8))
        for i, j in T.grid(6, 8):
            with T.sblock("before"):
                vi, vj = T.axis.remap("SS", [i, j])
                before[vi, vj] = x[vi, vj]
        for i, j in T.grid(6, 8):
            with T.sblock("x"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = before[vi, vj] * T.float32(2)
        for i, k in T.grid(6, 8):
            with T.sblock("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + before[vi, vk]


@T.prim_func(s_tir=True)
def diagonal(x: T.Buffer((6, 6), "float32"), y: T.Buffer((6,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    with T.sblock("root"):
        d = T.sblock_alloc_buffer((6, 6))
        for i, j in T.grid(6, 6):
            with T.sblock("d"):
                vi, vj = T.axis.remap("SS", [i, j])
                d[vi, vi] = x[vi, vj]
        for i, k in T.grid(6, 6):
            with T.sblock("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi, vk] * d[vi, vi]


def symbolic(make, *shape):
    """A function whose extents given as text are symbolic; all are int64, as Relax's are."""
    known = {}
    extents = [
        known.setdefault(e, te.var(e, "int64"))
        if isinstance(e, str)
        else tvm.tirx.IntImm("int64", e)
        for e in shape
    ]
    x = te.placeholder(extents, name="x")
    return function(x, make(x))


def topi_weights(columns):
    extent = tvm.tirx.IntImm("int64", columns)
    return [topi.full([extent], "float32", value) for value in (1.0, 0.0)]


def last_softmax(x):
    return topi.nn.softmax(x, axis=-1)


def dense(rows):
    x, w = tensor(rows, 64), tensor(96, 64, name="w")
    return function(x, w, topi.nn.dense(x, w))


def applied(operation, *shape, dtype="float32"):
    x = tensor(*shape, dtype=dtype)
    return function(x, operation(x))


LEFT = {
    "elementwise": (applied(topi.nn.relu, 6, 8), "it has no reduction"),
    "argmax": (reduced(topi.argmax, 6, 8), "is not one store"),
    "middle axis": (reduced(topi.sum, 4, 6, 8, axis=1), "neither a whole row in its order nor"),
    "softmax, middle": (
        applied(lambda x: topi.nn.softmax(x, axis=1), 4, 6, 8),
        "are not the 32 rows",
    ),
    "matrix product": (dense(32), "neither a whole row in its order nor one vector"),
    "matrix-vector": (dense(1), "block T_matmul_NT is a matrix-vector product"),
    "gathered rows": (gather_rows(), "neither a whole row in its order nor"),
    "two row counts": (two_row_counts(), "reduces to 1 elements, x_red to 6"),
    "aliasing": (aliasing, "kernel ABI: arguments may alias"),
    "predicate": (predicated, "block y has a predicate"),
    "start": (wrong_start, "canonical state: block y starts from"),
    "reversed": (reversed_row, "neither a whole row in its order nor"),
    "reads another row": (reads_another_row, "block y reads s[T.max(program - 1, 0)], not proved"),
    "stores another row": (stores_another_row, "block y stores y[5 - program, j], not proved"),
    "updates its input": (updates_its_input, "reads x, which is stored later"),
    "diagonal": (diagonal, "block d does not store at its own loops"),
    "product": (multiplies, "reduction type: block y is not add, maximum or minimum"),
    "integers": (
        applied(lambda x: topi.sum(x, axis=-1), 6, 8, dtype="int32"),
        "reduction type: x_red is int32 state",
    ),
    "symbolic width": (
        symbolic(lambda x: topi.sum(x, axis=-1), 6, "n"),
        "the reduced extent n of block x_red is symbolic",
    ),
    "several symbols": (
        symbolic(last_softmax, "b", "t", 8),
        "its b * t rows depend on several symbolic extents",
    ),
}


@pytest.mark.parametrize("target", [LLVM, METAL], ids=["llvm", "metal"])
@pytest.mark.parametrize("name", LEFT)
def test_everything_else_is_left_with_a_reason(name, target):
    func, words = LEFT[name]
    result, reason = scheduled(func, target)
    assert result.same_as(func), "touched"
    assert words in reason, reason


# Rows that are counted at launch

DYNAMIC = {
    "softmax": symbolic(last_softmax, "n", 33),
    "softmax of four dimensions": symbolic(last_softmax, "n", 3, 4, 33),
    "rows inside": symbolic(last_softmax, 3, "n", 33),
    "layer_norm": symbolic(
        lambda x: topi.nn.layer_norm(x, *topi_weights(64), [2], 1e-5), "n", 5, 64
    ),
    "sum": symbolic(lambda x: topi.sum(x, axis=-1), "n", 33),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_rows_on_llvm(name):
    result, reason = scheduled(DYNAMIC[name], LLVM)
    assert reason is None
    built = tvm.compile(module(result), target=LLVM, tir_pipeline="tilex")
    original = tvm.compile(module(DYNAMIC[name]), target=LLVM)
    for rows in (0, 1, 7):
        values = [
            np.random.default_rng(rows)
            .standard_normal([int(getattr(e, "value", rows)) for e in p.ty.shape])
            .astype(np.float32)
            for p in result.params
        ]
        tensors = [[tvm.runtime.tensor(v) for v in values] for _ in range(2)]
        built["main"](*tensors[0])
        original["main"](*tensors[1])
        found, wanted = (t[-1].numpy() for t in tensors)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("target", [METAL, CUDA], ids=["metal", "cuda"])
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_rows_are_proved_and_planned(name, target):
    result, reason = scheduled(DYNAMIC[name], target)
    assert reason is None
    proof = ProofRecord.from_json(str(result.attrs[attrs.PROOF]))
    assert proof.admitted and all(row.verdict == "PROVEN" for row in proof.rows)
    ((symbol, span),) = result.attrs[attrs.DIMENSIONS].items()
    assert symbol == "n" and int(span[0]) == 0
    built = tvm.compile(module(result), target=target, tir_pipeline="tilex")
    assert "main_kernel" in str(built.mod.imports[0].inspect_source())


def test_a_scheduled_function_is_left():
    func = softmax(5, 127)
    result, _ = scheduled(func, METAL)
    again, reason = scheduled(result, METAL)
    assert again.same_as(result) and reason == "it is in canonical form already"
    marked = func.with_attr("tirx.is_scheduled", True)
    assert scheduled(marked, METAL)[1] == "it is scheduled already"


def test_a_target_without_simd_groups_is_left():
    func = softmax(5, 127)
    bare = tvm.target.Target("metal")
    result, reason = scheduled(func, bare)
    assert result.same_as(func) and "disable SIMD groups" in reason
    result, reason = scheduled(func, tvm.target.Target("opencl"))
    assert result.same_as(func) and reason == "target kind opencl has no SIMD-group realization"


def test_what_is_asked_for_exactly_and_does_not_fit_is_left():
    options = tx.CompileOptions(threads_per_group=2048)
    result, reason = scheduled(softmax(5, 127), METAL, options=options)
    assert "2048 threads exceed the target's 1024" in reason
    options = tx.CompileOptions(threads_per_group=64)
    result, reason = scheduled(softmax(5, 127), METAL, options=options)
    assert reason is None and '"threads": 64' in str(result.attrs[attrs.PLAN])


def test_rows_beyond_the_private_budget_are_read_again():
    result, reason = scheduled(softmax(2, 131072), METAL)
    assert reason is None
    assert '"stripe_scalars": 0' in str(result.attrs[attrs.PLAN])


def test_a_function_that_is_not_read_is_named():
    named = tx.lower(tx.kernels.softmax, (3, 8), (3, 8))["softmax"]
    _, reason = scheduled(named, METAL)
    assert reason == "it is in canonical form already"
    plain = named.without_attr(attrs.STAGE)
    _, reason = scheduled(plain, METAL)
    assert reason == "it has no root block"

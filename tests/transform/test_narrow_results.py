"""Where every result is rounded to 16 bits: the hardware's exponential, one product a quotient."""

import re

import cuda_on_cpu
import ml_dtypes
import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.work import instructions
from tvm_tilex.build.pipeline import before_planning
from tvm_tilex.tirx.compat import call, tirx, tvm
from tvm_tilex.tirx.register import EXP_APPROXIMATE, WIDEN, register
from tvm_tilex.transform import NarrowResults

VIEW = tx.TensorView
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


@tx.tile_kernel
def exponentials(x: VIEW[tx.float32, 2], out: VIEW[tx.floating, 2, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = x[origin, tx.shape(one, columns)]
        zero = tx.reduce(row * 0.0, columns, tx.minimum) * 0.0  # keeps the SIMD groups
        result = tx.where(zero == zero, tx.exp(row), tx.exp(row))
        out(origin, tx.shape(one, columns)).store(tx.cast(result, out.dtype))


@tx.tile_kernel
def two_results(
    x: VIEW[tx.float32, 2],
    out: VIEW[tx.floating, 2, tx.Out],
    total: VIEW[tx.float32, 1, tx.Out],
):
    """A rounded row and its sum in FP32."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = tx.exp(x[origin, tx.shape(one, columns)])
        sum_of = tx.reduce(row, columns, tx.add)
        total(tx.coord(nest.index()), tx.shape(one)).store(sum_of)
        out(origin, tx.shape(one, columns)).store(tx.cast(row / sum_of, out.dtype))


@tx.tile_kernel
def ordered(x: VIEW[tx.floating, 2], out: VIEW[tx.floating, 2, tx.Out]):
    """A softmax whose sum has an order."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = tx.exp(tx.cast(x[origin, tx.shape(one, columns)], tx.float32))
        total = tx.reduce(row, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
        out(origin, tx.shape(one, columns)).store(tx.cast(row / total, out.dtype))


@tx.tile_kernel
def quotients(
    x: VIEW[tx.float32, 2], divisor: VIEW[tx.float32, 1], out: VIEW[tx.floating, 2, tx.Out]
):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = x[origin, tx.shape(one, columns)]
        peak = tx.reduce(row, columns, tx.maximum) * 0.0
        by = divisor[tx.coord(nest.index()), tx.shape(one)] + peak
        out(origin, tx.shape(one, columns)).store(tx.cast(row / by, out.dtype))


def text(kernel, *specs, target="cuda"):
    artifact = tx.compile(kernel, *specs, target=target)
    return artifact.source[artifact.source.rindex("__global__") :]


def fast(kernel_text):
    return "tilex_exp_approximate(" in kernel_text


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "cross_entropy"])
@pytest.mark.parametrize(
    ("dtype", "narrow"), [("float16", True), ("bfloat16", True), ("float32", False)]
)
def test_what_is_stored_decides(name, dtype, narrow):
    entry = kernels.catalog()[name]
    specs = entry.specs(8, 512, dtype)
    only = {spec.dtype for spec, p in zip(specs, range(9), strict=False) if p in entry.outputs}
    found = text(entry.kernel, *specs)
    stored_narrow = narrow and {str(d) for d in only} <= {"float16", "bfloat16"}
    assert fast(found) == stored_narrow
    assert ("expf(" in found) == (not stored_narrow)


def test_one_wide_result_keeps_every_exponential():
    specs = tx.spec((8, 512)), tx.spec((8, 512), "bfloat16"), tx.spec((8,))
    found = text(two_results, *specs)
    assert not fast(found) and "expf(" in found
    assert "fmaf" in found or "__fmaf" in found or "fma(" in found  # the refined quotient


def test_an_ordered_reduction_keeps_every_exponential_and_quotient():
    specs = tx.spec((8, 512), "bfloat16"), tx.spec((8, 512), "bfloat16")
    artifact = tx.compile(ordered, *specs, target="cuda")
    assert artifact.requires_precise_math
    assert not fast(artifact.source) and "expf(" in artifact.source


@tx.tile_kernel
def partly_ordered(x: VIEW[tx.floating, 2], out: VIEW[tx.floating, 2, tx.Out]):
    """A sum in an order beside a maximum in any."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = tx.exp(tx.cast(x[origin, tx.shape(one, columns)], tx.float32))
        peak = tx.reduce(row, columns, tx.maximum)
        total = tx.reduce(row, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
        out(origin, tx.shape(one, columns)).store(tx.cast((row - peak) / total, out.dtype))


def test_an_ordered_reduction_in_a_mapped_kernel_does_too():
    options = tx.CompileOptions(shared_tile_materialization="recompute", threads_per_group=64)
    specs = tx.spec((8, 512), "bfloat16"), tx.spec((8, 512), "bfloat16")
    artifact = tx.compile(partly_ordered, *specs, target="cuda", options=options)
    assert artifact.plan is not None and artifact.requires_precise_math
    kernel = artifact.source[artifact.source.rindex("__global__") :]
    assert "expf(" in kernel and "reciprocal0_ptr" in kernel
    assert not fast(kernel) and not re.search(r"\) \* reciprocal0_ptr\[0\]\)\)", kernel)
    assert "fma" in kernel
    # The cost model is told of every element that the ordered sum reads, too.
    assert artifact.plan.rounds and facts_of(artifact).reads == 3 * 512


def facts_of(artifact):
    """What the planner was told of an artifact's function."""
    module = tvm.ir.transform.Sequential(before_planning(artifact.target))(artifact.tirx)
    (function,) = module.functions.values()
    return admit(function, lanes=32, kind="cuda").facts


def test_metal_keeps_its_own():
    entry = kernels.catalog()["softmax"]
    artifact = tx.compile(entry.kernel, *entry.specs(8, 512, "float16"), target="metal")
    assert "approximate" not in artifact.source


def test_the_pass_leaves_what_is_not_a_reference():
    entry = kernels.catalog()["softmax"]
    module = tx.lower(entry.kernel, *entry.specs(8, 64, "float16"))
    once = NarrowResults()(module)
    assert "tilex.exp_approximate" in once.script()
    tvm.ir.assert_structural_equal(NarrowResults()(once), once)
    scheduled = tvm.IRModule({"softmax": module["softmax"].with_attr("tilex.stage", "scheduled")})
    tvm.ir.assert_structural_equal(NarrowResults()(scheduled), scheduled)
    tvm.ir.assert_structural_equal(tvm.script.from_source(once.script()), once)


needs_compiler = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_exponential_at_the_ends(dtype, tmp_path):
    """-inf, inf, NaN, arguments that under- and overflow, and some between."""
    ends = [-np.inf, np.inf, np.nan, -3.4e38, -1e5, -104.0, -87.4, -87.0, 88.7, 89.0, 3.4e38]
    ends += [0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0]
    x = np.concatenate([ends, np.linspace(-30, 11, 256 - len(ends))]).astype("f")[None]
    out = np.empty(x.shape, NUMPY[dtype])
    specs = tx.spec(x.shape), tx.spec(x.shape, dtype)
    artifact = tx.compile(exponentials, *specs, target="cuda")
    assert fast(artifact.source)
    cuda_on_cpu.run(artifact, [x, out], tmp_path)
    with np.errstate(all="ignore"):
        wide = np.exp(x.astype("d"))
        want = wide.astype("f").astype(NUMPY[dtype])
    found = out.astype("d")
    assert np.array_equal(np.isnan(found), np.isnan(x))
    assert found[0, 0] == 0 and found[0, 1] == np.inf
    assert (found[x < -104] == 0).all() and (found[x > 89] == np.inf).all()
    # What is not rounded to the nearest number is rounded to its neighbour.
    normal = (wide >= 2.0**-126) & np.isfinite(want.astype("d"))
    bits = [array.view(np.int16).astype(int)[normal] for array in (out, want)]
    assert np.abs(bits[0] - bits[1]).max() <= 1


DIVISORS = [2.0**-149, 2.0**-127, 2.0**-101, 2.0**-99, 3.0, 2.0**99, 2.0**101, 3e38, -2.5, np.inf]


@needs_compiler
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_divisor_beyond_the_middle_goes_the_exact_way(dtype, tmp_path):
    divisor = np.array([*DIVISORS, 0.0, np.nan], "f")
    x = np.random.default_rng(0).standard_normal((len(divisor), 128)).astype("f")
    x *= np.where(np.abs(divisor) < 1, 1e-38, 1.0).astype("f")[:, None]
    out = np.empty(x.shape, NUMPY[dtype])
    specs = tx.spec(x.shape), tx.spec(divisor.shape), tx.spec(x.shape, dtype)
    artifact = tx.compile(quotients, *specs, target="cuda")
    cuda_on_cpu.run(artifact, [x, divisor, out], tmp_path)
    with np.errstate(all="ignore"):
        want = (x / divisor[:, None]).astype(NUMPY[dtype])
    kind = np.uint16 if dtype == "bfloat16" else np.uint32
    middle = (divisor > 2.0**-100) & (divisor < 2.0**100)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(out), nan)
    same = (out.view(kind) == want.view(kind)) | nan
    assert same[~middle].all()
    if dtype == "float32":  # correctly rounded in the middle too
        assert same.all()
        return
    near = np.abs(out.view(np.int16).astype(int) - want.view(np.int16).astype(int))
    assert near[middle].max() <= 1  # one and a half units of FP32 on the way
    kernel = artifact.source[artifact.source.rindex("__global__") :]
    assert re.search(r"\* reciprocal0_ptr\[0\]", kernel) and "fma" not in kernel


# What the cost model is told of such arithmetic.


def test_instructions_of_an_element():
    register()
    x, y = (tirx.Var(name, "float32") for name in "xy")
    exact = instructions(tirx.exp(x - y))
    approximate = instructions(call(EXP_APPROXIMATE, x - y, dtype="float32"))
    assert 1 < approximate < exact
    assert instructions(x) == 0
    assert instructions(x + y) == instructions(tirx.max(x, y)) == 1
    assert instructions(x / y) > instructions(x * y)
    assert instructions(call(WIDEN, tirx.Var("h", "float16"), dtype="float32")) == 1
    i = tirx.Var("i", "int32")
    assert instructions(i * 4 + 3) == 0  # index arithmetic

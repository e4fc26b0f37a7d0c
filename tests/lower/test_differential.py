"""Random programs, lowered in both sharing modes and compiled by LLVM, against the interpreter."""

import numpy as np
import pytest
from compiled_programs import (
    BOTH_MODES,
    assert_equal,
    captured,
    compiled,
    one_after_the_other,
    order_float_sums,
    outputs_of,
)
from hypothesis import HealthCheck, Phase, assume, given, settings
from random_programs import inputs_for, programs

import tvm_tilex as tx
from tvm_tilex.ir import Binding, ElementOp, Elementwise, Parallel, ReductionPolicy
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.types import numpy_dtype
from tvm_tilex.ir.walk import walk
from tvm_tilex.lowering import SharedTileMaterialization

VIEW = tx.TensorView

RELAXED = {
    "deadline": None,
    "derandomize": True,
    # A counterexample prints in full; making it smaller would compile for minutes.
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
# An explicit SIMD-group request is refused on LLVM.
AUTO = (Binding.auto,)
ORDERED = tuple(policy for policy in ReductionPolicy if policy.ordered)


def check(program, modes=BOTH_MODES, **options):
    for mode in modes:
        function = compiled(program, mode, **options)
        for special in (False, True):
            inputs = inputs_for(program, seed=7, special=special)
            assert_equal(program, inputs, outputs_of(program, function, inputs), mode)


@settings(max_examples=30, **RELAXED)
@given(programs(bindings=AUTO, transcendental=False))
def test_exact_operations_equal_the_interpreter(program):
    """Every element type, bounds policy, gather and nest; NaN and infinities among the inputs."""
    check(order_float_sums(captured(program)))


@settings(max_examples=12, **RELAXED)
@given(
    programs(
        bindings=AUTO,
        transcendental=False,
        dtypes=("float32", "bfloat16", "float16"),
        policies=ORDERED,
    )
)
def test_ordered_reductions_equal_the_interpreter_bit_for_bit(program):
    check(captured(program))


@settings(max_examples=8, **RELAXED)
@given(
    programs(bindings=AUTO, transcendental=False, max_definitions=5),
    programs(bindings=AUTO, transcendental=False, max_definitions=5),
)
def test_several_root_nests(first, second):
    program = one_after_the_other(captured(first), captured(second))
    assert sum(isinstance(statement, Parallel) for statement in program.body) == 2
    check(order_float_sums(program))


@settings(max_examples=12, **RELAXED)
@given(programs(bindings=AUTO, transcendental=False, max_definitions=6))
def test_without_the_aliasing_promise(program):
    """Every load is then a snapshot; on arrays that don't overlap nothing changes."""
    program = order_float_sums(captured(program))
    check(program, [SharedTileMaterialization.EXPENSIVE_ONLY], noalias=False)


DISCONTINUOUS = (
    *(op for op in ElementOp if op.value in ("floor", "ceil", "cast", "where")),
    *(op for op in ElementOp if op.op_class.value in ("compare", "logical")),
)


@settings(max_examples=12, **RELAXED)
@given(programs(bindings=AUTO, dtypes=("float32",), max_definitions=6))
def test_transcendental_operations_stay_within_the_conditioning(program):
    """The allowed error is what inputs moved by an ulp do to the interpreter's own result."""
    program = captured(program)
    operators = [s.op for s in walk(program.body) if isinstance(s, Elementwise)]
    assume(any(op.transcendental for op in operators))
    assume(not any(op in DISCONTINUOUS for op in operators))
    inputs = inputs_for(program, seed=11)
    exact = interpret(program, inputs, precision="float64")
    allowed = [spread(parts) for parts in zip(exact, *moved(program, inputs), strict=True)]
    for mode in BOTH_MODES:
        got = outputs_of(program, compiled(program, mode), inputs)
        for found, wanted, slack in zip(got, exact, allowed, strict=True):
            settled = np.isfinite(slack) & np.isfinite(wanted) & (np.abs(wanted) < 1e37)
            error = np.abs(found[settled].astype(np.float64) - wanted[settled])
            bound = 64 * slack[settled] + 1e-5 * np.abs(wanted[settled]) + 1e-6
            assert (error <= bound).all(), f"{mode}\n{program}\n{wanted}\n{found}"


def moved(program, inputs):
    """The interpreter's results for inputs that differ in the last place, and in other orders."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        near = {
            name: np.nextafter(a, rng.choice([-np.inf, np.inf], a.shape).astype(a.dtype))
            for name, a in inputs.items()
        }
        yield interpret(program, near, seed=seed)


def spread(results):
    stack = np.stack([np.asarray(result, np.float64) for result in results])
    with np.errstate(invalid="ignore"):
        return stack.max(0) - stack.min(0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_operation_on_16_bits_rounds(dtype):
    """``(a + b) - a`` keeps the rounding of the sum; TVM's own legalization drops it."""

    @tx.tile_kernel
    def lost(x: VIEW[dtype, 1], y: VIEW[dtype, 1], out: VIEW[dtype, 1, tx.Out]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            a, b = x[tx.coord(0), tx.shape(n)], y[tx.coord(0), tx.shape(n)]
            out(tx.coord(0), tx.shape(n)).store((a + b) - a)

    storage = numpy_dtype(tx.float16 if dtype == "float16" else tx.bfloat16)
    x = (np.arange(37) + 1).astype(storage)
    y = np.full(37, 1 / 3).astype(storage)
    out = np.zeros_like(x)
    tx.compile(lost, x, y, out)(x, y, out)
    single = (x.astype(np.float32) + y.astype(np.float32)).astype(storage).astype(np.float32)
    want = (single - x.astype(np.float32)).astype(storage)
    np.testing.assert_array_equal(out.view(np.uint16), want.view(np.uint16))
    assert (want != y).any()


# Found by scripts/fuzz_lowering.py. A guard that TVM proves false only while it lowers operators
# turns a load into a constant, which its analyzer then substituted for a bound variable; and
# TVM's bounds take casts for ones that never wrap, so that the guard of a gather was folded away.
FOUND = """
kernel found(v0: in bfloat16[5, 2, 2, 4] zero, v1: out bfloat16[3, 1, 2] assume) {
  parallel n0(p0: 3) {
    %0: bfloat16[a: 2, one: 1, columns: 2] = load v0[n0.0 % 3, 0, n0.0 + -1, 1](a: 2, one: 1, _, columns: 2) zero
    %1: bfloat16[a: 2, one: 1, columns: 2] = fma %0, %0, bfloat16(-0.0)
    %2: bfloat16[a: 2, one: 1, columns: 2] = subtract %1, %1
    %3: bfloat16[a: 2, one: 1] = reduce minimum %2 over columns propagate
    store v1[n0.0, 0, 0](_, one: 1, a: 2) = %3 assume
  }
}
kernel found(v0: in bfloat16[6, 1, 4, 3] zero, v1: out bfloat16[1, 3, 1], v2: out bfloat16[1, 3, 3, 1]) {
  parallel n0(p0: 1, p1: 3) {
    %0: bfloat16[one: 3, a: 1] = load v0[n0.0 + 3, (n0.0 // 2) + -2, n0.1 + 2, (n0.0 % 2) + -2](_, _, one: 3, a: 1) zero
    %1: bfloat16[one: 3, a: 1] = maximum %0, %0
    %2: bfloat16[one: 3, a: 1] = maximum bfloat16(-1.5), %0
    %3: bfloat16[a: 1] = reduce add %1 over one fold_right
    store v1[n0.0, n0.1, 0](_, _, a: 1) = %3
    store v2[n0.0, n0.1, 0, 0](_, _, one: 3, a: 1) = %2
  }
}
kernel found(v0: in uint8[4, 4], v1: out uint8[2, 4, 4]) {
  parallel n0(p0: 2) {
    %0: uint8[o: 4, a: 4] = load v0[0, 0](o: 4, a: 4)
    %1: uint8[o: 4] = reduce minimum %0 over a fold_left
    %2: uint8[o: 4, a: 4] = subtract uint8(1), %0
    %3: uint8[o: 4, a: 4] = gather %1 over o at %2 fill 5
    store v1[n0.0, 0, 0](_, o: 4, a: 4) = %3
  }
}
kernel found(v0: in uint8[6], v1: in int32[4], v2: out int32[6]) {
  parallel n0() {
    %0: uint8[a: 6] = load v0[0](a: 6)
    %1: int64[a: 6] = cast %0
    %2: int64[a: 6] = multiply %1, int64(1073741824)
    %3: int32[a: 6] = cast %2
    %4: int32[o: 4] = load v1[0](o: 4)
    %5: int32[a: 6] = gather %4 over o at %3 fill 9
    store v2[0](a: 6) = %5
  }
}
"""  # noqa: E501


@pytest.mark.parametrize("text", FOUND.split("kernel ")[1:])
def test_counterexamples_of_earlier_runs(text):
    check(parse_program("kernel " + text))

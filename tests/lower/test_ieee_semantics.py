"""Comparisons, zeros and cancellations keep IEEE semantics; TVM simplifies floats like reals."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.ir.interp import interpret

VIEW = tx.TensorView
F32 = tx.float32

SPECIAL = [np.nan, 0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 0.5, -1.5, 3e38]
# Each gives a bool tile of two float tiles; TVM 0.27 folds or miscompiles most of them.
PREDICATES = {
    "equal to itself": lambda v, w: v == v,
    "unequal to itself": lambda v, w: v != v,
    "unequal": lambda v, w: v != w,
    "not less": lambda v, w: ~(v < w),
    "not less or equal": lambda v, w: ~(v <= w),
    "not greater": lambda v, w: ~(v > w),
    "not greater or equal": lambda v, w: ~(v >= w),
    "not equal": lambda v, w: ~(v == w),
    "not unequal": lambda v, w: ~(v != w),
    "less and greater": lambda v, w: ~((v < w) & (v > w)),
    "less or greater": lambda v, w: ~((v < w) | (v > w)),
    "less or not": lambda v, w: (v < w) | (v >= w),
    "less xor not": lambda v, w: (v < w) ^ (v >= w),
    "less equals not": lambda v, w: (v < w) == (v >= w),
    "as bool": lambda v, w: tx.cast(v, "bool"),
    "not as bool": lambda v, w: ~tx.cast(v, "bool"),
    "difference with itself": lambda v, w: (v - v) == 0.0,
    "times zero": lambda v, w: (v * 0.0) == 0.0,
    "zero divided": lambda v, w: (0.0 / v) == 0.0,
    "by itself": lambda v, w: (v / v) == 1.0,
    "by zero": lambda v, w: (v / 0.0) < 0.0,
    "by minus zero": lambda v, w: (v / -0.0) < 0.0,
    "cancelled": lambda v, w: ((v + w) - w) == v,
    "lost": lambda v, w: ((v - w) + w) == v,
    "maximum": lambda v, w: tx.maximum(v, w) == w,
    "minimum": lambda v, w: tx.minimum(v, w) == v,
    "selected": lambda v, w: tx.where(v < w, v, w) < w,
    "selected otherwise": lambda v, w: tx.where(~(v < w), v, w) < w,
    "sum below": lambda v, w: (v + w) < w,
    "shifted": lambda v, w: (v + 1.0) < (w + 1.0),
    "difference below": lambda v, w: (v - w) < 0.0,
    "sign of zero": lambda v, w: (1.0 / v) < 0.0,
    "plus zero": lambda v, w: (1.0 / (v + 0.0)) < 0.0,
    "minus zero": lambda v, w: (1.0 / (v - 0.0)) < 0.0,
    "minus minus zero": lambda v, w: (1.0 / (v - -0.0)) < 0.0,
    "zero minus": lambda v, w: (1.0 / (0.0 - v)) < 0.0,
    "negated": lambda v, w: (1.0 / (-v)) < 0.0,
    "times one": lambda v, w: (1.0 / (v * 1.0)) < 0.0,
    "times minus zero": lambda v, w: (1.0 / (v * -0.0)) < 0.0,
    "absolute": lambda v, w: (1.0 / tx.abs(v)) < 0.0,
    "floor": lambda v, w: (1.0 / tx.floor(v)) < 0.0,
    "ceil": lambda v, w: (1.0 / tx.ceil(v)) < 0.0,
    "root": lambda v, w: tx.sqrt(v) == tx.sqrt(v),
    "fused": lambda v, w: tx.fma(v, w, v) == v,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_predicates_of_special_values(dtype):
    view = VIEW[dtype, 1]

    @tx.tile_kernel
    def predicates(x: view, y: view, out: VIEW[tx.boolean, 2, tx.Out]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            v, w = x[tx.coord(0), tx.shape(n)], y[tx.coord(0), tx.shape(n)]
            for row, predicate in enumerate(PREDICATES.values()):
                out(tx.coord(row, 0), tx.shape(1, n)).store(predicate(v, w))

    storage = tx.ir.types.numpy_dtype(tx.ir.types.dtype_of(dtype))
    with np.errstate(over="ignore"):
        x = np.repeat(SPECIAL, len(SPECIAL)).astype(storage)
        y = np.tile(SPECIAL, len(SPECIAL)).astype(storage)
    out = np.zeros((len(PREDICATES), len(x)), bool)
    artifact = tx.compile(predicates, x, y, out)
    artifact(x, y, out)
    (want,) = interpret(artifact.tile_ir, [x, y])
    wrong = [name for name, a, b in zip(PREDICATES, out, want, strict=True) if (a != b).any()]
    assert not wrong


def test_the_interpreter_agrees_with_numpy_on_the_traps():
    """So that both sides of the comparison above are not wrong together."""
    v = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        assert not (v - v == 0)[0] and not (v * 0 == 0)[5] and (~(v < v))[0]


def test_compensated_summation_is_not_simplified_away():
    """The error term of a two-sum is what ``(x + y) - y -> x`` would make zero."""

    @tx.tile_kernel
    def two_sum(
        a: VIEW[F32, 1],
        b: VIEW[F32, 1],
        error: VIEW[F32, 1, tx.Out],
    ):
        n = tx.axis("n", a.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            x, y = a[tx.coord(0), tx.shape(n)], b[tx.coord(0), tx.shape(n)]
            total = x + y
            back = total - x
            error(tx.coord(0), tx.shape(n)).store((x - (total - back)) + (y - back))

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(64, np.float32), 1e-4 * rng.standard_normal(64, np.float32)
    error = np.zeros(64, np.float32)
    tx.compile(two_sum, a, b, error)(a, b, error)
    total = a + b
    exact = (a.astype(np.float64) + b.astype(np.float64)) - total.astype(np.float64)
    np.testing.assert_array_equal(error, exact.astype(np.float32))
    assert (error != 0).mean() > 0.9


@pytest.mark.parametrize("value", [3e38, 65504.0, 1e-45, -0.0, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_literals_round_to_their_type(value, dtype):
    """A gather's fill and a stored constant, in storage of 16 bits and of 32."""
    from compiled_programs import compiled, outputs_of

    from tvm_tilex.ir.parse import parse_program

    program = parse_program(
        f"kernel fills(v0: out {dtype}[2, 5]) {{\n"
        "  parallel n0(p0: 2) {\n"
        f"    store v0[n0.0, 0](_, a: 5) = {dtype}({value!r})\n"
        "  }\n}\n"
    )
    (got,) = outputs_of(program, compiled(program), {})
    (want,) = interpret(program, [])
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))

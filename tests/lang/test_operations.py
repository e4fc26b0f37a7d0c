"""Elementwise operators, literals, casts, comparison, gather and policies against NumPy.

Where both compute in the same precision and the operation is exact (selection, comparison,
integer arithmetic, one correctly rounded operation) results must be equal bit for bit.
"""

import math

import numpy as np
import pytest

import tvm_tilex as tx

VIEW = tx.TensorView
F32 = tx.float32


def elementwise(function, arity=1, dtype="float32", result=None):
    """A kernel that applies ``function`` to vectors x (and y, z)."""

    def body(*views):
        *inputs, out = views
        n = tx.axis("n", out.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            tiles = [view[tx.coord(0), tx.shape(n)] for view in inputs]
            out(tx.coord(0), tx.shape(n)).store(function(*tiles))

    if arity == 1:

        def kernel(x, out):
            body(x, out)
    elif arity == 2:

        def kernel(x, y, out):
            body(x, y, out)
    else:

        def kernel(x, y, z, out):
            body(x, y, z, out)

    names = ("x", "y", "z")[:arity]
    kernel.__annotations__ = {name: VIEW[dtype, 1] for name in names}
    kernel.__annotations__["out"] = VIEW[result or dtype, 1, tx.Out]
    return tx.tile_kernel(kernel)


SPREAD = np.concatenate(
    [np.linspace(-9, 9, 61), [0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.logspace(-6, 6, 25)]
).astype(np.float32)
POSITIVE = np.abs(SPREAD) + np.float32(1e-3)
SMALL = np.clip(SPREAD, -9, 9)


@pytest.mark.parametrize(
    ("function", "reference", "x", "rtol"),
    [
        (tx.exp, np.exp, SMALL, 1e-6),
        (tx.exp2, np.exp2, SMALL, 1e-6),
        (tx.log, np.log, POSITIVE, 1e-6),
        (tx.log2, np.log2, POSITIVE, 1e-6),
        (tx.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE, 1e-6),
        (tx.tanh, np.tanh, SMALL, 2e-6),
        (tx.sigmoid, lambda x: 1 / (1 + np.exp(-x)), SMALL, 2e-6),
        (tx.erf, np.vectorize(math.erf), SMALL, 2e-6),
        (lambda x: tx.pow(x, 1.5), lambda x: x**1.5, POSITIVE, 2e-6),
        (lambda x: x**2, lambda x: x**2, SPREAD, 1e-6),
        (lambda x: 2.0**x, lambda x: 2.0**x, SMALL, 1e-6),
    ],
    ids=[
        "exp", "exp2", "log", "log2", "rsqrt", "tanh", "sigmoid", "erf", "pow", "square", "rpow"
    ],
)  # fmt: skip
def test_transcendental(execute, function, reference, x, rtol):
    out = np.full_like(x, np.nan)
    execute(elementwise(function), [x, out])
    np.testing.assert_allclose(out, reference(x.astype(np.float64)), rtol=rtol, atol=1e-7)


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (tx.sqrt, lambda x: np.sqrt(x)),
        (tx.floor, np.floor),
        (tx.ceil, np.ceil),
        (tx.abs, np.abs),
        (abs, np.abs),
        (lambda x: -x, np.negative),
        (lambda x: +x, np.positive),
        (lambda x: x + 0.1, lambda x: x + np.float32(0.1)),
        (lambda x: 3 - x, lambda x: np.float32(3) - x),
        (lambda x: x * np.float32(0.3), lambda x: x * np.float32(0.3)),
        (lambda x: np.float32(0.3) / x, lambda x: np.float32(0.3) / x),
        (lambda x: x / 7, lambda x: x / np.float32(7)),
        (lambda x: tx.maximum(x, 1.0), lambda x: np.maximum(x, np.float32(1))),
        (lambda x: tx.minimum(1.0, x), lambda x: np.minimum(x, np.float32(1))),
        (lambda x: tx.where(x > 1.0, x, -1.0), lambda x: np.where(x > 1, x, np.float32(-1))),
        (lambda x: tx.where(x == math.inf, 0.0, x), lambda x: x),
        (lambda x: tx.cast(tx.cast(x, "float16"), F32), lambda x: x.astype("f2").astype("f4")),
    ],
)
def test_exact(execute, function, reference):
    x, out = POSITIVE, np.full_like(POSITIVE, np.nan)
    execute(elementwise(function), [x, out])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, reference(x))


@pytest.mark.parametrize("operator", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_comparison(execute, operator, dtype):
    x, y = np.array([1, 2, 3, 3, 7], dtype), np.array([2, 2, 1, 3, 6], dtype)
    out = np.zeros(5, bool)
    execute(elementwise(lambda a, b: getattr(a, operator)(b), 2, dtype, "bool"), [x, y, out])
    np.testing.assert_array_equal(out, getattr(x, operator)(y))


def test_comparison_with_nan(execute):
    x = np.array([np.nan, 1, np.nan, -np.inf], np.float32)
    y = np.array([np.nan, np.nan, 1, np.nan], np.float32)
    for operator in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        out = np.zeros(4, bool)
        kernel = elementwise(lambda a, b, o=operator: getattr(a, o)(b), 2, "float32", "bool")
        execute(kernel, [x, y, out])
        np.testing.assert_array_equal(out, [operator == "__ne__"] * 4, err_msg=operator)


def test_maximum_and_minimum_propagate_nan_from_either_side(execute):
    x, y = np.array([np.nan, 1, np.nan], np.float32), np.array([1, np.nan, np.nan], np.float32)
    for function in (tx.maximum, tx.minimum):
        out = np.zeros(3, np.float32)
        execute(elementwise(function, 2), [x, y, out])
        assert np.isnan(out).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_division_rounds_down(execute, dtype):
    x = np.array([-7, -6, -1, 0, 1, 6, 7], dtype)
    y = np.array([3, -3, 3, 5, -2, 2, -3], dtype)
    out = np.zeros_like(x)
    execute(elementwise(lambda a, b: (a // b) * 100 + a % b, 2, dtype), [x, y, out])
    np.testing.assert_array_equal(out, (x // y) * 100 + x % y)


def test_bit_operations(execute):
    x, y = np.array([0b1100, 255, 0], np.uint8), np.array([0b1010, 1, 0], np.uint8)
    out = np.zeros_like(x)
    execute(elementwise(lambda a, b: (a & b) | ~(a ^ b), 2, "uint8"), [x, y, out])
    np.testing.assert_array_equal(out, (x & y) | ~(x ^ y))


def test_masks_combine_without_python_keywords(execute):
    x, out = SPREAD, np.zeros_like(SPREAD)
    kernel = elementwise(lambda v: tx.where((v > -1) & ~((v > 0.5) | (v == 0)), 1.0, 0.0))
    execute(kernel, [x, out])
    np.testing.assert_array_equal(out, ((x > -1) & ~((x > 0.5) | (x == 0))).astype(np.float32))


def test_fma_rounds_once(execute):
    x = np.array([1 + 2**-12], np.float32)
    z = -np.array([1 + 2**-11], np.float32)
    fused, separate = np.zeros(1, np.float32), np.zeros(1, np.float32)
    execute(elementwise(tx.fma, 3), [x, x, z, fused])
    assert fused[0] == 2.0**-24
    np.add(x * x, z, out=separate)
    assert separate[0] == 0.0  # what two roundings give


@pytest.mark.parametrize(
    ("source", "target", "values"),
    [
        ("float32", "int32", [0.0, 1.9, -1.9, 1e6]),
        ("float32", "bool", [0.0, 1.0, -0.5, 2.0]),
        ("int64", "float32", [0, -3, 2**24 + 1, 7]),
        ("int64", "int32", [0, -3, 2**31 - 1, -(2**31)]),
        ("uint8", "float32", [0, 255, 128, 1]),
        ("bool", "float32", [True, False, True, True]),
        ("bool", "int64", [True, False, True, True]),
        ("float32", "float16", [1.0, 1 + 2**-11, 65519.0, 2**-25]),
    ],
)
def test_cast(execute, source, target, values):
    x, out = np.array(values, source), np.zeros(4, target)
    execute(elementwise(lambda v: tx.cast(v, target), 1, source, target), [x, out])
    np.testing.assert_array_equal(out, x.astype(target))


def test_a_cast_to_the_same_type_is_the_tile_itself():
    seen = []
    kernel = elementwise(lambda v: seen.append((v, tx.cast(v, "float32"))) or v)
    kernel.capture([tx.spec((4,))] * 2)
    assert seen[0][0] is seen[0][1]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("fill", [0, -7.5])
def test_gather_is_guarded(execute, dtype, fill):
    @tx.tile_kernel
    def take(x: VIEW[F32, 2], index: VIEW[(tx.int32, tx.int64), 2], out: VIEW[F32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        picks = tx.axis("picks", index.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0)
            row, at = x[origin, tx.shape(1, columns)], index[origin, tx.shape(1, picks)]
            out(origin, tx.shape(1, picks)).store(tx.gather(row, at, columns, fill=fill))

    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    extremes = np.iinfo(dtype)
    index = np.array(
        [[0, 3, 4, -1, 1], [extremes.max, extremes.min, 2, 2, 0], [-100, 1, 3, 2, 5]], dtype
    )
    out = np.full(index.shape, np.nan, np.float32)
    execute(take, [x, index, out])
    inside = (index >= 0) & (index < 4)
    picked = np.take_along_axis(x, np.where(inside, index, 0).astype(np.int64), axis=1)
    np.testing.assert_array_equal(out, np.where(inside, picked, np.float32(fill)))


@pytest.mark.parametrize("op", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_reductions_of_every_type(execute, op, dtype):
    def row_reduce(x, out):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            value = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            out(tx.coord(nest.index()), tx.shape(1)).store(tx.reduce(value, columns, op))

    row_reduce.__annotations__ = {"x": VIEW[dtype, 2], "out": VIEW[dtype, 1, tx.Out]}
    x = -1 - (np.arange(3 * 37).reshape(3, 37) * 7 % 29).astype(dtype)  # all negative
    out = np.zeros(3, dtype)
    execute(tx.tile_kernel(row_reduce), [x, out])
    wide = x.astype(np.float64 if "float" in dtype else np.int64)
    expected = {"add": wide.sum(1), "maximum": wide.max(1), "minimum": wide.min(1)}[op]
    np.testing.assert_array_equal(out, expected.astype(dtype))


def test_uint8_maximum_and_its_identity(execute):
    @tx.tile_kernel
    def extremes(
        x: VIEW[tx.uint8, 1], low: VIEW[tx.uint8, 1, tx.Out], high: VIEW[tx.uint8, 1, tx.Out]
    ):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            tile = x[tx.coord(0), tx.shape(n)]
            low(tx.coord(0), tx.shape(1)).store(tx.reduce(tile, n, tx.minimum))
            high(tx.coord(0), tx.shape(1)).store(tx.reduce(tile, n, tx.maximum))

    for values in ([0, 0], [255, 255], [200, 100, 3]):
        x = np.array(values, np.uint8)
        low, high = np.array([77], np.uint8), np.array([77], np.uint8)
        execute(extremes, [x, low, high])
        assert (low[0], high[0]) == (min(values), max(values))

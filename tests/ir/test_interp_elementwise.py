"""Elementwise operators of the interpreter against direct formulas, with special values."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tvm_tilex.ir import ElementOp
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program

BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float16, BF16]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.7, 1e-3, 12.0, math.inf, -math.inf, math.nan]


def elementwise(op, *operands, result=None, precision="float32"):
    """Run one operator over arrays of one length, through a whole program."""
    operands = [np.asarray(operand) for operand in operands]
    length = len(operands[0])
    result = np.dtype(result or operands[-1].dtype).name
    views = ", ".join(f"x{n}: in {x.dtype.name}[{length}]" for n, x in enumerate(operands))
    loads = "".join(
        f"  %{n}: {x.dtype.name}[a: {length}] = load x{n}[0](a: {length})\n"
        for n, x in enumerate(operands)
    )
    names = ", ".join(f"%{n}" for n in range(len(operands)))
    program = parse_program(
        f"kernel k({views}, y: out {result}[{length}]) {{\n{loads}"
        f"  %99: {result}[a: {length}] = {op} {names}\n  store y[0](a: {length}) = %99\n}}\n"
    )
    (y,) = interpret(program, operands, precision=precision)
    return y


def assert_bits(actual, expected):
    """Same type and bits, any NaN being equal to any NaN."""
    expected = np.asarray(expected)
    assert actual.dtype == expected.dtype
    unsigned = f"u{actual.dtype.itemsize}"
    same = actual.view(unsigned) == expected.view(unsigned)
    both_nan = np.isnan(actual.astype(float)) & np.isnan(expected.astype(float))
    assert (same | both_nan).all(), (actual, expected)


REFERENCE = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "floor": np.floor,
    "ceil": np.ceil,
    "absolute": np.abs,
    "negative": np.negative,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("op", REFERENCE)
def test_float_operators_round_the_formula_once_per_type(op, dtype):
    pairs = itertools.product(SPECIAL, repeat=ElementOp(op).arity)
    operands = [np.array(column).astype(dtype) for column in zip(*pairs, strict=True)]
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCE[op](*(x.astype(np.float64) for x in operands)))
        expected = exact.astype(np.float32).astype(dtype)
    assert_bits(elementwise(op, *operands), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_maximum_and_minimum_propagate_nan_from_either_side(dtype):
    x, y = np.array([np.nan, 1, np.nan], dtype), np.array([1, np.nan, np.inf], dtype)
    assert np.isnan(elementwise("maximum", x, y).astype(float)).all()
    assert np.isnan(elementwise("minimum", x, y).astype(float)).all()


def test_sigmoid_does_not_overflow():
    x = np.array([-1000.0, -103.0, -88.0, 88.0, 1000.0], np.float32)
    y = elementwise("sigmoid", x)
    assert y[0] == 0.0 and y[4] == 1.0 and 0 < y[1] < 1e-44
    exact = elementwise("sigmoid", np.array([-745.0], np.float32), precision="float64")
    assert exact[0] == math.exp(-745)


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("equal", [False, True, False, False]),
        ("not_equal", [True, False, True, True]),
        ("less", [True, False, False, False]),
        ("less_equal", [True, True, False, False]),
        ("greater", [False, False, False, True]),
        ("greater_equal", [False, True, False, True]),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_comparisons_with_nan_and_signed_zero(op, values, dtype):
    x, y = np.array([1, 0.0, np.nan, 3], dtype), np.array([2, -0.0, np.nan, 2], dtype)
    assert elementwise(op, x, y, result=bool).tolist() == values


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_floor_division_rounds_toward_minus_infinity(dtype):
    x, y = np.array([7, -7, 7, -7, 6], dtype), np.array([2, 2, -2, -2, 3], dtype)
    assert elementwise("floor_divide", x, y).tolist() == [3, -4, -4, 3, 2]
    assert elementwise("floor_modulo", x, y).tolist() == [1, 1, -1, -1, 0]


@pytest.mark.parametrize(
    ("dtype", "op", "x", "y", "value"),
    [
        (np.int32, "add", 2**31 - 1, 1, -(2**31)),
        (np.int64, "multiply", 2**62, 2, -(2**63)),
        (np.int32, "subtract", -(2**31), 1, 2**31 - 1),
        (np.uint8, "add", 250, 10, 4),
        (np.uint8, "subtract", 1, 2, 255),
    ],
)
def test_integers_wrap(dtype, op, x, y, value):
    assert elementwise(op, np.array([x], dtype), np.array([y], dtype)).tolist() == [value]


def test_negating_and_taking_the_absolute_value_of_the_least_integer_wrap():
    least = np.array([-(2**31)], np.int32)
    assert elementwise("negative", least).tolist() == [-(2**31)]
    assert elementwise("absolute", least).tolist() == [-(2**31)]
    assert elementwise("negative", np.array([1], np.uint8)).tolist() == [255]


def test_bitwise_operators():
    x, y = np.array([12, -1], np.int32), np.array([10, 7], np.int32)
    assert elementwise("bitwise_and", x, y).tolist() == [8, 7]
    assert elementwise("bitwise_or", x, y).tolist() == [14, -1]
    assert elementwise("bitwise_xor", x, y).tolist() == [6, -8]
    assert elementwise("invert", x).tolist() == [-13, 0]
    flags = np.array([True, False])
    assert elementwise("invert", flags).tolist() == [False, True]
    assert elementwise("bitwise_xor", flags, flags).tolist() == [False, False]


@pytest.mark.parametrize("dtype", [*FLOATS, np.int64, bool], ids=lambda d: np.dtype(d).name)
def test_where(dtype):
    x, y = np.array([1, 0, 1], dtype), np.array([0, 1, 1], dtype)
    y0 = elementwise("where", np.array([True, False, True]), x, y)
    assert y0.dtype == dtype and y0.astype(int).tolist() == [1, 1, 1]


def _round_to_float32(exact: Fraction) -> float:
    """Round to nearest even among float32, from the definition (normal range)."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(
        around, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1)
    ).item()


def test_fma_rounds_once():
    rng = np.random.default_rng(0)
    a, b, scale = rng.standard_normal((3, 2000)).astype(np.float32)
    c = (-a * b).astype(np.float32)
    c[:1000] *= scale[:1000]  # the other half cancels
    expected = [
        _round_to_float32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert elementwise("fma", a, b, c).tolist() == expected


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("0x1.24p+0", "0x1.f8778p+0", "-0x1p-52"),
        ("0x1.b2c5cp+0", "0x1.f8p+0", "0x1p-59"),
    ],
)
def test_fma_where_a_float64_sum_would_round_twice(a, b, c):
    a, b, c = (np.array([float.fromhex(text)], np.float32) for text in (a, b, c))
    exact = Fraction(float(a[0])) * Fraction(float(b[0])) + Fraction(float(c[0]))
    twice = np.float32(float(a[0]) * float(b[0]) + float(c[0]))
    assert elementwise("fma", a, b, c)[0] == _round_to_float32(exact) != twice


def test_fma_special_values():
    a = np.array([np.inf, np.inf, np.nan, 3e38, -0.0], np.float32)
    b = np.array([1, 0, 1, 10, 1], np.float32)
    c = np.array([-np.inf, 1, 1, 0, -0.0], np.float32)
    y = elementwise("fma", a, b, c)
    assert np.isnan(y[:3]).all() and y[3] == np.inf and np.signbit(y[4])


def test_fma_of_half_types_is_a_float32_fma_then_rounded():
    a, b, c = (np.array([v], np.float16) for v in (1.001, 1.001, 0.3))
    exact = Fraction(float(a[0])) * Fraction(float(b[0])) + Fraction(float(c[0]))
    assert elementwise("fma", a, b, c)[0] == np.float16(np.float32(_round_to_float32(exact)))


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        (np.float32, np.int32, [1.9, -1.9, -0.0, 2147483520.0], [1, -1, 0, 2147483520]),
        (np.float32, np.uint8, [1.9, 255.5, -0.9], [1, 255, 0]),
        (np.float16, np.int64, [2.5, -65504.0], [2, -65504]),
        (BF16, np.int32, [3.5, -3.5], [3, -3]),
        (np.int64, np.float32, [2**24 + 1, 2**24 + 3, -(2**24) - 1], [2**24, 2**24 + 4, -(2**24)]),
        (np.int64, np.int32, [2**32 + 5, 2**31], [5, -(2**31)]),
        (np.int32, np.uint8, [-1, 256], [255, 0]),
        (np.uint8, np.int32, [200], [200]),
        (np.float32, bool, [0.0, -0.0, 0.25, math.nan], [False, False, True, True]),
        (np.int32, bool, [0, 5, -1], [False, True, True]),
        (bool, np.float16, [True, False], [1.0, 0.0]),
        (np.float32, np.float16, [65520.0, 1 + 2**-11, 1e-8], [math.inf, 1.0, 0.0]),
        (np.float32, BF16, [1 + 2**-8, 1 + 3 * 2**-8], [1.0, 1 + 2**-6]),
        (np.float16, np.float32, [math.inf, 6e-8], [math.inf, 2.0**-24]),
    ],
)
def test_casts(source, target, values, expected):
    y = elementwise("cast", np.array(values).astype(source), result=target)
    assert y.dtype == target and y.tolist() == np.array(expected).astype(target).tolist()


def test_every_operator_is_tested_or_listed():
    elsewhere = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where"}
    elsewhere |= {"floor_divide", "floor_modulo", "fma", "cast", "invert"}
    elsewhere |= {"bitwise_and", "bitwise_or", "bitwise_xor"}
    assert elsewhere | set(REFERENCE) == {op.value for op in ElementOp}


def test_float64_precision_does_not_round():
    x = np.array([0.1, 0.7], np.float32)
    y = elementwise("multiply", x, x, precision="float64")
    assert y.dtype == np.float64
    assert y.tolist() == (x.astype(np.float64) ** 2).tolist()
    half = elementwise("cast", x, result=np.float16, precision="float64")
    assert half.tolist() == x.astype(np.float64).tolist()

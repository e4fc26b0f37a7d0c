"""Elementwise operators of the interpreter, on NumPy arrays of one shape rank.

In float32 precision every operator rounds once to the tile's element type: basic arithmetic,
``sqrt`` and comparisons are IEEE operations in float32, and the transcendental ones are evaluated
in float64 and then rounded (within 1 unit in the last place of float32, nearly always correctly
rounded). float16 and bfloat16 operands are widened to float32, and the float32 result is rounded
to the type. In float64 precision float arrays hold float64 and nothing is rounded in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tilex.ir.ops import ElementOp
from tvm_tilex.ir.types import DType, numpy_dtype

__all__ = ["Array", "apply", "constant", "convert"]

Array = npt.NDArray[Any]


def constant(value: bool | int | float, dtype: DType, precision: str) -> Array:
    """Return a literal rounded to the element type, of shape ()."""
    target = numpy_dtype(dtype, precision)
    return np.asarray(float(value) if dtype.is_float else value).astype(target)


def convert(array: Array, source: DType, target: DType, precision: str) -> Array:
    """Cast ``array`` as C does.

    Float to integer truncates toward zero; a value outside the integer's range, or a NaN, gives
    an unspecified integer. Integer to float rounds to nearest even (to float32 first for the
    16-bit types). Integers wrap. Anything to bool is ``!= 0``, so NaN is true.
    """
    if target.kind == "bool":
        return np.asarray(_wide(array) != 0)
    if target.is_float and target.bits < 32 and precision == "float32":
        return array.astype(np.float32).astype(numpy_dtype(target))
    if source.is_float and target.kind == "uint":
        # Through a signed type: NumPy's own float to unsigned cast differs by platform.
        return _wide(array).astype(np.int64).astype(numpy_dtype(target))
    return _wide(array).astype(numpy_dtype(target, precision))


def apply(op: ElementOp, operands: list[Array], result: DType, precision: str) -> Array:
    """``op(operands)``, broadcast, with elements of type ``result`` (not for ``cast``)."""
    widened = [_wide(operand) for operand in operands]
    if op is ElementOp.fma and precision == "float32":
        value = _fma_float32(*widened)
    elif op in _IN_FLOAT64:
        value = _IN_FLOAT64[op](*(operand.astype(np.float64) for operand in widened))
        if precision == "float32":
            value = np.asarray(value).astype(np.float32)
    else:
        value = _NATIVE[op](*widened)
    return np.asarray(value).astype(numpy_dtype(result, precision), copy=False)


def _wide(array: Array) -> Array:
    """Widen float16 and bfloat16 to float32, exactly."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _rsqrt(x: Array) -> Array:
    return np.asarray(1.0 / np.sqrt(x))


def _sigmoid(x: Array) -> Array:
    decayed = np.exp(-np.abs(x))  # at most 1, so neither branch overflows
    return np.asarray(np.where(x >= 0, 1.0 / (1.0 + decayed), decayed / (1.0 + decayed)))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


def _fma_float32(a: Array, b: Array, c: Array) -> Array:
    """``a*b + c`` rounded once to float32.

    The float64 product of two float32 is exact (48 bits). Its sum with ``c`` is rounded to odd in
    float64: when the sum is inexact (the TwoSum error says so, and on which side), the neighbour
    with an odd last bit is taken. Rounding that to float32 equals rounding the exact value once,
    since 53 >= 2 + 24 bits (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
    proved algorithms using rounding to odd", 2008).
    """
    product, addend = np.broadcast_arrays(a.astype(np.float64) * b.astype(np.float64), c)
    addend = addend.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    nudged = np.nextafter(total, np.copysign(np.inf, error))
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & even
    return np.asarray(np.where(inexact, nudged, total)).astype(np.float32)


def _fma(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(a * b + c)


# Evaluated in float64, then rounded to float32 where that is the precision.
_IN_FLOAT64: dict[ElementOp, Callable[..., Any]] = {
    ElementOp.exp: np.exp,
    ElementOp.exp2: np.exp2,
    ElementOp.log: np.log,
    ElementOp.log2: np.log2,
    ElementOp.rsqrt: _rsqrt,
    ElementOp.tanh: np.tanh,
    ElementOp.sigmoid: _sigmoid,
    ElementOp.erf: _erf,
    ElementOp.power: np.power,
}

# Evaluated in the operands' own type: exact, or rounded once by IEEE arithmetic.
_NATIVE: dict[ElementOp, Callable[..., Any]] = {
    ElementOp.sqrt: np.sqrt,
    ElementOp.floor: np.floor,
    ElementOp.ceil: np.ceil,
    ElementOp.absolute: np.absolute,
    ElementOp.negative: np.negative,
    ElementOp.add: np.add,
    ElementOp.subtract: np.subtract,
    ElementOp.multiply: np.multiply,
    ElementOp.divide: np.true_divide,
    ElementOp.floor_divide: np.floor_divide,
    ElementOp.floor_modulo: np.remainder,
    ElementOp.maximum: np.maximum,
    ElementOp.minimum: np.minimum,
    ElementOp.equal: np.equal,
    ElementOp.not_equal: np.not_equal,
    ElementOp.less: np.less,
    ElementOp.less_equal: np.less_equal,
    ElementOp.greater: np.greater,
    ElementOp.greater_equal: np.greater_equal,
    ElementOp.bitwise_and: np.bitwise_and,
    ElementOp.bitwise_or: np.bitwise_or,
    ElementOp.bitwise_xor: np.bitwise_xor,
    ElementOp.invert: np.invert,
    ElementOp.where: np.where,
    ElementOp.fma: _fma,
}

"""How elements are held while a program computes, and literals of each type.

bfloat16 elements are held as the FP32 numbers that bfloat16 represents, and rounded by an operator
of ours: TVM's legalization computes bfloat16 in FP32 and drops every rounding but the last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tvm_tilex.ir import DType
from tvm_tilex.ir.types import numpy_dtype
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.tirx.register import ROUND_BFLOAT16, WRAP_INT32

__all__ = ["constant", "from_view", "held", "rounded", "to_view", "unfolded", "widened", "wrapped"]


def held(dtype: DType) -> str:
    """TVM's type of an element of ``dtype`` inside expressions and program-private storage."""
    return "float32" if dtype.name == "bfloat16" else dtype.name


def from_view(element: Any, dtype: DType) -> Any:
    """An element read from a view, as it is held."""
    return tirx.Cast("float32", element) if dtype.name == "bfloat16" else element


def to_view(value: Any, dtype: DType) -> Any:
    """A held element as a view of ``dtype`` stores it; exact, so TVM need not round again."""
    if dtype.name != "bfloat16":
        return value
    bits = tirx.reinterpret("uint32", value)
    upper = tirx.Cast("uint16", tirx.shift_right(bits, tirx.IntImm("uint32", 16)))
    return tirx.reinterpret(dtype.name, upper)


def widened(value: Any) -> Any:
    """A held 16-bit float, an integer or a bool as FP32."""
    if isinstance(value, tirx.FloatImm):
        return tirx.FloatImm("float32", value.value)
    return value if str(value.ty.dtype) == "float32" else tirx.Cast("float32", value)


def rounded(value: Any, dtype: DType) -> Any:
    """An FP32 value rounded to a floating-point ``dtype``, as it is held."""
    if dtype.name == "bfloat16":
        return compat.call(ROUND_BFLOAT16, value, dtype="float32")
    return value if dtype.name == "float32" else tirx.Cast(dtype.name, value)


def wrapped(value: Any, dtype: DType) -> Any:
    """An integer wrapped to an integer ``dtype``.

    TVM's bound of a cast is that of its operand cut to the type, as if nothing wrapped, and a
    guard on the result is then folded away; so wrapping is spelled out.
    """
    source = str(value.ty.dtype)
    if source == dtype.name:
        return value
    if dtype.kind == "uint":
        return tirx.Cast(dtype.name, tirx.bitwise_and(value, tirx.IntImm(source, 0xFF)))
    if source == "int64":
        return compat.call(WRAP_INT32, value, dtype=dtype.name)
    return tirx.Cast(dtype.name, value)


def constant(value: bool | int | float, dtype: DType) -> Any:
    """A literal rounded to the element type, as it is held."""
    if not dtype.is_float:
        return tirx.IntImm(dtype.name, int(value))
    with np.errstate(over="ignore"):
        number = np.float64(value).astype(numpy_dtype(dtype))
    return tirx.FloatImm(held(dtype), float(number))


def unfolded(value: Any) -> Any:
    """The value with its floating-point zeros in a form that TVM doesn't fold into a consumer.

    A selection or a conversion that may itself fold to a zero is rebuilt.
    """
    if isinstance(value, tirx.Cast):
        return tirx.Cast(str(value.ty.dtype), unfolded(value.value))
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, unfolded(value.true_value), unfolded(value.false_value))
    if isinstance(value, compat.Call) and value.op.same_as(_LAZY):
        condition, taken, otherwise = value.args
        return tirx.if_then_else(condition, unfolded(taken), unfolded(otherwise))
    if not isinstance(value, tirx.FloatImm) or value.value != 0:
        return value
    dtype = str(value.ty.dtype)
    if math.copysign(1.0, value.value) > 0:
        return compat.call("tirx.fabs", tirx.FloatImm(dtype, -0.0), dtype=dtype)
    bits = 8 * np.dtype(dtype).itemsize
    return tirx.reinterpret(dtype, tirx.IntImm(f"uint{bits}", 1 << (bits - 1)))


_LAZY = compat.Op.get(compat.IF_THEN_ELSE)

"""Elementwise operators as TIRx expressions.

float16 and bfloat16 operators compute in FP32 and round once, which for + - * / and sqrt is the
correctly rounded result (Figueroa 1995: 24 >= 2 * 11 + 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_tilex.ir import Combiner, DType, ElementOp, NanPolicy
from tvm_tilex.lowering.numbers import constant, held, rounded, unfolded, widened, wrapped
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.tirx.register import (
    EQUAL,
    FMA,
    LESS,
    LESS_EQUAL,
    MAXIMUM,
    MINIMUM,
    NOT_EQUAL,
    SUBTRACT,
)

__all__ = ["combine", "elementwise"]


def _sigmoid(x: Any) -> Any:
    one = tirx.FloatImm("float32", 1.0)
    return one / (one + tirx.exp(-x))


def _rsqrt(x: Any) -> Any:
    return tirx.FloatImm("float32", 1.0) / tirx.sqrt(x)


def _maximum(a: Any, b: Any) -> Any:
    if "float" in str(a.ty.dtype):
        return compat.call(MAXIMUM, a, b, dtype=str(a.ty.dtype))
    return tirx.max(a, b)


def _minimum(a: Any, b: Any) -> Any:
    if "float" in str(a.ty.dtype):
        return compat.call(MINIMUM, a, b, dtype=str(a.ty.dtype))
    return tirx.min(a, b)


def _subtract(a: Any, b: Any) -> Any:
    if "float" in str(a.ty.dtype):
        return compat.call(SUBTRACT, a, b, dtype=str(a.ty.dtype))
    return a - b


def _compare(op: str, node: Any) -> Callable[[Any, Any], Any]:
    """A comparison; on floats an operator of ours, since TVM's simplifier forgets NaN."""

    def compare(a: Any, b: Any) -> Any:
        if "float" in str(a.ty.dtype):
            return compat.call(op, a, b, dtype="bool")
        return node(a, b)

    return compare


_equal = _compare(EQUAL, tirx.EQ)
_not_equal = _compare(NOT_EQUAL, tirx.NE)
_less = _compare(LESS, tirx.LT)
_less_equal = _compare(LESS_EQUAL, tirx.LE)


_FUNCTIONS: dict[ElementOp, Callable[..., Any]] = {
    ElementOp.exp: tirx.exp,
    ElementOp.exp2: tirx.exp2,
    ElementOp.log: tirx.log,
    ElementOp.log2: tirx.log2,
    ElementOp.sqrt: tirx.sqrt,
    ElementOp.rsqrt: _rsqrt,
    ElementOp.tanh: tirx.tanh,
    ElementOp.sigmoid: _sigmoid,
    ElementOp.erf: tirx.erf,
    ElementOp.floor: tirx.floor,
    ElementOp.ceil: tirx.ceil,
    ElementOp.absolute: tirx.abs,
    ElementOp.negative: lambda a: -a,
    ElementOp.add: lambda a, b: a + b,
    ElementOp.subtract: _subtract,
    ElementOp.multiply: lambda a, b: a * b,
    ElementOp.divide: lambda a, b: tirx.div(a, b),
    ElementOp.floor_divide: tirx.floordiv,
    ElementOp.floor_modulo: tirx.floormod,
    ElementOp.power: tirx.power,
    ElementOp.maximum: _maximum,
    ElementOp.minimum: _minimum,
    ElementOp.equal: _equal,
    ElementOp.not_equal: _not_equal,
    ElementOp.less: _less,
    ElementOp.less_equal: _less_equal,
    ElementOp.greater: lambda a, b: _less(b, a),
    ElementOp.greater_equal: lambda a, b: _less_equal(b, a),
    ElementOp.where: tirx.Select,
    ElementOp.fma: lambda a, b, c: compat.call(FMA, a, b, c, dtype=str(a.ty.dtype)),
}

# Where TVM folds a floating-point zero: x * 0 and 0 / x to 0, x + 0 to x, x / 0 to an error.
_FOLDED = (ElementOp.add, ElementOp.multiply, ElementOp.divide)


_BITWISE = {
    ElementOp.bitwise_and: (lambda a, b: a & b, tirx.And),
    ElementOp.bitwise_or: (lambda a, b: a | b, tirx.Or),
    ElementOp.bitwise_xor: (lambda a, b: a ^ b, lambda a, b: tirx.NE(_bit(a), _bit(b))),
    ElementOp.invert: (lambda a: ~a, tirx.Not),
}


def _bit(value: Any) -> Any:
    """A bool or uint8 as int32."""
    return tirx.Cast("int32", value)


def elementwise(op: ElementOp, operands: list[Any], dtypes: list[DType], result: DType) -> Any:
    """``op`` over lowered operands of these element types, as an expression of ``result``."""
    if op is ElementOp.cast:
        return _cast(operands[0], dtypes[0], result)
    if op in _BITWISE:
        return _BITWISE[op][result.kind == "bool"](*operands)
    if op is ElementOp.where:
        return tirx.Select(*operands)
    half = any(dtype.is_float and dtype.bits == 16 for dtype in dtypes)
    # Comparisons of bool tiles; and uint8, since TVM's folding fails on unsigned literals.
    narrow = dtypes[0].kind in ("bool", "uint")
    if half:
        operands = [widened(operand) for operand in operands]
    elif narrow:
        operands = [_bit(operand) for operand in operands]
    if op in _FOLDED:
        operands = [unfolded(operand) for operand in operands]
    value = _FUNCTIONS[op](*operands)
    if half and result.is_float:
        return rounded(value, result)
    return wrapped(value, result) if narrow and result.kind == "uint" else value


def _cast(value: Any, source: DType, target: DType) -> Any:
    if source == target:
        return value
    if target.kind == "bool":
        return _not_equal(value, constant(0, source))
    if target.is_float and target.bits == 16:
        return rounded(widened(value), target)
    if source.is_integer and target.is_integer:
        return wrapped(value, target)
    return value if str(value.ty.dtype) == held(target) else tirx.Cast(target.name, value)


def combine(combiner: Combiner, nan: NanPolicy, dtype: DType) -> Callable[[Any, Any], Any]:
    """The binary operation of a reduction over state of ``dtype``."""
    if combiner is Combiner.add:
        return lambda a, b: a + b
    greater = combiner is Combiner.maximum
    if not dtype.is_float or nan is NanPolicy.unspecified:
        return tirx.max if greater else tirx.min
    op = MAXIMUM if greater else MINIMUM
    if nan is NanPolicy.propagate:
        op += "_propagate"
    return lambda a, b: compat.call(op, a, b, dtype=dtype.name)

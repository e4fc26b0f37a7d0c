"""Checked evaluation of expressions: exact scalars, and NumPy int64 arrays with equal results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex.layout.errors import ArithmeticRangeError
from tvm_tilex.layout.expr import (
    INT64_MAX,
    INT64_MIN,
    Call,
    Constant,
    Coordinate,
    Expr,
    Lookup,
    Op,
    Operation,
    Parameter,
)
from tvm_tilex.layout.interval import IntervalAnalysis, Unsafe
from tvm_tilex.layout.visitor import ExprVisitor

__all__ = ["ArrayEvaluation", "IntArray", "apply_operation", "evaluate"]

IntArray = NDArray[np.int64]
_MASK = 2**64 - 1


def _signed(pattern: int) -> int:
    return pattern - 2**64 if pattern > INT64_MAX else pattern


def _divisor(a: int, b: int, text: str) -> None:
    if b == 0:
        raise ArithmeticRangeError(f"division by zero: {a} {text} 0")
    if a == INT64_MIN and b == -1:
        raise ArithmeticRangeError(f"{a} {text} -1 leaves signed 64-bit range")


def _shift(b: int) -> int:
    if not 0 <= b <= 63:
        raise ArithmeticRangeError(f"shift amount {b} is outside 0..63")
    return b


def _floor_divide(a: int, b: int) -> int:
    _divisor(a, b, "//")
    return a // b


def _floor_modulo(a: int, b: int) -> int:
    _divisor(a, b, "%")
    return a % b


_SCALAR: dict[Op, Callable[[int, int], int]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: _floor_divide,
    Op.MOD: _floor_modulo,
    Op.XOR: lambda a, b: a ^ b,
    Op.AND: lambda a, b: a & b,
    Op.SHL: lambda a, b: _signed(((a & _MASK) << _shift(b)) & _MASK),
    Op.SHR: lambda a, b: _signed((a & _MASK) >> _shift(b)),
    Op.LT: lambda a, b: int(a < b),
    Op.LE: lambda a, b: int(a <= b),
    Op.EQ: lambda a, b: int(a == b),
    Op.NE: lambda a, b: int(a != b),
}


def apply_operation(op: Op, a: int, b: int) -> int:
    """Return ``a op b``; raise ArithmeticRangeError where the operation is undefined."""
    result = _SCALAR[op](a, b)
    if not INT64_MIN <= result <= INT64_MAX:
        raise ArithmeticRangeError(f"{a} {op.value} {b} leaves signed 64-bit range")
    return result


def read_table(node: Lookup, indices: tuple[int, ...]) -> int:
    """Return the table entry; raise ArithmeticRangeError outside the table."""
    flat = 0
    for extent, index in zip(node.shape, indices, strict=True):
        if not 0 <= index < extent:
            raise ArithmeticRangeError(f"table index {index} is outside 0..{extent - 1}")
        flat = flat * extent + index
    return node.values[flat]


def checked_call(node: Call, operand: int) -> int:
    """Return the transform's value; raise ArithmeticRangeError outside signed 64-bit range."""
    result = int(node.evaluator.evaluate(operand))
    if not INT64_MIN <= result <= INT64_MAX:
        raise ArithmeticRangeError(f"{node.evaluator} of {operand} leaves signed 64-bit range")
    return result


class _Scalar(ExprVisitor[int]):
    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self._values = values

    def visit_constant(self, node: Constant) -> int:
        return node.value

    def visit_coordinate(self, node: Coordinate) -> int:
        return self._values[node.name]

    def visit_parameter(self, node: Parameter) -> int:
        return self._values[node.name]

    def visit_operation(self, node: Operation, left: int, right: int) -> int:
        return apply_operation(node.op, left, right)

    def visit_lookup(self, node: Lookup, indices: tuple[int, ...]) -> int:
        return read_table(node, indices)

    def visit_call(self, node: Call, operand: int) -> int:
        return checked_call(node, operand)


class Evaluation(_Scalar):
    """Scalar evaluator at one point, shared over the expressions of a map."""


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of ``expr``; ``values`` maps axis and parameter names to integers.

    Raises
    ------
    ArithmeticRangeError
        Where a subexpression overflows, divides by zero or shifts outside 0..63.
    """
    return _Scalar(values).visit(expr)


def _wrap(function: Callable[[Any, Any], Any]) -> Callable[[IntArray, IntArray], IntArray]:
    return lambda a, b: function(a, b).astype(np.int64)


def _logical_right(a: IntArray, b: IntArray) -> IntArray:
    return (a.astype(np.uint64) >> b.astype(np.uint64)).astype(np.int64)


def _pattern_left(a: IntArray, b: IntArray) -> IntArray:
    return (a.astype(np.uint64) << b.astype(np.uint64)).astype(np.int64)


_ARRAY: dict[Op, Callable[[IntArray, IntArray], IntArray]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.floor_divide,
    Op.MOD: np.mod,
    Op.XOR: np.bitwise_xor,
    Op.AND: np.bitwise_and,
    Op.SHL: _pattern_left,
    Op.SHR: _logical_right,
    Op.LT: _wrap(np.less),
    Op.LE: _wrap(np.less_equal),
    Op.EQ: _wrap(np.equal),
    Op.NE: _wrap(np.not_equal),
}


class ArrayEvaluation(ExprVisitor[IntArray]):
    """Elementwise evaluation over int64 arrays; an unsafe element raises as the scalar does."""

    def __init__(self, values: Mapping[str, IntArray]) -> None:
        super().__init__()
        self._values = values

    def visit_constant(self, node: Constant) -> IntArray:
        """Return a 0-d array that broadcasts."""
        return np.asarray(node.value, dtype=np.int64)

    def visit_coordinate(self, node: Coordinate) -> IntArray:
        """Return the given array."""
        return self._values[node.name]

    def visit_parameter(self, node: Parameter) -> IntArray:
        """Return the given value."""
        return self._values[node.name]

    def visit_operation(self, node: Operation, left: IntArray, right: IntArray) -> IntArray:
        """Use the int64 kernel where the operand ranges prove it exact, else go element by one."""
        if left.size and right.size and not self._exact(node, left, right):
            return _elementwise(node.op, left, right)
        return _ARRAY[node.op](left, right)

    def visit_lookup(self, node: Lookup, indices: tuple[IntArray, ...]) -> IntArray:
        """Gather from the table."""
        table = np.asarray(node.values, dtype=np.int64).reshape(node.shape)
        for extent, index in zip(node.shape, indices, strict=True):
            bad = (index < 0) | (index >= extent)
            if np.any(bad):
                first = int(np.broadcast_to(index, bad.shape)[bad].flat[0])
                raise ArithmeticRangeError(f"table index {first} is outside 0..{extent - 1}")
        return np.asarray(table[indices], dtype=np.int64)

    def visit_call(self, node: Call, operand: IntArray) -> IntArray:
        """Evaluate element by element."""
        flat = [checked_call(node, int(x)) for x in operand.flat]
        return np.asarray(flat, dtype=np.int64).reshape(operand.shape)

    @staticmethod
    def _exact(node: Operation, left: IntArray, right: IntArray) -> bool:
        a = (int(left.min()), int(left.max()))
        b = (int(right.min()), int(right.max()))
        try:
            IntervalAnalysis({}).visit_operation(node, a, b)
        except Unsafe:
            return False
        return True


def _elementwise(op: Op, left: IntArray, right: IntArray) -> IntArray:
    a, b = np.broadcast_arrays(left, right)
    flat = [apply_operation(op, int(x), int(y)) for x, y in zip(a.flat, b.flat, strict=True)]
    return np.asarray(flat, dtype=np.int64).reshape(a.shape)

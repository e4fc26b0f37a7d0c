"""Interval analysis of expressions, with the check that every subexpression is safe.

Safe means: representable in signed 64-bit range, no zero divisor, no shift outside 0..63. The
intervals are of exact integer values (never wrapped); a bit-pattern shift alone may drop bits.
Rule: specification "Layouts and value distribution", checked normalization.
"""

from __future__ import annotations

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
from tvm_tilex.layout.visitor import ExprVisitor

__all__ = ["Interval", "IntervalAnalysis", "Unsafe"]

Interval = tuple[int, int]
_FULL: Interval = (INT64_MIN, INT64_MAX)
_BOOL: Interval = (0, 1)


class Unsafe(Exception):
    """A subexpression that is not proved safe; carries the reason."""


class IntervalAnalysis(ExprVisitor[Interval]):
    """Intervals over the box ``bounds`` (leaf -> inclusive range); raises :class:`Unsafe`."""

    def __init__(self, bounds: dict[Expr, Interval]) -> None:
        super().__init__()
        self.bounds = bounds

    def interval(self, expr: Expr) -> Interval:
        """Return the inclusive range of ``expr``, or raise Unsafe naming the subexpression."""
        found = self._memo.get(expr)
        return found if found is not None else self._compute(expr)

    def _compute(self, expr: Expr) -> Interval:
        if type(expr) is Operation:
            memo = self._memo
            left = memo.get(expr.left)
            right = memo.get(expr.right)
            if left is not None and right is not None:
                result = memo[expr] = self.visit_operation(expr, left, right)
                return result
        return self.visit(expr)

    def safe_reason(self, expr: Expr) -> str | None:
        """Return None when every subexpression is safe, else why not."""
        try:
            self.interval(expr)
        except Unsafe as reason:
            return str(reason)
        return None

    def visit_constant(self, node: Constant) -> Interval:
        """Return the single value."""
        return (node.value, node.value)

    def visit_coordinate(self, node: Coordinate) -> Interval:
        """Return the range of the axis."""
        found = self.bounds.get(node)
        if found is None:
            raise Unsafe(f"'{node.name}' is not an axis of the domain")
        return found

    def visit_parameter(self, node: Parameter) -> Interval:
        """Return the declared range, possibly tightened."""
        return self.bounds.get(node, (node.lower, node.upper))

    def visit_lookup(self, node: Lookup, indices: tuple[Interval, ...]) -> Interval:
        """Return the hull of the table."""
        for extent, (low, high) in zip(node.shape, indices, strict=True):
            if low < 0 or high >= extent:
                raise Unsafe(f"a table index ranges over [{low}, {high}], extent {extent}")
        return (min(node.values), max(node.values))

    def visit_call(self, node: Call, operand: Interval) -> Interval:
        """Refuse: nothing is known of a function without a DAG."""
        raise Unsafe(f"'{_short(node)}' has no index DAG to analyze")

    def visit_operation(self, node: Operation, left: Interval, right: Interval) -> Interval:
        """Apply the rule of the operation and check the result."""
        low, high = _RULES[node.op](node, left, right)
        if low < INT64_MIN or high > INT64_MAX:
            raise Unsafe(f"'{_short(node)}' may leave signed 64-bit range ([{low}, {high}])")
        return (low, high)


def _short(node: Expr) -> str:
    from tvm_tilex.layout.text import brief

    return brief(node)


def _add(_: Operation, a: Interval, b: Interval) -> Interval:
    return (a[0] + b[0], a[1] + b[1])


def _sub(_: Operation, a: Interval, b: Interval) -> Interval:
    return (a[0] - b[1], a[1] - b[0])


def _mul(_: Operation, a: Interval, b: Interval) -> Interval:
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return (min(corners), max(corners))


def _check_divisor(node: Operation, b: Interval) -> None:
    if b[0] <= 0 <= b[1]:
        raise Unsafe(f"the divisor of '{_short(node)}' may be zero")


def _div(node: Operation, a: Interval, b: Interval) -> Interval:
    _check_divisor(node, b)
    corners = (a[0] // b[0], a[0] // b[1], a[1] // b[0], a[1] // b[1])
    return (min(corners), max(corners))


def _mod(node: Operation, a: Interval, b: Interval) -> Interval:
    _check_divisor(node, b)
    if a[0] == INT64_MIN and b[0] <= -1 <= b[1]:
        raise Unsafe(f"'{_short(node)}' may divide the least integer by -1")
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return (a[0] % b[0], a[1] % b[0])
    if b[0] > 0:
        if a[0] >= 0 and a[1] < b[0]:
            return a
        return (0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1)
    return (b[0] + 1, 0)


def _bits(a: Interval, b: Interval) -> int:
    return max(v.bit_length() if v >= 0 else (~v).bit_length() for v in (*a, *b))


def _xor(_: Operation, a: Interval, b: Interval) -> Interval:
    top = 1 << _bits(a, b)
    if a[0] >= 0 and b[0] >= 0:
        return (0, top - 1)
    return (-top, top - 1)


def _and(_: Operation, a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and b[0] >= 0:
        return (0, min(a[1], b[1]))
    if a[0] >= 0:
        return (0, a[1])
    if b[0] >= 0:
        return (0, b[1])
    top = 1 << _bits(a, b)
    return (-top, top - 1)


def _check_shift(node: Operation, b: Interval) -> None:
    if b[0] < 0 or b[1] > 63:
        raise Unsafe(f"the shift amount of '{_short(node)}' may leave 0..63")


def _shl(node: Operation, a: Interval, b: Interval) -> Interval:
    _check_shift(node, b)
    corners = (a[0] << b[0], a[0] << b[1], a[1] << b[0], a[1] << b[1])
    low, high = min(corners), max(corners)
    return (low, high) if low >= INT64_MIN and high <= INT64_MAX else _FULL


def _shr(node: Operation, a: Interval, b: Interval) -> Interval:
    _check_shift(node, b)
    if a[0] >= 0:
        return (a[0] >> b[1], a[1] >> b[0])
    if b[0] >= 1:
        return (0, (2**64 - 1) >> b[0])
    return _FULL if b[1] >= 1 else a


def _lt(node: Operation, a: Interval, b: Interval) -> Interval:
    if a[1] < b[0]:
        return (1, 1)
    return (0, 0) if a[0] >= b[1] or node.left is node.right else _BOOL


def _le(node: Operation, a: Interval, b: Interval) -> Interval:
    if a[1] <= b[0] or node.left is node.right:
        return (1, 1)
    return (0, 0) if a[0] > b[1] else _BOOL


def _eq(node: Operation, a: Interval, b: Interval) -> Interval:
    if node.left is node.right or a[0] == a[1] == b[0] == b[1]:
        return (1, 1)
    return (0, 0) if a[1] < b[0] or b[1] < a[0] else _BOOL


def _ne(node: Operation, a: Interval, b: Interval) -> Interval:
    low, high = _eq(node, a, b)
    return (1 - high, 1 - low)


_RULES = {
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.DIV: _div,
    Op.MOD: _mod,
    Op.XOR: _xor,
    Op.AND: _and,
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.LT: _lt,
    Op.LE: _le,
    Op.EQ: _eq,
    Op.NE: _ne,
}

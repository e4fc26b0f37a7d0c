"""Totality and bounds of one branch: safety, intermediate obligations, codomain membership."""

from __future__ import annotations

from collections.abc import Callable

from tvm_tilex.layout.base import Check, Piece
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import (
    Constant,
    Coordinate,
    Expr,
    Operation,
    constant,
    le,
    lt,
)
from tvm_tilex.layout.forms import Form, Quotient
from tvm_tilex.layout.gf2 import BitMatrix
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.visitor import substitute

__all__ = ["bounds_reason", "covers", "safety_reason", "within"]

_SPLIT_DEPTH = 2
_COVER_DEPTH = 8


def _upper(axis: Axis) -> Expr:
    """Return the greatest coordinate of ``axis`` as an expression."""
    if isinstance(axis.extent, int):
        return constant(axis.lower + axis.extent - 1)
    return axis.extent + (axis.lower - 1)


def within(context: Context, value: Expr, axis: Axis, depth: int = _SPLIT_DEPTH) -> bool:
    """Whether ``value`` is proved to lie on ``axis`` for every point of the context."""
    try:
        low, high = context.interval(value)
        if isinstance(axis.extent, int):
            if axis.lower <= low and high < axis.lower + axis.extent:
                return True
            form = context.form(value)
        else:
            excess = context.form(value).add(context.form(axis.extent), -1)
            if axis.lower <= low and context.form_interval(excess)[1] < axis.lower:
                return True
            form = excess
    except Unsafe:
        return False
    return depth > 0 and _by_cases(context, form, lambda case: within(case, value, axis, depth - 1))


def holds(context: Context, guard: Expr, depth: int = _SPLIT_DEPTH) -> bool:
    """Whether ``guard`` is proved true on every point of the context."""
    held = context.decide(guard)
    if held is not None:
        return held
    try:
        form = context.form(guard)
        if len(form.terms) == 1 and isinstance(guard, Operation):
            form = context.form(guard.left).add(context.form(guard.right), -1)
    except Unsafe:
        return False
    return depth > 0 and _by_cases(context, form, lambda case: holds(case, guard, depth - 1))


def _by_cases(context: Context, form: Form, check: Callable[[Context], bool]) -> bool:
    """Split off the last block of one coordinate and check both cases."""
    for pair in _splits(context, form):
        if all(case.empty or check(case) for case in map(context.extended, pair)):
            return True
    return False


def _splits(context: Context, form: Form) -> list[tuple[Expr, Expr]]:
    found: list[tuple[Expr, Expr]] = []
    for atom in form.terms:
        if isinstance(atom, Quotient) and len(atom.form.terms) == 1:
            ((x, step),) = atom.form.terms.items()
            if step != 1 or not isinstance(x, Coordinate):
                continue
            last = context.atom_interval(atom)[1] * atom.divisor - atom.form.const
            if context.bounds[x][0] < last <= context.bounds[x][1]:
                found.append((lt(x, last), le(last, x)))
    for constraint in context.constraints:
        if len(constraint.terms) < 2:
            continue
        lead = max(constraint.terms, key=lambda a: abs(constraint.terms[a]))
        if isinstance(lead, Coordinate):
            low, high = context.bounds[lead]
            if low < high:
                found.append((lt(lead, high), le(high, lead)))
    return found


def safety_reason(context: Context, piece: Piece) -> str | None:
    """Return None where the branch has a value on the whole context, else why it may not."""
    for guard in piece.guards:
        reason = context.intervals.safe_reason(guard)
        if reason is not None:
            return reason
    for check in piece.checks:
        reason = context.intervals.safe_reason(check.value)
        if reason is None and not _check_holds(context, check):
            where = f"axis '{check.axis.name}'" if check.axis else "its guard"
            reason = f"the intermediate value '{check.value}' is not proved to stay on {where}"
        if reason is not None:
            return reason
    for output in piece.outputs:
        reason = context.intervals.safe_reason(output)
        if reason is not None:
            return reason
    return None


def _check_holds(context: Context, check: Check) -> bool:
    if check.axis is None:
        return holds(context, check.value)
    if within(context, check.value, check.axis):
        return True
    from tvm_tilex.layout.gf2 import bit_matrix

    matrix = bit_matrix(context, (check.value,))
    return matrix is not None and _matrix_within(matrix, 0, check.axis)


def _matrix_within(matrix: BitMatrix, row: int, axis: Axis) -> bool:
    if not isinstance(axis.extent, int) or axis.lower > 0:
        return False
    best, _ = matrix.maximum(row)
    support = matrix.forms[row].support
    return not support >> 63 and best < axis.lower + axis.extent


def bounds_reason(
    context: Context, outputs: tuple[Expr, ...], codomain: IndexSet, matrix: BitMatrix | None
) -> str | None:
    """Return how the outputs are proved to lie in ``codomain``, or None."""
    how = "interval range"
    for row, (output, axis) in enumerate(zip(outputs, codomain.axes, strict=True)):
        if within(context, output, axis):
            continue
        if matrix is None or not _matrix_within(matrix, row, axis):
            return None
        how = "XOR-basis maximum"
    if codomain.guards:
        named = dict(zip(codomain.names, outputs, strict=True))
        for guard in substitute(codomain.guards, named):
            if not holds(context, guard):
                return None
    return how


def covers(
    context: Context, pieces: tuple[tuple[Expr, ...], ...], depth: int = _COVER_DEPTH
) -> bool:
    """Whether every point of the context satisfies all guards of some piece."""
    from tvm_tilex.layout.expr import negate_predicate

    if context.empty:
        return True
    for guards in pieces:
        for guard in guards:
            held = context.decide(guard)
            if held is True:
                continue
            if held is False:
                break
            if depth == 0 or isinstance(guard, Constant):
                return False
            if context.intervals.safe_reason(guard) is not None:
                return False
            yes, no = context.extended(guard), context.extended(negate_predicate(guard))
            return covers(yes, pieces, depth - 1) and covers(no, pieces, depth - 1)
        else:
            return True
    return False

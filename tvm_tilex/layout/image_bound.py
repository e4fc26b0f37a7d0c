"""Upper bounds on the number of values of a map: what its outputs read, and no more.

A coordinate that no output reads, a mode of stride 0 and an input bit with a zero basis multiply
points, not values. Such a bound refutes surjectivity and, by the pigeonhole, injectivity.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, prod

from tvm_tilex.layout.base import Piece
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Coordinate
from tvm_tilex.layout.forms import Form
from tvm_tilex.layout.gf2 import BitMatrix
from tvm_tilex.layout.visitor import leaves

__all__ = ["masked_count", "most_values"]


def most_values(
    context: Context, piece: Piece, forms: tuple[Form, ...] | None, matrix: BitMatrix | None
) -> int | None:
    """Return a number that the values of one branch do not exceed; None for a symbolic domain.

    Parameters
    ----------
    forms, matrix
        The linear forms and the GF(2) matrix of the branch's outputs, where there are any.
    """
    if context.space.parameters:
        return None
    read = {leaf for leaf in leaves(piece.outputs) if isinstance(leaf, Coordinate)}
    bounds = [_count(context.bounds[leaf] for leaf in read)]
    if forms is not None:
        atoms = {atom for form in forms for atom in form.terms}
        try:
            bounds.append(_count(context.atom_interval(atom) for atom in atoms))
            bounds.append(prod(_steps(context, form) for form in forms))
        except Unsafe:
            pass
    if matrix is not None:
        bounds.append(_by_bits(context, matrix))
    return min(bounds)


def _count(intervals: Iterable[tuple[int, int]]) -> int:
    return prod(max(high - low + 1, 0) for low, high in intervals)


def _steps(context: Context, form: Form) -> int:
    """Bound the values of one form: it moves by the gcd of its coefficients."""
    low, high = context.form_interval(form)
    return (high - low) // (gcd(*form.terms.values()) or 1) + 1


def _by_bits(context: Context, matrix: BitMatrix) -> int:
    """Bound by the input bits whose column is not zero, and by the span of the columns."""
    masks: dict[int, int] = {}
    for column, (axis, bit) in zip(matrix.columns, matrix.inputs, strict=True):
        if column:
            masks[axis] = masks.get(axis, 0) | 1 << bit
    extents = [high + 1 for _, high in (axis.bounds() for axis in context.space.axes)]
    patterns = prod(masked_count(mask, extents[axis]) for axis, mask in masks.items())
    return min(patterns, 1 << matrix.rank)


def masked_count(mask: int, extent: int) -> int:
    """Return how many values ``x & mask`` takes for ``0 <= x < extent``.

    The least x with a given value is the value itself, so it is the number of submasks of ``mask``
    below ``extent``.
    """
    if extent < 1:
        return 0
    total, last = 0, extent - 1
    for bit in reversed(range(max(last, mask).bit_length())):
        below = (mask & ((1 << bit) - 1)).bit_count()
        if last >> bit & 1:
            total += 1 << below  # a zero here leaves the lower bits free
            if not mask >> bit & 1:
                return total
    return total + 1

"""Surjectivity of injective maps whose sizes are symbolic, or cut by one guard."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm_tilex.layout.affine import prove_injective
from tvm_tilex.layout.base import Piece
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Op, Operation
from tvm_tilex.layout.forms import Form
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["is_restriction", "same_symbolic_size"]


def same_symbolic_size(domain: IndexSet, codomain: IndexSet) -> bool:
    """Whether both are boxes with the same extents up to order."""
    sides = []
    for space in (domain, codomain):
        if space.guards:
            return False
        fixed = prod(a.extent for a in space.axes if isinstance(a.extent, int))
        symbols = sorted(id(a.extent) for a in space.axes if not isinstance(a.extent, int))
        sides.append((fixed, symbols))
    return sides[0] == sides[1]


def is_restriction(domain: IndexSet, codomain: IndexSet, pieces: Sequence[Piece]) -> bool:
    """Whether a map f with one branch is onto as the restriction of a bijection.

    Where f without the guard of its domain is bijective onto ``[0, M)`` and ``M >= N``, the map on
    ``f < N`` is bijective onto ``[0, N)``.
    """
    if len(pieces) != 1 or len(domain.guards) != 1 or codomain.rank != 1:
        return False
    guard, axis = domain.guards[0], codomain.axes[0]
    if not isinstance(guard, Operation) or guard.op is not Op.LT or axis.lower:
        return False
    if codomain.guards or domain.box_size is None:
        return False
    box = Context(domain.unguarded())
    try:
        value = box.form(pieces[0].outputs[0])
        left, limit = box.form(guard.left), box.form(guard.right)
        size = Form(axis.extent, {}) if isinstance(axis.extent, int) else box.form(axis.extent)
        low, high = box.form_interval(value)
        most = box.form_interval(size)[1]
    except Unsafe:
        return False
    same = value.key == left.key and limit.key == size.key
    full = low == 0 and high + 1 == domain.box_size and most <= domain.box_size
    return same and full and prove_injective(box, (value,)) is not None

"""Fibers of a map."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap, Piece
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.errors import CodomainError
from tvm_tilex.layout.expr import Expr, constant, eq, ne
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.proof import prove

__all__ = ["narrowed", "open_guards", "preimage", "value_guard"]


def preimage(map: LayoutMap, *point: int) -> IndexSet:
    """Return the fiber over a codomain point: the domain points with that value.

    It is the domain with a guard more, its box narrowed to what the guard allows; it may be empty.
    ``cardinality`` counts it and ``points`` enumerates it.

    Raises
    ------
    CodomainError
        Where the point is outside the codomain.
    LayoutError
        Where the map is not proved total, so that its values may not be compared.
    """
    names = map.codomain.names
    if len(point) != len(names):
        raise LayoutError(f"a point of {len(point)} coordinates for the codomain {map.codomain}")
    if not map.codomain.parameters and not map.codomain.contains(
        dict(zip(names, point, strict=True))
    ):
        raise CodomainError(f"{point} is outside the codomain {map.codomain}")
    verdict = prove(map).totality
    if not verdict.proven:
        raise LayoutError(f"the fiber needs a total map: {verdict}")
    guard = value_guard(map, tuple(constant(v) for v in point))
    return narrowed(map.domain.where(*guard))


def value_guard(map: LayoutMap, values: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return predicates that hold exactly where the map has the given values."""
    pieces = map.pieces
    if len(pieces) == 1 and not pieces[0].guards:
        return tuple(eq(o, v) for o, v in zip(pieces[0].outputs, values, strict=True))
    total = _piece_holds(pieces[0], values)
    for piece in pieces[1:]:
        total = total + _piece_holds(piece, values)
    return (total,)


def _piece_holds(piece: Piece, values: Sequence[Expr]) -> Expr:
    held: Expr | None = None
    equal = [eq(o, v) for o, v in zip(piece.outputs, values, strict=True)]
    for test in (*(ne(g, 0) for g in piece.guards), *equal):
        held = test if held is None else held & test
    return constant(1) if held is None else held


def narrowed(space: IndexSet) -> IndexSet:
    """Return the same set in the smallest box that the guards are known to allow."""
    if space.parameters or space.box_size is None:
        return space
    context = Context(space)
    if context.empty:
        return IndexSet(tuple(Axis(a.name, 0, a.lower) for a in space.axes))
    axes = []
    for axis, coordinate in zip(space.axes, space.coordinates, strict=True):
        low, high = context.bounds[coordinate]
        axes.append(Axis(axis.name, high - low + 1, low))
    return IndexSet(tuple(axes)).where(*open_guards(IndexSet(tuple(axes)), space.guards))


def open_guards(box: IndexSet, guards: Sequence[Expr]) -> list[Expr]:
    """Return the guards that the box alone does not decide."""
    context = Context(box)
    return [guard for guard in guards if context.decide(guard) is not True]

"""Any finite relation as a correspondence of two tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.correspondence.base import Point, Span
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import FiniteTable

__all__ = ["from_pairs"]

Element = int | Point


def from_pairs(
    pairs: Iterable[tuple[Element, Element]],
    source: IndexSet | None = None,
    target: IndexSet | None = None,
) -> Span:
    """Return the correspondence whose occurrences are the given pairs, in order.

    Parameters
    ----------
    pairs
        ``(a, b)`` with integers or tuples of integers; a repeated pair is two occurrences.
    source, target
        The index sets; by default the least boxes that hold the points, with the axes ``a0, ...``
        and ``b0, ...``. Needed for an empty relation.

    Raises
    ------
    LayoutError
        For points of different ranks, or outside the given sets.
    """
    rows = [(_point(a), _point(b)) for a, b in pairs]
    space = IndexSet((Axis("occurrence", len(rows)),))
    legs = []
    for side, (name, given) in enumerate((("a", source), ("b", target))):
        points = [row[side] for row in rows]
        box = given if given is not None else _hull(points, name)
        for point in points:
            _check(point, box)
        legs.append(FiniteTable(space, box, tuple(points)))
    return Span(legs[0], legs[1])


def _point(element: Element) -> Point:
    return element if isinstance(element, tuple) else (element,)


def _check(point: Point, box: IndexSet) -> None:
    if len(point) != box.rank or not box.contains(dict(zip(box.names, point, strict=True))):
        raise LayoutError(f"the point {point} is outside {box}")


def _hull(points: Sequence[Point], name: str) -> IndexSet:
    if not points:
        raise LayoutError("an empty relation needs its source and its target")
    if len({len(point) for point in points}) != 1:
        raise LayoutError(f"the points {points[0]} and others have different ranks")
    axes = []
    for number, column in enumerate(zip(*points, strict=True)):
        low = min(column)
        axes.append(Axis(f"{name}{number}", max(column) - low + 1, low))
    return IndexSet(tuple(axes))

"""Where each logical element lies: a map from an explicit occurrence space, its copies included.

A set-valued placement is two maps out of one occurrence space ``F = Logical x Replica``: the
projection to the logical element and the physical location. A function without copies has an
empty replica. Nothing is inverted, so the direction of the source system is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.correspondence import LayoutCorr, ReplicaKind, span
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import Project

__all__ = ["Location", "Placement", "tabulate"]

Location = tuple[tuple[str, int], ...]


def location(names: tuple[str, ...], values: tuple[int, ...]) -> Location:
    """Return the named coordinates that are not zero: an absent axis and 0 are the same place."""
    return tuple(sorted((n, v) for n, v in zip(names, values, strict=True) if v))


def tabulate(map: LayoutMap) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return every point of a static domain with its values, last axis fastest."""
    points = list(map.domain.points())
    if not points or not map.domain.rank:
        return [(point, _row(map.apply(*point))) for point in points]
    found = map.apply_array(*np.array(points, dtype=np.int64).T)
    columns = found if isinstance(found, tuple) else (found,)
    values = np.stack(columns, axis=1).tolist()
    return [(point, tuple(row)) for point, row in zip(points, values, strict=True)]


def _row(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True)
class Placement:
    """The occurrences of logical elements in named physical coordinates.

    Parameters
    ----------
    map
        The physical leg ``F -> Physical``; its domain is the occurrence space.
    replica
        Axes of ``F`` that number the copies of one element; the other axes name the element.
    """

    map: LayoutMap
    replica: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.replica:
            if name not in self.map.domain.names:
                raise LayoutError(f"replica axis '{name}' is not one of {self.map.domain.names}")

    @property
    def occurrences(self) -> IndexSet:
        """The occurrence space ``F``."""
        return self.map.domain

    @property
    def logical(self) -> tuple[str, ...]:
        """The axes of ``F`` that name the logical element, in order."""
        return tuple(n for n in self.map.domain.names if n not in self.replica)

    @property
    def left(self) -> LayoutMap:
        """The leg ``F -> Logical``."""
        return Project(self.map.domain, self.logical)

    @property
    def right(self) -> LayoutMap:
        """The leg ``F -> Physical``."""
        return self.map

    def correspondence(self, kind: ReplicaKind) -> LayoutCorr:
        """Return the placement as a correspondence; ``kind`` says what its copies mean."""
        return span(self.left, self.right, dict.fromkeys(self.replica, kind))

    @cached_property
    def _table(self) -> dict[tuple[int, ...], Counter[Location]]:
        found: dict[tuple[int, ...], Counter[Location]] = {}
        keep = [self.map.domain.names.index(n) for n in self.logical]
        for point, values in tabulate(self.map):
            where = location(self.map.codomain.names, values)
            found.setdefault(tuple(point[k] for k in keep), Counter())[where] += 1
        return found

    def copies(self, *element: int) -> Counter[Location]:
        """Return every location of one logical element with its multiplicity (by enumeration)."""
        return Counter(self._table.get(element, Counter()))

    def contents(self) -> dict[Location, tuple[tuple[int, ...], ...]]:
        """Return, per occupied location, the elements found there, once per occurrence.

        More than one distinct element at a location is a collision; the map itself is the fact,
        nothing is dropped.
        """
        held: dict[Location, list[tuple[int, ...]]] = {}
        for element, places in self._table.items():
            for where, count in places.items():
                held.setdefault(where, []).extend([element] * count)
        return {where: tuple(elements) for where, elements in held.items()}

    def same_as(self, other: Placement, *, multiplicity: bool = True) -> bool:
        """Whether both place every element alike, by enumeration; copies may be numbered freely.

        ``multiplicity`` False compares sets of locations instead of multisets.
        """
        mine, theirs = self._table, other._table
        if mine.keys() != theirs.keys():
            return False
        if multiplicity:
            return mine == theirs
        return all(set(mine[e]) == set(theirs[e]) for e in mine)

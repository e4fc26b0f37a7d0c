"""Correspondences: relations with an explicit occurrence space, as spans of two maps.

``LayoutCorr = (left : F -> A, right : F -> B)``, from the specification "Layouts and value
distribution". Every point of F is one occurrence of the pair ``(left(e), right(e))``: pairs are
counted, so two copies of one value stay two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.finite import OracleFailure, _points, oracle_value
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import Identity
from tvm_tilex.layout.preimage import narrowed, preimage
from tvm_tilex.layout.proof import DEFAULT_BUDGET

__all__ = ["LayoutCorr", "Occurrence", "ReplicaKind", "Span", "embed", "span"]

Point = tuple[int, ...]


class ReplicaKind(Enum):
    """What an axis of copies means.

    BROADCAST: every copy may be read, all hold the same value. MULTICAST: one write reaches every
    copy. OWNERSHIP: one copy is to be chosen as the owner, explicitly.
    """

    BROADCAST = "broadcast"
    MULTICAST = "multicast"
    OWNERSHIP = "ownership choice"


class Occurrence(NamedTuple):
    """One occurrence: its coordinate in F, and the pair that it relates."""

    at: Point
    left: Point
    right: Point


class LayoutCorr:
    """A correspondence between two index sets.

    Attributes
    ----------
    left, right
        The legs, maps from the same occurrence space.
    replicas
        The axes of the occurrence space that number copies, with what they mean.
    """

    if TYPE_CHECKING:

        @property
        def left(self) -> LayoutMap:
            """The leg to the source."""

        @property
        def right(self) -> LayoutMap:
            """The leg to the target."""

        @property
        def replicas(self) -> tuple[tuple[str, ReplicaKind], ...]:
            """The replica axes, by name."""

    @property
    def space(self) -> IndexSet:
        """The occurrence space F."""
        return self.left.domain

    @property
    def source(self) -> IndexSet:
        """The set A that the left leg maps to."""
        return self.left.codomain

    @property
    def target(self) -> IndexSet:
        """The set B that the right leg maps to."""
        return self.right.codomain

    def converse(self) -> LayoutCorr:
        """Return the correspondence with its legs swapped; nothing is inverted."""
        raise NotImplementedError

    def then(self, other: LayoutCorr) -> LayoutCorr:
        """Return ``other o self``: the lazy join on the shared coordinates (see ``Join``)."""
        from tvm_tilex.layout.correspondence.combine import Join

        return Join(self, other)

    def product(self, other: LayoutCorr) -> LayoutCorr:
        """Return the product of both legs: pairs of pairs, occurrences multiplied."""
        from tvm_tilex.layout.correspondence.combine import product_span

        return product_span(self, other)

    def occurrences(self, budget: int = DEFAULT_BUDGET) -> Iterator[Occurrence]:
        """Yield every occurrence with its coordinate.

        Raises
        ------
        LayoutError
            Where F is symbolic or has more than ``budget`` box points, or a leg has no value.
        """
        return _enumerated(self, self.space, budget)

    def pairs(self, budget: int = DEFAULT_BUDGET) -> Counter[tuple[Point, Point]]:
        """Return the multiset of related pairs; raises as :meth:`occurrences`."""
        return Counter((e.left, e.right) for e in self.occurrences(budget))

    def placements(self, *point: int, budget: int = DEFAULT_BUDGET) -> tuple[Occurrence, ...]:
        """Return the occurrences over one source point: where it is, one entry per copy.

        Raises
        ------
        CodomainError
            Outside the source.
        LayoutError
            As :meth:`occurrences`, for the fiber.
        """
        fiber = preimage(self.left, *point)
        return tuple(_enumerated(self, fiber, budget))

    def select(self, **coordinates: int) -> LayoutCorr:
        """Return the correspondence with one copy chosen along OWNERSHIP axes.

        Raises
        ------
        LayoutError
            For an axis that is not an ownership choice, or a coordinate outside it.
        """
        from tvm_tilex.layout.correspondence.replication import select

        return select(self, coordinates)

    def __str__(self) -> str:
        marks = "".join(f"; {name}: {kind.value}" for name, kind in self.replicas)
        return f"correspondence({self.left}, {self.right}{marks})"


@dataclass(frozen=True)
class Span(LayoutCorr):
    """A correspondence given by its two legs."""

    left: LayoutMap
    right: LayoutMap
    replicas: tuple[tuple[str, ReplicaKind], ...] = ()

    def __post_init__(self) -> None:
        if self.left.domain != self.right.domain:
            raise LayoutError(
                f"the legs have the occurrence spaces {self.left.domain} and {self.right.domain}"
            )
        names = [name for name, _ in self.replicas]
        if len(set(names)) != len(names) or not set(names) <= set(self.left.domain.names):
            raise LayoutError(f"replica axes {names} are not axes of {self.left.domain.names}")

    def converse(self) -> LayoutCorr:
        """Return the span with its legs swapped."""
        return Span(self.right, self.left, self.replicas)

    def __str__(self) -> str:
        return LayoutCorr.__str__(self)


def span(left: LayoutMap, right: LayoutMap, replicas: dict[str, ReplicaKind] | None = None) -> Span:
    """Return the correspondence with the given legs, which must have the same domain.

    Raises
    ------
    LayoutError
        For legs with different domains, or a replica axis that the domain doesn't have.
    """
    return Span(left, right, tuple((replicas or {}).items()))


def embed(map: LayoutMap) -> Span:
    """Return the function ``f : A -> B`` as the correspondence ``(id, f)`` on F = A."""
    return Span(Identity(map.domain), map)


def _enumerated(corr: LayoutCorr, space: IndexSet, budget: int) -> Iterator[Occurrence]:
    if space.parameters:
        raise LayoutError(f"the occurrence space {space} has parameters")
    small = narrowed(space)
    if small.box_size is None or small.box_size > budget:
        raise LayoutError(f"{small.box_size} occurrences exceed the budget of {budget}")
    for point in _points(small, {}):
        try:
            left, right = oracle_value(corr.left, point, {}), oracle_value(corr.right, point, {})
        except OracleFailure as failure:
            raise LayoutError(f"a leg has no value at {point}: {failure}") from None
        yield Occurrence(point, left, right)

"""Composition as a lazy join, and the product of two correspondences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Product
from tvm_tilex.layout.correspondence.base import (
    LayoutCorr,
    Occurrence,
    Point,
    ReplicaKind,
    Span,
)
from tvm_tilex.layout.expr import Expr, as_expr, eq
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr
from tvm_tilex.layout.preimage import value_guard
from tvm_tilex.layout.proof import DEFAULT_BUDGET

__all__ = ["Join", "product_span"]


@dataclass(frozen=True)
class Join(LayoutCorr):
    """``second o first``: the occurrences ``(e, g)`` with ``first.right(e) = second.left(g)``.

    Nothing is enumerated or solved when it is built. The occurrence space is the guarded subset of
    ``F x G``, built when a leg is asked for; enumeration joins the parts by their shared values.

    Raises
    ------
    LayoutError
        Where the middle sets differ in their axes' ranges.
    """

    first: LayoutCorr
    second: LayoutCorr

    def __post_init__(self) -> None:
        ours, theirs = self.first.target, self.second.source
        shapes = [[(a.extent, a.lower) for a in s.axes] for s in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise LayoutError(f"join: the middle sets {ours} and {theirs} differ")

    @cached_property
    def _both(self) -> tuple[IndexSet, LayoutMap, LayoutMap]:
        """The space and the projections to F and to G."""
        spaces = (self.first.space, self.second.space)
        box = Product((Identity(spaces[0]), Identity(spaces[1]))).domain
        rank = spaces[0].rank
        split = (box.coordinates[:rank], box.coordinates[rank:])
        parts = [IndexExpr(box, s, c) for s, c in zip(spaces, split, strict=True)]
        middle = (Compose(self.first.right, parts[0]), Compose(self.second.left, parts[1]))
        space = box.where(*_equal(*middle))
        into = [IndexExpr(space, s, c) for s, c in zip(spaces, split, strict=True)]
        return space, into[0], into[1]

    @property
    def left(self) -> LayoutMap:
        """The left leg of ``first`` on the joined space."""
        return Compose(self.first.left, self._both[1])

    @property
    def right(self) -> LayoutMap:
        """The right leg of ``second`` on the joined space."""
        return Compose(self.second.right, self._both[2])

    @property
    def source(self) -> IndexSet:
        """The source of ``first``."""
        return self.first.source

    @property
    def target(self) -> IndexSet:
        """The target of ``second``."""
        return self.second.target

    @property
    def replicas(self) -> tuple[tuple[str, ReplicaKind], ...]:
        """The replica axes of both parts, by their names on the joined space."""
        names = self._both[0].names
        rank = self.first.space.rank
        return (
            *_renamed(self.first, names[:rank]),
            *_renamed(self.second, names[rank:]),
        )

    def converse(self) -> LayoutCorr:
        """Return ``converse(first) o converse(second)``."""
        return Join(self.second.converse(), self.first.converse())

    def occurrences(self, budget: int = DEFAULT_BUDGET) -> Iterator[Occurrence]:
        """Yield the joined occurrences; each part is enumerated once.

        Raises
        ------
        LayoutError
            Where a part, or the join, has more than ``budget`` occurrences.
        """
        by_middle: dict[Point, list[Occurrence]] = {}
        for g in self.second.occurrences(budget):
            by_middle.setdefault(g.left, []).append(g)
        count = 0
        for e in self.first.occurrences(budget):
            for g in by_middle.get(e.right, ()):
                count += 1
                if count > budget:
                    raise LayoutError(f"the join has more than {budget} occurrences")
                yield Occurrence(e.at + g.at, e.left, g.right)

    def __str__(self) -> str:
        return f"join({self.first}, {self.second})"


def _equal(a: LayoutMap, b: LayoutMap) -> tuple[Expr, ...]:
    """Return the guard that two maps of one space are equal."""
    if len(b.pieces) == 1 and not b.pieces[0].guards:
        return value_guard(a, b.pieces[0].outputs)
    if len(a.pieces) == 1 and not a.pieces[0].guards:
        return value_guard(b, a.pieces[0].outputs)
    total: Expr | None = None
    for piece in b.pieces:
        held = as_expr(1)
        for test in (*piece.guards, *value_guard(a, piece.outputs)):
            held = held & (eq(test, 0) ^ 1)
        total = held if total is None else total + held
    return (as_expr(0) if total is None else total,)


def _renamed(corr: LayoutCorr, names: tuple[str, ...]) -> tuple[tuple[str, ReplicaKind], ...]:
    new = dict(zip(corr.space.names, names, strict=True))
    return tuple((new[name], kind) for name, kind in corr.replicas)


def product_span(first: LayoutCorr, second: LayoutCorr) -> Span:
    """Return the product: F x G, with the product of the left and of the right legs."""
    left = Product((first.left, second.left))
    right = Product((first.right, second.right))
    rank = first.space.rank
    names = left.domain.names
    replicas = (*_renamed(first, names[:rank]), *_renamed(second, names[rank:]))
    return Span(left, right, replicas)

"""Equality of correspondences, as multisets of pairs: by enumeration or by their legs."""

from __future__ import annotations

from collections import Counter

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.correspondence.base import LayoutCorr, Point
from tvm_tilex.layout.correspondence.simplify import has_legs, simplify
from tvm_tilex.layout.errors import CodomainError
from tvm_tilex.layout.expr import Expr
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.visitor import substitute
from tvm_tilex.layout.witness import probe_points, value_at

__all__ = ["equal_correspondences"]

_PROBES = 256
_FIBER = 256


def equal_correspondences(
    a: LayoutCorr, b: LayoutCorr, budget: int = DEFAULT_BUDGET, *, multiset: bool = True
) -> Verdict:
    """Decide whether two correspondences relate the same pairs, equally often.

    Parameters
    ----------
    budget
        Greatest number of occurrences to enumerate; past it, the legs of the simplified
        correspondences are compared by proof, and where that fails the fibers over probed source
        points are compared by enumeration, which can only refute.
    multiset
        False compares the sets of pairs, without their number of occurrences.

    Returns
    -------
    Verdict
        DISPROVEN with a pair (``witness.points``) and its two counts (``witness.values``).
    """
    if (a.source.rank, a.target.rank) != (b.source.rank, b.target.rank):
        raise LayoutError(
            f"correspondences of ranks {a.source.rank} to {a.target.rank} and {b.source.rank} to"
            f" {b.target.rank}"
        )
    try:
        ours, theirs = a.pairs(budget), b.pairs(budget)
    except LayoutError as error:
        return _by_legs(a, b, str(error), multiset)
    for pair in (*ours, *theirs):
        refuted = _refuted(pair, ours[pair], theirs[pair], multiset)
        if refuted is not None:
            return refuted
    return proven(f"exhaustive over {sum(ours.values())} occurrences")


def _refuted(pair: tuple[Point, Point], ours: int, theirs: int, multiset: bool) -> Verdict | None:
    if ours == theirs or (min(ours, theirs) > 0 and not multiset):
        return None
    witness = Witness(pair, ((ours,), (theirs,)))
    return disproven(f"{pair} occurs {ours} and {theirs} times", witness)


def _by_legs(a: LayoutCorr, b: LayoutCorr, why: str, multiset: bool) -> Verdict:
    x, y = simplify(a, 0).corr, simplify(b, 0).corr
    verdict = _equal_legs(x, y, why)
    if verdict.proven:
        return verdict
    refuted = _by_probes(x, y, multiset)
    return verdict if refuted is None else refuted


def _equal_legs(x: LayoutCorr, y: LayoutCorr, why: str) -> Verdict:
    if not (has_legs(x) and has_legs(y)) or not _same_space(x.space, y.space):
        return unknown(f"{why}, and the occurrence spaces are not proved to be the same")
    rename = IndexExpr(x.space, y.space, x.space.coordinates)
    for p, q in ((x.left, y.left), (x.right, y.right)):
        verdict = equal_maps(p, Compose(q, rename), 0)
        if not verdict.proven:
            return unknown(f"{why}, and the legs are not proved equal: {verdict.reason}")
    return proven("both legs are equal on the same occurrence space")


def _by_probes(x: LayoutCorr, y: LayoutCorr, multiset: bool) -> Verdict | None:
    """Refute by the fiber over a source point, or a target point, of some occurrence."""
    for flipped in (False, True):
        sides = (x.converse(), y.converse()) if flipped else (x, y)
        for point in _probed(sides):
            counts = [_fiber(side, point) for side in sides]
            if counts[0] is None or counts[1] is None:
                continue
            for value in (*counts[0], *counts[1]):
                pair = (value, point) if flipped else (point, value)
                refuted = _refuted(pair, counts[0][value], counts[1][value], multiset)
                if refuted is not None:
                    return refuted
    return None


def _probed(sides: tuple[LayoutCorr, LayoutCorr]) -> list[Point]:
    """Return the source points of the probed occurrences of both sides, each once."""
    found: dict[Point, None] = {}
    for side in sides:
        if not has_legs(side) or side.space.parameters:
            continue
        for at in probe_points(side.space, {}):
            value = value_at(side.left, at, {})
            if isinstance(value, tuple):
                found.setdefault(value)
    return list(found)[:_PROBES]


def _fiber(corr: LayoutCorr, point: Point) -> Counter[Point] | None:
    """Return how often each value is related to ``point``; None where not enumerated."""
    try:
        return Counter(e.right for e in corr.placements(*point, budget=_FIBER))
    except CodomainError:
        return Counter()
    except LayoutError:
        return None


def _same_space(x: IndexSet, y: IndexSet) -> bool:
    """Whether the spaces are equal up to the names of their axes."""
    shapes = [[(axis.extent, axis.lower) for axis in space.axes] for space in (x, y)]
    if shapes[0] != shapes[1]:
        return False
    named: dict[str, Expr] = dict(zip(y.names, x.coordinates, strict=True))
    return set(substitute(y.guards, named)) == set(x.guards)

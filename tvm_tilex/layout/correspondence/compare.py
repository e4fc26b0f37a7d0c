"""Equality of correspondences, as multisets of pairs: by enumeration or by their legs."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.correspondence.base import LayoutCorr
from tvm_tilex.layout.correspondence.simplify import has_legs, simplify
from tvm_tilex.layout.expr import Expr
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.visitor import substitute

__all__ = ["equal_correspondences"]


def equal_correspondences(
    a: LayoutCorr, b: LayoutCorr, budget: int = DEFAULT_BUDGET, *, multiset: bool = True
) -> Verdict:
    """Decide whether two correspondences relate the same pairs, equally often.

    Parameters
    ----------
    budget
        Greatest number of occurrences to enumerate; past it, the legs of the simplified
        correspondences are compared by proof, which can only establish equality.
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
        return _by_legs(a, b, str(error))
    for pair in (*ours, *theirs):
        counts = (ours[pair], theirs[pair])
        if (counts[0] != counts[1]) if multiset else (min(counts) == 0):
            witness = Witness(pair, ((counts[0],), (counts[1],)))
            return disproven(f"{pair} occurs {counts[0]} and {counts[1]} times", witness)
    return proven(f"exhaustive over {sum(ours.values())} occurrences")


def _by_legs(a: LayoutCorr, b: LayoutCorr, why: str) -> Verdict:
    x, y = simplify(a, 0).corr, simplify(b, 0).corr
    if not (has_legs(x) and has_legs(y)) or not _same_space(x.space, y.space):
        return unknown(f"{why}, and the occurrence spaces are not proved to be the same")
    rename = IndexExpr(x.space, y.space, x.space.coordinates)
    for p, q in ((x.left, y.left), (x.right, y.right)):
        verdict = equal_maps(p, Compose(q, rename), 0)
        if not verdict.proven:
            return unknown(f"{why}, and the legs are not proved equal: {verdict.reason}")
    return proven("both legs are equal on the same occurrence space")


def _same_space(x: IndexSet, y: IndexSet) -> bool:
    """Whether the spaces are equal up to the names of their axes."""
    shapes = [[(axis.extent, axis.lower) for axis in space.axes] for space in (x, y)]
    if shapes[0] != shapes[1]:
        return False
    named: dict[str, Expr] = dict(zip(y.names, x.coordinates, strict=True))
    return set(substitute(y.guards, named)) == set(x.guards)

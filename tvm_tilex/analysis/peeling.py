"""Coverage and ownership of peeled rows, proved before anything is emitted (spec 4.4).

A row of N elements has ``head`` elements before its first aligned one, 0 <= head < V, which
programs know at run time only; m = floor(N / V) - 1 packs follow. Obligations: the packs' elements
are what :mod:`tvm_tilex.analysis.coverage` proves of m * V elements; for each of the V values of
head, ::

    (k, v) -> V * k + v + head                  is a bijection onto [head, head + m * V)
    j -> j            of [0, head)              is a bijection onto [0, head)
    j -> j + m * V    of [head, N - m * V)      is a bijection onto [head + m * V, N)

with j < W the worker, in a slot behind those of the packs. The three parts make [0, N). And the two
blocks of L elements that hold a shifted vector of L elements, L dividing V, which begins head
elements behind a multiple of L, are inside [0, N) for every part of every pack.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from tvm_tilex.analysis.coverage import prove_coverage, prove_owners
from tvm_tilex.layout import (
    BIJECTION,
    Axis,
    Expr,
    Fact,
    IndexSet,
    LayoutMap,
    index_map,
    require_proven,
)
from tvm_tilex.layout.verdict import Verdict, proven, unknown
from tvm_tilex.plan.resources import peeled_packs, peels, stripe_length

__all__ = ["PeeledParts", "peeled_parts", "prove_peeled_coverage"]


class PeeledParts(NamedTuple):
    """The owner maps of one head: the packs' (k, v) -> e, the others' j -> e, all onto parts.

    Pack k of ``width`` elements is worker k mod W's, in chunk k // W; the other element j is
    worker j's.
    """

    head: int
    width: int
    packs: LayoutMap
    beside: tuple[LayoutMap, ...]


def peeled_parts(count: int, lane_elements: int) -> Iterator[PeeledParts]:
    """The parts of a row of ``count`` elements for each head."""
    whole = peeled_packs(count, lane_elements)
    packed = whole * lane_elements
    for head in range(lane_elements):
        packs = index_map(
            IndexSet((Axis("k", whole), Axis("v", lane_elements))),
            IndexSet((Axis("e", packed, head),)),
            lambda k, v, head=head: k * lane_elements + v + head,
        )
        yield PeeledParts(head, lane_elements, packs, tuple(_beside(count, head, packed)))


def _beside(count: int, head: int, packed: int) -> Iterator[LayoutMap]:
    """The elements before the packs, and those behind them, where there are any."""
    behind = count - packed - head
    for size, first, distance in ((head, 0, 0), (behind, head, packed)):
        if size:
            yield index_map(
                IndexSet((Axis("j", size, first),)),
                IndexSet((Axis("e", size, first + distance),)),
                lambda j, distance=distance: j + distance,
            )


@functools.lru_cache(maxsize=256)
def prove_peeled_coverage(count: int, workers: int, lane_elements: int) -> Verdict:
    """Discharge the obligations for rows of ``count`` elements; budget 0, so by rules alone.

    Raises
    ------
    ProofError
        If a fact of a map is not PROVEN; UNKNOWN is refused as DISPROVEN is.
    """
    if not peels(count, lane_elements):
        return prove_coverage(count, workers, lane_elements)
    packed = peeled_packs(count, lane_elements) * lane_elements
    covered = prove_coverage(packed, workers, lane_elements)
    if not covered.proven:
        return covered
    slots = stripe_length(count, workers, lane_elements, peeled=True)
    if stripe_length(packed, workers, lane_elements) > slots - 1:
        return unknown(f"{slots} slots do not hold the packs and an element beside them")
    for parts in peeled_parts(count, lane_elements):
        verdict = _prove_parts(parts, count, workers)
        if not verdict.proven:
            return verdict
    return proven(f"each of {count} elements has one owner among {workers} and one slot")


def _prove_parts(parts: PeeledParts, count: int, workers: int) -> Verdict:
    every = (parts.packs, *parts.beside)
    size = sum(part.codomain.box_size or 0 for part in every)
    if size != count:
        return unknown(f"the parts of a row of {count} elements have {size}")
    require_proven(parts.packs, BIJECTION, budget=0)
    for part in parts.beside:
        verdict = prove_owners(part, _inverse(part), "j")
        if not verdict.proven:
            return verdict
        owners = index_map(part.domain, IndexSet((Axis("worker", workers),)), lambda j: j)
        require_proven(owners, (Fact.TOTALITY, Fact.BOUNDS, Fact.INJECTIVITY), budget=0)
    packs = peeled_packs(count, parts.width)
    for lanes in (lanes for lanes in range(1, parts.width + 1) if parts.width % lanes == 0):
        first = parts.head - parts.head % lanes  # of the first pack's first part
        last = first + parts.width * (packs - 1) + parts.width - lanes  # of the last one's last
        if first < 0 or last + 2 * lanes > count:
            return unknown(f"a block of {lanes} elements is outside a row of {count}")
    return proven(f"the parts with {parts.head} elements before the packs")


def _inverse(part: LayoutMap) -> LayoutMap:
    (first,), (least,) = part.codomain.axes, part.domain.axes
    distance = first.bounds()[0] - least.bounds()[0]

    def owner(e: Expr) -> Expr:
        return e - distance

    return index_map(part.codomain, part.domain, owner)

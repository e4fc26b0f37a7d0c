"""Coverage and ownership of the execution map, proved before anything is emitted (spec 4.4).

With W workers and V elements a pack, the elements [0, N) fall into the full chunks and the rest,
the two parts that the mapper emits. Obligations, for each part::

    (chunk, w, v) -> e = (W * chunk + w) * V + v            is a bijection onto the part
    e -> (e // (W * V), (e // V) mod W, e mod V)            is its two-sided inverse
    (chunk, w, v) -> (w, slot = chunk * V + v)              is injective, and slot < stripe length
    (chunk, w, v) -> (w, e)                                 is an owner-preserving distribution

So every element has one owner, and an owner keeps its elements in distinct slots of a stripe of
floor(N / (W*V)) * V + min(N mod (W*V), V) scalars.

Stripes in shared memory stand one tile after the other, each in packs of V places for each of T
threads. Obligation, for a tile of n packs a thread after ``base`` packs of the tiles before it::

    (chunk, thread, v) -> ((base + chunk) * T + thread) * V + v
        is a bijection of n * T * V places onto [base * T * V, (base + n) * T * V)

So no place belongs to two tiles, nor to two threads, and none is outside the allocation: what a
thread stores there needs no barrier before the same thread reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tvm_tilex.layout import (
    BIJECTION,
    Axis,
    Expr,
    Fact,
    IndexSet,
    LayoutMap,
    index_map,
    lt,
    require_proven,
    verify_inverse,
)
from tvm_tilex.layout.verdict import Verdict, proven, unknown
from tvm_tilex.layout.views import Distribution
from tvm_tilex.plan.resources import stripe_length

__all__ = [
    "distributions",
    "element_maps",
    "prove_coverage",
    "prove_owners",
    "prove_staging",
    "slot_maps",
    "staged_maps",
]


def element_maps(count: int, workers: int, lane_elements: int) -> Iterator[LayoutMap]:
    """The owner map (chunk, w, v) -> e of the full chunks and of the rest, where they exist."""
    for domain, codomain in _parts(count, workers, lane_elements):
        yield index_map(
            domain, codomain, lambda chunk, w, v: (chunk * workers + w) * lane_elements + v
        )


def distributions(count: int, workers: int, lane_elements: int) -> Iterator[Distribution]:
    """Who holds which element, (chunk, w, v) -> (w, e), of the same parts."""
    for owned in element_maps(count, workers, lane_elements):
        yield Distribution.owned(owned, ("w",))


def slot_maps(count: int, workers: int, lane_elements: int) -> Iterator[LayoutMap]:
    """The storage map (chunk, w, v) -> (w, slot) of the same parts."""
    stripe = stripe_length(count, workers, lane_elements)
    storage = IndexSet((Axis("worker", workers), Axis("slot", stripe)))
    for domain, _ in _parts(count, workers, lane_elements):
        yield index_map(domain, storage, lambda chunk, w, v: (w, chunk * lane_elements + v))


def staged_maps(packs: tuple[int, ...], threads: int, lane_elements: int) -> Iterator[LayoutMap]:
    """The place of each staged tile's elements, (chunk, thread, v) -> place, in order.

    ``packs`` are the packs of V places that a thread has of each tile.
    """
    base = 0
    for count in packs:
        domain = IndexSet((Axis("chunk", count), Axis("thread", threads), Axis("v", lane_elements)))
        size, first = count * threads * lane_elements, base * threads * lane_elements
        yield index_map(
            domain,
            IndexSet((Axis("place", size, first),)),
            lambda chunk, thread, v, first=first: (
                (chunk * threads + thread) * lane_elements + v + first
            ),
        )
        base += count


@functools.lru_cache(maxsize=1024)
def prove_staging(packs: tuple[int, ...], threads: int, lane_elements: int) -> None:
    """Discharge the obligation for the staged tiles of a threadgroup; budget 0.

    Raises
    ------
    ProofError
        If a map is not PROVEN a bijection; UNKNOWN is refused as DISPROVEN is.
    """
    for places in staged_maps(packs, threads, lane_elements):
        require_proven(places, BIJECTION, budget=0)


@functools.lru_cache(maxsize=1024)
def prove_coverage(count: int, workers: int, lane_elements: int) -> Verdict:
    """Discharge the obligations for ``count`` elements; budget 0, so by rules alone.

    Raises
    ------
    ProofError
        If a fact of a map is not PROVEN; UNKNOWN is refused as DISPROVEN is.
    """
    for owned in element_maps(count, workers, lane_elements):
        verdict = prove_owners(owned, _inverse(owned, workers, lane_elements), "w")
        if not verdict.proven:
            return verdict
    stored = (Fact.TOTALITY, Fact.BOUNDS, Fact.INJECTIVITY)
    for storage in slot_maps(count, workers, lane_elements):
        require_proven(storage, stored, budget=0)
    return proven(f"each of {count} elements has one owner among {workers} and one slot")


def prove_owners(owned: LayoutMap, inverse: LayoutMap, worker: str) -> Verdict:
    """That a map onto elements is a bijection, undone by ``inverse``, which keeps their owners.

    ``worker`` is the axis that counts them; budget 0.

    Raises
    ------
    ProofError
        If the map is not PROVEN a bijection.
    """
    require_proven(owned, BIJECTION, budget=0)
    undone = verify_inverse(owned, inverse, 0)
    if not undone.proven:
        return unknown(f"the owner of an element is not proved: {undone.reason}")
    law = Distribution.owned(owned, (worker,)).owner_preserving(0)
    if not law.proven:
        return unknown(f"an element's owner is not its worker: {law.reason}")
    return proven("every element has one owner")


def _inverse(owned: LayoutMap, workers: int, lane_elements: int) -> LayoutMap:
    pack = workers * lane_elements

    def owner(e: Expr) -> tuple[Expr, Expr, Expr]:
        return e // pack, (e // lane_elements) % workers, e % lane_elements

    return index_map(owned.codomain, owned.domain, owner)


def _parts(count: int, workers: int, lane_elements: int) -> Iterator[tuple[IndexSet, IndexSet]]:
    """Domain and elements of the full chunks, then of the rest under its bound."""
    pack = workers * lane_elements
    full, rest = divmod(count, pack)
    if full:
        axes = (Axis("chunk", full), Axis("w", workers), Axis("v", lane_elements))
        yield IndexSet(axes), IndexSet((Axis("e", full * pack),))
    if not rest:
        return
    box = IndexSet(
        (
            Axis("chunk", 1, full),
            Axis("w", -(-rest // lane_elements)),
            Axis("v", min(rest, lane_elements)),
        )
    )
    _, w, v = box.coordinates
    guards = (lt(w * lane_elements + v, rest),) if rest % lane_elements else ()
    yield IndexSet(box.axes, guards), IndexSet((Axis("e", rest, full * pack),))

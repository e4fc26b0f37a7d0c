"""Enumerates (S, Q, V, C) and rejects what resources or a request rule out, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
from tvm_tilex.plan.resources import (
    MapShape,
    largest_coordinate,
    shared_bytes,
    stripe_scalars,
)

__all__ = ["MAX_GRID", "enumerate_shapes", "rejection", "replays"]

# One lane reads each subgroup's partial in the second collective (spec section 4).
MAX_SUBGROUPS = 32
MAX_AUTOMATIC_PACKING = 8
# Widths worth a whole cluster; between them the last chunk only changes its length.
CLUSTER_SUBGROUPS = (4, 8, 16, 32)
# A launch extent is a 32-bit integer.
MAX_GRID = 2**31 - 1


def enumerate_shapes(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[MapShape]:
    """Every (S, Q, V, C) of the family that the request selects: C = 1 first, smaller S first.

    Automatic: S = 1 with Q up to min(P, 8, threads/32), and every wider S with Q = 1. An exact
    thread count T without Q fixes S = T/32; with Q it fixes S = T/(32*Q). An explicit Q is
    neither clamped by P nor by 8. Where the target has clusters and neither threads nor Q are
    stated, C = 2, 4, ... threadgroups a program are considered too, with Q = 1; an exact C
    replaces them all.
    """
    widths = (request.lane_elements,) if request.lane_elements else target.lane_elements
    if request.blocks_per_program <= 1:
        for subgroups, packed in _groups(facts, target, request):
            for elements in widths:
                yield MapShape(subgroups, packed, elements)
    for subgroups, packed, blocks in _clusters(facts, target, request):
        for elements in widths:
            yield MapShape(subgroups, packed, elements, blocks)


def _clusters(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int, int]]:
    if request.blocks_per_program > 1:
        for subgroups, packed in _groups(facts, target, request):
            if packed == 1 or request.programs_per_group:
                yield subgroups, packed, request.blocks_per_program
        return
    if request.threads or request.programs_per_group or request.blocks_per_program:
        return
    blocks = 2
    while blocks <= target.cluster_blocks:
        for subgroups in CLUSTER_SUBGROUPS:
            if subgroups * target.lanes <= target.max_threads:
                yield subgroups, 1, blocks
        blocks *= 2


def _groups(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int]]:
    widest = min(MAX_SUBGROUPS, target.max_threads // target.lanes)
    if request.threads:
        packed = request.programs_per_group or 1
        yield request.threads // (target.lanes * packed), packed
        return
    if request.programs_per_group:
        for subgroups in range(1, widest + 1):
            yield subgroups, request.programs_per_group
        return
    packing = min(facts.programs, MAX_AUTOMATIC_PACKING, target.max_threads // target.lanes)
    for packed in range(1, packing + 1):
        yield 1, packed
    for subgroups in range(2, widest + 1):
        yield subgroups, 1


def replays(subgroups: int, packed: int, facts: ProgramFacts) -> bool:
    """Whether inactive programs of the last group may repeat the last valid one (spec 4.3)."""
    return subgroups > 1 and not facts.fills(packed)


def rejection(
    shape: MapShape, facts: ProgramFacts, target: TargetFacts, request: Request
) -> str | None:
    """Why a candidate is illegal, or None; checked in the order of the specification."""
    subgroups, packed, elements, blocks = shape
    threads = target.lanes * subgroups * packed
    if request.threads and threads != request.threads:
        return (
            f"threads_per_group={request.threads} is not {target.lanes}*S*Q for Q={packed} "
            "and a whole S"
        )
    if threads > target.max_threads:
        return f"{threads} threads exceed the target's {target.max_threads}"
    if not 1 <= subgroups <= MAX_SUBGROUPS:
        return f"S={subgroups} is outside 1..{MAX_SUBGROUPS}"
    if blocks > max(1, target.cluster_blocks):
        return f"{blocks} threadgroups a program exceed the target's {target.cluster_blocks}"
    if blocks > 1 and packed > 1:
        return f"a program on {blocks} threadgroups leaves no room for Q={packed}"
    needed = shared_bytes(facts, subgroups, packed, blocks)
    if needed > target.shared_bytes:
        return f"{needed} shared bytes exceed the target's {target.shared_bytes}"
    workers = target.lanes * subgroups * blocks
    scalars = stripe_scalars(facts, workers, elements, reused=target.reuses_stripes)
    if scalars > request.max_striped_scalars:
        return (
            f"{scalars} striped scalars a worker exceed "
            f"max_reduction_striped_scalars_per_worker={request.max_striped_scalars}"
        )
    if not shape.independent and not facts.unit_enclosing:
        return "a reduction stands in a repeated loop: its partials could race"
    if replays(subgroups, packed, facts) and facts.reads_what_it_writes:
        return "a packed tail replays the last row, whose elements its owner overwrites"
    groups = -(-facts.programs // packed) * blocks
    if groups > MAX_GRID:
        return f"{groups} threadgroups exceed a 32-bit grid"
    largest = largest_coordinate(facts, shape, target.lanes)
    if largest > facts.index_limit:
        return f"the coordinate {largest} of a bounded tail exceeds the index type"
    return None

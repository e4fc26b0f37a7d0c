"""Enumerates (S, Q, V) and rejects what the resources or a request rule out, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
from tvm_tilex.plan.resources import largest_coordinate, shared_bytes, stripe_scalars

__all__ = ["MAX_GRID", "enumerate_shapes", "rejection", "replays"]

# One lane reads each subgroup's partial in the second collective (spec section 4).
MAX_SUBGROUPS = 32
MAX_AUTOMATIC_PACKING = 8
# A launch extent is a 32-bit integer.
MAX_GRID = 2**31 - 1


def enumerate_shapes(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int, int]]:
    """Every (S, Q, V) of the family that the request selects, smaller S first.

    Automatic: S = 1 with Q up to min(P, 8, threads/32), and every wider S with Q = 1. An exact
    thread count T without Q fixes S = T/32; with Q it fixes S = T/(32*Q). An explicit Q is
    neither clamped by P nor by 8.
    """
    widths = (request.lane_elements,) if request.lane_elements else target.lane_elements
    for subgroups, packed in _groups(facts, target, request):
        for elements in widths:
            yield subgroups, packed, elements


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


def replays(subgroups: int, packed: int, programs: int) -> bool:
    """Whether inactive programs of the last group repeat the last valid one (spec 4.3)."""
    return subgroups > 1 and programs % packed != 0


def rejection(
    shape: tuple[int, int, int], facts: ProgramFacts, target: TargetFacts, request: Request
) -> str | None:
    """Why a candidate is illegal, or None; checked in the order of the specification."""
    subgroups, packed, elements = shape
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
    needed = shared_bytes(facts, subgroups, packed)
    if needed > target.shared_bytes:
        return f"{needed} shared bytes exceed the target's {target.shared_bytes}"
    scalars = stripe_scalars(facts, target.lanes * subgroups, elements)
    if scalars > request.max_striped_scalars:
        return (
            f"{scalars} striped scalars a worker exceed "
            f"max_reduction_striped_scalars_per_worker={request.max_striped_scalars}"
        )
    if subgroups > 1 and not facts.unit_enclosing:
        return "a reduction stands in a repeated loop: its partials could race"
    if replays(subgroups, packed, facts.programs) and facts.reads_what_it_writes:
        return "a packed tail replays the last row, whose elements its owner overwrites"
    blocks = -(-facts.programs // packed)
    if blocks > MAX_GRID:
        return f"{blocks} threadgroups exceed a 32-bit grid"
    largest = largest_coordinate(facts, shape, target.lanes)
    if largest > facts.index_limit:
        return f"the coordinate {largest} of a bounded tail exceeds the index type"
    return None

"""What a candidate costs in threads, shared bytes and private scalars (spec sections 4 to 6).

W = lanes * S workers serve a program; a worker owns V consecutive elements of each chunk.
"""

from __future__ import annotations

from tvm_tilex.plan.facts import ProgramFacts

__all__ = ["largest_coordinate", "rounds", "shared_bytes", "stripe_length", "stripe_scalars"]

SCALAR_BYTES = 4


def stripe_length(elements: int, workers: int, lane_elements: int) -> int:
    """The most elements one worker owns: floor(N/(W*V))*V + min(N mod (W*V), V)."""
    pack = workers * lane_elements
    return elements // pack * lane_elements + min(elements % pack, lane_elements)


def stripe_scalars(facts: ProgramFacts, workers: int, lane_elements: int) -> int:
    """Private scalars of a worker over all stripes."""
    return sum(stripe_length(count, workers, lane_elements) for count in facts.stripes)


def shared_bytes(facts: ProgramFacts, subgroups: int, programs_per_group: int) -> int:
    """Bytes of partials: |R| * Q * S * 4, and none for S = 1."""
    if subgroups == 1:
        return 0
    return len(facts.reductions) * programs_per_group * subgroups * SCALAR_BYTES


def rounds(facts: ProgramFacts, workers: int, lane_elements: int) -> int:
    """Scalar rounds of a worker: each domain and each reduction rounded up on its own."""
    return sum(
        stripe_length(count, workers, lane_elements)
        for count in (*facts.domains, *facts.reductions)
    )


def largest_coordinate(facts: ProgramFacts, shape: tuple[int, int, int], lanes: int) -> int:
    """The largest element or program coordinate that is computed before its bound is tested."""
    subgroups, packed, elements = shape
    pack = lanes * subgroups * elements
    counts = (*facts.domains, *facts.reductions)
    rounded = max((-(-count // pack) * pack for count in counts), default=1)
    return max(rounded, -(-facts.programs // packed) * packed) - 1

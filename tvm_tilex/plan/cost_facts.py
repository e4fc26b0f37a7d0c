"""What a cost policy is told of a legal candidate."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CostFacts"]


@dataclass(frozen=True)
class CostFacts:
    """Facts of one legal candidate. Counts are exact; nothing here is measured occupancy.

    ``physical_groups`` is ceil(P/Q); ``elements`` the useful scalar elements of a program over its
    separate domains and reductions; ``workers`` serve a program, on ``blocks_per_program``
    threadgroups; ``useful_lane_work`` is elements / (rounds * W).
    ``programs_per_subgroup`` programs share a SIMD group.
    ``bytes`` are those that a program moves from and to global memory, ``cached_bytes`` those of
    them that every program reads, ``repeated_bytes`` those that the program has read before.
    ``read_slots`` counts program slots that load (packed tails replay), ``write_slots`` those that
    store. ``widest`` is the most elements a worker owns of one domain or reduction, and
    ``vector_width`` how many consecutive ones could move together. ``repartitioned`` counts the
    elements that a program places anew: each is stored once more and read from there.
    ``staged_bytes`` are the shared bytes of a threadgroup that hold stripes;
    ``instructions`` estimates the arithmetic of a program, an element of work each, and
    ``late_reads`` counts what it loads after its first reduction. ``exchanges`` counts how often
    the SIMD groups of a program, if it has several, tell each other their partial results: once a
    reduction, or once for a maximum and the sum that is rescaled by it. ``peeled`` says that packs
    begin at a row's first aligned element, so that what stands beside them moves alone and
    ``shifted_reads`` elements, those that every program reads, are put together from two vectors.
    ``dependent`` says that the kernel is launched before the one that it follows has ended.
    """

    subgroups: int
    programs_per_group: int
    lane_elements: int
    workers: int
    rounds: int
    reductions: int
    physical_groups: int
    elements: int
    useful_lane_work: float
    shared_bytes: int
    stripe_scalars: int
    reads: int
    writes: int
    read_slots: int
    write_slots: int
    widest: int
    vector_width: int
    blocks_per_program: int = 1
    bytes: int = 0
    repartitioned: int = 0
    staged_bytes: int = 0
    instructions: int = 0
    late_reads: int = 0
    cached_bytes: int = 0
    repeated_bytes: int = 0
    exchanges: int = 0
    programs_per_subgroup: int = 1
    peeled: bool = False
    shifted_reads: int = 0
    dependent: bool = False

"""Which ranges of a dynamic extent get a plan of their own.

A plan is made for the greatest value of its range: stripes are sized for it, and shorter rows are
masked. So widths are cut at powers of two, which leaves at least half of a plan's elements in use.
A number of programs does not change what is legal, but what is fast: a launch of few programs
leaves most of the machine idle and takes as long as one of them.
"""

from __future__ import annotations

__all__ = ["FEW_POLICY", "FEW_PROGRAMS", "LEAST_WIDTH", "program_ranges", "width_ranges"]

# Below this many programs every one can have a core to itself: a judgement about current GPUs of
# the kind (an H200 has 132 multiprocessors, Apple's 8 to 40 cores), not a measurement.
FEW_PROGRAMS = {"cuda": 128, "metal": 32}

# What plans few programs: CUDA's own policy sees how many there are, the analytic prior doesn't.
FEW_POLICY = {"cuda": "default", "metal": "latency"}

# Rows up to this width share a plan: one SIMD group holds them in 8 elements a lane.
LEAST_WIDTH = 256


def program_ranges(
    least: int, greatest: int, kind: str, *, per: int = 1
) -> tuple[tuple[int, int], ...]:
    """Few programs and many, without the empty launch, which needs no plan.

    ``per`` is how many programs one step of the extent counts.
    """
    few = FEW_PROGRAMS.get(kind, 0) // per
    least = max(1, least)
    if not least <= few < greatest:
        return ((least, greatest),) if least <= greatest else ()
    return ((least, few), (few + 1, greatest))


def width_ranges(least: int, greatest: int) -> tuple[tuple[int, int], ...]:
    """``least..256``, then up to each power of two, then up to ``greatest``."""
    found, start, end = [], least, LEAST_WIDTH
    while start <= greatest:
        if start <= end:
            found.append((start, min(end, greatest)))
            start = end + 1
        end *= 2
    return tuple(found)

"""A modelled cost from the simulator's counters: weighted events, not time on any device.

segments    device segments (128 bytes) touched by loads and stores, per program
barriers    threadgroup barriers that a threadgroup executes
collectives SIMD-group collectives of all SIMD groups, per program
arithmetic  operations of a thread, mean over the threads launched (address arithmetic too)
issued      the same, summed over the SIMD groups of a program
groups      threadgroups, per program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["EVENTS", "WEIGHTINGS", "Weights", "count_events", "modelled_cost"]

EVENTS = ("segments", "barriers", "collectives", "arithmetic", "issued", "groups")


@dataclass(frozen=True)
class Weights:
    """Cost of one counted event, in operations of one thread."""

    segments: float
    barriers: float
    collectives: float
    arithmetic: float
    issued: float
    groups: float


WEIGHTINGS: Mapping[str, Weights] = {
    # A collective is about five exchange steps, a barrier waits for every SIMD group of the
    # threadgroup, a segment occupies the memory pipe for a few operations' time.
    "balanced": Weights(0.5, barriers=30, collectives=5, arithmetic=1, issued=0, groups=100),
    # A machine that is empty (what a thread does last decides), and one that is full.
    "latency": Weights(0, barriers=30, collectives=0, arithmetic=1, issued=0, groups=0),
    "throughput": Weights(0.5, barriers=30, collectives=5, arithmetic=0, issued=1, groups=100),
}


def count_events(launches: Sequence[Any], programs: int) -> dict[str, float]:
    """Events of a kernel's launches (:class:`tvm_tilex.sim.Counters`), by name of ``EVENTS``."""
    total = dict.fromkeys(EVENTS, 0.0)
    for counters in launches:
        traffic = counters.device.values()
        arithmetic = counters.arithmetic.total()
        found = {
            "segments": sum(t.load_segments + t.store_segments for t in traffic) / programs,
            "barriers": counters.barriers_per_threadgroup,
            "collectives": counters.collectives.total() / programs,
            "arithmetic": arithmetic / counters.threads if counters.threads else 0.0,
            "issued": arithmetic / 32 / programs,
            "groups": counters.threadgroups / programs,
        }
        total = {name: total[name] + found[name] for name in EVENTS}
    return total


def modelled_cost(events: Mapping[str, float], weighting: str = "balanced") -> float:
    """The weighted sum of events, dimensionless."""
    weights: dict[str, float] = asdict(WEIGHTINGS[weighting])
    return sum(weight * events[name] for name, weight in weights.items())

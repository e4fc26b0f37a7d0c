"""What a launch did, counted while it ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Counters", "DeviceTraffic", "ThreadgroupTraffic"]


@dataclass
class DeviceTraffic:
    """Traffic of one device or constant buffer.

    Elements are scalars (a ``float4`` is four), counted per active thread. A *SIMD access* is one
    load or store executed by one SIMD group; its *segments* are the distinct aligned 128-byte
    segments that its active lanes touch, so segments / accesses = 1 is fully coalesced for 32
    four-byte lanes.
    """

    load_elements: int = 0
    load_bytes: int = 0
    load_accesses: int = 0
    load_segments: int = 0
    store_elements: int = 0
    store_bytes: int = 0
    store_accesses: int = 0
    store_segments: int = 0


@dataclass
class ThreadgroupTraffic:
    """Traffic of one threadgroup array.

    ``bank_conflicts`` counts the extra passes of SIMD accesses on 32 banks of four bytes: the
    largest number of distinct words in one bank, minus one, summed over accesses. A vector access
    counts one pass per four-byte component.
    """

    load_elements: int = 0
    load_bytes: int = 0
    store_elements: int = 0
    store_bytes: int = 0
    accesses: int = 0
    bank_conflicts: int = 0


@dataclass
class Counters:
    """Counters of one launch.

    ``barriers`` counts ``threadgroup_barrier`` once per threadgroup that executes it,
    ``simdgroup_barriers`` once per SIMD group, ``collectives`` one per SIMD group and function
    name. ``arithmetic`` counts operations of active threads by ``"type.operation"``; address
    arithmetic that the text writes counts as integer arithmetic.
    """

    kernel: str
    threadgroups: int
    threads_per_threadgroup: int
    device: dict[str, DeviceTraffic] = field(default_factory=dict)
    threadgroup: dict[str, ThreadgroupTraffic] = field(default_factory=dict)
    barriers: int = 0
    simdgroup_barriers: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    arithmetic: Counter[str] = field(default_factory=Counter)
    threadgroup_bytes: int = 0
    private_bytes_per_thread: int = 0
    loop_iterations: int = 0

    @property
    def threads(self) -> int:
        """Threads launched."""
        return self.threadgroups * self.threads_per_threadgroup

    @property
    def barriers_per_threadgroup(self) -> float:
        """Mean number of threadgroup barriers that one threadgroup executes."""
        return self.barriers / self.threadgroups if self.threadgroups else 0.0

    def loads_per_element(self, buffer: str, elements: int) -> float:
        """Return device loads of ``buffer`` divided by ``elements``, its logical size."""
        return self.device[buffer].load_elements / elements

    def table(self) -> str:
        """Return the counters as a plain-text table."""
        from tvm_tilex.sim.report import format_counters

        return format_counters(self)

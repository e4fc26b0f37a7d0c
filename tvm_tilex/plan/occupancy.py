"""A cost policy for GPUs that stream rows: how well the resident groups hide each other's latency.

A multiprocessor is taken as a closed queue. n groups are resident (threads, registers, shared
memory and group slots bound n); each spends a latency L (start, barriers, dependent rounds,
accesses) in which it uses nothing, and needs s microseconds of the multiprocessor's share of memory
bandwidth, i of its issue slots and l of its launches. A group then leaves every::

    (((L + s + i) / n) ** p + b ** p) ** (1 / p),    b = (s ** q + i ** q + l ** q) ** (1 / q)

microseconds: the first term where latency is the limit, the second where a resource is (the
asymptotes of a closed queueing network; p and q say how sharp the knees are). A partly filled last
wave adds its share.

The coefficients are the fit of ``scripts/benchmark/fit_cuda_cost.py`` to 2,796 measured kernels of
six operators, eight shapes and two storage types on one H200 (``configs/measurements``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_tilex.plan.cost_facts import CostFacts

__all__ = ["RELEASED_BYTES", "OccupancyCost"]

_CLOCK = 1900.0  # cycles a microsecond
_LANES = 128.0  # scalar instructions a cycle
_REGISTER_STEP = 8
RELEASED_BYTES = 64  # of a row that a worker reads each time, at most
_GROUP_BYTES = 1024  # shared memory that the system takes of each group


@dataclass(frozen=True)
class OccupancyCost:
    """Microseconds of a multiprocessor that one program takes, by a closed queue.

    ``bandwidth`` is in bytes a microsecond and multiprocessor, as if nothing else were used; a byte
    that every program reads counts ``cached`` times, one that the program itself has read before
    ``repeated`` times, and ``repeated_depth`` of that more a doubling of a thread's accesses.
    ``resident_threads``, ``resident_registers``, ``resident_shared`` bytes and ``resident_groups``
    are the device's limits a multiprocessor. ``registers`` and ``registers_per_scalar`` estimate a
    thread's registers from its stripes.
    Microseconds: ``start`` of a group and ``start_per_warp``; ``barrier`` of an exchange between
    several SIMD groups and ``barrier_per_doubling`` of their number; ``cluster_start``,
    ``cluster_barrier``; ``round`` of one dependent scalar; ``access`` to memory of a thread;
    ``late`` loads after the first reduction and ``late_access`` of a thread to them;
    ``staging`` of a group and ``staging_per_element`` of a thread; ``launch`` between two groups.
    ``launch_per_warp`` and ``cluster_barrier_per_warp`` are relative to theirs.
    ``slots_per_round``, ``slots_per_instruction``, ``slots_per_access`` and
    ``slots_per_collective`` are issue slots of a lane. ``knee`` is p - 1, ``mixing`` q - 1.
    Relative: ``tail`` is the weight of a partial last wave, ``vector`` what another than the full
    vector width costs, ``depth`` what a doubling of a thread's accesses costs in bandwidth (rows
    are read in more pieces at a time), ``packed`` a doubling of Q for each doubling of a thread's
    accesses, ``cluster`` and ``staged`` what those plans cost besides; ``released`` what plans gain
    whose rows the caches let go at their last reading.
    """

    bandwidth: float = 22648.0
    multiprocessors: float = 132.0
    resident_threads: float = 2048.0
    resident_registers: float = 65536.0
    resident_shared: float = 233472.0
    resident_groups: float = 32.0
    repeated: float = 0.0442384
    repeated_depth: float = 0.0683149
    cached: float = 0.0974545
    registers: float = 39.6179
    registers_per_scalar: float = 0.476351
    start: float = 0.373816
    start_per_warp: float = 0.00124649
    barrier: float = 0.0271702
    barrier_per_doubling: float = 0.0171116
    cluster_start: float = 4.40955
    cluster_barrier: float = 0.302466
    cluster_barrier_per_warp: float = 0.0128177
    round: float = 0.00146619
    late: float = 0.0453951
    late_access: float = 0.00527987
    access: float = 0.00833456
    staging: float = 1.17347
    staging_per_element: float = 0.0226357
    launch: float = 0.0716945
    launch_per_warp: float = 0.573057
    slots_per_round: float = 0.458918
    slots_per_instruction: float = 0.574423
    slots_per_access: float = 2.74627
    slots_per_collective: float = 0.440738
    knee: float = 4.5227
    depth: float = 0.0584072
    mixing: float = 6.04605
    tail: float = 0.0857554
    vector: float = 0.623164
    packed: float = 0.00520102
    cluster: float = 0.139875
    released: float = 0.0353907
    staged: float = 0.00670224

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        packed, blocks = facts.programs_per_group, facts.blocks_per_program
        threads = facts.workers * packed // blocks
        warps = threads / 32
        resident = self._resident(facts, threads)
        share = packed / blocks  # programs of a group
        distinct = facts.bytes - facts.cached_bytes * (1 - self.cached)
        doublings = math.log2(self._accesses(facts))
        again = self.repeated * (1 + self.repeated_depth * doublings)
        distinct -= facts.repeated_bytes * (1 - again)
        streams = 1 + self.depth * doublings
        memory = distinct * share / self.bandwidth * streams
        issue = self._slots(facts, threads, share) / _LANES / _CLOCK
        launch = self.launch * (1 + self.launch_per_warp * warps)
        busiest = _norm(1 + self.mixing, memory, issue, launch)
        waiting = (self._latency(facts, warps) + memory + issue) / resident
        period = _norm(1 + self.knee, waiting, busiest)
        waves = facts.physical_groups / (self.multiprocessors * resident)
        partial = math.ceil(waves) / waves - 1
        return period / share * (1 + self.tail * partial) * self._relative(facts)

    def _resident(self, facts: CostFacts, threads: int) -> float:
        most = min(255.0, self.resident_registers / threads)
        scalars = self.registers_per_scalar * facts.stripe_scalars
        estimated = min(max(self.registers + scalars, 16.0), most)
        registers = math.ceil(estimated / _REGISTER_STEP) * _REGISTER_STEP
        by_threads = self.resident_threads // threads
        by_registers = self.resident_registers // (threads * registers)
        found = min(self.resident_groups, by_threads, by_registers)
        if facts.staged_bytes:
            needed = facts.staged_bytes + facts.shared_bytes + _GROUP_BYTES
            found = min(found, self.resident_shared // needed)
        # A multiprocessor holds no more groups than there are for it.
        return max(1.0, min(found, math.ceil(facts.physical_groups / self.multiprocessors)))

    def _slots(self, facts: CostFacts, threads: int, share: float) -> float:
        accesses = (facts.reads + facts.writes) / facts.lane_elements
        return (
            facts.rounds * threads * self.slots_per_round
            + facts.instructions * share * self.slots_per_instruction
            + accesses * share * self.slots_per_access
            + facts.reductions * threads * self.slots_per_collective
        )

    def _latency(self, facts: CostFacts, warps: float) -> float:
        accesses = (facts.reads + facts.writes) / facts.workers / facts.lane_elements
        found = self.start + self.start_per_warp * warps
        found += self.round * facts.rounds + self.access * accesses
        if facts.subgroups > 1:
            doublings = math.log2(facts.subgroups)
            found += facts.exchanges * (self.barrier + self.barrier_per_doubling * doublings)
        if facts.blocks_per_program > 1:
            barrier = self.cluster_barrier * (1 + self.cluster_barrier_per_warp * warps)
            found += self.cluster_start + facts.exchanges * barrier
        if facts.late_reads:
            late = facts.late_reads / facts.workers / facts.lane_elements
            found += self.late + self.late_access * late
        if facts.staged_bytes:
            found += self.staging + self.staging_per_element * facts.widest
        return found

    def _accesses(self, facts: CostFacts) -> float:
        """Vectors that a thread moves one after the other of the widest tile."""
        return max(facts.widest / facts.lane_elements, 1.0)

    def _relative(self, facts: CostFacts) -> float:
        packing = math.log2(facts.programs_per_group) * math.log2(self._accesses(facts))
        return (
            (1 + self.vector * (facts.lane_elements != facts.vector_width))
            * (1 + self.packed * packing)
            * (1 + self.cluster * (facts.blocks_per_program > 1))
            * (1 + self.staged * (facts.staged_bytes > 0))
            * (1 - self.released * _releases(facts))
        )


def _releases(facts: CostFacts) -> bool:
    """Whether rows are read again in parts so small that the reading says when it is the last.

    The rule of :mod:`tvm_tilex.transform.cache_hints`, with the mean size of an element: the last
    reading is for results, as many as it has elements.
    """
    size = facts.bytes / max(facts.reads + facts.writes, 1)
    small = facts.widest * size <= RELEASED_BYTES
    return facts.repeated_bytes > 0 and small and facts.writes > 1


def _norm(power: float, *terms: float) -> float:
    """The power mean's numerator: the largest term, and more where others come near it."""
    largest = max(terms)
    return largest * math.pow(sum(math.pow(t / largest, power) for t in terms), 1 / power)

"""A cost policy for GPUs that stream rows: how well the resident groups hide each other's latency.

A multiprocessor is taken as a closed queue. n groups are resident (threads, registers, shared
memory and group slots bound n); each spends a latency L (start, barriers, dependent rounds,
accesses) that the others can hide, and needs s microseconds of the multiprocessor's share of memory
bandwidth, i of its issue slots and l of its launches. A group then leaves every::

    ((L / n) ** p + b ** p) ** (1 / p),    b = (s ** q + i ** q + l ** q) ** (1 / q)

microseconds: the first term where latency is the limit, the second where a resource is (the
asymptotes of a closed queueing network; p and q say how sharp the knees are). The SIMD groups of a
group overlap their own transfers, so that s and i are no part of what one group waits for; s and L
grow with the threads that are resident, whose requests meet in the caches and at the memory. A
partly filled last wave adds its share.

The coefficients are the fit of ``scripts/benchmark/fit_cuda_cost.py`` to 4,906 measured kernels of
six operators, ten shapes and two storage types on one H200 (``configs/measurements``).
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
_UNROLLED_BYTES = 256  # of a row that a worker owns, at most, for a chunk loop unrolled whole


@dataclass(frozen=True)
class OccupancyCost:
    """Microseconds of a multiprocessor that one program takes, by a closed queue.

    ``bandwidth`` is in bytes a microsecond and multiprocessor, as if nothing else were used; a byte
    that every program reads counts ``cached`` times, one that the program itself has read before
    ``repeated`` times, and ``repeated_depth`` of that more a doubling of a thread's accesses.
    ``resident_threads``, ``resident_registers``, ``resident_shared`` bytes and ``resident_groups``
    are the device's limits a multiprocessor. ``registers`` of any thread, ``registers_per_scalar``
    of its stripes and ``registers_per_move``, a scalar that it moves where chunk loops are unrolled
    (whose accesses the compiler issues together), estimate a thread's registers.
    Microseconds: ``start`` of a group and ``start_per_warp``; ``barrier`` of an exchange between
    several SIMD groups and ``barrier_per_doubling`` of their number; ``cluster_start``,
    ``cluster_barrier``; ``round`` of one dependent scalar; ``access`` to memory of a thread;
    ``beside``, the elements of a peeled row that no pack holds; ``late`` loads after the first
    reduction and ``late_access`` of a thread to them; ``staging`` of a group and
    ``staging_per_element`` of a thread; ``launch`` between two groups;
    ``separate`` between two kernels that do not overlap.
    ``launch_per_warp`` and ``cluster_barrier_per_warp`` are relative to theirs.
    ``slots_per_round``, ``slots_per_instruction``, ``slots_per_access``, ``slots_per_shifted``
    element and ``slots_per_collective`` are issue slots of a lane. ``knee`` is p - 1, ``mixing``
    q - 1.
    Relative: ``tail`` is the weight of a partial last wave, ``vector`` what another than the full
    vector width costs, ``depth`` what a doubling of a thread's accesses costs in bandwidth (rows
    are read in more pieces at a time), ``crowd`` what a multiprocessor full of threads costs in it
    and ``latency_crowd`` in latency,
    ``packed`` a doubling of Q for each doubling of a thread's accesses, ``cluster`` and ``staged``
    what those plans cost besides; ``released`` what plans gain whose rows the caches let go at
    their last reading; ``spilled`` what registers that a thread cannot have cost, as parts of those
    that it has.
    """

    bandwidth: float = 14642.0
    multiprocessors: float = 132.0
    resident_threads: float = 2048.0
    resident_registers: float = 65536.0
    resident_shared: float = 233472.0
    resident_groups: float = 32.0
    repeated: float = 0.0955731
    repeated_depth: float = 0.0526684
    cached: float = 0.0644397
    registers: float = 47.729
    registers_per_scalar: float = 1.53425
    registers_per_move: float = 0.104989
    start: float = 0.116993
    start_per_warp: float = 0.0223162
    barrier: float = 0.366838
    barrier_per_doubling: float = 0.0420585
    cluster_start: float = 0.370213
    cluster_barrier: float = 0.520859
    cluster_barrier_per_warp: float = 0.097218
    round: float = 0.00151564
    beside: float = 0.543742
    late: float = 0.0454667
    late_access: float = 0.0582893
    access: float = 0.0100967
    staging: float = 0.0923194
    staging_per_element: float = 0.0014268
    launch: float = 0.0777517
    launch_per_warp: float = 0.220962
    slots_per_round: float = 0.11146
    slots_per_instruction: float = 1.08005
    slots_per_access: float = 0.279791
    slots_per_shifted: float = 1.12996
    slots_per_collective: float = 0.148898
    knee: float = 1.46106
    depth: float = 0.0698004
    latency_crowd: float = 0.127233
    crowd: float = 0.275214
    mixing: float = 0.822827
    tail: float = 0.0960062
    vector: float = 0.055955
    packed: float = 0.00472109
    cluster: float = 0.0067797
    released: float = 0.0212569
    spilled: float = 0.418858
    staged: float = 0.00172995
    separate: float = 1.3877

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
        crowd = resident * threads / self.resident_threads
        streams = (1 + self.depth * doublings) * (1 + self.crowd * crowd)
        memory = distinct * share / self.bandwidth * streams
        issue = self._slots(facts, threads, share) / _LANES / _CLOCK
        launch = self.launch * (1 + self.launch_per_warp * warps)
        busiest = _norm(1 + self.mixing, memory, issue, launch)
        latency = self._latency(facts, warps) * (1 + self.latency_crowd * crowd)
        waiting = latency / resident
        period = _norm(1 + self.knee, waiting, busiest)
        waves = facts.physical_groups / (self.multiprocessors * resident)
        partial = math.ceil(waves) / waves - 1
        missing = max(self._estimated(facts) / self._most(threads) - 1, 0.0)
        spilling = 1 + self.spilled * missing
        each = period / share * (1 + self.tail * partial) * spilling
        if not facts.dependent:
            each += self.separate * self.multiprocessors / (facts.physical_groups * share)
        return each * self._relative(facts)

    def _estimated(self, facts: CostFacts) -> float:
        """Registers that a thread would take."""
        estimated = self.registers + self.registers_per_scalar * facts.stripe_scalars
        if _unrolled(facts):
            moved = (facts.reads + facts.writes) / facts.workers
            estimated += self.registers_per_move * moved
        return estimated

    def _most(self, threads: int) -> float:
        """Registers that it can have."""
        return min(255.0, self.resident_registers / threads)

    def _resident(self, facts: CostFacts, threads: int) -> float:
        estimated = min(max(self._estimated(facts), 16.0), self._most(threads))
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
            + facts.shifted_reads * share * self.slots_per_shifted
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
        if facts.peeled:
            found += self.beside
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
    small = facts.widest * _element_bytes(facts) <= RELEASED_BYTES
    return facts.repeated_bytes > 0 and small and facts.writes > 1


def _unrolled(facts: CostFacts) -> bool:
    """Whether no chunk loop is left at run time, nearly.

    :mod:`tvm_tilex.transform.execution_map` counts the registers of the narrowest elements in full
    chunks; here the mean size of an element stands for theirs, and the last chunk counts too.
    """
    return facts.widest * round(_element_bytes(facts)) <= _UNROLLED_BYTES


def _element_bytes(facts: CostFacts) -> float:
    """The mean size of an element that a program moves."""
    return facts.bytes / max(facts.reads + facts.writes, 1)


def _norm(power: float, *terms: float) -> float:
    """The power mean's numerator: the largest term, and more where others come near it."""
    largest = max(terms)
    return largest * math.pow(sum(math.pow(t / largest, power) for t in terms), 1 / power)

"""A cost of cooperative groups on GPUs: resident groups hide each other's latency.

A multiprocessor is taken as a closed queue, as for row kernels (:mod:`tvm_tilex.plan.occupancy`).
n groups are resident (threads, registers and shared bytes bound n). A group spends a latency L, in
which its warps wait for each other, for memory and for their own results; it needs i issue slots
and b of the memory's time. A group then leaves every ::

    ((L + max(i, b)) / n) ** p  +  max(i, b) ** p,   to the power 1 / p

cycles; a partly filled last wave adds its share. Issue slots of a phase are what its active warps
issue over four schedulers; its latency is what one warp issues, times ``dependency``, and waits.

The coefficients were found by ``scripts/benchmark/fit_group_cost.py`` from the records of one H200
in ``configs/measurements``: 320 of the 333 plans of 24 problems, and what automatic threads take of
123 tiles (docs/groups.md). What the measurements did not tell stays near an estimate by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_tilex.plan.group_columns import BATCH_ROWS, ColumnShare
from tvm_tilex.plan.group_facts import PhaseFacts, PhaseKind

if TYPE_CHECKING:
    from tvm_tilex.plan.group_cost import PlannedGroup

__all__ = ["QueueCost", "Work"]

_LANES = 32
_SCHEDULERS = 4.0
_TOGETHER = 8.0  # groups or warps that hide a reduction's latency when realizations are compared


@dataclass(frozen=True)
class Work:
    """Issue slots of a multiprocessor, latency of a group, and bytes of views."""

    issue: float
    latency: float
    bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.issue + other.issue, self.latency + other.latency, self.bytes + other.bytes
        )

    def times(self, count: float) -> Work:
        """The work ``count`` times."""
        return Work(self.issue * count, self.latency * count, self.bytes * count)


@dataclass(frozen=True)
class QueueCost:
    """Cycles of a multiprocessor that one program takes, by a closed queue.

    In issue slots, against one operation: ``shared`` and ``view`` loads, ``scattered`` how much
    dearer a view is whose lanes do not share transactions, ``step`` an exchange, ``publish`` a
    store of a result, ``matrix`` an instruction m16n8k16, ``fragment`` a load of a fragment.
    In cycles: ``wait`` for the views of ``overlap`` rounds (of ``BATCH_ROWS`` rows of columns),
    ``ahead`` for copies an iteration ahead, ``fence`` and ``fence_subgroup``, ``start`` of a group,
    ``cached_byte`` of a view that products read again. ``dependency`` is the latency of what a warp
    issues, ``registers`` a thread's beside its tiles, ``sharpness`` p, ``tail`` the weight of a
    partial last wave. The others are the device's limits, ``byte`` the cycles of a byte of memory.
    """

    shared: float = 2.56
    view: float = 2.57
    scattered: float = 7.56
    step: float = 3.47
    publish: float = 2.03
    matrix: float = 3.29
    fragment: float = 12.1
    wait: float = 680.0
    overlap: float = 7.97
    ahead: float = 164.0
    fence: float = 31.4
    fence_subgroup: float = 1.72
    start: float = 786.0
    cached_byte: float = 0.0414
    dependency: float = 1.0
    registers: float = 31.0
    sharpness: float = 2.25
    tail: float = 0.502
    byte: float = 0.055
    multiprocessors: float = 132.0
    resident_threads: float = 2048.0
    resident_registers: float = 65536.0
    resident_bytes: float = 229376.0

    def reductions(
        self, phase: PhaseFacts, share: ColumnShare | None, threads: int, lanes: int
    ) -> dict[str, float]:
        """Prices of one run of a reduction, by realization."""
        found = {"serial": self._serial(phase, threads)}
        if phase.collective:
            found["collective"] = self._collective(phase, threads)
        if share is not None:
            found["columns"] = self._columns(phase, share, threads)
        return {name: work.issue + work.latency / _TOGETHER for name, work in found.items()}

    def prices(self, group: PlannedGroup) -> tuple[float, ...]:
        """What each phase issues and waits for over a whole program."""
        return tuple(work.issue + work.latency for work in self._works(group))

    def score(self, group: PlannedGroup, prices: tuple[float, ...]) -> float:
        """Cycles of a multiprocessor for the launch."""
        total = sum(self._works(group), Work(0.0, self.start))
        products = any(phase.kind is PhaseKind.product for phase in group.facts.phases)
        memory = total.bytes * (self.cached_byte if products else self.byte)
        busiest = max(total.issue, memory)
        each = max(1.0, group.facts.programs / self.multiprocessors)  # programs of one of them
        resident = min(self._resident(group), each)
        p = self.sharpness
        waiting = (total.latency + busiest) / resident
        most = max(waiting, busiest)
        period = most * math.pow(math.pow(waiting / most, p) + math.pow(busiest / most, p), 1 / p)
        waves = each / resident
        partial = math.ceil(waves) / waves - 1
        return period * each * (1 + self.tail * partial)

    def _resident(self, group: PlannedGroup) -> float:
        most = min(255.0, self.resident_registers / group.threads)
        registers = math.ceil(min(self.registers + group.private_scalars, most) / 8) * 8
        bounds = (
            self.resident_threads // group.threads,
            self.resident_registers // (group.threads * registers),
            self.resident_bytes // (group.shared_bytes + 1024),
        )
        return max(1.0, min(32.0, *bounds))

    def _works(self, group: PlannedGroup) -> tuple[Work, ...]:
        fence = Work(0.0, self.fence + self.fence_subgroup * group.threads / _LANES)
        found = []
        for number, phase in enumerate(group.facts.phases):
            work = self._work(group, number, phase)
            if number in group.fenced:
                work += fence
            found.append(work.times(group.facts.repeats(phase)))
        return tuple(found)

    def _work(self, group: PlannedGroup, number: int, phase: PhaseFacts) -> Work:
        realization, threads = group.realizations[number], group.threads
        if phase.kind is PhaseKind.product:
            return self._product(group, number, phase)
        if number in group.shares:
            return self._columns(phase, group.shares[number], threads)
        if realization == "collective":
            return self._collective(phase, threads)
        if realization == "fragment":
            rows = max(1.0, phase.count * _LANES / (4 * threads))
            each = group.slots.get(phase.aligned, 0) * phase.operations
            return self._warps(each + rows * 4 * self.step, threads)
        if realization == "serial":
            return self._serial(phase, threads)
        width = phase.vector if phase.prefetchable else 1
        rounds = -(-phase.count // (threads * width))
        active = min(threads, -(-phase.count // width))
        work = self._rounds(phase, rounds, active, ahead=number in group.ahead)
        # Its own elements and its result, where they stand in shared memory.
        own = {*phase.own_loads, *((phase.store,) if phase.store >= 0 else ())}
        moved = self._warps(rounds * self.shared * len(own - group.private), active)
        return work + moved + Work(0.0, 0.0, phase.view_bytes * phase.count)

    def _warps(self, issued: float, threads: float, waits: float = 0.0) -> Work:
        """What each of the active warps issues."""
        warps = max(1.0, math.ceil(threads / _LANES))
        return Work(warps * issued / _SCHEDULERS, issued * self.dependency + waits)

    def _rounds(
        self,
        phase: PhaseFacts,
        rounds: float,
        threads: float,
        *,
        scattered: bool = False,
        ahead: bool = False,
        vector: int = 1,
        together: float = 0.0,
    ) -> Work:
        dear = self.scattered if scattered else 1.0
        reads = phase.global_loads * self.view * dear + vector * len(phase.loads) * self.shared
        batches = math.ceil(rounds / (together or self.overlap))
        waits = self.wait * batches if phase.global_loads else 0.0
        return self._warps(
            rounds * (vector * phase.operations + reads), threads, self.ahead if ahead else waits
        )

    def _read(self, phase: PhaseFacts) -> Work:
        return Work(0.0, 0.0, phase.view_bytes * phase.count * phase.depth)

    def _serial(self, phase: PhaseFacts, threads: int) -> Work:
        scattered = phase.stride == 1 and phase.depth > 1
        rounds = -(-phase.count // threads) * phase.depth
        active = min(threads, phase.count)
        return self._rounds(phase, rounds, active, scattered=scattered) + self._read(phase)

    def _collective(self, phase: PhaseFacts, threads: int) -> Work:
        subgroups = max(1, threads // _LANES)
        active = min(subgroups, phase.count) * _LANES
        chunks = -(-phase.depth // _LANES)
        fold = self._rounds(phase, chunks, active, scattered=phase.stride != 1)
        batch = fold + self._warps(5 * self.step + self.publish, active)
        return batch.times(-(-phase.count // subgroups)) + self._read(phase)

    def _columns(self, phase: PhaseFacts, share: ColumnShare, threads: int) -> Work:
        active = min(threads, share.lanes * share.slices)
        rows = -(-phase.depth // share.slices) * -(-share.lanes // threads)
        fold = self._rounds(phase, rows, active, vector=share.vector, together=BATCH_ROWS)
        work = fold + self._read(phase)
        if not share.fenced:
            return work
        combined = -(-phase.count // threads) * share.slices * (1 + self.shared)
        fence = Work(0.0, self.fence + self.fence_subgroup * threads / _LANES)
        publishing = self._warps(share.vector * self.publish, active)
        return work + publishing + fence + self._warps(combined, min(threads, phase.count))

    def _product(self, group: PlannedGroup, number: int, phase: PhaseFacts) -> Work:
        arrangement, threads = group.arrangements[number], group.threads
        assert arrangement is not None
        if arrangement.kind == "matrix":
            down = phase.rows / 16 / arrangement.down
            across = phase.columns / 8 / arrangement.across
            loads = across / 2 + (0.0 if number in group.owned else down)
            step = down * across * self.matrix + loads * self.fragment
            return self._warps(max(1, phase.depth // 16) * step, threads)
        if arrangement.kind == "fma":
            rows, columns = phase.rows // arrangement.down, phase.columns // arrangement.across
            active = arrangement.down * arrangement.across
            each = rows * columns + self.shared * (rows + columns)
            return self._warps(phase.depth * each, active)
        rounds = -(-phase.count // threads) * phase.depth
        return self._warps(rounds * (1 + 2 * self.shared), min(threads, phase.count))

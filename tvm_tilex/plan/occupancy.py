"""A cost policy for GPUs that stream rows: how well the resident groups hide each other's latency.

A multiprocessor is taken as a closed queue. n groups are resident (threads, registers and group
slots bound n); each spends a latency L (start, barriers, dependent rounds) in which it moves
nothing, and needs s microseconds of the multiprocessor's share of memory bandwidth and i of its
issue slots. A group then leaves every::

    ((L + s + i) / n) ** p  +  max(s, i, launch) ** p,   to the power 1 / p

microseconds: the first term where latency is the limit, the second where a resource is (the
asymptotes of a closed queueing network; p says how sharp the knee is). A partly filled last wave
adds its share.

The coefficients are the fit of ``scripts/benchmark/fit_cuda_cost.py`` to 1,080 measured kernels of
six operators, eight shapes and two storage types on one H200 (``configs/measurements``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_tilex.plan.cost_facts import CostFacts

__all__ = ["OccupancyCost"]

_CLOCK = 1900.0  # cycles a microsecond
_LANES = 128.0  # scalar instructions a cycle
_REGISTER_STEP = 8


@dataclass(frozen=True)
class OccupancyCost:
    """Microseconds of a multiprocessor that one program takes, by a closed queue.

    ``bandwidth`` is in bytes a microsecond and multiprocessor. ``resident_threads``,
    ``resident_registers`` and ``resident_groups`` are the device's limits a multiprocessor.
    ``registers`` and ``registers_per_scalar`` estimate a thread's registers from its stripes.
    Microseconds: ``start`` of a group and ``start_per_warp``; ``barrier`` of a reduction over
    several SIMD groups and ``barrier_per_doubling`` of their number; ``cluster_start``,
    ``cluster_barrier``; ``round`` of one dependent scalar; ``launch`` between two groups.
    ``launch_per_warp`` is relative to it, ``instructions`` the issue slots of a scalar round,
    ``sharpness`` is p, ``tail`` the weight of a partial last wave, ``vector`` what another than the
    full vector width costs (from the earlier fit: the later kernels all had that width).
    """

    bandwidth: float = 32_000.0
    multiprocessors: float = 132.0
    resident_threads: float = 2048.0
    resident_registers: float = 65536.0
    resident_groups: float = 32.0
    registers: float = 25.0
    registers_per_scalar: float = 0.364
    start: float = 0.397
    start_per_warp: float = 0.0045
    barrier: float = 0.067
    barrier_per_doubling: float = 0.0264
    cluster_start: float = 2.05
    cluster_barrier: float = 1.243
    round: float = 0.0076
    launch: float = 0.1022
    launch_per_warp: float = 0.131
    instructions: float = 0.265
    sharpness: float = 2.43
    tail: float = 0.403
    vector: float = 0.1

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        packed, blocks = facts.programs_per_group, facts.blocks_per_program
        threads = facts.workers * packed // blocks
        warps = threads / 32
        resident = self._resident(threads, facts.stripe_scalars)
        memory = facts.bytes * packed / blocks / self.bandwidth
        issue = facts.rounds * threads * self.instructions / _LANES / _CLOCK
        latency = self._latency(facts, warps) + memory + issue
        launch = self.launch * (1 + self.launch_per_warp * warps)
        p = self.sharpness
        busiest = max(memory, issue, launch)
        period = math.pow(math.pow(latency / resident, p) + math.pow(busiest, p), 1 / p)
        waves = facts.physical_groups / (self.multiprocessors * resident)
        partial = math.ceil(waves) / waves - 1
        whole = 1 + self.vector * (facts.lane_elements != facts.vector_width)
        return period * blocks / packed * (1 + self.tail * partial) * whole

    def _resident(self, threads: int, scalars: int) -> float:
        most = min(255.0, self.resident_registers / threads)
        estimated = min(max(self.registers + self.registers_per_scalar * scalars, 16.0), most)
        registers = math.ceil(estimated / _REGISTER_STEP) * _REGISTER_STEP
        by_threads = self.resident_threads // threads
        by_registers = self.resident_registers // (threads * registers)
        return max(1.0, min(self.resident_groups, by_threads, by_registers))

    def _latency(self, facts: CostFacts, warps: float) -> float:
        found = self.start + self.start_per_warp * warps + self.round * facts.rounds
        if facts.subgroups > 1:
            doublings = math.log2(facts.subgroups)
            found += facts.reductions * (self.barrier + self.barrier_per_doubling * doublings)
        if facts.blocks_per_program > 1:
            found += self.cluster_start + facts.reductions * self.cluster_barrier
        return found

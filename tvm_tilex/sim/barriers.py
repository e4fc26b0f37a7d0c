"""``threadgroup_barrier`` and ``simdgroup_barrier``.

A threadgroup barrier needs every thread of the threadgroup; a thread that has returned does not
count as having reached it. A SIMD-group barrier needs every lane of its SIMD group; SIMD groups
that have wholly returned, or are elsewhere, are not part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.collectives import together
from tvm_tilex.sim.errors import BarrierDivergenceError

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.syntax import Node

__all__ = ["simdgroup_barrier", "threadgroup_barrier"]


def threadgroup_barrier(machine: Machine, spaces: tuple[str, ...], node: Node) -> None:
    """Check that whole threadgroups arrive, then order their accesses to ``spaces``."""
    machine.clock += 1
    mask = machine.mask.array
    if mask is None:
        machine.counters.barriers += machine.groups
        for space in spaces:
            machine.group_sync[space] = machine.simd_sync[space] = machine.clock
        return
    active = machine.active_array()
    some = active.any(axis=1, keepdims=True)
    missing = some & ~active
    if missing.any():
        lane = int(np.argmax(missing.reshape(-1)))
        group = lane // machine.threads
        reached = machine.thread_position(int(np.argmax(active[group])))
        left = machine.returned is not None and bool(machine.returned.reshape(-1)[lane])
        why = "which has returned" if left else "which is on another path"
        machine.fault(
            BarrierDivergenceError,
            node,
            f"threadgroup_barrier is reached by thread {reached} but not by the thread below, "
            f"{why}",
            lane,
        )
    machine.counters.barriers += int(np.count_nonzero(some))
    for space in spaces:
        machine.group_sync[space] = np.where(some, machine.clock, machine.group_sync[space])
        machine.simd_sync[space] = np.where(some, machine.clock, machine.simd_sync[space])


def simdgroup_barrier(machine: Machine, spaces: tuple[str, ...], node: Node) -> None:
    """Check that whole SIMD groups arrive, then order their accesses to ``spaces``."""
    machine.clock += 1
    machine.counters.simdgroup_barriers += together(
        machine, node, "simdgroup_barrier", BarrierDivergenceError
    )
    for space in spaces:
        machine.simd_sync[space] = _advance(machine, machine.simd_sync[space])


def _advance(machine: Machine, sync: Any) -> Any:
    if machine.mask.array is None:
        return machine.clock
    return np.where(machine.active_array(), machine.clock, sync)

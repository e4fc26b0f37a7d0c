"""Who touched each element last, and whether anything orders that before the next access.

Two accesses of one element by different actors, one of them a write, are ordered when both are of
one threadgroup with a threadgroup barrier for that memory between them, or of one SIMD group with
a SIMD-group barrier between them. Nothing orders two threadgroups within a launch.

Per element the shadow keeps the last writer and two readers since the last ordering point. Two
suffice: of two distinct readers at least one differs from any later writer, and the second is
replaced by one farther from the first (another thread, SIMD group, threadgroup), so that a barrier
that orders only the nearer one cannot hide the farther one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_tilex.sim.errors import RaceError
from tvm_tilex.sim.machine import Machine
from tvm_tilex.sim.syntax import Node

__all__ = ["Shadow"]


class Shadow:
    """Last accesses of ``size`` elements of memory in one address space.

    Parameters
    ----------
    size
        Number of elements.
    space
        ``"device"`` or ``"threadgroup"``.
    """

    def __init__(self, size: int, space: str, actor_dtype: np.dtype) -> None:
        self.space = space
        self.writer = np.zeros(size, actor_dtype)
        self.write_clock = np.full(size, -1, np.int32)
        self.readers: tuple[np.ndarray, ...] = ()
        self.read_clocks: tuple[np.ndarray, ...] = ()

    def _start_reads(self) -> None:
        size, dtype = self.writer.size, self.writer.dtype
        self.readers = (np.zeros(size, dtype), np.zeros(size, dtype))
        self.read_clocks = (np.full(size, -1, np.int32), np.full(size, -1, np.int32))

    def refine(self, factor: int) -> None:
        """Split every element into ``factor`` smaller ones with the same history."""
        self.writer = np.repeat(self.writer, factor)
        self.write_clock = np.repeat(self.write_clock, factor)
        self.readers = tuple(np.repeat(a, factor) for a in self.readers)
        self.read_clocks = tuple(np.repeat(a, factor) for a in self.read_clocks)

    def reset(self) -> None:
        """Forget everything: new threadgroups own the memory."""
        self.write_clock.fill(-1)
        for clock in self.read_clocks:
            clock.fill(-1)

    def read(
        self,
        machine: Machine,
        element: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
        context: tuple[Node, Any, Any],
    ) -> None:
        """Check and record a read of ``element`` by the actors from ``first`` to ``last``."""
        clock = self.write_clock.take(element)
        if self._unordered_possible(machine, clock):
            writer = self.writer.take(element)
            for actor in (first, last):
                self._check(machine, writer, clock, actor, context, "wrote", "reads")
        if not self.readers:
            # Nothing before the first read can matter, so the state starts with it.
            self._start_reads()
        self._record_read(machine, element, first, last)

    def write(
        self,
        machine: Machine,
        element: np.ndarray,
        actor: np.ndarray,
        context: tuple[Node, Any, Any],
    ) -> None:
        """Check and record a write of ``element`` by ``actor``."""
        clock = self.write_clock.take(element)
        if self._unordered_possible(machine, clock):
            self._check(
                machine, self.writer.take(element), clock, actor, context, "wrote", "writes"
            )
        for reader, read_clock in zip(self.readers, self.read_clocks, strict=True):
            clock = read_clock.take(element)
            if self._unordered_possible(machine, clock):
                self._check(machine, reader.take(element), clock, actor, context, "read", "writes")
        self.writer[element] = actor
        self.write_clock[element] = machine.clock
        stored = self.writer.take(element)
        if not np.array_equal(stored, actor):
            clock = np.full(element.shape, machine.clock, np.int32)
            self._check(machine, stored, clock, actor, context, "also writes", "writes")

    def _unordered_possible(self, machine: Machine, clock: np.ndarray) -> bool:
        if clock.size == 0:
            return False
        if self.space == "device":
            return bool(clock.max() >= 0)
        sync = machine.group_sync[self.space]
        return bool(clock.max() >= (sync if np.ndim(sync) == 0 else sync.min()))

    def _check(
        self,
        machine: Machine,
        other: np.ndarray,
        clock: np.ndarray,
        actor: np.ndarray,
        context: tuple[Node, Any, Any],
        did: str,
        does: str,
    ) -> None:
        unordered = (clock >= 0) & (other != actor)
        if not unordered.any():
            return
        width = machine.actors_per_group
        group, other_group = actor // width, other // width
        local = (group - machine.first_group).astype(np.intp)
        same_group = group == other_group
        within, other_within = actor - group * width, other - other_group * width
        simd, other_simd = _simd(machine, within), _simd(machine, other_within)
        group_sync = _pick(machine.group_sync[self.space], local, 0)
        lane = np.where(
            within >= machine.threads, (within - machine.threads) * machine.simd_width, within
        ).astype(np.intp)
        simd_sync = _pick(machine.simd_sync[self.space], local, lane)
        ordered = same_group & ((clock < group_sync) | ((simd == other_simd) & (clock < simd_sync)))
        bad = unordered & ~ordered
        if not bad.any():
            return
        node, name, byte_of = context
        position = int(np.argmax(bad))
        barrier = "barrier for it" if same_group[position] else "order in a launch"
        machine.fault(
            RaceError,
            node,
            f"race: this thread {does} what {machine.describe_actor(int(other[position]))} "
            f"{did}, with no {barrier} between",
            int(local[position]) * machine.threads + int(lane[position]),
            memory=name,
            address=byte_of(position),
        )

    def _record_read(
        self, machine: Machine, element: np.ndarray, first: np.ndarray, last: np.ndarray
    ) -> None:
        clock_one = self.read_clocks[0].take(element)
        stale = clock_one < 0
        if not stale.all():
            sync = machine.group_sync[self.space]
            reader = self.readers[0].take(element)
            group = first // machine.actors_per_group
            local = (group - machine.first_group).astype(np.intp)
            stale |= (reader // machine.actors_per_group == group) & (
                clock_one < _pick(sync, local, 0)
            )
        if stale.all():
            self._first_read(machine, element, first, last)
            return
        if stale.any():
            self._first_read(machine, element[stale], first[stale], last[stale])
        rest = ~stale
        for actor in (first, last):
            self._later_read(machine, element[rest], actor[rest])

    def _first_read(
        self, machine: Machine, element: np.ndarray, first: np.ndarray, last: np.ndarray
    ) -> None:
        one, two = self.readers
        clock_one, clock_two = self.read_clocks
        # NumPy keeps the last of repeated indices, so the reversed order keeps the first lane.
        one[element[::-1]] = first[::-1]
        clock_one[element] = machine.clock
        clock_two[element] = -1
        other = one.take(element) != last
        if other.any():
            two[element[other]] = last[other]
            clock_two[element[other]] = machine.clock

    def _later_read(self, machine: Machine, element: np.ndarray, actor: np.ndarray) -> None:
        one, two = self.readers
        clock_one, clock_two = self.read_clocks
        known = one.take(element)
        same = known == actor
        clock_one[element[same]] = machine.clock
        element, actor, known = element[~same], actor[~same], known[~same]
        if element.size == 0:
            return
        kept = _distance(machine, known, two.take(element))
        take = (clock_two.take(element) < 0) | (_distance(machine, known, actor) >= kept)
        two[element[take]] = actor[take]
        clock_two[element[take]] = machine.clock


def _simd(machine: Machine, within: np.ndarray) -> np.ndarray:
    return np.where(
        within >= machine.threads, within - machine.threads, within // machine.simd_width
    )


def _distance(machine: Machine, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    width = machine.actors_per_group
    group_one, group_two = one // width, two // width
    simd = _simd(machine, one - group_one * width) != _simd(machine, two - group_two * width)
    return np.where(group_one != group_two, 2, simd.astype(np.int8))


def _pick(sync: Any, group: np.ndarray, lane: Any) -> Any:
    if np.ndim(sync) == 0:
        return sync
    full = np.broadcast_to(sync, (sync.shape[0], max(sync.shape[1], 1)))
    return full[group, lane if sync.shape[1] > 1 else 0]

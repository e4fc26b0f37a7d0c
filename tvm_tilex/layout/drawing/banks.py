"""Shared-memory bank conflicts of an access of a stated width.

The model: memory is ``count`` banks of ``width`` bytes, a word of bank ``b`` at the byte addresses
``(count * k + b) * width``. One instruction of a group of ``participants`` threads, each with
``access_bytes`` consecutive bytes, runs in phases: as many neighbouring threads together as fill
``count * width`` bytes (all of them for accesses up to a bank's width; 16 threads for 8 bytes, 8
for 16, with 32 banks of 4 bytes). In a phase a bank gives one word a cycle; threads that read the
same word share it. A phase takes as many cycles as its busiest bank has different words; a phase
without conflicts takes one. The numbers are those of NVIDIA's CUDA documents for 32 banks of 4
bytes and of the profiler's practice for wide accesses; they are a model, not a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.drawing.grid import LARGEST
from tvm_tilex.layout.errors import DomainError

__all__ = ["BankReport", "Banks", "Phase", "bank_conflicts"]

Point = tuple[int, ...]


@dataclass(frozen=True)
class Banks:
    """The memory and the access: sizes in bytes, threads of one instruction."""

    access_bytes: int
    element_bytes: int
    count: int = 32
    width: int = 4
    participants: int = 32

    def __post_init__(self) -> None:
        for name in ("access_bytes", "element_bytes", "count", "width", "participants"):
            if getattr(self, name) < 1:
                raise LayoutError(f"banks: {name}={getattr(self, name)} is not positive")
        if self.access_bytes % self.element_bytes:
            raise LayoutError(
                f"banks: an access of {self.access_bytes} bytes is no whole number of"
                f" {self.element_bytes}-byte elements"
            )
        if self.access_bytes > self.count * self.width:
            raise LayoutError(
                f"banks: an access of {self.access_bytes} bytes exceeds the row of"
                f" {self.count * self.width} bytes"
            )

    @property
    def elements(self) -> int:
        """Elements of one thread's access."""
        return self.access_bytes // self.element_bytes

    @property
    def together(self) -> int:
        """Threads of one phase."""
        full = self.count * self.width // max(self.access_bytes, self.width)
        return max(1, min(self.participants, full))

    def words(self, index: int) -> range:
        """Return the words (bank number + count * row) of the element at ``index``."""
        first = index * self.element_bytes
        return range(first // self.width, (first + self.element_bytes - 1) // self.width + 1)

    def bank(self, index: int) -> int:
        """Return the bank of the first byte of the element at ``index``."""
        return index * self.element_bytes // self.width % self.count


@dataclass(frozen=True)
class Phase:
    """Threads that are served together: the points that they access, and the cycles it takes."""

    points: tuple[Point, ...]
    cycles: int
    crowded: frozenset[Point]  # points whose bank has to give more than one word


@dataclass(frozen=True)
class BankReport:
    """All phases of an access pattern, in order."""

    banks: Banks
    along: str
    phases: tuple[Phase, ...]

    @property
    def cycles(self) -> int:
        """Cycles of all phases."""
        return sum(phase.cycles for phase in self.phases)

    @property
    def conflicts(self) -> int:
        """Cycles more than one a phase."""
        return self.cycles - len(self.phases)

    @property
    def worst(self) -> int:
        """The most cycles of a phase: 1 is free of conflicts."""
        return max((phase.cycles for phase in self.phases), default=0)

    @property
    def worst_phase(self) -> Phase | None:
        """The first of the phases with the most cycles."""
        return max(self.phases, key=lambda phase: phase.cycles, default=None)

    def __str__(self) -> str:
        b = self.banks
        what = f"{b.access_bytes}-byte accesses along {self.along}, {b.together} threads a phase"
        if not self.conflicts:
            return f"bank conflicts: none ({what}, {len(self.phases)} phases)"
        return (
            f"bank conflicts: {self.worst}-way at worst, {self.cycles} cycles for"
            f" {len(self.phases)} phases ({what})"
        )


def bank_conflicts(map: LayoutMap, banks: Banks, along: str | None = None) -> BankReport:
    """Count the bank conflicts of an access to the memory layout ``map``.

    Parameters
    ----------
    map
        Coordinates to one element index.
    banks
        The memory, and how wide a thread's access is.
    along
        The axis along which neighbouring threads stand; the first by default. A thread's elements
        are consecutive along the last axis (along ``along`` itself where it is the only one).

    Raises
    ------
    LayoutError
        Where a thread's elements are not one aligned run of indices, so that no such access
        exists, or the layout is symbolic or has more than 65536 points.
    """
    domain = map.domain
    size = domain.box_size
    if size is None or domain.parameters or size > 16 * LARGEST:
        raise LayoutError(f"bank conflicts are counted on at most {16 * LARGEST} points")
    if map.codomain.rank != 1 or not domain.rank:
        raise LayoutError("bank conflicts need a layout from coordinates to one index")
    axis = domain.names[0] if along is None else along
    if axis not in domain.names:
        raise LayoutError(f"bank conflicts: '{axis}' is not an axis of {domain.names}")
    phases: list[Phase] = []
    for threads in _instructions(map, banks, axis):
        for start in range(0, len(threads), banks.together):
            served = [t for t in threads[start : start + banks.together] if t[1]]
            if not served:
                continue
            phases.append(_phase(banks, served))
    return BankReport(banks, axis, tuple(phases))


Thread = tuple[tuple[Point, ...], tuple[int, ...]]


def _instructions(map: LayoutMap, banks: Banks, axis: str) -> list[list[Thread]]:
    """The threads of each instruction: the points and the indices that each accesses."""
    names, shape = map.domain.names, map.domain.shape
    lower = tuple(a.lower for a in map.domain.axes)
    number, last = names.index(axis), len(names) - 1
    step = banks.elements
    if shape[last] % step:
        raise LayoutError(
            f"bank conflicts: axis '{names[last]}' of extent {shape[last]} is no whole number of"
            f" accesses of {step} elements"
        )
    order = [range(low, low + extent) for low, extent in zip(lower, shape, strict=True)]
    order[last] = range(lower[last], lower[last] + shape[last], step)
    across = order.pop(number)
    found: list[list[Thread]] = []
    for rest in _product(order):
        threads = [_thread(map, (*rest[:number], x, *rest[number:]), step) for x in across]
        for start in range(0, len(threads), banks.participants):
            found.append(threads[start : start + banks.participants])
    return found


def _product(spans: list[range]) -> list[Point]:
    points: list[Point] = [()]
    for span in spans:
        points = [(*p, x) for p in points for x in span]
    return points


def _thread(map: LayoutMap, first: Point, step: int) -> Thread:
    points = tuple((*first[:-1], first[-1] + k) for k in range(step))
    try:
        values = [map.apply(*point) for point in points]
    except DomainError:
        return (), ()  # the thread is past a ragged end
    indices = tuple(v for v in values if isinstance(v, int))
    run = all(b == a + 1 for a, b in pairwise(indices))
    if not run or indices[0] % step:
        raise LayoutError(
            f"bank conflicts: the elements {list(indices)} at {first} are no aligned run, so that"
            f" no access of {step} elements reads them"
        )
    return points, indices


def _phase(banks: Banks, threads: list[Thread]) -> Phase:
    words: dict[int, set[int]] = {}
    for _, indices in threads:
        for index in indices:
            for word in banks.words(index):
                words.setdefault(word % banks.count, set()).add(word)
    cycles = max((len(found) for found in words.values()), default=1)
    crowded = {bank for bank, found in words.items() if len(found) > 1}
    clash = frozenset(
        point
        for points, indices in threads
        for point, index in zip(points, indices, strict=True)
        if any(word % banks.count in crowded for word in banks.words(index))
    )
    return Phase(tuple(p for points, _ in threads for p in points), cycles, clash)

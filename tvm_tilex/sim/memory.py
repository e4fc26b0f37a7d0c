"""Device, constant and threadgroup memory: bytes, bounds, shadow, counters.

A pointer at run time is (memory, byte offset), the offset an integer or an int64 lane array. The
address space and the type of the access come from the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tvm_tilex.sim.coalescing import bank_conflicts, segments
from tvm_tilex.sim.counters import DeviceTraffic, ThreadgroupTraffic
from tvm_tilex.sim.errors import (
    ConstWriteError,
    MisalignedAccessError,
    OutOfBoundsError,
    UninitializedReadError,
)
from tvm_tilex.sim.race import Shadow

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.syntax import Node

__all__ = ["Access", "Buffer", "Memory", "Pointer", "Storage", "ThreadgroupArray"]


class Pointer(NamedTuple):
    """A memory and a byte offset in it."""

    memory: Any
    offset: Any


class Access(NamedTuple):
    """The shape of an access: scalar dtype, components, alignment, and the node for faults."""

    dtype: np.dtype
    lanes: int
    alignment: int
    node: Node
    const: bool = False


class Storage:
    """Bytes with typed views and the shadow of their elements.

    Several buffers that overlap share one storage, so that races between them show.
    """

    def __init__(self, data: np.ndarray, unit: int) -> None:
        self.data, self.unit = data, unit
        self.shadow: Shadow | None = None
        self._views: dict[np.dtype, np.ndarray] = {}

    def view(self, dtype: np.dtype) -> np.ndarray:
        """Return the bytes as elements of ``dtype``."""
        found = self._views.get(dtype)
        if found is None:
            whole = self.data.size // dtype.itemsize * dtype.itemsize
            found = self._views[dtype] = self.data[:whole].view(dtype)
        return found

    def shadow_for(self, size: int) -> Shadow | None:
        """Return the shadow, refined so that an access of ``size`` bytes has whole elements."""
        if self.shadow is not None and size % self.unit:
            self.shadow.refine(self.unit // size)
            self.unit = size
        return self.shadow


class Memory:
    """Base of the memories that a pointer can point into."""

    name: str
    size: int  # bytes: of the buffer, or of the array of one threadgroup
    base: int  # byte offset in the storage
    storage: Storage
    writable = True

    def flat(self, machine: Machine, offset: Any) -> Any:
        """Return byte offsets in the storage."""
        raise NotImplementedError

    def _in_bounds(self, machine: Machine, offset: Any, access: Access) -> None:
        size = access.dtype.itemsize * access.lanes
        last = self.size - size
        if np.ndim(offset) == 0:
            good = 0 <= int(offset) <= last
        else:
            good = offset.size == 0 or (int(offset.min()) >= 0 and int(offset.max()) <= last)
        if good and access.alignment == 1:
            return
        if not good:
            self._fault_bounds(machine, offset, access, size, last)
        if np.any(np.bitwise_and(offset, access.alignment - 1)):
            self._fault_alignment(machine, offset, access)

    def _lanes_of(self, machine: Machine, bad: np.ndarray) -> int:
        """Return the flat lane of the first true entry of an array over the access's lanes."""
        if bad.ndim == 2 or bad.ndim == 0:
            return int(np.argmax(np.broadcast_to(bad, machine.shape).reshape(-1)))
        return int(machine.mask.flat(machine.shape)[int(np.argmax(bad))])

    def _fault_bounds(
        self, machine: Machine, offset: Any, access: Access, size: int, last: int
    ) -> None:
        offset = np.asarray(offset)
        bad = (offset < 0) | (offset > last)
        lane = self._lanes_of(machine, bad)
        address = int(offset.reshape(-1)[int(np.argmax(bad))])
        machine.fault(
            OutOfBoundsError,
            access.node,
            f"out-of-bounds access of {size} bytes at byte {address} (element "
            f"{address // access.dtype.itemsize}) of {self.name!r}, which has {self.size} bytes",
            lane,
            memory=self.name,
            address=address,
        )

    def _fault_alignment(self, machine: Machine, offset: Any, access: Access) -> None:
        offset = np.asarray(offset)
        bad = np.bitwise_and(offset, access.alignment - 1) != 0
        machine.fault(
            MisalignedAccessError,
            access.node,
            f"access of {access.lanes} x {access.dtype.name} is not aligned to "
            f"{access.alignment} bytes",
            self._lanes_of(machine, bad),
            memory=self.name,
            address=int(offset.reshape(-1)[int(np.argmax(bad))]),
        )

    def _offsets(self, machine: Machine, offset: Any, access: Access, *, expand: bool) -> Any:
        """Return the checked offsets of the active lanes.

        With all lanes active the result keeps its broadcast shape unless ``expand``; otherwise it
        is flat, one entry per active lane.
        """
        if machine.mask.array is not None:
            offset = machine.compress(offset)
        elif expand:
            offset = np.broadcast_to(offset, machine.shape)
        self._in_bounds(machine, offset, access)
        return offset

    def load(self, machine: Machine, offset: Any, access: Access) -> Any:
        """Return the loaded component, or the tuple of components."""
        offset = self._offsets(machine, offset, access, expand=False)
        flat = self.flat(machine, offset)
        item = access.dtype.itemsize
        self._count(machine, flat, access, store=False)
        self._check_read(machine, flat, offset, access)
        index = flat // item if item > 1 else flat
        view = self.storage.view(access.dtype)
        parts = tuple(
            view[index + c] if np.ndim(index) == 0 else view.take(index + c if c else index)
            for c in range(access.lanes)
        )
        if machine.mask.array is not None:
            parts = tuple(machine.expand(part) for part in parts)
        return parts[0] if access.lanes == 1 else parts

    def store(self, machine: Machine, offset: Any, value: Any, access: Access) -> None:
        """Store a component or a tuple of components."""
        offset = self._offsets(machine, offset, access, expand=True)
        if access.const or not self.writable:
            self._fault_const(machine, offset, access)
        flat = self.flat(machine, offset)
        self._count(machine, flat, access, store=True)
        flat = flat.reshape(-1)
        self._check_write(machine, flat, access)
        item = access.dtype.itemsize
        index = flat // item if item > 1 else flat
        view = self.storage.view(access.dtype)
        parts = value if isinstance(value, tuple) else (value,)
        for c, part in enumerate(parts):
            if np.ndim(part):
                part = machine.compress(part)
            view[index + c if c else index] = part

    def _fault_const(self, machine: Machine, offset: Any, access: Access) -> None:
        why = "through a const pointer" if access.const else "to an input-only buffer"
        machine.fault(
            ConstWriteError,
            access.node,
            f"write {why} {self.name!r}",
            machine.active_array(),
            memory=self.name,
            address=int(np.asarray(offset).reshape(-1)[0]),
        )

    def _elements(self, flat: np.ndarray, access: Access, size: int) -> list[np.ndarray]:
        unit = self.storage.unit
        first = flat // unit
        return [first + k if k else first for k in range(max(size // unit, 1))]

    def _byte_of(self, flat: np.ndarray) -> Any:
        base, size = self.base, self.size
        stride = getattr(self, "stride", 0)

        def byte(position: int) -> int:
            value = int(flat.reshape(-1)[position]) - base
            return value % stride if stride else min(value, size)

        return byte

    def _check_write(self, machine: Machine, flat: np.ndarray, access: Access) -> None:
        size = access.dtype.itemsize * access.lanes
        shadow = self.storage.shadow_for(access.dtype.itemsize)
        if shadow is None:
            return
        actor = machine.compress(machine.actor)
        context = (access.node, self.name, self._byte_of(flat))
        for element in self._elements(flat, access, size):
            shadow.write(machine, element, actor, context)

    def _check_read(self, machine: Machine, flat: Any, offset: Any, access: Access) -> None:
        raise NotImplementedError

    def _read_shadow(self, machine: Machine, flat: Any, access: Access, shadow: Shadow) -> None:
        size = access.dtype.itemsize * access.lanes
        if machine.mask.array is not None:
            first = last = machine.compress(machine.actor)
        elif np.ndim(flat) and flat.shape == (machine.groups, 1) and machine.threads > 1:
            first = machine.actor[:, 0]
            last = machine.actor[:, -1]
        else:
            first = last = machine.actor.reshape(-1)
            flat = np.broadcast_to(flat, machine.shape)
        flat = flat.reshape(-1)
        context = (access.node, self.name, self._byte_of(flat))
        for element in self._elements(flat, access, size):
            shadow.read(machine, element, first, last, context)

    def _count(self, machine: Machine, flat: Any, access: Access, *, store: bool) -> None:
        raise NotImplementedError


class Buffer(Memory):
    """A device or constant buffer argument."""

    def __init__(
        self, name: str, storage: Storage, base: int, size: int, traffic: DeviceTraffic
    ) -> None:
        self.name, self.storage, self.base, self.size = name, storage, base, size
        self.traffic = traffic

    def flat(self, machine: Machine, offset: Any) -> Any:
        """Return byte offsets in the storage."""
        return offset + self.base if self.base else offset

    def _check_read(self, machine: Machine, flat: Any, offset: Any, access: Access) -> None:
        shadow = self.storage.shadow_for(access.dtype.itemsize)
        if shadow is not None:
            self._read_shadow(machine, flat, access, shadow)

    def _count(self, machine: Machine, flat: Any, access: Access, *, store: bool) -> None:
        elements = machine.active * access.lanes
        size = access.dtype.itemsize
        accesses, touched = segments(machine, flat, size * access.lanes)
        traffic = self.traffic
        if store:
            traffic.store_elements += elements
            traffic.store_bytes += elements * size
            traffic.store_accesses += accesses
            traffic.store_segments += touched
            return
        traffic.load_elements += elements
        traffic.load_bytes += elements * size
        traffic.load_accesses += accesses
        traffic.load_segments += touched


class ThreadgroupArray(Memory):
    """A threadgroup array: one copy per threadgroup of the chunk, never initialized."""

    def __init__(
        self, machine: Machine, name: str, size: int, unit: int, traffic: ThreadgroupTraffic
    ) -> None:
        self.name, self.size, self.base, self.traffic = name, size, 0, traffic
        self.stride = -(-size // 16) * 16
        self.storage = Storage(np.zeros(machine.groups * self.stride, np.uint8), unit)
        self.storage.shadow = Shadow(
            machine.groups * self.stride // unit, "threadgroup", machine.actor_dtype
        )

    def flat(self, machine: Machine, offset: Any) -> Any:
        """Return byte offsets in the storage."""
        start = machine.group_index * self.stride
        if machine.mask.array is not None and np.ndim(offset) == 1:
            start = machine.compress(start)
        return offset + start

    def _check_read(self, machine: Machine, flat: Any, offset: Any, access: Access) -> None:
        shadow = self.storage.shadow_for(access.dtype.itemsize)
        if machine.checks.uninitialized != "off":
            size = access.dtype.itemsize * access.lanes
            for element in self._elements(flat, access, size):
                bad = shadow.write_clock.take(element) < 0
                if bad.any():
                    self._fault_uninitialized(machine, bad, offset, access)
        if machine.checks.races:
            self._read_shadow(machine, flat, access, shadow)

    def _fault_uninitialized(
        self, machine: Machine, bad: np.ndarray, offset: Any, access: Access
    ) -> None:
        where = int(np.argmax(bad))
        bytes_ = np.broadcast_to(offset, bad.shape).reshape(-1)
        machine.fault(
            UninitializedReadError,
            access.node,
            f"read of threadgroup memory {self.name!r} that nothing wrote",
            self._lanes_of(machine, bad),
            memory=self.name,
            address=int(bytes_[where]),
        )

    def _check_write(self, machine: Machine, flat: np.ndarray, access: Access) -> None:
        if machine.checks.races:
            super()._check_write(machine, flat, access)
            return
        shadow = self.storage.shadow_for(access.dtype.itemsize)
        size = access.dtype.itemsize * access.lanes
        for element in self._elements(flat, access, size):
            shadow.write_clock[element] = machine.clock

    def _count(self, machine: Machine, flat: Any, access: Access, *, store: bool) -> None:
        elements = machine.active * access.lanes
        size = elements * access.dtype.itemsize
        traffic = self.traffic
        if store:
            traffic.store_elements += elements
            traffic.store_bytes += size
        else:
            traffic.load_elements += elements
            traffic.load_bytes += size
        accesses, conflicts = bank_conflicts(machine, flat, access)
        traffic.accesses += accesses
        traffic.bank_conflicts += conflicts

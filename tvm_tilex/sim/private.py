"""Thread memory: one lane value per scalar element, so that uniform indices cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.errors import (
    MisalignedAccessError,
    OutOfBoundsError,
    UndefinedValueError,
    UnsupportedConstructError,
)
from tvm_tilex.sim.values import Tainted, merge, undefined

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine, Mask
    from tvm_tilex.sim.memory import Access

__all__ = ["ThreadArray"]


class ThreadArray:
    """A thread-private array of ``length`` scalars of ``dtype``, nothing written yet."""

    def __init__(self, name: str, dtype: np.dtype, length: int, line: int, owner: Mask) -> None:
        self.name, self.dtype, self.length, self.owner = name, dtype, length, owner
        self.elements: list[Any] = [undefined(dtype, (name, line))] * length

    def _index(self, machine: Machine, offset: Any, access: Access) -> Any:
        """Return the element index, checked; an integer where it is uniform."""
        item = self.dtype.itemsize
        if access.dtype.itemsize != item:
            raise UnsupportedConstructError(
                f"thread memory {self.name!r} of {self.dtype.name} accessed as "
                f"{access.dtype.name} is not supported",
                access.node.line,
                access.node.column,
                "reinterpretation of thread memory",
            )
        if np.ndim(offset):
            offset = machine.compress(offset)
            if offset.size and (offset == offset[0]).all():
                offset = offset[0]
        last = (self.length - access.lanes) * item
        bad = (offset < 0) | (offset > last)
        if np.any(bad):
            self._fault(machine, offset, bad, access, OutOfBoundsError, "out-of-bounds access")
        bad = np.bitwise_and(offset, max(access.alignment, item) - 1) != 0
        if np.any(bad):
            self._fault(machine, offset, bad, access, MisalignedAccessError, "misaligned access")
        return int(offset) // item if np.ndim(offset) == 0 else offset // item

    def _fault(
        self, machine: Machine, offset: Any, bad: Any, access: Access, kind: Any, what: str
    ) -> None:
        lane = machine.active_array()
        if np.ndim(bad):
            position = int(np.argmax(bad))
            flat = (
                np.arange(lane.size)
                if machine.mask.array is None
                else machine.mask.flat(machine.shape)
            )
            lane, address = int(flat[position]), int(offset[position])
        else:
            address = int(offset)
        machine.fault(
            kind,
            access.node,
            f"{what} at byte {address} (element {address // self.dtype.itemsize}) of thread "
            f"array {self.name!r}, which has {self.length * self.dtype.itemsize} bytes",
            lane,
            memory=self.name,
            address=address,
        )

    def load(self, machine: Machine, offset: Any, access: Access) -> Any:
        """Return the loaded component, or the tuple of components."""
        index = self._index(machine, offset, access)
        parts = tuple(self._element(machine, index, c, access) for c in range(access.lanes))
        return parts[0] if access.lanes == 1 else parts

    def _element(self, machine: Machine, index: Any, c: int, access: Access) -> Any:
        if isinstance(index, int):
            value = self.elements[index + c]
        else:
            value = self._gather(machine, index + c)
        if value.__class__ is Tainted:
            if value.origin[0] == self.name:
                value = Tainted(value.value, value.undef, (self.name, access.node.line))
            if machine.checks.uninitialized == "read":
                bad = np.logical_and(value.undef, machine.active_array())
                if bad.any():
                    machine.fault(
                        UndefinedValueError,
                        access.node,
                        f"read of thread memory {self.name!r} that nothing wrote",
                        bad,
                        memory=self.name,
                        address=(index + c) * self.dtype.itemsize
                        if isinstance(index, int)
                        else None,
                    )
        if access.dtype != self.dtype:
            return _reinterpret(value, access.dtype)
        return value

    def _gather(self, machine: Machine, index: np.ndarray) -> Any:
        full = machine.expand(index)
        result = self.elements[int(index[0])] if index.size else self.elements[0]
        for k in np.unique(index):
            result = merge(full == k, self.elements[int(k)], result)
        return result

    def store(self, machine: Machine, offset: Any, value: Any, access: Access) -> None:
        """Store a component or a tuple of components into the active lanes."""
        index = self._index(machine, offset, access)
        parts = value if isinstance(value, tuple) else (value,)
        for c, part in enumerate(parts):
            if access.dtype != self.dtype:
                part = _reinterpret(part, self.dtype)
            if isinstance(index, int):
                self._assign(machine, index + c, part)
                continue
            full = machine.expand(index + c)
            active = machine.active_array()
            for k in np.unique(index + c):
                chosen = np.logical_and(full == k, active)
                self.elements[int(k)] = merge(chosen, part, self.elements[int(k)])

    def _assign(self, machine: Machine, index: int, value: Any) -> None:
        mask = machine.mask
        if mask is self.owner or mask.array is None:
            self.elements[index] = value
        else:
            self.elements[index] = merge(mask.array, value, self.elements[index])


def _reinterpret(value: Any, dtype: np.dtype) -> Any:
    if value.__class__ is Tainted:
        return Tainted(_reinterpret(value.value, dtype), value.undef, value.origin)
    return np.asarray(value).view(dtype)[()]

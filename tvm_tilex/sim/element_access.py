"""Access of matrix elements: 64 per SIMD group, made by the SIMD group as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.coalescing import SEGMENT_BYTES
from tvm_tilex.sim.errors import (
    ConstWriteError,
    MisalignedAccessError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedConstructError,
)
from tvm_tilex.sim.memory import Access, Buffer, Memory, ThreadgroupArray

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["ELEMENTS", "ElementLanes", "load_elements", "store_elements"]

ELEMENTS = 64


class ElementLanes:
    """The elements of the matrices of the active SIMD groups, 64 in a row for each.

    The actor of every element is its SIMD group as a whole, so that the accesses of one SIMD group
    are in program order and those of two need a barrier.

    Parameters
    ----------
    machine
        The lanes that run the kernel.
    active
        Active SIMD groups, (threadgroups, SIMD groups).
    offsets
        Byte offsets, (threadgroups, SIMD groups, 8, 8).
    """

    def __init__(self, machine: Machine, active: np.ndarray, offsets: np.ndarray) -> None:
        self.machine = machine
        group, simd = np.nonzero(active)
        self.offsets = offsets[active].reshape(-1)
        actor = (machine.first_group + group) * machine.actors_per_group + machine.threads + simd
        self.actors = np.repeat(actor, ELEMENTS).astype(machine.actor_dtype)
        self.group = np.repeat(group, ELEMENTS)
        self.lane = np.repeat(group * machine.threads + simd * machine.simd_width, ELEMENTS)


def _flat(memory: Memory, lanes: ElementLanes, access: Access) -> np.ndarray:
    item = access.dtype.itemsize
    for bad, kind, what in (
        (
            (lanes.offsets < 0) | (lanes.offsets > memory.size - item),
            OutOfBoundsError,
            "out-of-bounds matrix element",
        ),
        (lanes.offsets % item != 0, MisalignedAccessError, "misaligned matrix element"),
    ):
        if bad.any():
            position = int(np.argmax(bad))
            lanes.machine.fault(
                kind,
                access.node,
                f"{what} at byte {int(lanes.offsets[position])} of {memory.name!r}, which has "
                f"{memory.size} bytes",
                int(lanes.lane[position]),
                memory=memory.name,
                address=int(lanes.offsets[position]),
            )
    if isinstance(memory, ThreadgroupArray):
        return lanes.offsets + lanes.group * memory.stride
    return lanes.offsets + memory.base


def _context(memory: Memory, lanes: ElementLanes, access: Access) -> tuple[Any, Any, Any]:
    return access.node, memory.name, lambda position: int(lanes.offsets[position])


def _require_memory(memory: Any, access: Access) -> None:
    if not isinstance(memory, Memory):
        raise UnsupportedConstructError(
            "a matrix in thread memory is not supported",
            access.node.line,
            access.node.column,
            "simdgroup_load or simdgroup_store of thread memory",
        )


def load_elements(memory: Any, lanes: ElementLanes, access: Access) -> np.ndarray:
    """Return the elements, after the checks and counts of a load."""
    _require_memory(memory, access)
    flat = _flat(memory, lanes, access)
    _count(memory, lanes, flat, access, store=False)
    item, machine = access.dtype.itemsize, lanes.machine
    shadow = memory.storage.shadow_for(item)
    if shadow is not None:
        for k in range(max(item // memory.storage.unit, 1)):
            element = flat // memory.storage.unit + k
            _check_initialized(memory, lanes, shadow, element, access)
            if machine.checks.races:
                context = _context(memory, lanes, access)
                shadow.read(machine, element, lanes.actors, lanes.actors, context)
    return memory.storage.view(access.dtype).take(flat // item)


def _check_initialized(
    memory: Memory, lanes: ElementLanes, shadow: Any, element: np.ndarray, access: Access
) -> None:
    machine = lanes.machine
    if not isinstance(memory, ThreadgroupArray) or machine.checks.uninitialized == "off":
        return
    bad = shadow.write_clock.take(element) < 0
    if not bad.any():
        return
    position = int(np.argmax(bad))
    machine.fault(
        UninitializedReadError,
        access.node,
        f"read of threadgroup memory {memory.name!r} that nothing wrote",
        int(lanes.lane[position]),
        memory=memory.name,
        address=int(lanes.offsets[position]),
    )


def store_elements(memory: Any, lanes: ElementLanes, values: np.ndarray, access: Access) -> None:
    """Write the elements, after the checks and counts of a store."""
    _require_memory(memory, access)
    machine = lanes.machine
    if lanes.offsets.size == 0:
        return
    if access.const or not memory.writable:
        why = "through a const pointer" if access.const else "to an input-only buffer"
        machine.fault(
            ConstWriteError,
            access.node,
            f"write {why} {memory.name!r}",
            int(lanes.lane[0]),
            memory=memory.name,
            address=int(lanes.offsets[0]),
        )
    flat = _flat(memory, lanes, access)
    _count(memory, lanes, flat, access, store=True)
    item = access.dtype.itemsize
    shadow = memory.storage.shadow_for(item)
    if shadow is not None:
        for k in range(max(item // memory.storage.unit, 1)):
            element = flat // memory.storage.unit + k
            if machine.checks.races:
                shadow.write(machine, element, lanes.actors, _context(memory, lanes, access))
            else:
                shadow.write_clock[element] = machine.clock
    memory.storage.view(access.dtype)[flat // item] = values


def _count(
    memory: Memory, lanes: ElementLanes, flat: np.ndarray, access: Access, *, store: bool
) -> None:
    elements, size = flat.size, flat.size * access.dtype.itemsize
    rows = flat.reshape(-1, ELEMENTS) // SEGMENT_BYTES
    ordered = np.sort(rows, axis=1)
    touched = rows.shape[0] + int(np.count_nonzero(ordered[:, 1:] != ordered[:, :-1]))
    traffic: Any = memory.traffic  # type: ignore[attr-defined]
    prefix = "store" if store else "load"
    for name, amount in (("elements", elements), ("bytes", size)):
        setattr(traffic, f"{prefix}_{name}", getattr(traffic, f"{prefix}_{name}") + amount)
    if isinstance(memory, Buffer):
        for name, amount in (("accesses", rows.shape[0]), ("segments", touched)):
            setattr(traffic, f"{prefix}_{name}", getattr(traffic, f"{prefix}_{name}") + amount)
        return
    traffic.accesses += rows.shape[0]

"""Compiled expressions and the places they can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.memory import Access, Pointer
from tvm_tilex.sim.types import ScalarType, Type, VectorType
from tvm_tilex.sim.values import Tainted, merge

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.syntax import Node

__all__ = [
    "ComponentPlace",
    "Expr",
    "MemoryPlace",
    "Place",
    "Run",
    "VariablePlace",
    "access_of",
    "constant",
    "pick",
]

Run = Callable[["Machine"], Any]


class Place:
    """Where a value can be loaded from and stored to; ``address`` is evaluated once per use."""

    const = False

    def address(self, machine: Machine) -> Any:
        """Evaluate what locates the place."""
        return None

    def load(self, machine: Machine, address: Any) -> Any:
        """Return the value at the place."""
        raise NotImplementedError

    def store(self, machine: Machine, address: Any, value: Any) -> None:
        """Store a value of the place's type in the active lanes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Expr:
    """A compiled expression.

    ``pure`` means: no memory access, no possible fault, no effect, so that it may be evaluated in
    lanes that do not ask for it. ``roots`` names the parameters that a pointer can come from.
    """

    type: Type
    run: Run
    pure: bool = False
    constant: Any = None
    place: Place | None = None
    roots: frozenset[str] = frozenset()
    slot: int | None = None
    memory: Any = None


def constant(kind: ScalarType, value: Any) -> Expr:
    """Return a scalar that is known before the launch."""
    return Expr(kind, lambda machine: value, pure=True, constant=value)


class VariablePlace(Place):
    """A local variable of scalar, vector or pointer type."""

    def __init__(self, slot: int, const: bool = False) -> None:
        self.slot, self.const = slot, const

    def load(self, machine: Machine, address: Any) -> Any:
        """Return the variable's value."""
        return machine.frame[self.slot]

    def store(self, machine: Machine, address: Any, value: Any) -> None:
        """Store in the active lanes; lanes outside the declaration's mask never read it."""
        mask = machine.mask
        if mask is machine.owner[self.slot] or mask.array is None:
            machine.frame[self.slot] = value
            return
        old = machine.frame[self.slot]
        if isinstance(value, Pointer):
            value = Pointer(value.memory, merge(mask.array, value.offset, old.offset))
            machine.frame[self.slot] = value
            return
        machine.frame[self.slot] = merge(mask.array, value, old)


class MemoryPlace(Place):
    """What a pointer points at."""

    def __init__(self, pointer: Run, access: Access, node: Node) -> None:
        self.pointer, self.access, self.node = pointer, access, node
        self.const = access.const

    def address(self, machine: Machine) -> Any:
        """Evaluate the pointer."""
        memory, offset = self.pointer(machine)
        if offset.__class__ is Tainted:
            offset = machine.defined(offset, self.node, "an address")
        return memory, offset

    def load(self, machine: Machine, address: Any) -> Any:
        """Load from memory, with the checks of that memory."""
        memory, offset = address
        return memory.load(machine, offset, self.access)

    def store(self, machine: Machine, address: Any, value: Any) -> None:
        """Store to memory; what leaves the thread has to be defined."""
        memory, offset = address
        if not hasattr(memory, "elements"):
            value = machine.all_defined(value, self.node, f"a store to {memory.name!r}")
        memory.store(machine, offset, value, self.access)


class ComponentPlace(Place):
    """Components of a vector place, by constant positions or by one run-time index."""

    def __init__(self, base: Place, lanes: int, positions: tuple[int, ...] | Run) -> None:
        self.base, self.lanes, self.positions = base, lanes, positions
        self.const = base.const

    def address(self, machine: Machine) -> Any:
        """Evaluate the base's location and the index."""
        positions = self.positions
        if callable(positions):
            positions = positions(machine)
        return self.base.address(machine), positions

    def load(self, machine: Machine, address: Any) -> Any:
        """Return the component or the tuple of components."""
        base, positions = address
        return pick(self.base.load(machine, base), positions)

    def store(self, machine: Machine, address: Any, value: Any) -> None:
        """Replace the components in the active lanes."""
        base, positions = address
        vector = list(self.base.load(machine, base))
        if not isinstance(positions, tuple):
            for k in range(self.lanes):
                chosen = np.asarray(np.equal(positions, k))
                vector[k] = merge(chosen, value, vector[k])
        else:
            parts = value if isinstance(value, tuple) else (value,)
            for k, part in zip(positions, parts, strict=True):
                vector[k] = part
        self.base.store(machine, base, tuple(vector))


def pick(vector: tuple[Any, ...], positions: Any) -> Any:
    """Return components of a vector value at constant positions or at a run-time index."""
    if isinstance(positions, tuple):
        return vector[positions[0]] if len(positions) == 1 else tuple(vector[k] for k in positions)
    if np.ndim(positions) == 0:
        return vector[int(positions)]
    result = vector[0]
    for k in range(1, len(vector)):
        result = merge(np.equal(positions, k), vector[k], result)
    return result


def access_of(pointee: ScalarType | VectorType, node: Node, *, const: bool, cast: bool) -> Access:
    """Return the access of a pointee; a scalar is checked for alignment only after a cast."""
    if isinstance(pointee, VectorType):
        return Access(pointee.element.dtype, pointee.lanes, pointee.alignment, node, const)
    return Access(pointee.dtype, 1, pointee.alignment if cast else 1, node, const)

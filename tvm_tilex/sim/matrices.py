"""SIMD-group matrices of 8x8 elements: one value per SIMD group, (threadgroups, SIMD groups, 8, 8).

``simdgroup_multiply_accumulate`` multiplies and adds in float32 and rounds once to the element
type; the hardware's inner precision and order are not specified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.collectives import by_simd, together
from tvm_tilex.sim.element_access import ElementLanes, load_elements, store_elements
from tvm_tilex.sim.errors import (
    CollectiveDivergenceError,
    OutOfBoundsError,
    UndefinedValueError,
)
from tvm_tilex.sim.memory import Access

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.syntax import Node

__all__ = ["MatrixArray", "load_matrix", "make_filled", "multiply_accumulate", "store_matrix"]

_SIDE = 8


class MatrixArray:
    """An array of SIMD-group matrices; an element is None until every SIMD group has written it."""

    def __init__(self, name: str, dtype: np.dtype, length: int, groups: int, simds: int) -> None:
        self.name, self.dtype, self.length = name, dtype, length
        self.values = np.zeros((length, groups, simds, _SIDE, _SIDE), dtype)
        self.written = np.zeros((length, groups, simds), np.bool_)

    def read(self, machine: Machine, index: np.ndarray, node: Node) -> np.ndarray:
        """Return one matrix per SIMD group; fault where nothing wrote it."""
        group, simd = _grid(machine)
        active = _active(machine)
        missing = active & ~self.written[index, group, simd]
        if missing.any() and machine.checks.uninitialized != "off":
            machine.fault(
                UndefinedValueError,
                node,
                f"read of SIMD-group matrix {self.name!r} that nothing wrote",
                _lane(machine, missing),
                memory=self.name,
            )
        return self.values[index, group, simd]

    def write(self, machine: Machine, index: np.ndarray, value: np.ndarray) -> None:
        """Store one matrix per active SIMD group."""
        group, simd = _grid(machine)
        active = _active(machine)
        where = (index[active], group[active], simd[active])
        self.values[where] = np.broadcast_to(value, (*active.shape, _SIDE, _SIDE))[active]
        self.written[where] = True


def _grid(machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    shape = (machine.groups, machine.simds)
    return tuple(np.broadcast_to(a, shape) for a in np.ogrid[: shape[0], : shape[1]])  # type: ignore[return-value]


def _active(machine: Machine) -> np.ndarray:
    return by_simd(machine, machine.active_array(), np.False_)[:, :, 0]


def _lane(machine: Machine, bad: np.ndarray) -> int:
    group, simd = divmod(int(np.argmax(bad.reshape(-1))), machine.simds)
    return group * machine.threads + simd * machine.simd_width


def per_simd(machine: Machine, value: Any, node: Node, what: str) -> np.ndarray:
    """Return one value per SIMD group; fault where its active lanes disagree."""
    value = machine.defined(value, node, what)
    lanes = by_simd(machine, np.asarray(value), np.asarray(value).dtype.type(0))
    exists = by_simd(machine, machine.active_array(), np.False_)
    differs = (lanes != lanes[:, :, :1]) & exists
    if differs.any():
        machine.fault(
            CollectiveDivergenceError,
            node,
            f"{what} differs within the SIMD group",
            _lane(machine, differs.any(axis=2)),
        )
    return lanes[:, :, 0]


def matrix_index(machine: Machine, array: MatrixArray, index: Any, node: Node) -> np.ndarray:
    """Return the checked element index per SIMD group."""
    found = per_simd(machine, index, node, f"the index of {array.name!r}").astype(np.intp)
    bad = ((found < 0) | (found >= array.length)) & _active(machine)
    if bad.any():
        at = int(found[bad][0])
        machine.fault(
            OutOfBoundsError,
            node,
            f"element {at} of {array.name!r}, which has {array.length} matrices",
            _lane(machine, bad),
            memory=array.name,
            address=at * _SIDE * _SIDE * array.dtype.itemsize,
        )
    return np.where(_active(machine), found, 0)


def make_filled(machine: Machine, dtype: np.dtype, value: Any, node: Node) -> np.ndarray:
    """Return matrices whose elements all are ``value``."""
    machine.counters.collectives["make_filled_simdgroup_matrix"] += together(
        machine, node, "make_filled_simdgroup_matrix"
    )
    one = per_simd(machine, value, node, "the value of make_filled_simdgroup_matrix")
    return np.broadcast_to(one[:, :, None, None], (*one.shape, _SIDE, _SIDE)).astype(dtype)


def multiply_accumulate(
    machine: Machine, a: np.ndarray, b: np.ndarray, c: np.ndarray, dtype: np.dtype, node: Node
) -> np.ndarray:
    """Return ``a @ b + c`` per SIMD group."""
    count = together(machine, node, "simdgroup_multiply_accumulate")
    machine.counters.collectives["simdgroup_multiply_accumulate"] += count
    wide = np.matmul(a.astype(np.float32), b.astype(np.float32)) + c.astype(np.float32)
    machine.arithmetic["matrix.multiply_accumulate"] += count * _SIDE**3
    return wide.astype(dtype)


def _offsets(
    machine: Machine, offset: Any, stride: Any, item: int, transpose: bool, node: Node
) -> np.ndarray:
    """Return the byte offsets (threadgroups, SIMD groups, 8, 8) of matrix elements."""
    start = per_simd(machine, offset, node, "the address of a matrix").astype(np.int64)
    pitch = per_simd(machine, stride, node, "the stride of a matrix").astype(np.int64)
    row, column = np.ogrid[:_SIDE, :_SIDE]
    if transpose:
        row, column = column, row
    index = row * pitch[:, :, None, None] + column
    return start[:, :, None, None] + index * item


def load_matrix(
    machine: Machine,
    pointer: Any,
    stride: Any,
    transpose: bool,
    dtype: np.dtype,
    node: Node,
) -> np.ndarray:
    """Return the matrices that ``simdgroup_load`` reads."""
    count = together(machine, node, "simdgroup_load")
    machine.counters.collectives["simdgroup_load"] += count
    memory, offset = pointer
    offsets = _offsets(machine, offset, stride, dtype.itemsize, transpose, node)
    active = _active(machine)
    access = Access(dtype, 1, dtype.itemsize, node)
    values = load_elements(memory, ElementLanes(machine, active, offsets), access)
    result = np.zeros((*active.shape, _SIDE, _SIDE), dtype)
    result[active] = values.reshape(-1, _SIDE, _SIDE)
    return result


def store_matrix(
    machine: Machine,
    value: np.ndarray,
    pointer: Any,
    stride: Any,
    transpose: bool,
    dtype: np.dtype,
    node: Node,
    const: bool,
) -> None:
    """Write the matrices as ``simdgroup_store`` does."""
    count = together(machine, node, "simdgroup_store")
    machine.counters.collectives["simdgroup_store"] += count
    memory, offset = pointer
    offsets = _offsets(machine, offset, stride, dtype.itemsize, transpose, node)
    active = _active(machine)
    access = Access(dtype, 1, dtype.itemsize, node, const)
    lanes = ElementLanes(machine, active, offsets)
    store_elements(memory, lanes, value[active].reshape(-1), access)

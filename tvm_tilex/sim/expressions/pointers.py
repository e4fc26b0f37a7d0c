"""Pointer arithmetic, and what a pointer points at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Expr, MemoryPlace, Run, access_of
from tvm_tilex.sim.types import PointerType, ScalarType, StructType, VectorType
from tvm_tilex.sim.values import Tainted

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["address_of", "dereference", "offset_run", "pointer_sum"]


def pointer_sum(node: ast.Node, operator: str, base: Expr, index: Expr) -> Expr:
    """Return a pointer plus or minus an integer number of its pointees."""
    if not isinstance(index.type, ScalarType) or index.type.kind not in "iu":
        raise MslTypeError(
            f"operator {operator} on {base.type} and {index.type}",
            node.line,
            node.column,
            f"operator {operator}",
        )
    assert isinstance(base.type, PointerType)
    size = base.type.pointee.size
    return Expr(
        base.type,
        offset_run(base.run, index.run, size if operator == "+" else -size, node),
        roots=base.roots,
    )


def offset_run(base: Run, index: Run, size: int, node: ast.Node) -> Run:
    """Return the closure of the pointer ``base`` moved by ``index`` times ``size`` bytes."""

    def run(machine: Machine) -> Any:
        memory, offset = base(machine)
        at = index(machine)
        if at.__class__ is Tainted:
            at = machine.defined(at, node, "an address")
        if np.ndim(at) == 0:
            return Pointer(memory, offset + int(at) * size)
        step = at.astype(np.int64)
        if size != 1:
            step *= size
        if np.ndim(offset) or offset:
            step = step + offset
        return Pointer(memory, step)

    return run


def dereference(pointer: Expr, node: ast.Node, *, cast: bool = False) -> Expr:
    """Return what a pointer points at."""
    kind = pointer.type
    if not isinstance(kind, PointerType):
        raise MslTypeError(f"* of {kind}", node.line, node.column, "operator *")
    if isinstance(kind.pointee, StructType):
        return Expr(kind.pointee, pointer.run, roots=pointer.roots)
    if not isinstance(kind.pointee, ScalarType | VectorType):
        raise MslTypeError(f"access through {kind}", node.line, node.column, "operator *")
    access = access_of(kind.pointee, node, const=kind.const, cast=cast)
    place = MemoryPlace(pointer.run, access, node)

    def load(machine: Machine) -> Any:
        return place.load(machine, place.address(machine))

    return Expr(kind.pointee, load, place=place, roots=pointer.roots)


def address_of(target: Expr, node: ast.Node) -> Expr:
    """Return the pointer to an indexed element of memory."""
    if not isinstance(target.place, MemoryPlace):
        raise UnsupportedConstructError(
            "the address of something outside memory is not supported",
            node.line,
            node.column,
            "address-of a local variable",
        )
    return Expr(target.memory, target.place.pointer, roots=target.roots)

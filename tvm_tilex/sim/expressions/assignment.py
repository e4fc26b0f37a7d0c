"""Assignments, compound assignments, and steps by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.arithmetic import binary_operation
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert
from tvm_tilex.sim.expressions.matrix_calls import assign_matrix
from tvm_tilex.sim.expressions.pointers import pointer_sum
from tvm_tilex.sim.operands import ComponentPlace, Expr, Place, Run, VariablePlace, constant
from tvm_tilex.sim.types import INT, MatrixType, PointerType, Type

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["assign", "step"]


def assign(compiler: ExpressionCompiler, node: ast.Assign) -> Expr:
    """Return an assignment, plain or compound; its value is what was stored."""
    target = compiler.compile(node.target)
    value = compiler.compile(node.value)
    if isinstance(target.type, MatrixType):
        return assign_matrix(node, target, value)
    place = _assignable(compiler, target, node)
    kind = target.type
    if not node.operator:
        run = convert(value, kind, node).run

        def store(machine: Machine) -> Any:
            found = run(machine)
            place.store(machine, place.address(machine), found)
            return found

        return Expr(kind, store)
    operand = Expr(value.type, _beside_old(value.run), pure=value.pure, constant=value.constant)
    new = binary_operation(node, node.operator, _old(kind), operand)
    converted = convert(new, kind, node, explicit=True)
    return _update(place, converted.run, kind, prefix=True)


def step(compiler: ExpressionCompiler, node: ast.Step) -> Expr:
    """Return ``++`` or ``--``; its value is the new one before, the old one after the operand."""
    target = compiler.compile(node.operand)
    one = constant(INT, np.int32(1))
    place = _assignable(compiler, target, node)
    kind = target.type
    if isinstance(kind, PointerType):
        new = pointer_sum(node, node.operator[0], _old(kind), one)
    else:
        new = binary_operation(node, node.operator[0], _old(kind), one)
        new = convert(new, kind, node, explicit=True)
    return _update(place, new.run, kind, prefix=node.prefix)


def _assignable(compiler: ExpressionCompiler, target: Expr, node: ast.Node) -> Place:
    """Return the place of an assignable expression, and note which buffers it can reach."""
    if target.place is None:
        raise MslTypeError(
            f"an expression of type {target.type} is not assignable",
            node.line,
            node.column,
            "assignment",
        )
    compiler.stored.update(target.roots)
    if isinstance(target.type, PointerType):
        compiler.moved_pointers = True
    if target.place.const and isinstance(_whole(target.place), VariablePlace):
        raise MslTypeError("assignment to a const variable", node.line, node.column, "const")
    return target.place


def _whole(place: Place) -> Place:
    while isinstance(place, ComponentPlace):
        place = place.base
    return place


def _update(place: Place, compute: Run, kind: Type, *, prefix: bool) -> Expr:
    """Return load, compute (which finds the old value on top of the frame), store."""

    def run(machine: Machine) -> Any:
        address = place.address(machine)
        old = place.load(machine, address)
        machine.frame.append(old)
        new = compute(machine)
        machine.frame.pop()
        place.store(machine, address, new)
        return new if prefix else old

    return Expr(kind, run)


def _old(kind: Type) -> Expr:
    return Expr(kind, lambda machine: machine.frame[-1])


def _beside_old(operand: Run) -> Run:
    def run(machine: Machine) -> Any:
        # The operand may itself use the top of the frame; hide the old value meanwhile.
        old = machine.frame.pop()
        found = operand(machine)
        machine.frame.append(old)
        return found

    return run

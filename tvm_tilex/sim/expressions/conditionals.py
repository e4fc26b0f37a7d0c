"""Expressions that evaluate an operand in some lanes only: ``&&``, ``||`` and ``?:``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert, truth
from tvm_tilex.sim.operands import Expr, Run
from tvm_tilex.sim.types import BOOL, ScalarType, Type, VectorType, arithmetic_type
from tvm_tilex.sim.values import merge

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["condition", "logical", "ternary"]


def condition(compiler: ExpressionCompiler, node: ast.Node, what: str) -> Run:
    """Return the closure of a condition: a defined boolean component."""
    return truth(compiler.compile(node), node, what)


def logical(compiler: ExpressionCompiler, node: ast.Logical) -> Expr:
    """Return ``&&`` or ``||``, the right side evaluated in the lanes that need it."""
    first, value = compiler.compile(node.left), compiler.compile(node.right)
    left = truth(first, node.left, f"the left side of {node.operator}")
    right = truth(value, node.right, f"the right side of {node.operator}")
    wants = node.operator == "&&"
    combine = np.logical_and if wants else np.logical_or
    pure = value.pure

    def run(machine: Machine) -> Any:
        a = left(machine)
        machine.arithmetic["bool.logical"] += machine.active
        if np.ndim(a) == 0:
            return right(machine) if bool(a) == wants else a
        if pure:
            return combine(a, right(machine))
        outer = machine.mask
        then, other = machine.split(a)
        inner = then if wants else other
        if inner.count == 0:
            return a
        machine.set(inner)
        b = right(machine)
        machine.set(outer)
        return combine(a, b)

    return Expr(BOOL, run, pure=first.pure and pure)


def ternary(compiler: ExpressionCompiler, node: ast.Ternary) -> Expr:
    """Return ``?:``, each side evaluated in the lanes that choose it."""
    choice = condition(compiler, node.condition, "a condition")
    then, otherwise = compiler.compile(node.then), compiler.compile(node.otherwise)
    kind = _common(node, then, otherwise)
    then = convert(then, kind, node)
    otherwise = convert(otherwise, kind, node)
    first, second = then.run, otherwise.run

    def run(machine: Machine) -> Any:
        chosen = choice(machine)
        if np.ndim(chosen) == 0:
            return first(machine) if chosen else second(machine)
        outer = machine.mask
        inside, outside = machine.split(chosen)
        if outside.count == 0:
            return first(machine)
        if inside.count == 0:
            return second(machine)
        machine.set(inside)
        a = first(machine)
        machine.set(outside)
        b = second(machine)
        machine.set(outer)
        return merge(chosen, a, b)

    return Expr(kind, run)


def _common(node: ast.Node, then: Expr, otherwise: Expr) -> Type:
    if then.type == otherwise.type and isinstance(then.type, ScalarType | VectorType):
        return then.type
    if isinstance(then.type, ScalarType) and isinstance(otherwise.type, ScalarType):
        found = arithmetic_type(then.type, otherwise.type)
        if found is not None:
            return found
    raise MslTypeError(
        f"?: on {then.type} and {otherwise.type}", node.line, node.column, "conditional"
    )

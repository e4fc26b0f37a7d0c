"""Calls of one lane: math functions, ``select``, and the relations over a vector's components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert
from tvm_tilex.sim.expressions.overloads import argument_type, check_arity, mixed_type
from tvm_tilex.sim.mathlib import FUNCTIONS
from tvm_tilex.sim.operands import Expr
from tvm_tilex.sim.operators import mapped_run
from tvm_tilex.sim.types import BOOL, ScalarType, Type, VectorType, element_type
from tvm_tilex.sim.values import Tainted, apply, merge

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["RULES"]


def _math(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    builtin = FUNCTIONS[name]
    check_arity(node, arguments, builtin.arity)
    kind = argument_type(node, name, builtin, arguments)
    converted = [convert(a, kind, node) for a in arguments]
    key = f"{element_type(kind)}.{name}"
    run = mapped_run(builtin.function, [c.run for c in converted], key)
    result: Type = kind
    if builtin.result == "bool":
        result = VectorType(BOOL, kind.lanes) if isinstance(kind, VectorType) else BOOL
    return Expr(result, run, pure=all(c.pure for c in converted))


def _select(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    check_arity(node, arguments, 3)
    no, yes, chosen = arguments
    kind = no.type
    if no.type != yes.type:
        if not isinstance(no.type, ScalarType) or not isinstance(yes.type, ScalarType):
            raise MslTypeError(
                f"select of {no.type} and {yes.type}", node.line, node.column, "select"
            )
        kind = mixed_type(node, "select", no.type, yes.type)
    lanes = kind.lanes if isinstance(kind, VectorType) else 1
    wanted: Type = BOOL if lanes == 1 else VectorType(BOOL, lanes)
    chosen = convert(chosen, wanted, node, explicit=True)
    no, yes = convert(no, kind, node), convert(yes, kind, node)
    key = f"{kind}.select"
    first, second, third = no.run, yes.run, chosen.run

    def run(machine: Machine) -> Any:
        a, b, c = first(machine), second(machine), third(machine)
        machine.arithmetic[key] += machine.active * lanes
        if isinstance(a, tuple):
            return tuple(_choose(x, y, z) for x, y, z in zip(a, b, c, strict=True))
        return _choose(a, b, c)

    return Expr(kind, run, pure=no.pure and yes.pure and chosen.pure)


def _choose(no: Any, yes: Any, chosen: Any) -> Any:
    if chosen.__class__ is Tainted:
        return apply(np.where, chosen, yes, no)
    if np.ndim(chosen) == 0:
        return yes if chosen else no
    return merge(chosen, yes, no)


def _vote(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    check_arity(node, arguments, 1)
    _vector_type(node, name, arguments)
    value = arguments[0].run
    combine = np.logical_and if name == "all" else np.logical_or

    def vote(machine: Machine) -> Any:
        found = value(machine)
        result = found[0]
        for part in found[1:]:
            result = apply(combine, result, part)
        return result

    return Expr(BOOL, vote, pure=arguments[0].pure)


def _dot(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    check_arity(node, arguments, 2)
    kind = _vector_type(node, name, arguments)
    left, right = arguments[0].run, convert(arguments[1], kind, node).run
    key = f"{kind.element}.dot"

    def dot(machine: Machine) -> Any:
        a, b = left(machine), right(machine)
        machine.arithmetic[key] += machine.active
        total = apply(np.multiply, a[0], b[0])
        for x, y in zip(a[1:], b[1:], strict=True):
            total = apply(np.add, total, apply(np.multiply, x, y))
        return total

    return Expr(kind.element, dot, pure=all(a.pure for a in arguments))


def _vector_type(node: ast.Call, name: str, arguments: list[Expr]) -> VectorType:
    if not all(isinstance(a.type, VectorType) for a in arguments):
        raise MslTypeError(f"{name} of {arguments[0].type}", node.line, node.column, name)
    kind = arguments[0].type
    assert isinstance(kind, VectorType)
    return kind


RULES = {
    **dict.fromkeys(FUNCTIONS, _math),
    "select": _select,
    "all": _vote,
    "any": _vote,
    "dot": _dot,
}

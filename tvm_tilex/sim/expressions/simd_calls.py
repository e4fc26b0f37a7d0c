"""Calls of SIMD-group functions: reductions, scans, shuffles and votes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import collectives
from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert
from tvm_tilex.sim.expressions.overloads import check_arity, lane_type
from tvm_tilex.sim.operands import Expr, Run
from tvm_tilex.sim.types import BOOL, ScalarType, element_type

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["RULES"]


def _collective(node: ast.Call, name: str, value: Run, one: Callable[[Machine, Any], Any]) -> Run:
    """Return the closure of a function that whole SIMD groups reach, component by component."""

    def run(machine: Machine) -> Any:
        machine.counters.collectives[name] += collectives.together(machine, node, name)
        found = value(machine)
        if isinstance(found, tuple):
            return tuple(one(machine, part) for part in found)
        return one(machine, found)

    return run


def _reduce(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    check_arity(node, arguments, 1)
    kind = lane_type(node, name, arguments[0].type)
    integers = name in collectives.REDUCTIONS and collectives.REDUCTIONS[name][2]
    if integers and element_type(kind).kind == "f":
        raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
    value, site = arguments[0].run, compiler.next_site()

    def one(machine: Machine, part: Any) -> Any:
        part = machine.defined(part, node, f"an argument of {name}")
        if name in collectives.SCANS:
            return collectives.scan_lanes(machine, name, part)
        return collectives.reduce_lanes(machine, name, part, site)

    return Expr(kind, _collective(node, name, value, one))


def _permute(
    compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]
) -> Expr:
    check_arity(node, arguments, 2)
    kind = lane_type(node, name, arguments[0].type)
    amount = arguments[1]
    if not isinstance(amount.type, ScalarType) or amount.type.kind not in "iu":
        raise MslTypeError(f"{name} by {amount.type}", node.line, node.column, name)
    value, by = arguments[0].run, amount.run

    def one(machine: Machine, part: Any) -> Any:
        moved = machine.defined(by(machine), node, f"the second argument of {name}")
        return collectives.shuffle(machine, name, part, moved, node)

    return Expr(kind, _collective(node, name, value, one))


def _vote(compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
    check_arity(node, arguments, 1)
    value = convert(arguments[0], BOOL, node).run
    padding = np.bool_(name == "simd_all")

    def one(machine: Machine, part: Any) -> Any:
        part = machine.defined(part, node, f"an argument of {name}")
        lanes = collectives.by_simd(machine, part, padding)
        combine = np.all if padding else np.any
        found = np.asarray(combine(lanes, axis=2, keepdims=True))
        return collectives.flatten(machine, found)

    return Expr(BOOL, _collective(node, name, value, one))


def _is_first(
    compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]
) -> Expr:
    check_arity(node, arguments, 0)

    def first(machine: Machine) -> Any:
        machine.counters.collectives[name] += collectives.together(machine, node, name)
        return machine.thread % machine.simd_width == 0

    return Expr(BOOL, first)


def _broadcast_first(
    compiler: ExpressionCompiler, node: ast.Call, name: str, arguments: list[Expr]
) -> Expr:
    check_arity(node, arguments, 1)
    kind = lane_type(node, name, arguments[0].type)

    def one(machine: Machine, part: Any) -> Any:
        return collectives.shuffle(machine, "simd_broadcast", part, np.int32(0), node)

    return Expr(kind, _collective(node, name, arguments[0].run, one))


RULES = {
    **dict.fromkeys((*collectives.REDUCTIONS, *collectives.SCANS), _reduce),
    **dict.fromkeys(collectives.PERMUTES, _permute),
    "simd_all": _vote,
    "simd_any": _vote,
    "simd_is_first": _is_first,
    "simd_broadcast_first": _broadcast_first,
}

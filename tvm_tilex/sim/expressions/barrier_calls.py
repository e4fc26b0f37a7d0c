"""Calls of barriers."""

from __future__ import annotations

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.barriers import simdgroup_barrier, threadgroup_barrier
from tvm_tilex.sim.errors import UnsupportedConstructError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.overloads import check_arity
from tvm_tilex.sim.operands import Expr
from tvm_tilex.sim.types import VOID

__all__ = ["RULES"]

_BARRIERS = {"threadgroup_barrier": threadgroup_barrier, "simdgroup_barrier": simdgroup_barrier}
_FLAGS = {
    "mem_flags::mem_none": (),
    "mem_flags::mem_threadgroup": ("threadgroup",),
    "mem_flags::mem_device": ("device",),
    "mem_flags::mem_device_and_threadgroup": ("device", "threadgroup"),
}


def _barrier(compiler: ExpressionCompiler, node: ast.Call, name: str) -> Expr:
    check_arity(node, node.arguments, 1)
    spaces = tuple(sorted(_flags(node.arguments[0])))
    barrier = _BARRIERS[name]
    return Expr(VOID, lambda machine: barrier(machine, spaces, node))


def _flags(node: ast.Node) -> set[str]:
    """Return the address spaces that the memory flags name."""
    if isinstance(node, ast.Binary) and node.operator == "|":
        return _flags(node.left) | _flags(node.right)
    name = node.name.removeprefix("metal::") if isinstance(node, ast.Name) else ""
    if name not in _FLAGS:
        raise UnsupportedConstructError(
            "a barrier takes mem_none, mem_threadgroup, mem_device or their |",
            node.line,
            node.column,
            "memory flags",
        )
    return set(_FLAGS[name])


RULES = dict.fromkeys(_BARRIERS, _barrier)

"""Calls: the builtin functions by name."""

from __future__ import annotations

from collections.abc import Callable

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import UnsupportedConstructError
from tvm_tilex.sim.expressions import barrier_calls, math_calls, matrix_calls, simd_calls
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.operands import Expr

__all__ = ["call"]

_NAMESPACES = ("metal::precise::", "metal::fast::", "precise::", "metal::", "fast::")
# Calls that compile their arguments themselves, and calls of values.
_OF_NODES: dict[str, Callable[[ExpressionCompiler, ast.Call, str], Expr]] = {
    **barrier_calls.RULES,
    **matrix_calls.RULES,
}
_OF_VALUES: dict[str, Callable[[ExpressionCompiler, ast.Call, str, list[Expr]], Expr]] = {
    **math_calls.RULES,
    **simd_calls.RULES,
}


def call(compiler: ExpressionCompiler, node: ast.Call) -> Expr:
    """Return a call of a builtin function, its namespace taken off."""
    prefix = next((p for p in _NAMESPACES if node.name.startswith(p)), "")
    name = node.name[len(prefix) :]
    if name in _OF_NODES:
        return _OF_NODES[name](compiler, node, name)
    arguments = [compiler.compile(a) for a in node.arguments]
    if name in _OF_VALUES:
        return _OF_VALUES[name](compiler, node, name, arguments)
    raise UnsupportedConstructError(
        f"function {node.name} is not in the supported subset of MSL",
        node.line,
        node.column,
        f"function {node.name}",
    )

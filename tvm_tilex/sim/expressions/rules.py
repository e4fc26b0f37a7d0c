"""The rule of every expression node."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.expressions.accesses import index, member
from tvm_tilex.sim.expressions.arithmetic import binary, unary
from tvm_tilex.sim.expressions.assignment import assign, step
from tvm_tilex.sim.expressions.calls import call
from tvm_tilex.sim.expressions.casts import cast, construct
from tvm_tilex.sim.expressions.compiler import Rule
from tvm_tilex.sim.expressions.conditionals import logical, ternary
from tvm_tilex.sim.expressions.matrix_calls import make_filled
from tvm_tilex.sim.expressions.names import literal, name

__all__ = ["EXPRESSION_RULES"]

EXPRESSION_RULES: Mapping[type[ast.Node], Rule] = MappingProxyType(
    {
        ast.Literal: literal,
        ast.Name: name,
        ast.Cast: cast,
        ast.Construct: construct,
        ast.Unary: unary,
        ast.Binary: binary,
        ast.Logical: logical,
        ast.Ternary: ternary,
        ast.Step: step,
        ast.Assign: assign,
        ast.Index: index,
        ast.Member: member,
        ast.Call: call,
        ast.MakeFilled: make_filled,
    }
)

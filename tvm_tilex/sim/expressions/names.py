"""Literals, named constants and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Expr, VariablePlace, constant
from tvm_tilex.sim.scope import Symbol
from tvm_tilex.sim.types import (
    FLOAT,
    ArrayType,
    MatrixType,
    PointerType,
    ScalarType,
    StructType,
    named_type,
)

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["literal", "name"]

_CONSTANTS = {"INFINITY": np.inf, "NAN": np.nan, "HUGE_VALF": np.inf, "M_PI_F": np.pi}


def literal(compiler: ExpressionCompiler, node: ast.Literal) -> Expr:
    """Return a literal of the type that its spelling gives."""
    kind = named_type(node.type_name)
    assert isinstance(kind, ScalarType)
    return constant(kind, kind.dtype.type(node.value))


def name(compiler: ExpressionCompiler, node: ast.Name) -> Expr:
    """Return a variable, a parameter or a named constant."""
    symbol = compiler.symbols.find(node.name)
    if symbol is not None:
        return _variable(symbol)
    if node.name in _CONSTANTS:
        return constant(FLOAT, FLOAT.dtype.type(_CONSTANTS[node.name]))
    raise MslTypeError(f"{node.name} is not declared", node.line, node.column, "name")


def _variable(symbol: Symbol) -> Expr:
    slot, kind = symbol.slot, symbol.type

    def value(machine: Machine) -> Any:
        return machine.frame[slot]

    if isinstance(kind, ArrayType):
        if isinstance(kind.element, MatrixType):
            return Expr(kind, value, slot=slot)

        def start(machine: Machine) -> Any:
            return Pointer(machine.frame[slot], 0)

        pointer = PointerType(kind.element, symbol.space, symbol.const)
        return Expr(pointer, start, roots=symbol.roots)
    if isinstance(kind, MatrixType):
        return Expr(kind, lambda machine: (machine.frame[slot], np.int32(0)), slot=slot)
    if isinstance(kind, StructType):
        return Expr(kind, value, roots=symbol.roots)
    if symbol.builtin:
        return Expr(kind, value, pure=True)
    place = VariablePlace(slot, symbol.const)
    return Expr(kind, value, pure=True, place=place, roots=symbol.roots, slot=slot)

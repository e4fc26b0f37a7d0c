"""Unary and binary operators, with the usual arithmetic conversions."""

from __future__ import annotations

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert, truth
from tvm_tilex.sim.expressions.pointers import address_of, dereference, pointer_sum
from tvm_tilex.sim.operands import Expr, constant
from tvm_tilex.sim.operators import RELATIONS, binary_run, mapped_run
from tvm_tilex.sim.types import (
    BOOL,
    PointerType,
    ScalarType,
    Type,
    VectorType,
    arithmetic_type,
    element_type,
    promoted,
)

__all__ = ["binary", "binary_operation", "unary"]

_INTEGER_ONLY = ("%", "&", "|", "^", "<<", ">>")
_SHIFTS = ("<<", ">>")
_UNARY = {"-": np.negative, "~": np.invert, "+": np.positive}


def binary(compiler: ExpressionCompiler, node: ast.Binary) -> Expr:
    """Return a binary operation of the text."""
    left, right = compiler.compile(node.left), compiler.compile(node.right)
    return binary_operation(node, node.operator, left, right)


def binary_operation(node: ast.Node, operator: str, left: Expr, right: Expr) -> Expr:
    """Return ``left operator right`` after the usual arithmetic conversions."""
    if isinstance(left.type, PointerType) and operator in ("+", "-"):
        return pointer_sum(node, operator, left, right)
    if isinstance(right.type, PointerType) and operator == "+":
        return pointer_sum(node, operator, right, left)
    element, lanes = _common(node, operator, left, right)
    if operator in _INTEGER_ONLY and element.kind == "f":
        raise MslTypeError(
            f"operator {operator} on {element}", node.line, node.column, f"operator {operator}"
        )
    kind = _widened(element, lanes)
    a = convert(left, kind, node, explicit=True)
    right_kind = kind
    if operator in _SHIFTS:
        right_kind = _widened(promoted(element_type(right.type)), lanes)
    b = convert(right, right_kind, node, explicit=True)
    result = _widened(BOOL, lanes) if operator in RELATIONS else kind
    run = binary_run(operator, element, a.run, b.run, node)
    faulting = operator in _SHIFTS or (operator in "/%" and element.kind != "f")
    return Expr(result, run, pure=a.pure and b.pure and not faulting)


def _widened(element: ScalarType, lanes: int) -> Type:
    return element if lanes == 1 else VectorType(element, lanes)


def _common(node: ast.Node, operator: str, left: Expr, right: Expr) -> tuple[ScalarType, int]:
    """Return the element type of both operands and the number of components."""
    if not all(isinstance(e.type, ScalarType | VectorType) for e in (left, right)):
        raise MslTypeError(
            f"operator {operator} on {left.type} and {right.type}",
            node.line,
            node.column,
            f"operator {operator}",
        )
    one, two = element_type(left.type), element_type(right.type)
    lanes = [t.lanes for t in (left.type, right.type) if isinstance(t, VectorType)]
    if not lanes:
        if operator in _SHIFTS:
            return promoted(one), 1
        element = arithmetic_type(one, two)
    elif len(lanes) == 2:
        element = one if one == two and lanes[0] == lanes[1] else None
    else:
        element = one if isinstance(left.type, VectorType) else two
    if element is None:
        raise MslTypeError(
            f"operator {operator} on {left.type} and {right.type} has no common type",
            node.line,
            node.column,
            f"operator {operator}",
        )
    return element, lanes[0] if lanes else 1


def unary(compiler: ExpressionCompiler, node: ast.Unary) -> Expr:
    """Return a unary operation: arithmetic, logical, indirection or address-of."""
    value = compiler.compile(node.operand)
    if node.operator == "*":
        return dereference(value, node, cast=True)
    if node.operator == "&":
        return address_of(value, node)
    if node.operator == "!":
        run = truth(value, node.operand, "an operand of !")
        return Expr(BOOL, lambda machine: np.logical_not(run(machine)), pure=value.pure)
    if not isinstance(value.type, ScalarType | VectorType):
        raise MslTypeError(
            f"operator {node.operator} on {value.type}", node.line, node.column, "operator"
        )
    element = promoted(element_type(value.type))
    kind: Type = element
    if isinstance(value.type, VectorType):
        element, kind = value.type.element, value.type
    value = convert(value, kind, node)
    if node.operator == "~" and element.kind == "f":
        raise MslTypeError(f"operator ~ on {kind}", node.line, node.column, "operator ~")
    function = _UNARY[node.operator]
    if value.constant is not None:
        return constant(element, function(value.constant))
    return Expr(kind, mapped_run(function, [value.run], f"{element}.negate"), pure=value.pure)

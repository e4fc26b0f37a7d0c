"""Which overload of a builtin function a call chooses."""

from __future__ import annotations

from typing import Any

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.mathlib import Builtin
from tvm_tilex.sim.operands import Expr
from tvm_tilex.sim.types import (
    FLOAT,
    INT,
    ScalarType,
    Type,
    VectorType,
    arithmetic_type,
    element_type,
    promoted,
)

__all__ = ["argument_type", "check_arity", "lane_type", "mixed_type"]


def check_arity(node: ast.Call, arguments: list[Any] | tuple[Any, ...], count: int) -> None:
    """Refuse a call with another number of arguments."""
    if len(arguments) == count:
        return
    raise MslTypeError(
        f"{node.name} takes {count} arguments, not {len(arguments)}",
        node.line,
        node.column,
        node.name,
    )


def argument_type(node: ast.Call, name: str, builtin: Builtin, arguments: list[Expr]) -> Type:
    """Return the common argument type: overloads take arguments of one type."""
    kinds = [a.type for a in arguments]
    for kind in kinds:
        if not isinstance(kind, ScalarType | VectorType):
            raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
    vectors = [k for k in kinds if isinstance(k, VectorType)]
    if vectors:
        element = vectors[0].element
    else:
        element = element_type(kinds[0])
        for kind in kinds[1:]:
            if kind != element:
                element = mixed_type(node, name, element, element_type(kind))
    if builtin.domain == "f" and element.kind != "f":
        element = FLOAT
    if builtin.domain == "i" and element.kind == "f":
        raise MslTypeError(f"{name} of {element}", node.line, node.column, name)
    if builtin.domain != "f" and element.kind == "b":
        element = INT
    return VectorType(element, vectors[0].lanes) if vectors else element


def mixed_type(node: ast.Call, name: str, one: ScalarType, two: ScalarType) -> ScalarType:
    """Return the type that both scalars convert to, where one overload is the best match."""
    found = arithmetic_type(one, two)
    if one.kind != "f" and two.kind != "f" and promoted(one) != promoted(two):
        found = None
    if found is None:
        raise MslTypeError(
            f"call of {name} with {one} and {two} is ambiguous", node.line, node.column, name
        )
    return found


def lane_type(node: ast.Call, name: str, kind: Type) -> Type:
    """Return the type of an argument that lanes exchange: numbers, or vectors of them."""
    element = element_type(kind)
    if not isinstance(element, ScalarType) or element.kind == "b":
        raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
    return kind

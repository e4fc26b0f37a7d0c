"""Conversions of a value to a type, implicit and explicit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.operands import Expr, Run, constant
from tvm_tilex.sim.operators import convert_value
from tvm_tilex.sim.types import BOOL, PointerType, ScalarType, Type, VectorType
from tvm_tilex.sim.values import Tainted

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["convert", "refuse_conversion", "truth"]


def convert(value: Expr, target: Type, node: ast.Node, *, explicit: bool = False) -> Expr:
    """Return the expression converted to ``target`` by the rules of an initialization.

    Raises
    ------
    MslTypeError
        Where the language has no such conversion.
    """
    source = value.type
    if source == target:
        return value
    if isinstance(source, ScalarType) and isinstance(target, ScalarType):
        if {source.name, target.name} == {"half", "bfloat"} and not explicit:
            refuse_conversion(source, target, node)
        return _elementwise(value, target, source, target)
    if isinstance(source, ScalarType) and isinstance(target, VectorType):
        return _splat(convert(value, target.element, node, explicit=explicit), target)
    if isinstance(source, VectorType) and isinstance(target, VectorType):
        if source.lanes != target.lanes or not (explicit or source.element == target.element):
            refuse_conversion(source, target, node)
        return _elementwise(value, target, source.element, target.element)
    if isinstance(source, PointerType) and isinstance(target, PointerType):
        return _pointer(value, source, target, node, explicit)
    refuse_conversion(source, target, node)


def truth(value: Expr, node: ast.Node, what: str) -> Run:
    """Return the closure of a compiled expression as a defined boolean component."""
    run = convert(value, BOOL, node).run

    def check(machine: Machine) -> Any:
        found = run(machine)
        if found.__class__ is Tainted:
            return machine.defined(found, node, what)
        return found

    return check


def refuse_conversion(source: Type, target: Type, node: ast.Node) -> NoReturn:
    """Raise for a conversion that the language does not have."""
    raise MslTypeError(
        f"no conversion from {source} to {target}", node.line, node.column, "conversion"
    )


def _splat(part: Expr, target: VectorType) -> Expr:
    run, lanes = part.run, target.lanes

    def splat(machine: Machine) -> Any:
        return (run(machine),) * lanes

    return Expr(target, splat, pure=part.pure)


def _elementwise(value: Expr, target: Type, source: ScalarType, element: ScalarType) -> Expr:
    if value.constant is not None and isinstance(target, ScalarType):
        return constant(target, convert_value(source, element, value.constant))
    run = value.run
    if source == element:
        return Expr(target, run, pure=value.pure)
    return Expr(
        target, lambda machine: convert_value(source, element, run(machine)), pure=value.pure
    )


def _pointer(
    value: Expr, source: PointerType, target: PointerType, node: ast.Node, explicit: bool
) -> Expr:
    same = source.pointee == target.pointee or (str(target.pointee) == "void")
    if source.space != target.space:
        raise MslTypeError(
            f"a {source.space} pointer does not convert to the {target.space} address space",
            node.line,
            node.column,
            "address space conversion",
        )
    if not explicit and (not same or (source.const and not target.const)):
        refuse_conversion(source, target, node)
    return Expr(target, value.run, roots=value.roots)

"""Elements of memory by index, and members of vectors and structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.components import component, swizzle
from tvm_tilex.sim.expressions.pointers import dereference, offset_run
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Expr
from tvm_tilex.sim.types import ArrayType, PointerType, ScalarType, StructType, VectorType

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["index", "member"]


def index(compiler: ExpressionCompiler, node: ast.Index) -> Expr:
    """Return ``base[index]`` of a pointer, an array of matrices or a vector."""
    base, at = compiler.compile(node.base), compiler.compile(node.index)
    if not isinstance(at.type, ScalarType) or at.type.kind not in "iub":
        raise MslTypeError(f"index of type {at.type}", node.line, node.column, "index")
    if isinstance(base.type, VectorType):
        return component(base, at, node)
    if isinstance(base.type, ArrayType):  # of matrices
        array, position = base.run, at.run
        return Expr(base.type.element, lambda machine: (array(machine), position(machine)))
    if not isinstance(base.type, PointerType):
        raise MslTypeError(f"index into {base.type}", node.line, node.column, "index")
    size = base.type.pointee.size
    pointer = Expr(base.type, offset_run(base.run, at.run, size, node), roots=base.roots)
    found = dereference(pointer, node, cast=isinstance(base.type.pointee, VectorType))
    return Expr(found.type, found.run, place=found.place, roots=found.roots, memory=base.type)


def member(compiler: ExpressionCompiler, node: ast.Member) -> Expr:
    """Return ``base.name`` or ``base->name``."""
    base = compiler.compile(node.base)
    if node.arrow:
        base = dereference(base, node)
    if isinstance(base.type, VectorType):
        return swizzle(base, node)
    if not isinstance(base.type, StructType):
        raise MslTypeError(f"member {node.name} of {base.type}", node.line, node.column, "member")
    return _field(base, base.type, node)


def _field(base: Expr, record: StructType, node: ast.Member) -> Expr:
    field = next((f for f in record.fields if f[0] == node.name), None)
    if field is None:
        raise MslTypeError(f"{record} has no member {node.name}", node.line, node.column, "member")
    _, kind, offset = field
    run = base.run

    def pointer(machine: Machine) -> Any:
        memory, start = run(machine)
        return Pointer(memory, start + offset)

    if isinstance(kind, StructType):
        return Expr(kind, pointer, roots=base.roots)
    element = kind.element if isinstance(kind, ArrayType) else kind
    found = Expr(PointerType(element, "constant", const=True), pointer, roots=base.roots)
    return found if isinstance(kind, ArrayType) else dereference(found, node)

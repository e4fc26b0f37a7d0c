"""Written conversions: casts, ``as_type`` and constructors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert, refuse_conversion
from tvm_tilex.sim.operands import Expr, Run
from tvm_tilex.sim.scope import resolve
from tvm_tilex.sim.types import (
    PointerType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    element_type,
)
from tvm_tilex.sim.values import apply

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["cast", "construct", "written_type"]


def written_type(name: ast.TypeName, records: dict[str, StructType]) -> Type:
    """Return the type of a written type name, its pointer included."""
    kind = resolve(name, records)
    if not name.indirection:
        return kind
    space = name.space or "thread"
    return PointerType(kind, space, name.const or space == "constant")  # type: ignore[arg-type]


def cast(compiler: ExpressionCompiler, node: ast.Cast) -> Expr:
    """Return a C cast, a ``static_cast`` or an ``as_type``."""
    target = written_type(node.type, compiler.records)
    value = compiler.compile(node.operand)
    if node.bits:
        return _as_type(value, target, node)
    return convert(value, target, node, explicit=True)


def _as_type(value: Expr, target: Type, node: ast.Node) -> Expr:
    source = value.type
    if not isinstance(source, ScalarType | VectorType) or not isinstance(
        target, ScalarType | VectorType
    ):
        refuse_conversion(source, target, node)
    if source.size != target.size:
        raise MslTypeError(
            f"as_type<{target}> of {source}: {source.size} and {target.size} bytes",
            node.line,
            node.column,
            "as_type",
        )
    run, dtype = value.run, element_type(target).dtype
    if isinstance(source, ScalarType) and isinstance(target, ScalarType):
        return Expr(
            target,
            lambda machine: apply(lambda x: np.asarray(x).view(dtype)[()], run(machine)),
            pure=value.pure,
        )
    vector = isinstance(target, VectorType)

    def bits(machine: Machine) -> Any:
        found = machine.all_defined(run(machine), node, "as_type")
        return _rebits(found, dtype, vector)

    return Expr(target, bits)


def _rebits(value: Any, dtype: np.dtype, vector: bool) -> Any:
    """Reinterpret the concatenated bytes of the components."""
    parts = value if isinstance(value, tuple) else (value,)
    arrays = np.broadcast_arrays(*(np.asarray(p) for p in parts))
    packed = np.stack(arrays, axis=-1)
    found = np.ascontiguousarray(packed).view(dtype)
    if vector:
        return tuple(found[..., k][()] for k in range(found.shape[-1]))
    return found[..., 0][()]


def construct(compiler: ExpressionCompiler, node: ast.Construct) -> Expr:
    """Return ``type(arguments)``: a scalar, or a vector of scalars and shorter vectors."""
    target = resolve(node.type, compiler.records)
    arguments = [compiler.compile(a) for a in node.arguments]
    if len(arguments) == 1 and isinstance(target, ScalarType | VectorType):
        return convert(arguments[0], target, node, explicit=True)
    if not isinstance(target, VectorType) or not arguments:
        raise UnsupportedConstructError(
            f"construction of {target} is not supported", node.line, node.column, "constructor"
        )
    runs: list[Run] = []
    count = 0
    for argument in arguments:
        width = argument.type.lanes if isinstance(argument.type, VectorType) else 1
        kind: Type = target.element
        if width > 1:
            kind = VectorType(target.element, width)
        runs.append(convert(argument, kind, node, explicit=True).run)
        count += width
    if count != target.lanes:
        raise MslTypeError(f"{target} of {count} components", node.line, node.column, "constructor")

    def build(machine: Machine) -> Any:
        parts: list[Any] = []
        for run in runs:
            found = run(machine)
            parts.extend(found if isinstance(found, tuple) else (found,))
        return tuple(parts)

    return Expr(target, build, pure=all(a.pure for a in arguments))

"""SIMD-group matrices: fill, assign, load, store, multiply and accumulate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_tilex.sim import matrices
from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert
from tvm_tilex.sim.expressions.overloads import check_arity
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Expr, Run
from tvm_tilex.sim.types import BOOL, VOID, MatrixType, PointerType, named_type

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["RULES", "assign_matrix", "make_filled"]


def make_filled(compiler: ExpressionCompiler, node: ast.MakeFilled) -> Expr:
    """Return ``make_filled_simdgroup_matrix``, 8x8."""
    kind = named_type(f"simdgroup_{node.type.base}8x8")
    if not isinstance(kind, MatrixType) or (node.rows, node.columns) != (8, 8):
        raise UnsupportedConstructError(
            f"make_filled_simdgroup_matrix<{node.type.base}, {node.rows}, {node.columns}> is "
            "not supported; float, half and bfloat 8x8 are",
            node.line,
            node.column,
            "make_filled_simdgroup_matrix",
        )
    element = kind.element
    value = convert(compiler.compile(node.value), element, node, explicit=True).run
    return Expr(
        kind, lambda machine: matrices.make_filled(machine, element.dtype, value(machine), node)
    )


def assign_matrix(node: ast.Node, target: Expr, value: Expr) -> Expr:
    """Return the assignment of a matrix to a matrix element."""
    if value.type != target.type:
        raise MslTypeError(
            f"no conversion from {value.type} to {target.type}",
            node.line,
            node.column,
            "matrix assignment",
        )
    where, what = target.run, value.run

    def run(machine: Machine) -> None:
        found = what(machine)
        if isinstance(found, tuple):
            array, index = found
            at = matrices.matrix_index(machine, array, index, node)
            found = array.read(machine, at, node)
        array, index = where(machine)
        array.write(machine, matrices.matrix_index(machine, array, index, node), found)

    return Expr(VOID, run)


def _transfer(compiler: ExpressionCompiler, node: ast.Call, name: str) -> Expr:
    """Return ``simdgroup_load`` or ``simdgroup_store``."""
    arguments = [compiler.compile(a) for a in node.arguments]
    if not 2 <= len(arguments) <= 5:
        check_arity(node, arguments, 5)
    matrix, pointer = arguments[:2]
    kind = matrix.type
    if not isinstance(kind, MatrixType):
        raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
    if not isinstance(pointer.type, PointerType) or pointer.type.pointee != kind.element:
        raise MslTypeError(f"{name} of {kind} with {pointer.type}", node.line, node.column, name)
    stride: Run = lambda machine: np.int64(8)  # noqa: E731
    if len(arguments) > 2:
        stride = arguments[2].run
    if len(arguments) > 3 and (arguments[3].constant is None or arguments[3].constant != 0):
        raise UnsupportedConstructError(
            f"{name} with a matrix origin other than 0 is not supported",
            node.line,
            node.column,
            "matrix origin",
        )
    transpose: Run = lambda machine: np.False_  # noqa: E731
    if len(arguments) > 4:
        transpose = convert(arguments[4], BOOL, node).run
    if name == "simdgroup_store":
        compiler.stored.update(pointer.roots)
    return Expr(VOID, _transfer_run(node, name, matrix, pointer, stride, transpose))


def _transfer_run(
    node: ast.Call, name: str, matrix: Expr, pointer: Expr, stride: Run, transpose: Run
) -> Run:
    assert isinstance(matrix.type, MatrixType)
    assert isinstance(pointer.type, PointerType)
    dtype, const = matrix.type.element.dtype, pointer.type.const
    where, source = matrix.run, pointer.run

    def run(machine: Machine) -> None:
        array, index = where(machine)
        at = matrices.matrix_index(machine, array, index, node)
        memory, offset = source(machine)
        place = Pointer(memory, np.asarray(machine.defined(offset, node, "an address")))
        turned = transpose(machine)
        if np.ndim(turned):
            raise UnsupportedConstructError(
                f"{name} with a varying transpose is not supported",
                node.line,
                node.column,
                "varying transpose",
            )
        pitch = stride(machine)
        if name == "simdgroup_load":
            value = matrices.load_matrix(machine, place, pitch, bool(turned), dtype, node)
            array.write(machine, at, value)
            return
        value = array.read(machine, at, node)
        matrices.store_matrix(machine, value, place, pitch, bool(turned), dtype, node, const)

    return run


def _multiply_accumulate(compiler: ExpressionCompiler, node: ast.Call, name: str) -> Expr:
    arguments = [compiler.compile(a) for a in node.arguments]
    check_arity(node, arguments, 4)
    kind = arguments[0].type
    for argument in arguments:
        if not isinstance(argument.type, MatrixType) or argument.type != kind:
            raise MslTypeError(
                f"{name} of {argument.type} with {kind}", node.line, node.column, name
            )
    assert isinstance(kind, MatrixType)
    dtype = kind.element.dtype
    runs = [a.run for a in arguments]

    def run(machine: Machine) -> None:
        places = [r(machine) for r in runs]
        at = [matrices.matrix_index(machine, array, index, node) for array, index in places]
        a, b, c = (
            array.read(machine, i, node) for (array, _), i in zip(places[1:], at[1:], strict=True)
        )
        value = matrices.multiply_accumulate(machine, a, b, c, dtype, node)
        places[0][0].write(machine, at[0], value)

    return Expr(VOID, run)


RULES = {
    "simdgroup_load": _transfer,
    "simdgroup_store": _transfer,
    "simdgroup_multiply_accumulate": _multiply_accumulate,
}

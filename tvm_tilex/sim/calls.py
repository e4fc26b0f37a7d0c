"""Calls: math, selection, SIMD-group functions, barriers and matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import collectives, matrices
from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.barriers import simdgroup_barrier, threadgroup_barrier
from tvm_tilex.sim.errors import MslTypeError, OutOfBoundsError, UnsupportedConstructError
from tvm_tilex.sim.mathlib import FUNCTIONS, Builtin
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Expr, Run
from tvm_tilex.sim.types import (
    BOOL,
    FLOAT,
    INT,
    VOID,
    MatrixType,
    PointerType,
    ScalarType,
    Type,
    VectorType,
    arithmetic_type,
    named_type,
    promoted,
)
from tvm_tilex.sim.values import Tainted, apply, merge

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["CallCompiler"]

_NAMESPACES = ("metal::", "precise::", "fast::", "metal::precise::", "metal::fast::")
_FLAGS = {
    "mem_flags::mem_none": (),
    "mem_flags::mem_threadgroup": ("threadgroup",),
    "mem_flags::mem_device": ("device",),
    "mem_flags::mem_device_and_threadgroup": ("device", "threadgroup"),
}


class CallCompiler:
    """The part of the expression compiler that knows the builtins by name."""

    sites: int
    compile: Callable[..., Expr]
    convert: Callable[..., Expr]
    condition: Callable[..., Run]
    stored: set[str]

    def _call(self, node: ast.Call) -> Expr:
        name = node.name
        for prefix in sorted(_NAMESPACES, key=len, reverse=True):
            if name.startswith(prefix):
                name = name[len(prefix) :]
                break
        if name in ("threadgroup_barrier", "simdgroup_barrier"):
            return self._barrier(node, name)
        if name in ("simdgroup_load", "simdgroup_store"):
            return self._matrix_transfer(node, name)
        if name == "simdgroup_multiply_accumulate":
            return self._multiply_accumulate(node)
        arguments = [self.compile(a) for a in node.arguments]
        if name == "select":
            return self._select(node, arguments)
        if name in ("all", "any", "dot"):
            return self._horizontal(node, name, arguments)
        if name in FUNCTIONS:
            return self._math(node, name, FUNCTIONS[name], arguments)
        if name in collectives.REDUCTIONS or name in collectives.SCANS:
            return self._reduce(node, name, arguments)
        if name in collectives.PERMUTES:
            return self._permute(node, name, arguments)
        if name in ("simd_all", "simd_any"):
            return self._vote(node, name, arguments)
        if name in ("simd_is_first", "simd_broadcast_first"):
            return self._first(node, name, arguments)
        raise UnsupportedConstructError(
            f"function {node.name} is not in the supported subset of MSL",
            node.line,
            node.column,
            f"function {node.name}",
        )

    # Elementwise.

    def mapped(self, function: Callable[..., Any], runs: list[Run], key: str) -> Run:
        """Return the closure that applies ``function`` component by component."""

        def run(machine: Machine) -> Any:
            values = [r(machine) for r in runs]
            if isinstance(values[0], tuple):
                machine.arithmetic[key] += machine.active * len(values[0])
                return tuple(apply(function, *parts) for parts in zip(*values, strict=True))
            machine.arithmetic[key] += machine.active
            return apply(function, *values)

        return run

    def _math(self, node: ast.Call, name: str, builtin: Builtin, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, builtin.arity)
        kind = self._overload(node, name, builtin, arguments)
        element = kind.element if isinstance(kind, VectorType) else kind
        assert isinstance(element, ScalarType)
        converted = [self.convert(a, kind, node) for a in arguments]
        run = self.mapped(builtin.function, [c.run for c in converted], f"{element}.{name}")
        result: Type = kind
        if builtin.result == "bool":
            result = VectorType(BOOL, kind.lanes) if isinstance(kind, VectorType) else BOOL
        return Expr(result, run, pure=all(c.pure for c in converted))

    def _overload(self, node: ast.Call, name: str, builtin: Builtin, arguments: list[Expr]) -> Type:
        """Return the common argument type: overloads take arguments of one type."""
        kinds = [a.type for a in arguments]
        for kind in kinds:
            if not isinstance(kind, ScalarType | VectorType):
                raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
        vectors = [k for k in kinds if isinstance(k, VectorType)]
        if vectors:
            element: ScalarType | None = vectors[0].element
        else:
            element = kinds[0]  # type: ignore[assignment]
            for kind in kinds[1:]:
                if kind != element:
                    element = self._mixed(node, name, element, kind)  # type: ignore[arg-type]
        assert element is not None
        if builtin.domain == "f" and element.kind != "f":
            element = FLOAT
        if builtin.domain == "i" and element.kind == "f":
            raise MslTypeError(f"{name} of {element}", node.line, node.column, name)
        if builtin.domain != "f" and element.kind == "b":
            element = INT
        return VectorType(element, vectors[0].lanes) if vectors else element

    def _mixed(self, node: ast.Call, name: str, one: ScalarType, two: ScalarType) -> ScalarType:
        if one.kind != "f" and two.kind != "f":
            left, right = promoted(one), promoted(two)
            if left == right:
                return left
        elif arithmetic_type(one, two) is not None and "f" in (one.kind, two.kind):
            found = arithmetic_type(one, two)
            assert found is not None
            return found
        raise MslTypeError(
            f"call of {name} with {one} and {two} is ambiguous", node.line, node.column, name
        )

    def _select(self, node: ast.Call, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 3)
        no, yes, chosen = arguments
        kind = no.type
        if no.type != yes.type:
            if not isinstance(no.type, ScalarType) or not isinstance(yes.type, ScalarType):
                raise MslTypeError(
                    f"select of {no.type} and {yes.type}", node.line, node.column, "select"
                )
            kind = self._mixed(node, "select", no.type, yes.type)
        lanes = kind.lanes if isinstance(kind, VectorType) else 1
        wanted: Type = BOOL if lanes == 1 else VectorType(BOOL, lanes)
        chosen = self.convert(chosen, wanted, node, explicit=True)
        no, yes = self.convert(no, kind, node), self.convert(yes, kind, node)
        key = f"{kind}.select"
        first, second, third = no.run, yes.run, chosen.run

        def run(machine: Machine) -> Any:
            a, b, c = first(machine), second(machine), third(machine)
            machine.arithmetic[key] += machine.active * lanes
            if isinstance(a, tuple):
                return tuple(_choose(x, y, z) for x, y, z in zip(a, b, c, strict=True))
            return _choose(a, b, c)

        return Expr(kind, run, pure=no.pure and yes.pure and chosen.pure)

    def _horizontal(self, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 2 if name == "dot" else 1)
        if not all(isinstance(a.type, VectorType) for a in arguments):
            raise MslTypeError(f"{name} of {arguments[0].type}", node.line, node.column, name)
        kind = arguments[0].type
        assert isinstance(kind, VectorType)
        runs = [a.run for a in arguments]
        if name != "dot":
            combine = np.logical_and if name == "all" else np.logical_or

            def vote(machine: Machine) -> Any:
                found = runs[0](machine)
                result = found[0]
                for part in found[1:]:
                    result = apply(combine, result, part)
                return result

            return Expr(BOOL, vote, pure=arguments[0].pure)
        other = self.convert(arguments[1], kind, node).run
        key = f"{kind.element}.dot"

        def dot(machine: Machine) -> Any:
            a, b = runs[0](machine), other(machine)
            machine.arithmetic[key] += machine.active
            total = apply(np.multiply, a[0], b[0])
            for x, y in zip(a[1:], b[1:], strict=True):
                total = apply(np.add, total, apply(np.multiply, x, y))
            return total

        return Expr(kind.element, dot, pure=all(a.pure for a in arguments))

    # Barriers and SIMD-group functions.

    def _barrier(self, node: ast.Call, name: str) -> Expr:
        self._arity(node, list(node.arguments), 1)
        spaces = tuple(sorted(self._flags(node.arguments[0])))
        barrier = threadgroup_barrier if name == "threadgroup_barrier" else simdgroup_barrier
        return Expr(VOID, lambda machine: barrier(machine, spaces, node))

    def _flags(self, node: ast.Node) -> set[str]:
        if isinstance(node, ast.Binary) and node.operator == "|":
            return self._flags(node.left) | self._flags(node.right)
        name = node.name.removeprefix("metal::") if isinstance(node, ast.Name) else ""
        if name not in _FLAGS:
            raise UnsupportedConstructError(
                "a barrier takes mem_none, mem_threadgroup, mem_device or their |",
                node.line,
                node.column,
                "memory flags",
            )
        return set(_FLAGS[name])

    def _site(self) -> int:
        self.sites += 1
        return self.sites

    def _reduce(self, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 1)
        kind = self._lane_type(node, name, arguments[0].type)
        element = kind.element if isinstance(kind, VectorType) else kind
        assert isinstance(element, ScalarType)
        integers = name in collectives.REDUCTIONS and collectives.REDUCTIONS[name][2]
        if integers and element.kind == "f":
            raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
        value, site = arguments[0].run, self._site()

        def one(machine: Machine, part: Any) -> Any:
            part = machine.defined(part, node, f"an argument of {name}")
            if name in collectives.SCANS:
                return collectives.scan_lanes(machine, name, part)
            return collectives.reduce_lanes(machine, name, part, site)

        return Expr(kind, self._collective(node, name, value, one))

    def _collective(
        self, node: ast.Call, name: str, value: Run, one: Callable[[Machine, Any], Any]
    ) -> Run:
        def run(machine: Machine) -> Any:
            machine.counters.collectives[name] += collectives.together(machine, node, name)
            found = value(machine)
            if isinstance(found, tuple):
                return tuple(one(machine, part) for part in found)
            return one(machine, found)

        return run

    def _lane_type(self, node: ast.Call, name: str, kind: Type) -> Type:
        element = kind.element if isinstance(kind, VectorType) else kind
        if not isinstance(element, ScalarType) or element.kind == "b":
            raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
        return kind

    def _permute(self, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 2)
        kind = self._lane_type(node, name, arguments[0].type)
        amount = arguments[1]
        if not isinstance(amount.type, ScalarType) or amount.type.kind not in "iu":
            raise MslTypeError(f"{name} by {amount.type}", node.line, node.column, name)
        value, by = arguments[0].run, amount.run

        def one(machine: Machine, part: Any) -> Any:
            moved = machine.defined(by(machine), node, f"the second argument of {name}")
            return collectives.shuffle(machine, name, part, moved, node)

        return Expr(kind, self._collective(node, name, value, one))

    def _vote(self, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 1)
        value = self.convert(arguments[0], BOOL, node).run
        padding = np.bool_(name == "simd_all")

        def one(machine: Machine, part: Any) -> Any:
            part = machine.defined(part, node, f"an argument of {name}")
            lanes = collectives.by_simd(machine, part, padding)
            combine = np.all if padding else np.any
            found = np.asarray(combine(lanes, axis=2, keepdims=True))
            return collectives.flatten(machine, found)

        return Expr(BOOL, self._collective(node, name, value, one))

    def _first(self, node: ast.Call, name: str, arguments: list[Expr]) -> Expr:
        self._arity(node, arguments, 0 if name == "simd_is_first" else 1)
        if name == "simd_is_first":

            def first(machine: Machine) -> Any:
                machine.counters.collectives[name] += collectives.together(machine, node, name)
                return machine.thread % machine.simd_width == 0

            return Expr(BOOL, first)
        kind = self._lane_type(node, name, arguments[0].type)

        def one(machine: Machine, part: Any) -> Any:
            return collectives.shuffle(machine, "simd_broadcast", part, np.int32(0), node)

        return Expr(kind, self._collective(node, name, arguments[0].run, one))

    # Matrices.

    def _makefilled(self, node: ast.MakeFilled) -> Expr:
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
        value = self.convert(self.compile(node.value), element, node, explicit=True).run
        return Expr(
            kind, lambda machine: matrices.make_filled(machine, element.dtype, value(machine), node)
        )

    def assign_matrix(self, node: ast.Node, target: Expr, value: Expr) -> Expr:
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

    def _matrix_transfer(self, node: ast.Call, name: str) -> Expr:
        arguments = [self.compile(a) for a in node.arguments]
        if not 2 <= len(arguments) <= 5:
            self._arity(node, arguments, 5)
        matrix, pointer = arguments[:2]
        kind = matrix.type
        if not isinstance(kind, MatrixType):
            raise MslTypeError(f"{name} of {kind}", node.line, node.column, name)
        if not isinstance(pointer.type, PointerType) or pointer.type.pointee != kind.element:
            raise MslTypeError(
                f"{name} of {kind} with {pointer.type}", node.line, node.column, name
            )
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
            transpose = self.convert(arguments[4], BOOL, node).run
        if name == "simdgroup_store":
            self.stored.update(pointer.roots)
        return Expr(VOID, self._transfer(node, name, matrix, pointer, stride, transpose))

    def _transfer(
        self,
        node: ast.Call,
        name: str,
        matrix: Expr,
        pointer: Expr,
        stride: Run,
        transpose: Run,
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

    def _multiply_accumulate(self, node: ast.Call) -> Expr:
        arguments = [self.compile(a) for a in node.arguments]
        self._arity(node, arguments, 4)
        kind = arguments[0].type
        for argument in arguments:
            if not isinstance(argument.type, MatrixType) or argument.type != kind:
                raise MslTypeError(
                    f"simdgroup_multiply_accumulate of {argument.type} with {kind}",
                    node.line,
                    node.column,
                    "simdgroup_multiply_accumulate",
                )
        assert isinstance(kind, MatrixType)
        dtype = kind.element.dtype
        runs = [a.run for a in arguments]

        def run(machine: Machine) -> None:
            places = [r(machine) for r in runs]
            at = [matrices.matrix_index(machine, array, index, node) for array, index in places]
            a, b, c = (
                array.read(machine, i, node)
                for (array, _), i in zip(places[1:], at[1:], strict=True)
            )
            value = matrices.multiply_accumulate(machine, a, b, c, dtype, node)
            places[0][0].write(machine, at[0], value)

        return Expr(VOID, run)

    # Shared.

    def fault_component(self, machine: Machine, bad: Any, node: ast.Node, lanes: int) -> None:
        """Fault for a component index outside a vector."""
        machine.fault(OutOfBoundsError, node, f"component index outside 0 to {lanes - 1}", bad)

    def _arity(self, node: ast.Call, arguments: list[Any], count: int) -> None:
        if len(arguments) == count:
            return
        raise MslTypeError(
            f"{node.name} takes {count} arguments, not {len(arguments)}",
            node.line,
            node.column,
            node.name,
        )


def _choose(no: Any, yes: Any, chosen: Any) -> Any:
    if chosen.__class__ is Tainted:
        return apply(np.where, chosen, yes, no)
    if np.ndim(chosen) == 0:
        return yes if chosen else no
    return merge(chosen, yes, no)

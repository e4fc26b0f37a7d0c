"""Expressions and loop nests for the statements of one parallel nest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.ir import (
    Axis,
    BoundsPolicy,
    Constant,
    Coordinate,
    Dimension,
    DType,
    Elementwise,
    Extent,
    Full,
    Gather,
    Load,
    Operand,
    Program,
    Repartition,
    Store,
    Value,
    most,
)
from tvm_tilex.ir.program import Definition
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.lowering.access import IndexSpace, guarded
from tvm_tilex.lowering.elementwise import elementwise
from tvm_tilex.lowering.numbers import constant, from_view, held, to_view, wrapped
from tvm_tilex.tirx import attrs, compat
from tvm_tilex.tirx.compat import builder as T
from tvm_tilex.tirx.compat import tirx

__all__ = ["BodyLowering", "Coordinates"]

Coordinates = Mapping[str, Any]


class BodyLowering:
    """Turns values into expressions, materialized where ``shared`` says so."""

    def __init__(
        self, program: Program, views: Mapping[str, Any], space: IndexSpace, shared: frozenset[int]
    ) -> None:
        self.program = program
        self.views = views
        self.space = space
        self.shared = shared
        self.definitions: dict[int, Definition] = {}
        # How to read a value that has storage, given coordinates.
        self.places: dict[int, Callable[[Coordinates], Any]] = {}

    # Expressions

    def expression(self, operand: Operand, at: Coordinates) -> Any:
        """The element of ``operand`` at ``at`` (a superset of its axes)."""
        if isinstance(operand, Constant):
            return constant(operand.value, operand.dtype)
        if operand.number in self.places:
            return self.places[operand.number](at)
        return self.definition_expression(self.definitions[operand.number], at)

    def definition_expression(self, definition: Definition, at: Coordinates) -> Any:
        """The defining expression of a value at ``at``, operands read or inlined."""
        if isinstance(definition, Load):
            return self._load(definition, at)
        if isinstance(definition, Coordinate):
            return self._coordinate(definition, at)
        if isinstance(definition, Gather):
            return self._gather(definition, at)
        if isinstance(definition, Repartition):
            return self.expression(definition.source, at)
        if isinstance(definition, Full):
            return constant(definition.value, definition.result.type.dtype)
        if isinstance(definition, Elementwise):
            operands = [self.expression(operand, at) for operand in definition.operands]
            dtypes = [
                o.type.dtype if isinstance(o, Value) else o.dtype for o in definition.operands
            ]
            return elementwise(definition.op, operands, dtypes, definition.result.type.dtype)
        raise LoweringError(
            f"{definition.result} is read before it is computed", location=definition.location
        )

    def active(self, operand: Operand, at: Coordinates) -> Any | None:
        """The condition that no element it comes from is outside a 'predicate' view, or None.

        A gather is inactive where its index is (its source gives the fill instead), and a
        reduction never is.
        """
        condition = None
        for load in self._predicated(operand, set()):
            condition = conjunction(condition, self._bounds_condition(load, at))
        return condition

    def _predicated(self, operand: Operand, seen: set[int]) -> list[Load]:
        """Loads under the 'predicate' policy that ``operand`` is computed from, each once."""
        if isinstance(operand, Constant) or operand.number in seen:
            return []
        seen.add(operand.number)
        definition = self.definitions.get(operand.number)  # a pipeline's state has none
        if isinstance(definition, Load):
            return [definition] if definition.bounds is BoundsPolicy.predicate else []
        if isinstance(definition, Gather):
            return self._predicated(definition.index, seen)
        if isinstance(definition, Repartition):
            return self._predicated(definition.source, seen)
        if not isinstance(definition, Elementwise):
            return []
        return [load for part in definition.operands for load in self._predicated(part, seen)]

    def _bounds_condition(self, access: Load | Store, at: Coordinates) -> Any | None:
        indices = self.space.access(access.origin, access.dimensions, at)
        shape = self.program.view(access.view).shape
        return self.space.in_bounds(access.origin, access.dimensions, shape, indices)

    def _load(self, load: Load, at: Coordinates) -> Any:
        dtype = load.result.type.dtype
        return self._guarded(load, at, from_view(self._stored(load, at), dtype), constant(0, dtype))

    def element(self, load: Load, at: Coordinates) -> Any:
        """What a load reads, in the view's own type; bfloat16 is selected by its bits."""
        found, dtype = self._stored(load, at), load.result.type.dtype
        if dtype.name != "bfloat16":
            return self._guarded(load, at, found, constant(0, dtype))
        bits = tirx.reinterpret("uint16", found)
        chosen = self._guarded(load, at, bits, tirx.IntImm("uint16", 0))
        return tirx.reinterpret(dtype.name, chosen)

    def _stored(self, load: Load, at: Coordinates) -> Any:
        indices = self.space.access(load.origin, load.dimensions, at)
        return self.views[load.view][tuple(indices)]

    def _guarded(self, load: Load, at: Coordinates, element: Any, zero: Any) -> Any:
        condition = self._bounds_condition(load, at) if guarded(load.bounds) else None
        return element if condition is None else tirx.if_then_else(condition, element, zero)

    def _coordinate(self, definition: Coordinate, at: Coordinates) -> Any:
        value = self.space.lower(definition.offset)
        if definition.axis is not None:
            value = value + at[definition.axis.name]
        return wrapped(value, definition.result.type.dtype)

    def _gather(self, definition: Gather, at: Coordinates) -> Any:
        axis = definition.axis
        index = self.expression(definition.index, at)
        dtype = definition.index.type.dtype
        if dtype.kind == "uint":  # its literals are not safe in TVM's simplifier
            index, dtype = tirx.Cast("int32", index), DTYPES["int32"]
        inside = tirx.all(index >= constant(0, dtype), index < self._bound(axis.extent, dtype))
        if dtype.name != self.space.dtype:
            index = tirx.Cast(self.space.dtype, index)
        there = {**at, axis.name: index}
        inside = conjunction(inside, self.active(definition.source, there))
        fill = constant(definition.fill, definition.result.type.dtype)
        return tirx.if_then_else(inside, self.expression(definition.source, there), fill)

    def _bound(self, extent: Extent, dtype: DType) -> Any:
        """An extent in the type of an index that is compared with it."""
        if not isinstance(extent, Dimension):
            return constant(extent, dtype)
        bound = self.space.extent(extent)
        return bound if dtype.name == self.space.dtype else tirx.Cast(dtype.name, bound)

    # Statements

    def define(self, definition: Definition) -> None:
        """Record a pure definition; emit its loops if it has storage."""
        self.definitions[definition.result.number] = definition
        if definition.result.number not in self.shared:
            return
        number = definition.result.number
        buffer = self.allocate(definition.result, f"tile{number}")
        marks = {attrs.REPARTITION: number} if isinstance(definition, Repartition) else {}
        with self.domain(definition.result.type.axes, marks) as at:
            value = self.definition_expression(definition, at)
            T.buffer_store(buffer, value, self.slots(definition.result.type.axes, at))

    def store(self, statement: Store) -> None:
        """Emit the loops of a store, predicated where a bound or an inactive element asks."""
        axes = tuple(axis for axis in statement.dimensions if axis is not None)
        with self.domain(axes) as at:
            condition = self._bounds_condition(statement, at) if guarded(statement.bounds) else None
            condition = conjunction(condition, self.active(statement.value, at))
            indices = self.space.access(statement.origin, statement.dimensions, at)
            value = to_view(self.expression(statement.value, at), _dtype(statement.value))
            if condition is None:
                T.buffer_store(self.views[statement.view], value, indices)
                return
            with T.If(condition), T.Then():
                T.buffer_store(self.views[statement.view], value, indices)

    # Storage and loops

    def allocate(self, value: Value, name: str) -> Any:
        """Allocate program-private storage for ``value`` and make it readable."""
        axes = value.type.axes
        shape = [most(axis.extent) for axis in axes if axis.extent != 1]
        buffer = self.local(shape or [1], value, name)
        self.places[value.number] = lambda at: buffer[tuple(self.slots(axes, at))]
        return buffer

    def local(self, shape: list[int], value: Value, name: str, dtype: str | None = None) -> Any:
        """A named program-private buffer."""
        buffer = T.alloc_buffer(
            tuple(map(self.space.integer, shape)), dtype or held(value.type.dtype), scope="local"
        )
        return compat.name(name, buffer)

    def slots(self, axes: tuple[Axis, ...], at: Coordinates) -> list[Any]:
        """Indices into storage of ``axes``; axes of extent 1 take no dimension."""
        wide = [at[axis.name] for axis in axes if axis.extent != 1]
        return wide or [self.space.integer(0)]

    @contextlib.contextmanager
    def domain(
        self, axes: tuple[Axis, ...], marks: Mapping[str, int] | None = None
    ) -> Iterator[Coordinates]:
        """Loops over an independent element domain; yields its coordinates.

        An axis of extent 1 takes no loop, so a domain of one element is a plain statement.
        ``marks`` are further annotations of the outermost loop.
        """
        wide = sum(axis.extent != 1 for axis in axes)
        with contextlib.ExitStack() as stack:
            yield self.loops(axes, stack, {attrs.DOMAIN: wide, **(marks or {})})

    def loops(
        self,
        axes: tuple[Axis, ...],
        stack: contextlib.ExitStack,
        marks: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Open serial loops over ``axes`` on ``stack`` and return their coordinates.

        ``marks`` are annotations of the outermost loop.
        """
        at: dict[str, Any] = {}
        outermost = next((axis for axis in axes if axis.extent != 1), None)
        for axis in axes:
            if axis.extent == 1:
                at[axis.name] = self.space.integer(0)
                continue
            annotations = dict(marks) if marks and axis is outermost else None
            loop = T.serial(
                self.space.integer(0), self.space.extent(axis.extent), annotations=annotations
            )
            at[axis.name] = compat.name(axis.name, stack.enter_context(loop))
        return at


def conjunction(a: Any | None, b: Any | None) -> Any | None:
    """Both conditions, where None always holds."""
    if a is None or b is None:
        return b if a is None else a
    return tirx.all(a, b)


def _dtype(operand: Operand) -> DType:
    return operand.type.dtype if isinstance(operand, Value) else operand.dtype

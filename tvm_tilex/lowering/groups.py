"""The phases of a cooperative group, in program order and without any thread.

Element phases are domains, as everywhere. A reduction is a nest over its outputs, a product a
perfect nest over its axes, a pipeline a serial loop around copies of its state::

    for rows ... (outputs): carry1[0] = 0; for k (marked): ...; tile1[rows] = carry1[0]
    for rows, columns: tile2[rows, columns] = accumulator
    for rows, k, columns (dot): tile2[rows, columns] = tile2[rows, columns] + a * b
    for step (pipeline): phases; state = next

Tiles are held in their own type, bfloat16 too: a group's memory is small.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.ir import (
    Axis,
    Dot,
    Group,
    Load,
    Memory,
    MemoryScope,
    Operand,
    Parallel,
    Pipeline,
    Read,
    Reduce,
    Statement,
    Store,
    TileType,
    Value,
    Write,
)
from tvm_tilex.ir.infer import operand_dtype
from tvm_tilex.ir.program import Definition, state_dtype
from tvm_tilex.ir.walk import walk
from tvm_tilex.lowering.body import BodyLowering, Coordinates
from tvm_tilex.lowering.numbers import constant, from_view, rounded, to_view, widened
from tvm_tilex.lowering.reduce import fold
from tvm_tilex.tirx import attrs, compat
from tvm_tilex.tirx.compat import builder as T
from tvm_tilex.tirx.compat import tirx

__all__ = ["GroupLowering", "private_names"]


class GroupLowering:
    """Emits the statements of one group through the body lowering of its program."""

    def __init__(self, body: BodyLowering) -> None:
        self._body = body
        self._memories: dict[int, tuple[Any, TileType]] = {}
        self._factors: frozenset[int] = frozenset()

    def lower(self, group: Group) -> None:
        """Emit every phase of the group."""
        self._factors = frozenset(_factors(group.body))
        self._statements(group.body)

    def _statements(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            if isinstance(statement, Pipeline):
                self._pipeline(statement)
            elif isinstance(statement, Memory):
                self._memory(statement)
            elif isinstance(statement, Write):
                buffer, type_ = self._memories[statement.number]
                self._assign(buffer, type_, statement.value)
            elif isinstance(statement, Store):
                self._body.store(statement)
            elif isinstance(statement, Reduce):
                self._reduce(statement)
            elif isinstance(statement, Dot):
                self._dot(statement)
            elif isinstance(statement, Group | Parallel):
                raise LoweringError("a nest stands inside a group", location=statement.location)
            else:
                self._define(statement)

    # Storage

    def _allocate(self, name: str, type_: TileType, scope: str = "local") -> Any:
        integer = self._body.space.integer
        shape = tuple(integer(axis.extent) for axis in type_.axes if axis.extent != 1)
        buffer = T.alloc_buffer(shape or (integer(1),), type_.dtype.name, scope=scope)
        return compat.name(name, buffer)

    def _readable(self, value: Value, buffer: Any, type_: TileType) -> None:
        def read(at: Coordinates) -> Any:
            return from_view(buffer[tuple(self._body.slots(type_.axes, at))], type_.dtype)

        self._body.places[value.number] = read

    def _assign(self, buffer: Any, type_: TileType, operand: Operand) -> None:
        """An element phase: the buffer holds the operand from here on."""
        with self._body.domain(type_.axes) as at:
            value = to_view(self._body.expression(operand, at), operand_dtype(operand))
            T.buffer_store(buffer, value, self._body.slots(type_.axes, at))

    def _memory(self, memory: Memory) -> None:
        scope = "shared" if memory.scope is MemoryScope.shared else "local"
        buffer = self._allocate(_memory_name(memory), memory.type, scope)
        self._memories[memory.number] = (buffer, memory.type)

    # Phases

    def _define(self, definition: Definition) -> None:
        body, result = self._body, definition.result
        body.definitions[result.number] = definition
        if isinstance(definition, Read):
            self._readable(result, *self._memories[definition.number])
            if result.number not in body.shared:
                return
        elif result.number not in body.shared:
            return
        buffer = self._allocate(f"tile{result.number}", result.type)
        with body.domain(result.type.axes) as at:
            if isinstance(definition, Read):
                stored = to_view(body.expression(result, at), result.type.dtype)
            elif isinstance(definition, Load):
                stored = body.element(definition, at)  # as it is stored: a copy
            else:
                stored = to_view(self._active(definition, at), result.type.dtype)
            T.buffer_store(buffer, stored, body.slots(result.type.axes, at))
        self._readable(result, buffer, result.type)

    def _active(self, definition: Definition, at: Coordinates) -> Any:
        """The defining expression; the inactive elements of a product's factor are zero."""
        body, result = self._body, definition.result
        value = body.definition_expression(definition, at)
        if result.number not in self._factors:
            return value
        condition = body.active(result, at)
        if condition is None:
            return value
        return tirx.if_then_else(condition, value, constant(0, result.type.dtype))

    def _reduce(self, reduce: Reduce) -> None:
        body, result = self._body, reduce.result
        body.definitions[result.number] = reduce
        state = state_dtype(reduce.source.type.dtype)
        storage = self._allocate(f"tile{result.number}", result.type)
        carry = body.local([1], result, f"carry{result.number}", state.name)
        with self._nest(result.type.axes, attrs.OUTPUTS) as at:
            fold(body, reduce, carry, at)
            value = carry[(body.space.integer(0),)]
            if state != result.type.dtype:
                value = to_view(rounded(value, result.type.dtype), result.type.dtype)
            T.buffer_store(storage, value, body.slots(result.type.axes, at))
        self._readable(result, storage, result.type)

    def _dot(self, dot: Dot) -> None:
        body, result = self._body, dot.result
        body.definitions[result.number] = dot
        buffer = self._allocate(f"tile{result.number}", result.type)
        self._assign(buffer, result.type, dot.accumulator)
        across = [a for a in result.type.axes if a not in dot.a.type.axes]
        down = [a for a in result.type.axes if a in dot.a.type.axes]
        with self._nest((*down, dot.axis, *across), attrs.DOT) as at:
            slots = body.slots(result.type.axes, at)
            product = widened(body.expression(dot.a, at)) * widened(body.expression(dot.b, at))
            T.buffer_store(buffer, buffer[tuple(slots)] + product, slots)
        self._readable(result, buffer, result.type)

    @contextlib.contextmanager
    def _nest(self, axes: tuple[Axis, ...], marker: str) -> Any:
        """A perfect nest with the marker on its outermost loop, which always exists."""
        integer = self._body.space.integer
        wide = [axis for axis in axes if axis.extent != 1]
        at = {axis.name: integer(0) for axis in axes}
        with contextlib.ExitStack() as stack:
            if not wide:
                loop = T.serial(integer(0), integer(1), annotations={marker: 1})
                compat.name("one", stack.enter_context(loop))
            for axis in wide:
                marks: dict[str, Any] = {marker: len(wide)} if axis is wide[0] else {}
                if marker == attrs.DOT and axis is wide[-1] and axis is not wide[0]:
                    marks[attrs.DOMAIN] = 1  # its elements are independent
                loop = T.serial(integer(0), integer(axis.extent), annotations=marks or None)
                at[axis.name] = compat.name(axis.name, stack.enter_context(loop))
            yield at

    def _pipeline(self, pipeline: Pipeline) -> None:
        space = self._body.space
        state = [self._allocate(f"state{value.number}", value.type) for value in pipeline.state]
        for value, buffer, first in zip(pipeline.state, state, pipeline.initial, strict=True):
            self._assign(buffer, value.type, first)
            self._readable(value, buffer, value.type)
        extent = space.integer(pipeline.axis.extent)
        if pipeline.stop is not None:
            extent = tirx.min(space.lower(pipeline.stop), extent)
        annotations = {attrs.PIPELINE: pipeline.nest, attrs.ITERATIONS: pipeline.axis.extent}
        with T.serial(space.integer(0), extent, annotations=annotations) as step:
            space.coordinates[pipeline.nest, 0] = compat.name(pipeline.axis.name, step)
            space.extents[pipeline.nest, 0] = pipeline.axis.extent
            self._statements(pipeline.body)
            self._advance(pipeline, state)
        for result, buffer in zip(pipeline.results, state, strict=True):
            self._readable(result, buffer, result.type)

    def _advance(self, pipeline: Pipeline, state: list[Any]) -> None:
        """The state becomes the next one, all of it at once."""
        carried = {value.number for value in pipeline.state}
        following: list[Operand] = []
        for value, operand in zip(pipeline.state, pipeline.next, strict=True):
            moves = isinstance(operand, Value) and operand.number in carried - {value.number}
            following.append(self._copy(operand) if moves else operand)
        for value, buffer, operand in zip(pipeline.state, state, following, strict=True):
            if operand != value:
                self._assign(buffer, value.type, operand)

    def _copy(self, operand: Operand) -> Operand:
        """A value of its own with the operand's elements."""
        assert isinstance(operand, Value)
        buffer = self._allocate(f"next{operand.number}", operand.type)
        self._assign(buffer, operand.type, operand)
        copy = Value(-1 - operand.number, operand.type)  # no other value has this number
        self._readable(copy, buffer, operand.type)
        return copy


def private_names(group: Group) -> tuple[str, ...]:
    """Buffers of the memory that a person placed in private memory, in order."""
    return tuple(
        _memory_name(statement)
        for statement in walk(group.body)
        if isinstance(statement, Memory) and statement.scope is MemoryScope.private
    )


def _memory_name(memory: Memory) -> str:
    return f"memory{memory.number}"


def _factors(statements: tuple[Statement, ...]) -> set[int]:
    found: set[int] = set()
    for statement in statements:
        if isinstance(statement, Dot):
            found |= {statement.a.number, statement.b.number}
        if isinstance(statement, Pipeline):
            found |= _factors(statement.body)
    return found

"""Cooperative groups: pipelines with carried tiles, matrix products and memory placed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_tilex.errors import CaptureError, DTypeError, ShapeError
from tvm_tilex.ir.index import Index, IndexValue, ProgramCoordinate, as_index
from tvm_tilex.ir.infer import dot_type, operand_axes
from tvm_tilex.ir.program import (
    Dot,
    Full,
    Group,
    Memory,
    MemoryScope,
    Operand,
    Pipeline,
    Read,
    Value,
    Write,
)
from tvm_tilex.ir.types import Axis, DType, TileType, dtype_of
from tvm_tilex.lang.axes import Shape, shape
from tvm_tilex.lang.capture import OpenNest, current_capture
from tvm_tilex.lang.tile import Tile, as_operand, literal
from tvm_tilex.support.srcloc import caller_location

__all__ = ["GroupMemory", "Step", "dot", "full", "group", "memory", "pipeline"]


def group(domain: Shape | None = None) -> Iterator[None]:
    """Let the threads that run one program work on its phases together.

    The loop body is captured once and runs once in each program of the parallel nest around it,
    whose only statement the group is. Its tiles belong to the whole group.

    Parameters
    ----------
    domain
        ``tx.shape(...)`` of the axes whose elements are independent work: nothing in the body
        reduces over them, and every store runs over all of them. No axis by default. It names
        work and never threads; how many threads serve it is the mapper's choice.

    Raises
    ------
    CaptureError
        If the group does not stand directly in a root parallel nest.
    """
    where = caller_location()
    domain = shape() if domain is None else domain
    if not isinstance(domain, Shape) or None in domain.entries:
        raise ShapeError("group(...) takes tx.shape(axis, ...)", location=where)
    return _group_once(domain.axes)


def _group_once(axes: tuple[Axis, ...]) -> Iterator[None]:
    capture = current_capture("group(...)")
    if len(capture.open_nests) != 1 or capture.innermost().body:
        raise CaptureError(
            "group(...) is the one statement of a root parallel nest", location=caller_location()
        )
    nest = capture.open(axes, kind="group")
    try:
        yield None
    except GeneratorExit:
        capture.abandoned = nest.location
        raise
    capture.close(nest, lambda n: Group(n.axes, tuple(n.body), n.location))


class Step:
    """The running iteration of a pipeline; after the loop, what it computed."""

    def __init__(self, nest: OpenNest, state: tuple[Value, ...]) -> None:
        self._nest = nest
        self._state = state
        self._next: tuple[Operand, ...] | None = None
        self._results: tuple[Tile, ...] | None = None

    def index(self) -> IndexValue:
        """Return the number of this iteration."""
        return IndexValue(ProgramCoordinate(self._nest.number, 0))

    @property
    def state(self) -> tuple[Tile, ...]:
        """The carried tiles as this iteration finds them, in the order of the pipeline's."""
        return tuple(Tile(value, self._nest) for value in self._state)

    def carry(self, *tiles: Any) -> None:
        """Say what the next iteration finds, in the same order; once in every iteration.

        Raises
        ------
        CaptureError, ShapeError, DTypeError
            If it was said before, or a tile's number, type or axes are not the state's.
        """
        capture = current_capture("carry(...)")
        where = caller_location()
        if self._nest is not capture.innermost():
            raise CaptureError("carry(...) belongs in its own pipeline's body", location=where)
        if self._next is not None:
            raise CaptureError("carry(...) is called twice in one iteration", location=where)
        if len(tiles) != len(self._state):
            raise CaptureError(
                f"carry(...) takes {len(self._state)} tiles, not {len(tiles)}", location=where
            )
        pairs = zip(tiles, self._state, strict=True)
        self._next = tuple(_fitting(tile, value.type, "carry") for tile, value in pairs)

    @property
    def result(self) -> tuple[Tile, ...]:
        """The carried tiles after the last iteration; to be read after the loop."""
        if self._results is None:
            raise CaptureError(
                "result is what a pipeline computed: read it after the loop",
                location=caller_location(),
            )
        return self._results

    def finish(self) -> tuple[Operand, ...]:
        """The next state, which must have been said."""
        if self._next is None and self._state:
            raise CaptureError(
                "the pipeline carries tiles, but its body never calls carry(...)",
                location=self._nest.location,
            )
        return self._next or ()

    def end(self, results: tuple[Tile, ...]) -> None:
        """Make the results readable."""
        self._results = results


def pipeline(axis: Axis, *initial: Tile, stop: Any = None) -> Iterator[Step]:
    """Run the loop body once for each index of ``axis``, in order, carrying tiles along.

    Parameters
    ----------
    axis
        Names the iterations; extent at least 1.
    initial
        The carried tiles before the first iteration. The body reads ``step.state`` and says
        ``step.carry(...)``; after the loop ``step.result`` holds the last state.
    stop
        Iterations from this index on do not run: an integer or an expression over program
        indices. Values outside 0 to the extent are cut to it.

    Raises
    ------
    CaptureError, ShapeError
        If it stands outside a group, or an argument is of another kind.
    """
    where = caller_location()
    if not isinstance(axis, Axis):
        raise ShapeError(f"pipeline: {axis!r} is not an axis", location=where)
    if axis.extent < 1:
        raise ShapeError(f"pipeline: the axis {axis.name!r} is empty", location=where)
    for tile in initial:
        if not isinstance(tile, Tile):
            raise CaptureError(
                f"pipeline carries tiles, not {type(tile).__name__}: use tx.full", location=where
            )
    end = None if stop is None else as_index(stop, "pipeline stop")
    return _pipeline_once(axis, initial, end)


def _pipeline_once(axis: Axis, initial: tuple[Tile, ...], stop: Index | None) -> Iterator[Step]:
    capture = current_capture("pipeline(...)")
    _require_group("pipeline(...)")
    capture.know(axis)
    if stop is not None:
        capture.check_in_scope(stop, "pipeline stop")
    first = tuple(tile.require_in_scope("pipeline") for tile in initial)
    nest = capture.open((axis,), kind="pipeline")
    state = tuple(capture.new_value(value.type) for value in first)
    step = Step(nest, state)
    try:
        yield step
    except GeneratorExit:
        capture.abandoned = nest.location
        raise
    following = step.finish()
    results = tuple(capture.new_value(value.type) for value in first)

    def make(nest: OpenNest) -> Pipeline:
        body = tuple(nest.body)
        return Pipeline(
            nest.number, axis, state, first, body, following, results, stop, nest.location
        )

    capture.close(nest, make)
    step.end(tuple(Tile(value, capture.innermost()) for value in results))


def _require_group(what: str) -> None:
    if not any(nest.kind == "group" for nest in current_capture(what).open_nests):
        raise CaptureError(
            f"{what} belongs inside `for _ in tx.group(...)`", location=caller_location()
        )


def _fitting(tile: Any, type_: TileType, what: str) -> Operand:
    """Return a tile or number as an operand of ``type_``'s element type and axes."""
    where = caller_location()
    operand = as_operand(tile, type_.dtype, what)
    if not isinstance(operand, Value):
        return operand
    if operand.type.dtype != type_.dtype:
        raise DTypeError(
            f"{what}: the tile is {operand.type.dtype}, not {type_.dtype}; cast it", location=where
        )
    if set(operand_axes(operand)) != set(type_.axes):
        have = ", ".join(map(str, operand.type.axes)) or "no axis"
        want = ", ".join(map(str, type_.axes)) or "no axis"
        raise ShapeError(f"{what}: the tile has {have}, not {want}", location=where)
    return operand


def full(extents: Shape, value: bool | int | float, dtype: str | DType = "float32") -> Tile:
    """Return a tile that is one number everywhere."""
    capture = current_capture("full")
    where = caller_location()
    if not isinstance(extents, Shape):
        raise ShapeError("full takes tx.shape(axis, ...)", location=where)
    try:
        target = dtype_of(dtype)
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None
    number = literal(value, target, "full").value
    result = capture.new_value(TileType(target, extents.axes))
    capture.emit(Full(result, number, location=where))
    return Tile(result, capture.innermost())


def dot(a: Tile, b: Tile, accumulator: Tile) -> Tile:
    """``accumulator + sum of a * b`` over the one axis that both have and the accumulator lacks.

    Products and sums are float32, in any order. An element outside a 'predicate' view counts as
    zero.

    Parameters
    ----------
    a, b
        Tiles of one float type.
    accumulator
        float32, over the remaining axes of ``a`` and ``b``; an axis of all three is a batch.

    Raises
    ------
    CaptureError, ShapeError, DTypeError
        If it stands outside a group, or axes or types do not fit.
    """
    capture = current_capture("dot")
    where = caller_location()
    _require_group("dot")
    for tile in (a, b, accumulator):
        if not isinstance(tile, Tile):
            raise CaptureError(f"dot: {type(tile).__name__} is not a tile", location=where)
    first, second, start = (tile.require_in_scope("dot") for tile in (a, b, accumulator))
    both = [axis for axis in a.axes if axis in b.axes and axis not in accumulator.axes]
    if len(both) != 1:
        names = ", ".join(axis.name for axis in both) or "none"
        raise ShapeError(
            f"dot: one axis is contracted, which both operands have and the accumulator lacks "
            f"(here: {names})",
            location=where,
        )
    capture.require_not_in_domain(both[0], "dot")
    try:
        type_ = dot_type(first.type, second.type, both[0], start.type)
    except CaptureError as error:
        raise type(error)(str(error), location=where) from None
    result = capture.new_value(type_)
    capture.emit(Dot(result, first, second, both[0], start, location=where))
    return Tile(result, capture.innermost())


class GroupMemory:
    """Memory for one tile, placed by hand. Reading before anything is stored is refused."""

    def __init__(self, number: int, type_: TileType) -> None:
        self._number = number
        self._type = type_

    def store(self, tile: Any) -> None:
        """Let the memory hold a tile, or a number everywhere, from here on."""
        capture = current_capture("memory store")
        operand = _fitting(tile, self._type, "memory store")
        capture.emit(Write(self._number, operand, location=caller_location()))

    def load(self) -> Tile:
        """Return what the memory holds here."""
        capture = current_capture("memory load")
        result = capture.new_value(self._type)
        capture.emit(Read(result, self._number, location=caller_location()))
        return Tile(result, capture.innermost())


def memory(
    extents: Shape, dtype: str | DType = "float32", *, scope: str | MemoryScope = "shared"
) -> GroupMemory:
    """Place a tile by hand; an ordinary kernel never needs it.

    Parameters
    ----------
    extents
        Axes of the tile.
    dtype
        Element type.
    scope
        ``"shared"``: one copy for the group. ``"private"``: each element in the thread that owns
        it, and read at its own coordinates only.

    Raises
    ------
    CaptureError, ShapeError, DTypeError
        If it stands outside a group, or an argument is unknown.
    """
    capture = current_capture("memory")
    where = caller_location()
    _require_group("memory(...)")
    if not isinstance(extents, Shape):
        raise ShapeError("memory takes tx.shape(axis, ...)", location=where)
    chosen = MemoryScope.__members__.get(str(getattr(scope, "value", scope)))
    if chosen is None:
        names = ", ".join(MemoryScope.__members__)
        raise CaptureError(f"memory scope={scope!r}: use one of {names}", location=where)
    try:
        type_ = TileType(dtype_of(dtype), extents.axes)
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None
    number = capture.memories
    capture.memories += 1
    capture.emit(Memory(number, type_, chosen, location=where))
    return GroupMemory(number, type_)

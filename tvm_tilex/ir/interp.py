"""An executable semantics of TileIR in NumPy; it shares no code with the lowering.

Statements run in order, each for a batch of programs of the enclosing nests at once: an array
that stands for a tile has one leading dimension per enclosing nest (1 where the tile does not
depend on that nest's program), then one per tile axis. Programs of a nest are independent, so two
programs that write one element, or one that reads what another writes, race: the result is then
unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_tilex.errors import OptionError, VerifyError
from tvm_tilex.ir.index import (
    INDEX_OPERATORS,
    Dimension,
    Index,
    IndexConstant,
    ProgramCoordinate,
)
from tvm_tilex.ir.interp_arrays import at_shapes, memory_of
from tvm_tilex.ir.interp_elementwise import Array, apply, constant, convert
from tvm_tilex.ir.interp_reduce import reduce_last
from tvm_tilex.ir.interp_tiles import Frame, Tile, along, both, choose, spread
from tvm_tilex.ir.ops import ElementOp
from tvm_tilex.ir.print import format_statement
from tvm_tilex.ir.program import (
    Constant,
    Coordinate,
    Definition,
    Dot,
    Elementwise,
    Full,
    Gather,
    Group,
    Load,
    Memory,
    Operand,
    Parallel,
    Pipeline,
    Program,
    Read,
    Reduce,
    Repartition,
    Statement,
    Store,
    ViewAccess,
    Write,
    state_dtype,
)
from tvm_tilex.ir.types import Axis, BoundsPolicy, DType, numpy_dtype
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import defined, walk

__all__ = ["interpret"]

# Elements of the largest tile over one batch of programs: 8 MiB in float64, near the cache.
_BATCH_ELEMENTS = 1 << 20


def interpret(
    program: Program,
    arrays: Sequence[Any] | Mapping[str, Any],
    *,
    precision: str = "float32",
    seed: int = 0,
) -> tuple[Array, ...]:
    """Run a program on NumPy arrays and return its ``out`` and ``inout`` views in view order.

    Parameters
    ----------
    program
        A program that :func:`tvm_tilex.ir.verify.verify` accepts (it is called first).
    arrays
        One array per view, in view order or by name, of exactly the view's shape and element
        type (bfloat16 as ``ml_dtypes.bfloat16``). An ``out`` view may be None or left out (at
        the end of a sequence, or everywhere in it); a given one keeps the elements that nothing
        writes. Nothing passed in is written to. Without an array, elements that nothing writes
        are NaN, the largest integer or False.
    precision
        ``"float32"``: every elementwise operation rounds to its tile's type and every reduction
        follows its policy in the state's type. ``"float64"``: an oracle; tiles, states and
        outputs of float type are float64, constants are not rounded, and arrays may be float64
        in place of the view's float type.
    seed
        0 gives ``unordered_tree`` reductions a balanced tree; another non-negative seed picks
        some other legal order.

    Raises
    ------
    VerifyError
        If the program is malformed, or an access under ``assume`` leaves its view. The message
        holds the statement.
    ArgumentError
        If an array is missing, unknown, or of another shape or element type; names the view.
    OptionError
        If ``precision`` or ``seed`` is outside its domain.
    """
    if precision not in ("float32", "float64"):
        raise OptionError(f"precision is {precision!r}; it is 'float32' or 'float64'")
    if seed < 0:
        raise OptionError(f"seed is {seed}; it is not negative")
    verify(program)
    program = at_shapes(program, arrays)
    memory = memory_of(program.views, arrays, precision)
    with np.errstate(all="ignore"):
        _Machine(program, memory, precision, seed).run(program.body, Frame())
    return tuple(memory[v.name] for v in program.views if v.access is not ViewAccess.read)


class _Machine:
    def __init__(
        self, program: Program, memory: dict[str, Array], precision: str, seed: int
    ) -> None:
        self._views = {view.name: view for view in program.views}
        self._memory = memory
        self._precision = precision
        self._seed = seed

    def run(self, body: tuple[Statement, ...], frame: Frame) -> None:
        for statement in body:
            if isinstance(statement, Parallel):
                self._nest(statement, frame)
            elif isinstance(statement, Group):
                self.run(statement.body, frame)
            elif isinstance(statement, Pipeline):
                self._pipeline(statement, frame)
            elif isinstance(statement, Memory):
                frame.axes[statement.number] = statement.type.axes
            elif isinstance(statement, Write):
                self._write(statement, frame)
            elif isinstance(statement, Store):
                self._store(statement, frame)
            else:
                frame.values[statement.result.number] = self._define(statement, frame)

    def _nest(self, nest: Parallel, frame: Frame) -> None:
        programs = math.prod(axis.extent for axis in nest.axes)
        results = (value for statement in walk(nest.body) for value in defined(statement))
        largest = max((value.type.elements for value in results), default=1)
        step = max(1, _BATCH_ELEMENTS // (frame.batch * largest))
        for first in range(0, programs, step):
            self.run(nest.body, frame.enter(nest, first, min(step, programs - first)))

    # Groups.

    def _pipeline(self, pipeline: Pipeline, frame: Frame) -> None:
        pairs = zip(pipeline.state, pipeline.initial, strict=True)
        state = [self._tile(first, value.type.axes, frame) for value, first in pairs]
        stop = None if pipeline.stop is None else self._index(pipeline.stop, frame)
        everyone = frame.running
        for step in range(pipeline.axis.extent):
            frame.coordinates[pipeline.nest, 0] = np.full((1,) * frame.depth, step, np.int64)
            going = None if stop is None else step < stop
            if going is not None and not going.any():
                continue  # programs of a batch may stop at different iterations
            frame.running = both(everyone, going)
            for value, tile in zip(pipeline.state, state, strict=True):
                frame.values[value.number] = tile
            self.run(pipeline.body, frame)
            following = zip(pipeline.state, pipeline.next, state, strict=True)
            state = [
                choose(going, self._tile(new, value.type.axes, frame), old, frame.depth)
                for value, new, old in following
            ]
        frame.running = everyone
        for result, tile in zip(pipeline.results, state, strict=True):
            frame.values[result.number] = tile

    def _tile(self, operand: Operand, axes: tuple[Axis, ...], frame: Frame) -> Tile:
        dtype = operand.dtype if isinstance(operand, Constant) else operand.type.dtype
        data, valid = self._operand(operand, dtype, axes, frame)
        return Tile(axes, data, valid)

    def _write(self, write: Write, frame: Frame) -> None:
        new = self._tile(write.value, frame.axes[write.number], frame)
        old = frame.memories.get(write.number, new)
        frame.memories[write.number] = choose(frame.running, new, old, frame.depth)

    def _dot(self, statement: Dot, frame: Frame) -> Tile:
        """Sum in the state's type over the contracted axis, then the accumulator."""
        axes, depth = statement.result.type.axes, frame.depth
        wide = numpy_dtype(state_dtype(statement.a.type.dtype), self._precision)
        factors = []
        for operand in (statement.a, statement.b):
            own = operand.type.axes
            data, valid = self._operand(operand, operand.type.dtype, own, frame)
            data = data.astype(wide)
            factors.append(data if valid is None else np.where(valid, data, wide.type(0)))
        names = {axis: depth + n for n, axis in enumerate((*axes, statement.axis))}
        nests = list(range(depth))
        lead = np.broadcast_shapes(*(factor.shape[:depth] for factor in factors))
        operands: list[Any] = []
        for operand, factor in zip((statement.a, statement.b), factors, strict=True):
            shape = (*lead, *(axis.extent for axis in operand.type.axes))
            operands.append(np.broadcast_to(factor, shape))
            operands.append([*nests, *(names[axis] for axis in operand.type.axes)])
        product = np.einsum(*operands, [*nests, *(names[a] for a in axes)], optimize=True)
        start, _ = self._operand(statement.accumulator, statement.result.type.dtype, axes, frame)
        return Tile(axes, np.asarray(start + product, wide))

    def _define(self, statement: Definition, frame: Frame) -> Tile:
        if isinstance(statement, Full):
            value = constant(statement.value, statement.result.type.dtype, self._precision)
            axes = statement.result.type.axes
            return Tile(axes, value.reshape((1,) * (frame.depth + len(axes))))
        if isinstance(statement, Read):
            return frame.memories[statement.number]
        if isinstance(statement, Dot):
            return self._dot(statement, frame)
        if isinstance(statement, Load):
            return self._load(statement, frame)
        if isinstance(statement, Coordinate):
            return self._coordinate(statement, frame)
        if isinstance(statement, Elementwise):
            return self._elementwise(statement, frame)
        if isinstance(statement, Reduce):
            return self._reduce(statement, frame)
        if isinstance(statement, Repartition):
            return frame.values[statement.source.number]
        return self._gather(statement, frame)

    # Memory.

    def _load(self, load: Load, frame: Frame) -> Tile:
        array = self._memory[load.view]
        axes = load.result.type.axes
        places, inside = self._places(load, axes, frame)
        if inside is None:
            return Tile(axes, np.asarray(array[tuple(places)]))
        if array.size == 0:
            data = np.zeros(np.broadcast_shapes(*(p.shape for p in places)), array.dtype)
        else:
            clipped = [p.clip(0, n - 1) for p, n in zip(places, array.shape, strict=True)]
            data = np.where(inside, array[tuple(clipped)], array.dtype.type(0))
        return Tile(axes, data, inside if load.bounds is BoundsPolicy.predicate else None)

    def _store(self, store: Store, frame: Frame) -> None:
        array = self._memory[store.view]
        axes = tuple(axis for axis in store.dimensions if axis is not None)
        places, inside = self._places(store, axes, frame)
        dtype = self._views[store.view].dtype
        value, valid = self._operand(store.value, dtype, axes, frame)
        running = frame.running
        if running is not None:
            running = running.reshape(running.shape + (1,) * len(axes))
        masks = [mask for mask in (inside, valid, running) if mask is not None]
        shape = np.broadcast_shapes(*(a.shape for a in (*places, value, *masks)))
        places = [np.broadcast_to(place, shape) for place in places]
        value = np.broadcast_to(value, shape)
        if not masks:
            array[tuple(places)] = value
            return
        keep = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*masks)), shape)
        array[tuple(place[keep] for place in places)] = value[keep]

    def _places(
        self, access: Load | Store, axes: tuple[Axis, ...], frame: Frame
    ) -> tuple[list[Array], Array | None]:
        """Index arrays per view dimension, and where they all lie inside (None: everywhere)."""
        shape = self._views[access.view].shape
        places: list[Array] = []
        inside: Array | None = None
        for number, (origin, axis) in enumerate(zip(access.origin, access.dimensions, strict=True)):
            place = self._index(origin, frame)
            place = place.reshape(place.shape + (1,) * len(axes))
            if axis is not None:
                place = place + along(axis, axes, frame.depth)
            within = (place >= 0) & (place < shape[number])
            if not within.all():
                self._refuse(access, number, place[~within])
                inside = within if inside is None else inside & within
            places.append(place)
        return places, inside

    def _refuse(self, access: Load | Store, number: int, outside: Array) -> None:
        if access.bounds in (BoundsPolicy.zero, BoundsPolicy.predicate):
            return
        extent = self._views[access.view].shape[number]
        raise VerifyError(
            f"{format_statement(access)}\n  dimension {number} of {access.view!r} (extent {extent})"
            f" is accessed at {outside.flat[0]} [rule: {access.bounds.value}]",
            location=access.location,
        )

    def _index(self, index: Index, frame: Frame) -> Array:
        """Value of an index for every program of the batch, of rank ``frame.depth``."""
        if isinstance(index, IndexConstant):
            return np.full((1,) * frame.depth, index.value, np.int64)
        if isinstance(index, ProgramCoordinate):
            place = frame.coordinates[index.nest, index.dimension]
            return place.reshape(place.shape + (1,) * (frame.depth - place.ndim))
        assert not isinstance(index, Dimension), "dimensions are fixed before a program runs"
        lhs, rhs = self._index(index.lhs, frame), self._index(index.rhs, frame)
        return np.asarray(INDEX_OPERATORS[index.op](lhs, rhs))  # type: ignore[arg-type]

    # Tiles.

    def _operand(
        self, operand: Operand, dtype: DType, axes: tuple[Axis, ...], frame: Frame
    ) -> tuple[Array, Array | None]:
        """Data and validity, laid out over the frame's nests and ``axes``."""
        if isinstance(operand, Constant):
            scalar = constant(operand.value, dtype, self._precision)
            return scalar.reshape((1,) * (frame.depth + len(axes))), None
        tile = frame.values[operand.number]
        valid = None if tile.valid is None else spread(tile.valid, tile.axes, axes, frame.depth)
        return spread(tile.data, tile.axes, axes, frame.depth), valid

    def _coordinate(self, statement: Coordinate, frame: Frame) -> Tile:
        axes = statement.result.type.axes
        place = self._index(statement.offset, frame)
        place = place.reshape(place.shape + (1,) * len(axes))
        if statement.axis is not None:
            place = place + along(statement.axis, axes, frame.depth)
        return Tile(axes, place.astype(numpy_dtype(statement.result.type.dtype)))

    def _elementwise(self, statement: Elementwise, frame: Frame) -> Tile:
        axes, result = statement.result.type.axes, statement.result.type.dtype
        dtypes = [o.dtype if isinstance(o, Constant) else o.type.dtype for o in statement.operands]
        operands = [
            self._operand(operand, dtype, axes, frame)
            for operand, dtype in zip(statement.operands, dtypes, strict=True)
        ]
        masks = [valid for _, valid in operands if valid is not None]
        valid = np.logical_and.reduce(np.broadcast_arrays(*masks)) if masks else None
        data = [array for array, _ in operands]
        if statement.op is ElementOp.cast:
            return Tile(axes, convert(data[0], dtypes[0], result, self._precision), valid)
        return Tile(axes, apply(statement.op, data, result, self._precision), valid)

    def _reduce(self, statement: Reduce, frame: Frame) -> Tile:
        dtype = statement.source.type.dtype
        axes = statement.result.type.axes
        data, valid = self._operand(statement.source, dtype, (*axes, statement.axis), frame)
        state = data.astype(numpy_dtype(state_dtype(dtype), self._precision))
        identity = statement.combiner.identity(dtype)
        if valid is not None:
            state = np.where(valid, state, state.dtype.type(identity))
        seed = (self._seed, statement.result.number)
        total = reduce_last(state, statement.combiner, statement.policy, identity, seed)
        return Tile(axes, total.astype(numpy_dtype(dtype, self._precision), copy=False))

    def _gather(self, statement: Gather, frame: Frame) -> Tile:
        axes, depth = statement.result.type.axes, frame.depth
        dtype, extent = statement.source.type.dtype, statement.axis.extent
        index, index_valid = self._operand(statement.index, dtype, axes, frame)
        index = index.astype(np.int64, copy=False)  # uint8 cannot hold the extent
        selects = (index >= 0) & (index < extent)
        source_axes = statement.source.type.axes
        source, active = self._operand(statement.source, dtype, source_axes, frame)
        if active is not None:
            source, active = np.broadcast_arrays(source, active)
        places: list[Array] = []
        for nest in range(depth):
            shape = [1] * (depth + len(axes))
            shape[nest] = source.shape[nest]
            places.append(np.arange(source.shape[nest]).reshape(shape))
        for axis in source_axes:
            gathered = axis == statement.axis
            places.append(index.clip(0, extent - 1) if gathered else along(axis, axes, depth))
        if active is not None:
            selects = selects & active[tuple(places)]
        fill = constant(statement.fill, dtype, self._precision)
        return Tile(axes, np.where(selects, source[tuple(places)], fill), index_valid)

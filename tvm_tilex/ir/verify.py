"""The structural spec of TileIR, as a checker.

The rules, by the name an error ends with:

``name``        kernel and views are named by identifiers; view names differ
``view``        a view has at least one dimension, no negative extent and a known element type
``nest``        nest numbers are unique and not negative; a nest's axes have different names
``axis``        one axis name has one extent over the whole program
``extent``      a tile axis has a positive extent, a dynamic one also a bound (a parallel axis may
                be empty); a dynamic extent is one of a view's and has one range
``ssa``         a value is defined once, used after its definition, inside the definition's nest,
                and with the type of its definition
``type``        a result has the type that :mod:`tvm_tilex.ir.infer` gives
``constant``    a literal is a Python number of its element type's kind and range
``access``      an access names a view, gives one origin and one dimension entry per dimension;
                ``out`` views are not loaded, ``in`` views are not stored to
``store``       a stored value has the view's element type and exactly the access' axes
                (a constant may be stored over any)
``index``       an index uses known operators on coordinates of enclosing nests, divides by a
                positive constant and stays within 64 bits
``bounds``      a ``checked`` access lies inside the view for every program (no program, no claim)
``effect``      the program stores something
``group``       a group is alone in a root nest; pipelines, dots and memory stand in a group only;
                nothing in it reduces over an axis of its domain, and every store runs over all
``pipeline``    a positive extent; state, initial, next and result agree in number and type
``memory``      memory is declared once and read only after a write; types agree
``inactive``    what a pipeline carries or memory holds does not come from a 'predicate' view
"""

from __future__ import annotations

from typing import NoReturn

from tvm_tilex.errors import CaptureError, VerifyError
from tvm_tilex.ir.bounds import index_bounds, proved_below, proved_from_zero
from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.index import (
    INDEX_OPERATORS,
    Dimension,
    Extent,
    Index,
    IndexBinary,
    IndexConstant,
    ProgramCoordinate,
    most,
)
from tvm_tilex.ir.infer import (
    access_axes,
    dot_type,
    elementwise_type,
    gather_type,
    operand_axes,
    operand_dtype,
    reduce_type,
)
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
    Value,
    View,
    ViewAccess,
    Write,
)
from tvm_tilex.ir.types import DTYPES, Axis, BoundsPolicy, DType, TileType
from tvm_tilex.ir.walk import indices_of, operands_of, subexpressions, values_used, walk

__all__ = ["verify"]

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def verify(program: Program) -> None:
    """Check that a program is well formed.

    Raises
    ------
    VerifyError
        At the first statement that breaks a rule of this module's docstring. The message holds
        the statement's text, what is wrong and the rule's name.
    """
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._views: dict[str, View] = {}
        self._axes: dict[str, Axis] = {}
        self._nests: set[int] = set()
        self._defined: set[int] = set()
        self._visible: dict[int, Value] = {}
        self._enclosing: list[Parallel | Pipeline] = []
        self._group: Group | None = None
        self._memories: dict[int, Memory] = {}
        self._written: set[int] = set()  # memories that hold something here
        self._inactive: set[int] = set()  # values with elements outside a 'predicate' view
        self._at: Statement | None = None

    def run(self) -> None:
        self._header()
        self._body(self._program.body)
        self._at = None
        if not any(isinstance(statement, Store) for statement in walk(self._program)):
            self._fail("effect", "nothing is stored")

    def _fail(self, rule: str, message: str) -> NoReturn:
        if self._at is None:
            raise VerifyError(f"kernel {self._program.name}: {message} [rule: {rule}]")
        text = format_statement(self._at)
        raise VerifyError(f"{text}\n  {message} [rule: {rule}]", location=self._at.location)

    def _header(self) -> None:
        if not self._program.name.isidentifier():
            self._fail("name", f"{self._program.name!r} is not an identifier")
        for view in self._program.views:
            if not view.name.isidentifier():
                self._fail("name", f"view name {view.name!r} is not an identifier")
            if view.name in self._views:
                self._fail("name", f"two views are named {view.name!r}")
            if not view.shape or min(map(most, view.shape)) < 0:
                self._fail("view", f"view {view.name!r} has the shape {view.shape}")
            self._dtype(view.dtype, "view")
            self._views[view.name] = view
            for extent in view.shape:
                self._extent(extent)

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self._at = statement
            if isinstance(statement, Pipeline):
                self._pipeline(statement)
                continue
            for value in values_used(statement):
                self._use(value)
            for operand in operands_of(statement):
                if isinstance(operand, Constant):
                    self._literal(operand.value, operand.dtype)
            for index in indices_of(statement):
                self._index(index)
            if isinstance(statement, Parallel):
                self._nest(statement)
            elif isinstance(statement, Group):
                self._cooperate(statement, body)
            elif isinstance(statement, Memory):
                self._place(statement)
            elif isinstance(statement, Write):
                self._write(statement)
            elif isinstance(statement, Store):
                self._store(statement)
            else:
                self._define(statement)

    def _cooperate(self, group: Group, siblings: tuple[Statement, ...]) -> None:
        if self._group is not None or len(self._enclosing) != 1 or len(siblings) != 1:
            self._fail("group", "a group is the one statement of a root nest")
        names = [axis.name for axis in group.axes]
        if len(set(names)) != len(names):
            self._fail("group", f"axes {', '.join(names)} name one axis twice")
        for axis in group.axes:
            self._axis(axis, tile=True)
        self._group = group
        self._body(group.body)
        self._group = None

    def _in_group(self, what: str) -> Group:
        if self._group is None:
            self._fail("group", f"{what} stands outside a group")
        return self._group

    def _contract(self, axis: Axis) -> None:
        if self._group is not None and axis in self._group.axes:
            self._fail("group", f"the group's domain names {axis.name}, which is reduced here")

    def _pipeline(self, pipeline: Pipeline) -> None:
        self._in_group("a pipeline")
        self._open_nest(pipeline.nest, (pipeline.axis,))
        self._axis(pipeline.axis, tile=True)
        if pipeline.stop is not None:
            self._index(pipeline.stop)
        counts = {len(pipeline.state), len(pipeline.initial), len(pipeline.next)}
        if counts != {len(pipeline.results)}:
            self._fail("pipeline", "state, initial, next and results differ in number")
        for value, first in zip(pipeline.state, pipeline.initial, strict=True):
            self._carried(first, value)
        outer, held = dict(self._visible), set(self._written)
        for value in pipeline.state:
            self._introduce(value)
        self._enclosing.append(pipeline)
        self._body(pipeline.body)
        self._enclosing.pop()
        self._at = pipeline
        for value, following in zip(pipeline.state, pipeline.next, strict=True):
            self._carried(following, value)
        # The body may not run at all.
        self._visible, self._written = outer, held
        for value, result in zip(pipeline.state, pipeline.results, strict=True):
            if value.type != result.type:
                self._fail("pipeline", f"{result} is {result.type}, the state {value.type}")
            self._introduce(result)

    def _carried(self, operand: Operand, state: Value) -> None:
        if isinstance(operand, Constant):
            self._literal(operand.value, operand.dtype)
        else:
            self._use(operand)
            self._active(operand, "carried")
        dtype, axes = operand_dtype(operand), operand_axes(operand)
        scalar = isinstance(operand, Constant)
        if dtype != state.type.dtype or (not scalar and set(axes) != set(state.type.axes)):
            self._fail("pipeline", f"{state} is {state.type}, it cannot hold {operand}")

    def _active(self, value: Value, what: str) -> None:
        if value.number in self._inactive:
            self._fail("inactive", f"{value} comes from a 'predicate' view and is {what}")

    def _place(self, memory: Memory) -> None:
        self._in_group("memory")
        if memory.number in self._memories or memory.number < 0:
            self._fail("memory", f"m{memory.number} is taken or negative")
        for axis in memory.type.axes:
            self._axis(axis, tile=True)
        self._dtype(memory.type.dtype, "type")
        self._memories[memory.number] = memory

    def _held(self, number: int) -> Memory:
        memory = self._memories.get(number)
        if memory is None:
            self._fail("memory", f"there is no memory m{number}")
        return memory

    def _write(self, write: Write) -> None:
        memory = self._held(write.number)
        if not isinstance(write.value, Constant):
            self._active(write.value, "written to memory")
        dtype, axes = operand_dtype(write.value), operand_axes(write.value)
        scalar = isinstance(write.value, Constant)
        if dtype != memory.type.dtype or (not scalar and set(axes) != set(memory.type.axes)):
            self._fail("memory", f"m{write.number} is {memory.type}, it cannot hold {write.value}")
        self._written.add(write.number)

    def _note_activity(self, statement: Definition) -> None:
        if isinstance(statement, Load):
            inactive = statement.bounds is BoundsPolicy.predicate
        elif isinstance(statement, Gather):
            inactive = statement.index.number in self._inactive
        elif isinstance(statement, Elementwise | Repartition):
            inactive = any(v.number in self._inactive for v in values_used(statement))
        else:
            inactive = False
        if inactive:
            self._inactive.add(statement.result.number)

    def _open_nest(self, number: int, axes: tuple[Axis, ...]) -> None:
        if number in self._nests or number < 0:
            self._fail("nest", f"n{number} is taken or negative")
        names = [axis.name for axis in axes]
        if len(set(names)) != len(names):
            self._fail("nest", f"axes {', '.join(names)} name one axis twice")
        self._nests.add(number)
        for axis in axes:
            self._axis(axis)

    def _nest(self, nest: Parallel) -> None:
        if self._group is not None:
            self._fail("group", "a parallel nest stands inside a group")
        self._open_nest(nest.nest, nest.axes)
        outer = dict(self._visible)
        self._enclosing.append(nest)
        self._body(nest.body)
        self._enclosing.pop()
        self._visible = outer

    def _use(self, value: Value) -> None:
        known = self._visible.get(value.number)
        if known is None:
            seen = value.number in self._defined
            where = "is out of scope here" if seen else "is not defined before its use"
            self._fail("ssa", f"{value} {where}")
        if known != value:
            self._fail("ssa", f"{value} is used as {value.type} but defined as {known.type}")

    def _define(self, statement: Definition) -> None:
        self._introduce(statement.result, statement)
        self._note_activity(statement)

    def _introduce(self, result: Value, statement: Definition | None = None) -> None:
        if result.number in self._defined or result.number < 0:
            self._fail("ssa", f"{result} is defined twice or negative")
        self._dtype(result.type.dtype, "type")
        for axis in result.type.axes:
            self._axis(axis, tile=True)
        expected = result.type if statement is None else self._result_type(statement)
        if expected != result.type:
            self._fail("type", f"the result has the type {expected}, not {result.type}")
        self._defined.add(result.number)
        self._visible[result.number] = result

    def _result_type(self, statement: Definition) -> TileType:
        if isinstance(statement, Load):
            view = self._access(statement)
            if view.access is ViewAccess.write:
                self._fail("access", f"view {view.name!r} is out, so it cannot be loaded")
            return TileType(view.dtype, self._access_axes(statement))
        if isinstance(statement, Coordinate):
            if not statement.result.type.dtype.is_integer:
                self._fail("type", "a coordinate is an integer tile")
            return TileType(
                statement.result.type.dtype, () if statement.axis is None else (statement.axis,)
            )
        if isinstance(statement, Full):
            self._literal(statement.value, statement.result.type.dtype)
            return statement.result.type
        if isinstance(statement, Read):
            if statement.number not in self._written:
                self._fail("memory", f"m{statement.number} is read, but may hold nothing here")
            return self._held(statement.number).type
        if isinstance(statement, Dot):
            self._in_group("a dot")
            self._active(statement.accumulator, "accumulated to")
        if isinstance(statement, Dot | Reduce):
            self._contract(statement.axis)
        if isinstance(statement, Gather):
            self._literal(statement.fill, statement.source.type.dtype)
        try:
            return _inferred(statement)
        except CaptureError as error:
            self._fail("type", str(error))

    def _store(self, store: Store) -> None:
        view = self._access(store)
        if view.access is ViewAccess.read:
            self._fail("access", f"view {view.name!r} is in, so it cannot be stored to")
        dtype = operand_dtype(store.value)
        if dtype != view.dtype:
            self._fail("store", f"a {dtype} value is stored to the {view.dtype} view {view.name!r}")
        axes = self._access_axes(store)
        for axis in axes:
            self._axis(axis, tile=True)
        for axis in self._group.axes if self._group is not None else ():
            if axis not in axes:
                self._fail("group", f"the store lacks {axis.name} of the group's domain")
        if not isinstance(store.value, Constant) and set(axes) != set(operand_axes(store.value)):
            self._fail(
                "store", f"the value's type is {store.value.type}, the access has other axes"
            )

    def _access(self, statement: Load | Store) -> View:
        view = self._views.get(statement.view)
        if view is None:
            self._fail("access", f"there is no view {statement.view!r}")
        rank = len(view.shape)
        if len(statement.origin) != rank or len(statement.dimensions) != rank:
            self._fail("access", f"view {view.name!r} has rank {rank}")
        if statement.bounds is BoundsPolicy.checked:
            self._in_bounds(statement, view)
        return view

    def _access_axes(self, statement: Load | Store) -> tuple[Axis, ...]:
        try:
            return access_axes(statement.dimensions)
        except CaptureError as error:
            self._fail("access", str(error))

    def _in_bounds(self, statement: Load | Store, view: View) -> None:
        extents = self._extents()
        if 0 in extents.values():
            return
        for number, extent in enumerate(view.shape):
            index, axis = statement.origin[number], statement.dimensions[number]
            length = 1 if axis is None else axis.extent
            below = proved_below(index, length, extent, extents)
            if not below or not proved_from_zero(index, extents):
                low, high = index_bounds(index, extents)
                high += most(length) - 1
                self._fail(
                    "bounds",
                    f"dimension {number} of {view.name!r} (extent {extent}) is accessed "
                    f"at {low}..{high}",
                )

    def _extents(self) -> dict[tuple[int, int], Extent]:
        return {
            (nest.nest, dimension): axis.extent
            for nest in self._enclosing
            for dimension, axis in enumerate(nest_axes(nest))
        }

    def _index(self, index: Index) -> None:
        extents = self._extents()
        for part in subexpressions(index):
            if isinstance(part, IndexBinary):
                self._index_operator(part)
            elif isinstance(part, Dimension):
                self._extent(part, "index")
            elif isinstance(part, ProgramCoordinate) and _place(part) not in extents:
                self._fail("index", f"{part} is no coordinate of an enclosing nest")
            low, high = index_bounds(part, extents)
            if low < _INT64_MIN or high > _INT64_MAX:
                self._fail("index", f"{part} can reach {low}..{high}, past 64 bits")

    def _index_operator(self, index: IndexBinary) -> None:
        if index.op not in INDEX_OPERATORS:
            self._fail("index", f"{index.op!r} is no index operator")
        divides = index.op in ("//", "%")
        if divides and not (isinstance(index.rhs, IndexConstant) and index.rhs.value > 0):
            self._fail("index", f"the divisor in {index} is not a positive constant")

    def _axis(self, axis: Axis, *, tile: bool = False) -> None:
        known = self._axes.setdefault(axis.name, axis)
        if known != axis:
            extents = f"{known.extent} and {axis.extent}"
            self._fail("axis", f"axis {axis.name!r} has the extents {extents}")
        extent = axis.extent
        if not isinstance(extent, Dimension):
            if tile and extent == 0:
                self._fail("extent", f"the tile axis {axis.name!r} is empty")
            return
        self._extent(extent)
        if tile and not (extent.minimum > 0 and extent.bounded):
            self._fail("extent", f"the tile axis {axis.name!r} has the extent {extent.range}")

    def _extent(self, extent: Extent, rule: str = "axis") -> None:
        """A dynamic extent is that of a view, with one range."""
        if not isinstance(extent, Dimension):
            return
        known = {d.name: d for d in dimensions_of(self._program.views)}
        if known.get(extent.name) != extent:
            found = known[extent.name].range if extent.name in known else "none of a view's"
            self._fail(rule, f"the dynamic extent {extent.name} is {extent.range} and {found}")

    def _dtype(self, dtype: DType, rule: str) -> None:
        if DTYPES.get(dtype.name) != dtype:
            self._fail(rule, f"{dtype.name!r} is no element type")

    def _literal(self, value: bool | int | float, dtype: DType) -> None:
        self._dtype(dtype, "constant")
        if not _literal_fits(value, dtype):
            self._fail("constant", f"{value!r} is no {dtype} literal")


def _place(coordinate: ProgramCoordinate) -> tuple[int, int]:
    return coordinate.nest, coordinate.dimension


def nest_axes(nest: Parallel | Pipeline) -> tuple[Axis, ...]:
    """Axes whose coordinates a nest or a pipeline gives."""
    return nest.axes if isinstance(nest, Parallel) else (nest.axis,)


def _inferred(statement: Elementwise | Reduce | Gather | Repartition | Dot) -> TileType:
    if isinstance(statement, Dot):
        return dot_type(
            statement.a.type, statement.b.type, statement.axis, statement.accumulator.type
        )
    if isinstance(statement, Elementwise):
        return elementwise_type(statement.op, statement.operands, statement.result.type.dtype)
    if isinstance(statement, Reduce):
        source, axis = statement.source.type, statement.axis
        return reduce_type(source, axis, statement.combiner, statement.policy)
    if isinstance(statement, Repartition):
        return statement.source.type
    return gather_type(statement.source.type, statement.index.type, statement.axis)


def _literal_fits(value: bool | int | float, dtype: DType) -> bool:
    # Exact types: a NumPy scalar prints and hashes in its own way, and bool is an int.
    if dtype.kind == "bool":
        return type(value) is bool
    if dtype.is_float:
        return type(value) is float or (type(value) is int and abs(value) <= 1 << 1023)
    if type(value) is not int:
        return False
    low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
    return low <= value < low + (1 << dtype.bits)

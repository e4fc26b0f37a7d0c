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

from tvm_tilex.errors import CaptureError
from tvm_tilex.ir.bounds import index_bounds, proved_below, proved_from_zero
from tvm_tilex.ir.index import (
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
from tvm_tilex.ir.types import Axis, BoundsPolicy, TileType
from tvm_tilex.ir.verify_scope import Scope
from tvm_tilex.ir.walk import indices_of, operands_of, values_used, walk

__all__ = ["verify"]


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
        self._scope = Scope(program)
        self._views: dict[str, View] = {}
        self._defined: set[int] = set()
        self._visible: dict[int, Value] = {}
        self._group: Group | None = None
        self._memories: dict[int, Memory] = {}
        self._written: set[int] = set()  # memories that hold something here
        self._inactive: set[int] = set()  # values with elements outside a 'predicate' view

    def run(self) -> None:
        self._header()
        self._body(self._program.body)
        self._scope.at = None
        if not any(isinstance(statement, Store) for statement in walk(self._program)):
            self._scope.fail("effect", "nothing is stored")

    def _header(self) -> None:
        if not self._program.name.isidentifier():
            self._scope.fail("name", f"{self._program.name!r} is not an identifier")
        for view in self._program.views:
            if not view.name.isidentifier():
                self._scope.fail("name", f"view name {view.name!r} is not an identifier")
            if view.name in self._views:
                self._scope.fail("name", f"two views are named {view.name!r}")
            if not view.shape or min(map(most, view.shape)) < 0:
                self._scope.fail("view", f"view {view.name!r} has the shape {view.shape}")
            self._scope.dtype(view.dtype, "view")
            self._views[view.name] = view
            for extent in view.shape:
                self._scope.extent(extent)

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self._scope.at = statement
            if isinstance(statement, Pipeline):
                self._pipeline(statement)
                continue
            for value in values_used(statement):
                self._use(value)
            for operand in operands_of(statement):
                if isinstance(operand, Constant):
                    self._scope.literal(operand.value, operand.dtype)
            for index in indices_of(statement):
                self._scope.index(index)
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
        if self._group is not None or len(self._scope.enclosing) != 1 or len(siblings) != 1:
            self._scope.fail("group", "a group is the one statement of a root nest")
        names = [axis.name for axis in group.axes]
        if len(set(names)) != len(names):
            self._scope.fail("group", f"axes {', '.join(names)} name one axis twice")
        for axis in group.axes:
            self._scope.axis(axis, tile=True)
        self._group = group
        self._body(group.body)
        self._group = None

    def _in_group(self, what: str) -> Group:
        if self._group is None:
            self._scope.fail("group", f"{what} stands outside a group")
        return self._group

    def _contract(self, axis: Axis) -> None:
        if self._group is not None and axis in self._group.axes:
            self._scope.fail(
                "group", f"the group's domain names {axis.name}, which is reduced here"
            )

    def _pipeline(self, pipeline: Pipeline) -> None:
        self._in_group("a pipeline")
        self._scope.open_nest(pipeline.nest, (pipeline.axis,))
        self._scope.axis(pipeline.axis, tile=True)
        if pipeline.stop is not None:
            self._scope.index(pipeline.stop)
        counts = {len(pipeline.state), len(pipeline.initial), len(pipeline.next)}
        if counts != {len(pipeline.results)}:
            self._scope.fail("pipeline", "state, initial, next and results differ in number")
        for value, first in zip(pipeline.state, pipeline.initial, strict=True):
            self._carried(first, value)
        outer, held = dict(self._visible), set(self._written)
        for value in pipeline.state:
            self._introduce(value)
        self._scope.enclosing.append(pipeline)
        self._body(pipeline.body)
        self._scope.enclosing.pop()
        self._scope.at = pipeline
        for value, following in zip(pipeline.state, pipeline.next, strict=True):
            self._carried(following, value)
        # The body may not run at all.
        self._visible, self._written = outer, held
        for value, result in zip(pipeline.state, pipeline.results, strict=True):
            if value.type != result.type:
                self._scope.fail("pipeline", f"{result} is {result.type}, the state {value.type}")
            self._introduce(result)

    def _carried(self, operand: Operand, state: Value) -> None:
        if isinstance(operand, Constant):
            self._scope.literal(operand.value, operand.dtype)
        else:
            self._use(operand)
            self._active(operand, "carried")
        dtype, axes = operand_dtype(operand), operand_axes(operand)
        scalar = isinstance(operand, Constant)
        if dtype != state.type.dtype or (not scalar and set(axes) != set(state.type.axes)):
            self._scope.fail("pipeline", f"{state} is {state.type}, it cannot hold {operand}")

    def _active(self, value: Value, what: str) -> None:
        if value.number in self._inactive:
            self._scope.fail("inactive", f"{value} comes from a 'predicate' view and is {what}")

    def _place(self, memory: Memory) -> None:
        self._in_group("memory")
        if memory.number in self._memories or memory.number < 0:
            self._scope.fail("memory", f"m{memory.number} is taken or negative")
        for axis in memory.type.axes:
            self._scope.axis(axis, tile=True)
        self._scope.dtype(memory.type.dtype, "type")
        self._memories[memory.number] = memory

    def _held(self, number: int) -> Memory:
        memory = self._memories.get(number)
        if memory is None:
            self._scope.fail("memory", f"there is no memory m{number}")
        return memory

    def _write(self, write: Write) -> None:
        memory = self._held(write.number)
        if not isinstance(write.value, Constant):
            self._active(write.value, "written to memory")
        dtype, axes = operand_dtype(write.value), operand_axes(write.value)
        scalar = isinstance(write.value, Constant)
        if dtype != memory.type.dtype or (not scalar and set(axes) != set(memory.type.axes)):
            self._scope.fail(
                "memory", f"m{write.number} is {memory.type}, it cannot hold {write.value}"
            )
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

    def _nest(self, nest: Parallel) -> None:
        if self._group is not None:
            self._scope.fail("group", "a parallel nest stands inside a group")
        self._scope.open_nest(nest.nest, nest.axes)
        outer = dict(self._visible)
        self._scope.enclosing.append(nest)
        self._body(nest.body)
        self._scope.enclosing.pop()
        self._visible = outer

    def _use(self, value: Value) -> None:
        known = self._visible.get(value.number)
        if known is None:
            seen = value.number in self._defined
            where = "is out of scope here" if seen else "is not defined before its use"
            self._scope.fail("ssa", f"{value} {where}")
        if known != value:
            self._scope.fail("ssa", f"{value} is used as {value.type} but defined as {known.type}")

    def _define(self, statement: Definition) -> None:
        self._introduce(statement.result, statement)
        self._note_activity(statement)

    def _introduce(self, result: Value, statement: Definition | None = None) -> None:
        if result.number in self._defined or result.number < 0:
            self._scope.fail("ssa", f"{result} is defined twice or negative")
        self._scope.dtype(result.type.dtype, "type")
        for axis in result.type.axes:
            self._scope.axis(axis, tile=True)
        expected = result.type if statement is None else self._result_type(statement)
        if expected != result.type:
            self._scope.fail("type", f"the result has the type {expected}, not {result.type}")
        self._defined.add(result.number)
        self._visible[result.number] = result

    def _result_type(self, statement: Definition) -> TileType:
        if isinstance(statement, Load):
            view = self._access(statement)
            if view.access is ViewAccess.write:
                self._scope.fail("access", f"view {view.name!r} is out, so it cannot be loaded")
            return TileType(view.dtype, self._access_axes(statement))
        if isinstance(statement, Coordinate):
            if not statement.result.type.dtype.is_integer:
                self._scope.fail("type", "a coordinate is an integer tile")
            return TileType(
                statement.result.type.dtype, () if statement.axis is None else (statement.axis,)
            )
        if isinstance(statement, Full):
            self._scope.literal(statement.value, statement.result.type.dtype)
            return statement.result.type
        if isinstance(statement, Read):
            if statement.number not in self._written:
                self._scope.fail(
                    "memory", f"m{statement.number} is read, but may hold nothing here"
                )
            return self._held(statement.number).type
        if isinstance(statement, Dot):
            self._in_group("a dot")
            self._active(statement.accumulator, "accumulated to")
        if isinstance(statement, Dot | Reduce):
            self._contract(statement.axis)
        if isinstance(statement, Gather):
            self._scope.literal(statement.fill, statement.source.type.dtype)
        try:
            return _inferred(statement)
        except CaptureError as error:
            self._scope.fail("type", str(error))

    def _store(self, store: Store) -> None:
        view = self._access(store)
        if view.access is ViewAccess.read:
            self._scope.fail("access", f"view {view.name!r} is in, so it cannot be stored to")
        dtype = operand_dtype(store.value)
        if dtype != view.dtype:
            self._scope.fail(
                "store", f"a {dtype} value is stored to the {view.dtype} view {view.name!r}"
            )
        axes = self._access_axes(store)
        for axis in axes:
            self._scope.axis(axis, tile=True)
        for axis in self._group.axes if self._group is not None else ():
            if axis not in axes:
                self._scope.fail("group", f"the store lacks {axis.name} of the group's domain")
        if not isinstance(store.value, Constant) and set(axes) != set(operand_axes(store.value)):
            self._scope.fail(
                "store", f"the value's type is {store.value.type}, the access has other axes"
            )

    def _access(self, statement: Load | Store) -> View:
        view = self._views.get(statement.view)
        if view is None:
            self._scope.fail("access", f"there is no view {statement.view!r}")
        rank = len(view.shape)
        if len(statement.origin) != rank or len(statement.dimensions) != rank:
            self._scope.fail("access", f"view {view.name!r} has rank {rank}")
        if statement.bounds is BoundsPolicy.checked:
            self._in_bounds(statement, view)
        return view

    def _access_axes(self, statement: Load | Store) -> tuple[Axis, ...]:
        try:
            return access_axes(statement.dimensions)
        except CaptureError as error:
            self._scope.fail("access", str(error))

    def _in_bounds(self, statement: Load | Store, view: View) -> None:
        extents = self._scope.extents()
        if 0 in extents.values():
            return
        for number, extent in enumerate(view.shape):
            index, axis = statement.origin[number], statement.dimensions[number]
            length = 1 if axis is None else axis.extent
            below = proved_below(index, length, extent, extents)
            if not below or not proved_from_zero(index, extents):
                low, high = index_bounds(index, extents)
                high += most(length) - 1
                self._scope.fail(
                    "bounds",
                    f"dimension {number} of {view.name!r} (extent {extent}) is accessed "
                    f"at {low}..{high}",
                )


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

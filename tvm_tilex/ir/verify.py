"""The structural spec of TileIR, as a checker.

The rules, by the name an error ends with:

``name``        kernel and views are named by identifiers; view names differ
``view``        a view has at least one dimension, no negative extent and a known element type
``nest``        nest numbers are unique and not negative; a nest's axes have different names
``axis``        one axis name has one extent over the whole program
``extent``      a tile axis has a positive extent (a parallel axis may be empty)
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
"""

from __future__ import annotations

from typing import NoReturn

from tvm_tilex.errors import CaptureError, VerifyError
from tvm_tilex.ir.index import INDEX_OPERATORS, Index, IndexBinary, IndexConstant, index_bounds
from tvm_tilex.ir.infer import (
    access_axes,
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
    Elementwise,
    Gather,
    Load,
    Parallel,
    Program,
    Reduce,
    Repartition,
    Statement,
    Store,
    Value,
    View,
    ViewAccess,
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
        self._enclosing: list[Parallel] = []
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
            if not view.shape or min(view.shape) < 0:
                self._fail("view", f"view {view.name!r} has the shape {view.shape}")
            self._dtype(view.dtype, "view")
            self._views[view.name] = view

    def _body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self._at = statement
            for value in values_used(statement):
                self._use(value)
            for operand in operands_of(statement):
                if isinstance(operand, Constant):
                    self._literal(operand.value, operand.dtype)
            for index in indices_of(statement):
                self._index(index)
            if isinstance(statement, Parallel):
                self._nest(statement)
            elif isinstance(statement, Store):
                self._store(statement)
            else:
                self._define(statement)

    def _nest(self, nest: Parallel) -> None:
        if nest.nest in self._nests or nest.nest < 0:
            self._fail("nest", f"n{nest.nest} is taken or negative")
        names = [axis.name for axis in nest.axes]
        if len(set(names)) != len(names):
            self._fail("nest", f"axes {', '.join(names)} name one axis twice")
        self._nests.add(nest.nest)
        for axis in nest.axes:
            self._axis(axis)
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
        result = statement.result
        if result.number in self._defined or result.number < 0:
            self._fail("ssa", f"{result} is defined twice or negative")
        self._dtype(result.type.dtype, "type")
        for axis in result.type.axes:
            self._axis(axis, tile=True)
        expected = self._result_type(statement)
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
            low, high = index_bounds(statement.origin[number], extents)
            axis = statement.dimensions[number]
            high += 0 if axis is None else axis.extent - 1
            if low < 0 or high >= extent:
                self._fail(
                    "bounds",
                    f"dimension {number} of {view.name!r} (extent {extent}) is accessed "
                    f"at {low}..{high}",
                )

    def _extents(self) -> dict[tuple[int, int], int]:
        return {
            (nest.nest, dimension): axis.extent
            for nest in self._enclosing
            for dimension, axis in enumerate(nest.axes)
        }

    def _index(self, index: Index) -> None:
        extents = self._extents()
        for part in subexpressions(index):
            if isinstance(part, IndexBinary):
                self._index_operator(part)
            elif not isinstance(part, IndexConstant) and (part.nest, part.dimension) not in extents:
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
        if tile and axis.extent == 0:
            self._fail("extent", f"the tile axis {axis.name!r} is empty")

    def _dtype(self, dtype: DType, rule: str) -> None:
        if DTYPES.get(dtype.name) != dtype:
            self._fail(rule, f"{dtype.name!r} is no element type")

    def _literal(self, value: bool | int | float, dtype: DType) -> None:
        self._dtype(dtype, "constant")
        if not _literal_fits(value, dtype):
            self._fail("constant", f"{value!r} is no {dtype} literal")


def _inferred(statement: Elementwise | Reduce | Gather | Repartition) -> TileType:
    if isinstance(statement, Elementwise):
        return elementwise_type(statement.op, statement.operands, statement.result.type.dtype)
    if isinstance(statement, Reduce):
        return reduce_type(statement.source.type, statement.axis, statement.combiner)
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

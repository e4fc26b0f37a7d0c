"""Where a checked statement stands: the nests around it, and the rules of what names them.

Those are ``axis``, ``extent``, ``index``, ``nest`` and ``constant`` of :mod:`tvm_tilex.ir.verify`.
"""

from __future__ import annotations

from typing import NoReturn

from tvm_tilex.errors import VerifyError
from tvm_tilex.ir.bounds import index_bounds
from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.index import (
    INDEX_OPERATORS,
    Dimension,
    Extent,
    Index,
    IndexBinary,
    IndexConstant,
    ProgramCoordinate,
)
from tvm_tilex.ir.print import format_statement
from tvm_tilex.ir.program import Parallel, Pipeline, Program, Statement
from tvm_tilex.ir.types import DTYPES, Axis, DType
from tvm_tilex.ir.walk import subexpressions

__all__ = ["Scope"]

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class Scope:
    """The statement that is checked, ``at``, and the nests ``enclosing`` it, outermost first."""

    def __init__(self, program: Program) -> None:
        self.at: Statement | None = None
        self.enclosing: list[Parallel | Pipeline] = []
        self._program = program
        self._axes: dict[str, Axis] = {}
        self._nests: set[int] = set()

    def fail(self, rule: str, message: str) -> NoReturn:
        """Raise VerifyError with the statement's text, what is wrong and the rule's name."""
        if self.at is None:
            raise VerifyError(f"kernel {self._program.name}: {message} [rule: {rule}]")
        text = format_statement(self.at)
        raise VerifyError(f"{text}\n  {message} [rule: {rule}]", location=self.at.location)

    def open_nest(self, number: int, axes: tuple[Axis, ...]) -> None:
        """Check the number and the axes of a nest that begins."""
        if number in self._nests or number < 0:
            self.fail("nest", f"n{number} is taken or negative")
        names = [axis.name for axis in axes]
        if len(set(names)) != len(names):
            self.fail("nest", f"axes {', '.join(names)} name one axis twice")
        self._nests.add(number)
        for axis in axes:
            self.axis(axis)

    def extents(self) -> dict[tuple[int, int], Extent]:
        """The extent of every coordinate here, by its nest and dimension."""
        return {
            (nest.nest, dimension): axis.extent
            for nest in self.enclosing
            for dimension, axis in enumerate(_axes_of(nest))
        }

    def index(self, index: Index) -> None:
        """Check an index: its operators, its coordinates, what it can reach."""
        extents = self.extents()
        for part in subexpressions(index):
            if isinstance(part, IndexBinary):
                self._index_operator(part)
            elif isinstance(part, Dimension):
                self.extent(part, "index")
            elif isinstance(part, ProgramCoordinate) and _place(part) not in extents:
                self.fail("index", f"{part} is no coordinate of an enclosing nest")
            low, high = index_bounds(part, extents)
            if low < _INT64_MIN or high > _INT64_MAX:
                self.fail("index", f"{part} can reach {low}..{high}, past 64 bits")

    def _index_operator(self, index: IndexBinary) -> None:
        if index.op not in INDEX_OPERATORS:
            self.fail("index", f"{index.op!r} is no index operator")
        divides = index.op in ("//", "%")
        if divides and not (isinstance(index.rhs, IndexConstant) and index.rhs.value > 0):
            self.fail("index", f"the divisor in {index} is not a positive constant")

    def axis(self, axis: Axis, *, tile: bool = False) -> None:
        """Check that an axis is the only one of its name, and may be a tile's."""
        known = self._axes.setdefault(axis.name, axis)
        if known != axis:
            extents = f"{known.extent} and {axis.extent}"
            self.fail("axis", f"axis {axis.name!r} has the extents {extents}")
        extent = axis.extent
        if not isinstance(extent, Dimension):
            if tile and extent == 0:
                self.fail("extent", f"the tile axis {axis.name!r} is empty")
            return
        self.extent(extent)
        if tile and not (extent.minimum > 0 and extent.bounded):
            self.fail("extent", f"the tile axis {axis.name!r} has the extent {extent.range}")

    def extent(self, extent: Extent, rule: str = "axis") -> None:
        """A dynamic extent is that of a view, with one range."""
        if not isinstance(extent, Dimension):
            return
        known = {d.name: d for d in dimensions_of(self._program.views)}
        if known.get(extent.name) != extent:
            found = known[extent.name].range if extent.name in known else "none of a view's"
            self.fail(rule, f"the dynamic extent {extent.name} is {extent.range} and {found}")

    def dtype(self, dtype: DType, rule: str) -> None:
        """Check an element type."""
        if DTYPES.get(dtype.name) != dtype:
            self.fail(rule, f"{dtype.name!r} is no element type")

    def literal(self, value: bool | int | float, dtype: DType) -> None:
        """Check a literal of an element type."""
        self.dtype(dtype, "constant")
        if not _literal_fits(value, dtype):
            self.fail("constant", f"{value!r} is no {dtype} literal")


def _place(coordinate: ProgramCoordinate) -> tuple[int, int]:
    return coordinate.nest, coordinate.dimension


def _axes_of(nest: Parallel | Pipeline) -> tuple[Axis, ...]:
    """Axes whose coordinates a nest or a pipeline gives."""
    return nest.axes if isinstance(nest, Parallel) else (nest.axis,)


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

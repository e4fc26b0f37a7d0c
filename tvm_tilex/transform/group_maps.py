"""Which thread of a group owns which element of an aligned class of tiles, and in which slot.

    linear  e = slot * T + thread, row-major over the class' dimensions
    fma     m = thread // A + D * i     n = thread % A + A * j               slot = i * J + j
    matrix  m = 16 (w * I + i) + lane // 4 + 8 (r // 2)
            n = 8 (x * J + j) + 2 (lane % 4) + r % 2         slot = (i * J + j) * 4 + r

with D x A threads, or D x A SIMD groups at (w, x). Every map is built in the layout algebra too,
and its coverage is proved before it is emitted: each element has one owner and one slot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm_tilex.analysis.coverage import prove_coverage
from tvm_tilex.errors import MappingError
from tvm_tilex.layout import BIJECTION, IndexSet, LayoutMap, index_map, require_proven
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import sequence, serial

__all__ = [
    "ElementMap",
    "LinearMap",
    "MatrixMap",
    "RowMap",
    "ThreadGridMap",
    "matrix_owner_map",
    "thread_grid_owner_map",
    "unflatten",
]

# Coordinates by dimension, and the private slot.
Body = Callable[[list[Any], Any], Any]
_UNROLL = {"pragma_unroll": True}


class ElementMap(Protocol):
    """Runs a statement once for every element that this thread owns."""

    def visit(self, body: Body) -> Any:
        """The loops over the owned elements around ``body(coordinates, slot)``."""
        ...


def unflatten(element: Any, extents: tuple[int, ...], integer: Callable[[int], Any]) -> list[Any]:
    """Row-major coordinates of a linear element."""
    found = []
    rest = math.prod(extents)
    for position, extent in enumerate(extents):
        rest //= extent
        coordinate = element if rest == 1 else tirx.floordiv(element, integer(rest))
        if position > 0:
            coordinate = tirx.floormod(coordinate, integer(extent))
        found.append(coordinate)
    return found


def _loop(name: str, extent: int, dtype: str, body: Callable[[Any], Any], hint: bool) -> Any:
    if extent == 1:
        return body(tirx.IntImm(dtype, 0))
    var = tirx.Var(name, dtype)
    return serial(var, extent, body(var), annotations=_UNROLL if hint else None)


@dataclass(frozen=True)
class LinearMap:
    """Element e belongs to thread e mod T; the last round is bounded.

    With ``once`` there is one copy of the body, bounded in every round, for a body that declares
    variables of its own.
    """

    extents: tuple[int, ...]
    threads: int
    thread: Any
    dtype: str
    unroll: bool = False
    once: bool = False

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def visit(self, body: Body) -> Any:
        """Full rounds, then the bounded rest."""
        count = math.prod(self.extents)
        _require(prove_coverage(count, self.threads, 1), "linear")
        full, rest = divmod(count, self.threads)

        def at(round_: Any) -> Any:
            element = self.thread
            if not (isinstance(round_, tirx.IntImm) and round_.value == 0):
                element = round_ * self.integer(self.threads) + self.thread
            return body(unflatten(element, self.extents, self.integer), round_)

        if self.once and rest:
            return _loop("round", full + 1, self.dtype, lambda r: self._bounded(r, at), False)
        rounds = None
        if full:
            rounds = _loop("round", full, self.dtype, at, self.unroll and full <= 64)
        if rest == 0:
            return rounds
        bounded = tirx.IfThenElse(self.thread < self.integer(rest), at(self.integer(full)), None)
        return sequence(rounds, bounded)

    def _bounded(self, round_: Any, at: Callable[[Any], Any]) -> Any:
        element = round_ * self.integer(self.threads) + self.thread
        inside = element < self.integer(math.prod(self.extents))
        return tirx.IfThenElse(inside, at(round_), None)


@dataclass(frozen=True)
class ThreadGridMap:
    """A grid of threads, each with rows and columns a grid's extent apart."""

    extents: tuple[int, int]
    down: int
    across: int
    threads: int
    thread: Any
    dtype: str
    unroll: bool = False

    @property
    def rows(self) -> int:
        """Rows of one thread."""
        return self.extents[0] // self.down

    @property
    def columns(self) -> int:
        """Columns of one thread."""
        return self.extents[1] // self.across

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def row(self, i: Any) -> Any:
        """Row of the thread's i-th row."""
        return tirx.floordiv(self.thread, self.integer(self.across)) + i * self.integer(self.down)

    def column(self, j: Any) -> Any:
        """Column of the thread's j-th column."""
        return tirx.floormod(self.thread, self.integer(self.across)) + j * self.integer(self.across)

    def guarded(self, statement: Any) -> Any:
        """``statement`` for the threads of the grid."""
        size = self.down * self.across
        if size == self.threads:
            return statement
        return tirx.IfThenElse(self.thread < self.integer(size), statement, None)

    def loops(self, body: Callable[[Any, Any], Any]) -> Any:
        """Loops over the thread's rows and columns."""

        def row(i: Any) -> Any:
            return _loop("j", self.columns, self.dtype, lambda j: body(i, j), self.unroll)

        return _loop("i", self.rows, self.dtype, row, self.unroll)

    def visit(self, body: Body) -> Any:
        """The thread's rows and columns."""
        _prove(thread_grid_owner_map(self.extents, self.down, self.across))

        def element(i: Any, j: Any) -> Any:
            slot = i * self.integer(self.columns) + j
            return body([self.row(i), self.column(j)], slot)

        return self.guarded(self.loops(element))


@dataclass(frozen=True)
class MatrixMap:
    """The fragments of m16n8 results, ``down`` x ``across`` SIMD groups of 32 lanes."""

    extents: tuple[int, int]
    down: int
    across: int
    thread: Any
    dtype: str

    @property
    def rows(self) -> int:
        """Fragments of one SIMD group along the rows."""
        return self.extents[0] // 16 // self.down

    @property
    def columns(self) -> int:
        """Fragments of one SIMD group along the columns."""
        return self.extents[1] // 8 // self.across

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    @property
    def lane(self) -> Any:
        """The thread's lane."""
        return tirx.floormod(self.thread, self.integer(32))

    def first_row(self, i: Any) -> Any:
        """First row of the SIMD group's i-th fragment."""
        subgroup = tirx.floordiv(self.thread, self.integer(32))
        place = tirx.floordiv(subgroup, self.integer(self.across))
        return (place * self.integer(self.rows) + i) * self.integer(16)

    def first_column(self, j: Any) -> Any:
        """First column of the SIMD group's j-th fragment."""
        subgroup = tirx.floordiv(self.thread, self.integer(32))
        place = tirx.floormod(subgroup, self.integer(self.across))
        return (place * self.integer(self.columns) + j) * self.integer(8)

    def loops(self, body: Callable[[Any, Any], Any]) -> Any:
        """Loops over the SIMD group's fragments."""

        def row(i: Any) -> Any:
            return _loop("j", self.columns, self.dtype, lambda j: body(i, j), True)

        return _loop("i", self.rows, self.dtype, row, True)

    def slot(self, i: Any, j: Any) -> Any:
        """First private slot of a fragment."""
        return (i * self.integer(self.columns) + j) * self.integer(4)

    def row_slot(self, slot: Any) -> Any:
        """The slot that the row map gives to the row of an element."""
        integer = self.integer
        fragment = tirx.floordiv(slot, integer(4 * self.columns)) * integer(2)
        return fragment + tirx.floordiv(tirx.floormod(slot, integer(4)), integer(2))

    def visit(self, body: Body) -> Any:
        """The lane's elements of every fragment."""
        _prove(matrix_owner_map(self.extents, self.down, self.across))
        integer, lane = self.integer, self.lane

        def fragment(i: Any, j: Any) -> Any:
            def element(r: Any) -> Any:
                half, odd = tirx.floordiv(r, integer(2)), tirx.floormod(r, integer(2))
                m = self.first_row(i) + tirx.floordiv(lane, integer(4)) + half * integer(8)
                n = self.first_column(j) + tirx.floormod(lane, integer(4)) * integer(2) + odd
                return body([m, n], self.slot(i, j) + r)

            return _loop("r", 4, self.dtype, element, True)

        return self.loops(fragment)


@dataclass(frozen=True)
class RowMap:
    """The rows of a matrix map: each with the four lanes that hold it."""

    matrix: MatrixMap

    def visit(self, body: Body) -> Any:
        """The lane's rows, two of each fragment."""
        matrix, integer = self.matrix, self.matrix.integer

        def row(slot: Any) -> Any:
            first = matrix.first_row(tirx.floordiv(slot, integer(2)))
            half = tirx.floormod(slot, integer(2)) * integer(8)
            return body([first + tirx.floordiv(matrix.lane, integer(4)) + half], slot)

        return _loop("row", 2 * matrix.rows, matrix.dtype, row, True)

    def leader(self) -> Any:
        """Whether this lane is the first of the four that hold a row."""
        integer = self.matrix.integer
        return tirx.EQ(tirx.floormod(self.matrix.lane, integer(4)), integer(0))


@functools.lru_cache(maxsize=256)
def thread_grid_owner_map(extents: tuple[int, int], down: int, across: int) -> LayoutMap:
    """(thread row, thread column, i, j) -> (m, n) of the fma map."""
    rows, columns = extents
    domain = IndexSet.box(y=down, x=across, i=rows // down, j=columns // across)
    return index_map(
        domain, IndexSet.box(m=rows, n=columns), lambda y, x, i, j: (y + down * i, x + across * j)
    )


@functools.lru_cache(maxsize=256)
def matrix_owner_map(extents: tuple[int, int], down: int, across: int) -> LayoutMap:
    """(SIMD group row, column, lane digits, i, j, r digits) -> (m, n) of the matrix map."""
    rows, columns = extents
    tall, wide = rows // 16 // down, columns // 8 // across
    domain = IndexSet.box(w=down, x=across, g=8, t=4, i=tall, j=wide, h=2, o=2)
    return index_map(
        domain,
        IndexSet.box(m=rows, n=columns),
        lambda w, x, g, t, i, j, h, o: (
            (w * tall + i) * 16 + g + 8 * h,
            (x * wide + j) * 8 + 2 * t + o,
        ),
    )


@functools.lru_cache(maxsize=256)
def _prove(map: LayoutMap) -> None:
    require_proven(map, BIJECTION, budget=0)


def _require(verdict: Any, what: str) -> None:
    if not verdict.proven:
        raise MappingError(f"the {what} map of a group is not proved: {verdict.reason}")

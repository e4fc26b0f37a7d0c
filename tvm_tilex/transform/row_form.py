"""Nests of blocks as one program a row: the canonical marked form of :mod:`tvm_tilex.lowering`.

With P rows, every nest runs over row-major elements ``p * M + e``: its leading loops are the row p,
the rest its element domain or its reduction. The nests of one row then run one after the other in
one program, which is legal because

- a buffer that the function stores is accessed at ``p * M + s`` with ``0 <= s < M`` and s free of
  p, at every access, so that a program touches only elements that it stored itself, and
- every other buffer is never written.

Both are proved with TVM's analyzer from the indices; what is not proved is not rewritten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.blocks import Blocks, Foreign, Loop, Nest
from tvm_tilex.analysis.counts import Count, known_extent
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx.compat import Analyzer, Range, TensorLoad, structural_map, tirx
from tvm_tilex.transform.common import substitute
from tvm_tilex.transform.inline_intermediates import remaining_nests

__all__ = ["RowForm", "RowNest", "row_form"]


@dataclass(frozen=True)
class RowNest:
    """What one program does of a nest: element or reduction loops around one store.

    Expressions are over the program variable and the loops' variables. ``slot`` is the linear
    element within the row that is stored; ``elements`` how many of the buffer a row has.
    """

    nest: Nest
    loops: tuple[Loop, ...]
    indices: tuple[Any, ...]
    slot: Any
    elements: int
    value: Any


@dataclass(frozen=True)
class RowForm:
    """A whole function: P ``rows`` programs of ``nests``, in order, over ``program``.

    ``views`` are inputs that several loads read at their own element, worth keeping.
    """

    blocks: Blocks
    program: Any
    rows: Count
    nests: tuple[RowNest, ...]
    views: tuple[Any, ...]
    proofs: _Builder

    def slot(self, load: Any, loops: tuple[Loop, ...]) -> Any | None:
        """The element within the row that a load is at, or None where that is not proved."""
        return self.proofs.slot(load, loops)

    def at_own(self, load: Any, row: RowNest) -> bool:
        """Whether a load reads exactly the element that its domain or reduction is at."""
        return self.proofs.at_own(load, row)


def row_form(blocks: Blocks, mode: SharedTileMaterialization, view_loads: int) -> RowForm | Foreign:
    """Bring nests into row form.

    Tiles with several consumers are kept as ``mode`` says; under PRESERVE so are inputs that
    ``view_loads`` loads or more read, each at its own element.
    """
    reductions = [nest for nest in blocks.nests if nest.reduced]
    if not reductions:
        return Foreign("it has no reduction")
    rows = reductions[0].count
    for nest in reductions:
        if not nest.count.same(rows):
            return Foreign(
                f"block {nest.name} reduces to {nest.count} elements, "
                f"{reductions[0].name} to {rows}"
            )
    kept = remaining_nests(blocks, rows, mode)
    if isinstance(kept, Foreign):
        return kept
    return _Builder(blocks, rows).build(
        kept, view_loads if mode is SharedTileMaterialization.PRESERVE else None
    )


# One program a row


@dataclass
class _Builder:
    blocks: Blocks
    rows: Count
    program: Any = field(init=False)
    stored: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.program = tirx.Var("program", self.blocks.index_dtype)

    def build(self, kept: tuple[Nest, ...], view_loads: int | None) -> RowForm | Foreign:
        self.stored = tuple(nest.buffer for nest in kept)
        found: list[RowNest] = []
        for nest in kept:
            row = self._row(nest)
            if isinstance(row, Foreign):
                return row
            found.append(row)
        problem = next(filter(None, map(self._last_axis, found)), None)
        if problem is None and len([n for n in found if n.nest.reduced]) == 1:
            problem = next(filter(None, map(self._product, found)), None)
        if problem is not None:
            return Foreign(problem)
        views = () if view_loads is None else self._shared_views(found, view_loads)
        return RowForm(self.blocks, self.program, self.rows, tuple(found), views, self)

    def _integer(self, value: int) -> Any:
        return tirx.IntImm(self.blocks.index_dtype, value)

    def _analyzer(self, loops: tuple[Loop, ...]) -> Any:
        analyzer = Analyzer()
        for symbol in self.rows.symbols:  # a program that runs has a row
            analyzer.bind(symbol, Range.from_min_extent(self._integer(1), self._integer(2**31 - 1)))
        bounds = [(self.program, self.rows.expression(self.blocks.index_dtype))]
        bounds += [(loop.variable, self._integer(loop.extent)) for loop in loops]
        for variable, extent in bounds:
            analyzer.bind(variable, Range.from_min_extent(self._integer(0), extent))
        return analyzer

    def _row(self, nest: Nest) -> RowNest | Foreign:
        """Split the loops into the row's and the rest; prove every access of stored buffers."""
        split = self._split(nest)
        if isinstance(split, Foreign):
            return split
        at, loops = split
        analyzer = self._analyzer(loops)

        def simplified(load: Any) -> Any:
            return load.source[tuple(analyzer.simplify(index) for index in load.indices)]

        value = structural_map(substitute(nest.value, at), (TensorLoad, simplified), order="post")
        indices = tuple(analyzer.simplify(substitute(index, at)) for index in nest.indices)
        for load in loads(value):
            if any(load.source.same_as(own) for own in self.stored) and (
                self.slot(load, loops) is None
            ):
                return Foreign(f"block {nest.name} reads {load}, not proved to be of its own row")
        slot = self._own_slot(nest.buffer, indices, loops)
        if slot is None:
            at_text = ", ".join(map(str, indices))
            return Foreign(
                f"block {nest.name} stores {nest.buffer.name}[{at_text}], "
                "not proved to be of its own row"
            )
        return RowNest(nest, loops, indices, slot, self._elements(nest.buffer) or 0, value)

    def _split(self, nest: Nest) -> tuple[dict[Any, Any], tuple[Loop, ...]] | Foreign:
        """Leading loops by the row's coordinates; the other loops, those of extent 1 left out."""
        at: dict[Any, Any] = {}
        dtype = self.blocks.index_dtype
        leading, product = 0, Count()
        while not product.same(self.rows) and leading < len(nest.loops):
            if nest.loops[leading].reduces:
                break
            leading += 1
            product = Count.of(loop.extent for loop in nest.loops[:leading])
        if not product.same(self.rows):
            return Foreign(f"the leading loops of block {nest.name} are not the {self.rows} rows")
        for position, loop in enumerate(nest.loops[:leading]):
            rest = Count.of(inner.extent for inner in nest.loops[position + 1 : leading])
            coordinate = self.program
            if loop.unit:
                coordinate = self._integer(0)
            else:
                if not rest.same(Count()):
                    coordinate = tirx.floordiv(coordinate, rest.expression(dtype))
                if position > 0:
                    own = Count.of([loop.extent]).expression(dtype)
                    coordinate = tirx.floormod(coordinate, own)
            at[loop.variable] = coordinate
        others = nest.loops[leading:]
        if nest.reduced:
            return self._reduction(nest, at, others)
        for loop in others:
            if not isinstance(loop.extent, int):
                return Foreign(f"block {nest.name} has the symbolic extent {loop.extent} in a row")
            if loop.unit:
                at[loop.variable] = self._integer(0)
        return at, tuple(loop for loop in others if not loop.unit)

    def _reduction(
        self, nest: Nest, at: dict[Any, Any], others: tuple[Loop, ...]
    ) -> tuple[dict[Any, Any], tuple[Loop, ...]] | Foreign:
        """One linear loop over all reduced elements, in the order of the source."""
        for loop in others:
            if not loop.reduces:
                at[loop.variable] = self._integer(0)  # all extents multiply to the rows already
        reduced = nest.reduced
        if len(reduced) == 1:
            return at, reduced
        count = math.prod(loop.extent for loop in reduced)
        linear = tirx.Var("k", self.blocks.index_dtype)
        rest = count
        for position, loop in enumerate(reduced):
            rest //= loop.extent
            coordinate: Any = linear
            if rest > 1:
                coordinate = tirx.floordiv(coordinate, self._integer(rest))
            if position > 0:
                coordinate = tirx.floormod(coordinate, self._integer(loop.extent))
            at[loop.variable] = coordinate if loop.extent > 1 else self._integer(0)
        return at, (Loop(linear, count, True),)

    # Proofs

    def slot(self, load: Any, loops: tuple[Loop, ...]) -> Any | None:
        """The element within the row that a load is at, or None where that is not proved."""
        return self._own_slot(load.source, tuple(load.indices), loops)

    def _own_slot(self, buffer: Any, indices: tuple[Any, ...], loops: tuple[Loop, ...]) -> Any:
        elements = self._elements(buffer)
        if elements is None:
            return None
        analyzer = self._analyzer(loops)
        linear = _flattened(buffer, indices, self.blocks.index_dtype)
        slot = analyzer.simplify(linear - self.program * self._integer(elements))
        if mentions(slot, self.program) or loads(slot):
            return None
        inside = analyzer.can_prove(slot >= self._integer(0)) and analyzer.can_prove(
            slot < self._integer(elements)
        )
        return slot if inside else None

    # What is worth rewriting

    def _last_axis(self, row: RowNest) -> str | None:
        """Why a reduction is not one over whole rows, or None."""
        if not row.nest.reduced:
            return None
        (loop,) = row.loops
        whole = False
        for load in loads(row.value):
            if load.source.same_as(row.nest.buffer):
                continue
            slot, size = self.slot(load, row.loops), _size(load.source)
            if self._elements(load.source) == loop.extent and self._is(slot, loop):
                whole = True
            elif not mentions(load, loop.variable):
                continue
            elif not self._is_vector(size, loop) or not self._is_broadcast(load, loop):
                return (
                    f"block {row.nest.name} reduces {load}, neither a whole row in its order nor "
                    "one vector for all rows"
                )
        return None if whole else f"block {row.nest.name} does not reduce rows of any buffer"

    @staticmethod
    def _is_vector(size: Count | None, loop: Loop) -> bool:
        return size is not None and size.same(Count.of([loop.extent]))

    def _elements(self, buffer: Any) -> int | None:
        """How many elements of a buffer a row has, or None where the rows do not divide it."""
        size = _size(buffer)
        return None if size is None else size.over(self.rows)

    def _is(self, slot: Any | None, loop: Loop) -> bool:
        """Whether a slot is the loop's own element; the only one of a row of one."""
        if slot is None:
            return False
        return bool(slot.same_as(loop.variable)) or loop.extent == 1

    def _is_broadcast(self, load: Any, loop: Loop) -> bool:
        linear = _flattened(load.source, tuple(load.indices), self.blocks.index_dtype)
        return bool(self._analyzer((loop,)).simplify(linear).same_as(loop.variable))

    def _product(self, row: RowNest) -> str | None:
        """Whether the only reduction is a matrix-vector product, which dlight schedules better."""
        if not row.nest.reduced or not isinstance(row.value, tirx.Add):
            return None
        (loop,) = row.loops
        for term in (row.value.a, row.value.b):
            while isinstance(term, tirx.Cast):
                term = term.value
            if not isinstance(term, tirx.Mul):
                continue
            for factor in (term.a, term.b):
                found = [load for load in loads(factor) if mentions(load, loop.variable)]
                if found and all(self._is_broadcast(load, loop) for load in found):
                    return f"block {row.nest.name} is a matrix-vector product"
        return None

    def _shared_views(self, nests: list[RowNest], enough: int) -> tuple[Any, ...]:
        """Inputs of 32-bit elements that several loads read whole, each at its own element."""
        found: list[tuple[Any, int]] = []
        for row in nests:
            for load in loads(row.value):
                buffer = load.source
                if any(buffer.same_as(own) for own in self.stored) or not self.at_own(load, row):
                    continue
                known = [i for i, (other, _) in enumerate(found) if other.same_as(buffer)]
                if known:
                    found[known[0]] = (buffer, found[known[0]][1] + 1)
                else:
                    found.append((buffer, 1))
        return tuple(buffer for buffer, uses in found if uses >= enough)

    def at_own(self, load: Any, row: RowNest) -> bool:
        """Whether a load reads a row's elements in their order, one for each of its domain's."""
        if str(load.source.ty.dtype) not in ("float32", "int32"):
            return False
        count = math.prod(loop.extent for loop in row.loops)
        if count < 2 or self._elements(load.source) != count:
            return False
        slot = self.slot(load, row.loops)
        if slot is None:
            return False
        linear: Any = self._integer(0)
        for loop in row.loops:
            linear = linear * self._integer(loop.extent) + loop.variable
        return bool(self._analyzer(row.loops).can_prove_equal(slot, linear))


def _size(buffer: Any) -> Count | None:
    extents = [known_extent(extent) for extent in buffer.ty.shape]
    return None if None in extents else Count.of(extents)


def _flattened(buffer: Any, indices: tuple[Any, ...], dtype: str) -> Any:
    linear: Any = tirx.IntImm(dtype, 0)
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        known = known_extent(extent)
        linear = linear * (tirx.IntImm(dtype, known) if isinstance(known, int) else extent) + index
    return linear

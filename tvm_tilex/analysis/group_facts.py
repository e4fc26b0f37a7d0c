"""A group as the planner's integers, with the way back from every number to its phase or tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.group_columns import read_columns
from tvm_tilex.analysis.group_copies import copy_width
from tvm_tilex.analysis.group_structure import (
    Elements,
    GroupProgram,
    Outputs,
    Phase,
    Product,
    Steps,
    WholeOutputs,
    permits_any_order,
    permits_collective,
    read_group_program,
)
from tvm_tilex.analysis.group_tiles import Access, Tile, Tiles, own_order, read_tiles, tile_problem
from tvm_tilex.analysis.purity import calls, loads, mentions
from tvm_tilex.analysis.statements import Decline
from tvm_tilex.analysis.structure import Allocate
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.group_facts import GroupFacts, LoopFacts, PhaseFacts, PhaseKind, TileFacts
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import Var, structural_walk, tirx

__all__ = ["GroupSubject", "plain_product", "product_loops", "read_group"]


@dataclass(frozen=True, eq=False)
class GroupSubject:
    """A readable group: its program, phases and tiles by number, and its facts.

    ``orders`` gives for each phase the positions of its loops by the dimensions of its aligned
    class, or None where it accesses no tile at its own coordinates.
    """

    program: GroupProgram
    phases: tuple[Any, ...]
    tiles: tuple[Tile, ...]
    loops: tuple[Any, ...]
    orders: tuple[tuple[int, ...] | None, ...]
    facts: GroupFacts

    def tile_number(self, buffer: Any) -> int | None:
        """Number of the tile in ``buffer``; None for anything else."""
        return next((n for n, t in enumerate(self.tiles) if t.buffer.same_as(buffer)), None)


def read_group(root: Any, kind: str) -> GroupSubject | Decline:
    """Read a root loop and check that its phases may be shared out."""
    program = read_group_program(root)
    if isinstance(program, Decline):
        return program
    tiles = read_tiles(program)
    problem = tile_problem(program, tiles)
    if problem is not None:
        return Decline("distributed private storage", problem)
    return _Reader(program, tiles, kind).read()


class _Reader:
    def __init__(self, program: GroupProgram, tiles: Tiles, kind: str) -> None:
        self._program = program
        self._tiles = tuple(tiles.by_buffer.values())
        self._numbers = {tile.buffer: n for n, tile in enumerate(self._tiles)}
        self._kind = kind
        self._phases: list[Any] = []
        self._paths: list[tuple[int, ...]] = []
        self._loops: list[Any] = []
        self._spans: dict[int, tuple[int, int, int]] = {}
        self._classes: dict[int, int] = {}

    def read(self) -> GroupSubject:
        self._number(self._program.body, ())
        orders = [self._own_order(phase) for phase in self._phases]
        self._align(orders)
        phases = tuple(
            self._facts(phase, path, order)
            for phase, path, order in zip(self._phases, self._paths, orders, strict=True)
        )
        private = str(attrs.annotation(self._program.root, attrs.PRIVATE) or "").split(",")
        facts = GroupFacts(
            programs=self._program.programs,
            independent=int(attrs.annotation(self._program.root, attrs.GROUP) or 1),
            phases=phases,
            tiles=tuple(self._tile(n, tile, private) for n, tile in enumerate(self._tiles)),
            loops=tuple(
                LoopFacts(_iterations(loop), *self._spans[n]) for n, loop in enumerate(self._loops)
            ),
        )
        return GroupSubject(
            self._program,
            tuple(self._phases),
            self._tiles,
            tuple(self._loops),
            tuple(orders),
            facts,
        )

    def _number(self, body: tuple[Phase, ...], path: tuple[int, ...]) -> None:
        for phase in body:
            if isinstance(phase, Allocate):
                continue
            if not isinstance(phase, Steps):
                self._phases.append(phase)
                self._paths.append(path)
                continue
            number, first = len(self._loops), len(self._phases)
            self._loops.append(phase.loop)
            self._number(phase.body, (*path, number))
            self._spans[number] = (first, len(self._phases), path[-1] if path else -1)

    # Alignment

    def _own(self, phase: Any) -> Iterator[tuple[int, Access]]:
        for number, tile in enumerate(self._tiles):
            if tile.shape == (1,):
                continue
            for access in (*tile.stores, *tile.loads):
                if access.phase is phase and access.order is not None:
                    yield number, access

    def _own_order(self, phase: Any) -> tuple[int, ...] | None:
        """The order of the tile that the phase stores, else of the first that it loads."""
        if isinstance(phase, (Outputs, WholeOutputs)):
            return None
        found = list(self._own(phase))
        stored = [a.order for n, a in found if a in self._tiles[n].stores]
        return next(iter(stored + [access.order for _, access in found]), None)

    def _align(self, orders: list[tuple[int, ...] | None]) -> None:
        """Tiles that a phase accesses in one order belong to one class."""
        parent = list(range(len(self._tiles)))

        def root(n: int) -> int:
            while parent[n] != n:
                n = parent[n]
            return n

        for phase, order in zip(self._phases, orders, strict=True):
            together = [n for n, access in self._own(phase) if access.order == order]
            for n in together[1:]:
                parent[root(n)] = root(together[0])
        touched = {n for phase in self._phases for n, _ in self._own(phase)}
        names = {r: i for i, r in enumerate(sorted({root(n) for n in touched}))}
        self._classes = {n: names[root(n)] for n in touched}

    # Facts

    def _tile(self, number: int, tile: Tile, private: list[str]) -> TileFacts:
        elements = 1
        for extent in tile.shape:
            elements *= extent
        return TileFacts(
            name=str(tile.buffer.name),
            elements=elements,
            item_bytes=dtype_of(str(tile.buffer.ty.dtype)).bytes,
            scalar=tile.scalar,
            placed=tile.placed,
            private=str(tile.buffer.name) in private,
            aligned=self._classes.get(number, -1),
            row=tile.shape[1] if len(tile.shape) == 2 else 0,
        )

    def _facts(
        self, phase: Any, path: tuple[int, ...], order: tuple[int, ...] | None
    ) -> PhaseFacts:
        own: set[int] = set()
        other: set[int] = set()
        for number, tile in enumerate(self._tiles):
            for access in tile.loads:
                if access.phase is phase:
                    aligned = access.order is not None and access.order == order
                    (own if aligned and tile.shape != (1,) else other).add(number)
        row = self._row_variable(phase, order)
        reads = tuple(n for n in sorted(other) if row is not None and self._read_at(phase, n, row))
        store = phase.publish if isinstance(phase, (Outputs, WholeOutputs)) else phase.store
        target = self._numbers.get(store.buffer, -1)
        common = {
            "count": phase.count,
            "loops": path,
            "own_loads": tuple(sorted(own - other)),
            "loads": tuple(sorted(other)),
            "store": target,
            "aligned": self._aligned(phase, order),
            "row_reads": reads,
        }
        if isinstance(phase, Product):
            return PhaseFacts(PhaseKind.product, **{**common, **self._product(phase, common)})
        if isinstance(phase, Elements):
            views = _views(phase.store.value)
            return PhaseFacts(
                PhaseKind.elements,
                global_loads=len(views),
                view_bytes=_bytes(views),
                operations=_operations(phase.store.value),
                vector=copy_width(phase, 16),
                prefetchable=bool(views) and not own and not other and target >= 0,
                **common,
            )
        if isinstance(phase, Outputs):
            why = permits_collective(phase.update, self._kind)
            rows = self._row_loads(phase, other)
            columns = read_columns(phase)
            views = _views(phase.update.contribution)
            return PhaseFacts(
                PhaseKind.reduction,
                depth=phase.update.extent,
                collective=why is None,
                reason=why or "",
                global_loads=len(views),
                view_bytes=_bytes(views),
                operations=_operations(phase.update.contribution),
                stride=_stride(phase.update),
                adjacent=columns.width if columns else 0,
                any_order=permits_any_order(phase.update) is None,
                row_loads=rows,
                row_aligned=self._classes[rows[0]] if rows else -1,
                **common,
            )
        return PhaseFacts(PhaseKind.reduction, depth=1, reason=phase.reason, **common)

    def _row_variable(self, phase: Any, order: tuple[int, ...] | None) -> Any | None:
        """The variable of the rows of what a phase works on, where that has two dimensions."""
        if isinstance(phase, Outputs):
            wide = [loop for loop in phase.loops if int(loop.extent.value) > 1]
            return wide[0].loop_var if len(wide) == 1 else None
        if not isinstance(phase, Elements) or order is None or len(order) != 2:
            return None
        return phase.loops[order[0]].loop_var

    def _read_at(self, phase: Any, number: int, row: Any) -> bool:
        """Whether a phase reads a tile of one dimension at the row and nowhere else."""
        tile = self._tiles[number]
        if len(tile.shape) != 1 or tile.shape == (1,):
            return False
        if isinstance(phase, Outputs):
            found = loads(phase.update.contribution)
            if any(load.source.same_as(tile.buffer) for load in loads(phase.publish.value)):
                return False
        else:
            found = loads(phase.store.value)
        mine = [load for load in found if load.source.same_as(tile.buffer)]
        return bool(mine) and all(_uses(load, row) for load in mine)

    def _row_loads(self, phase: Outputs, read: set[int]) -> tuple[int, ...]:
        """Tiles of one class read at (output, reduced) coordinates and at no others."""
        loops = tuple(loop for loop in phase.loops if int(loop.extent.value) > 1)
        found: dict[int, set[tuple[int, ...] | None]] = {}
        for load in loads(phase.update.contribution):
            number = self._numbers.get(load.source)
            if number is not None and number in self._classes:
                order = own_order(load.indices, (*loops, phase.update.loop))
                found.setdefault(number, set()).add(order)
        rows = tuple(n for n, orders in sorted(found.items()) if orders == {(0, 1)} and n in read)
        classes = {self._classes[n] for n in rows}
        return rows if len(loops) == 1 and len(classes) == 1 else ()

    def _aligned(self, phase: Any, order: tuple[int, ...] | None) -> int:
        for number, access in self._own(phase):
            if order is not None and access.order == order:
                return self._classes[number]
        return -1

    def _product(self, phase: Product, common: dict[str, Any]) -> dict[str, Any]:
        """Depth, and rows and columns where two matrices are multiplied."""
        accumulator = common["store"]
        found: dict[str, Any] = {
            "depth": phase.depth,
            "own_loads": (accumulator,),
            "loads": tuple(t for t in (*common["loads"], *common["own_loads"]) if t != accumulator),
        }
        if plain_product(phase):
            rows, columns = (int(loop.extent.value) for loop in product_loops(phase))
            factor = str(phase.a.source.ty.dtype)
            found |= {"rows": rows, "columns": columns, "factor": factor}
            first = self._numbers.get(phase.a.source, -1)
            if phase.a.indices[-1].same_as(phase.contracted.loop_var):
                found["first_factor"] = first
        return found


def plain_product(phase: Product) -> bool:
    """Whether a product is C[m, n] += A[m, k] * B[k, n], the factors in any dimension order."""
    if len(phase.kept) != 2 or phase.contracted is None:
        return False
    rows, columns = (loop.loop_var for loop in product_loops(phase))
    depth = phase.contracted.loop_var
    return _uses(phase.a, rows, depth) and _uses(phase.b, depth, columns)


def product_loops(phase: Product) -> tuple[Any, Any]:
    """The kept loops in the order of the result's dimensions."""
    first = phase.store.indices[0]
    swap = not (isinstance(first, Var) and first.same_as(phase.kept[0].loop_var))
    return (phase.kept[1], phase.kept[0]) if swap else (phase.kept[0], phase.kept[1])


def _uses(load: Any, *variables: Any) -> bool:
    indices = list(load.indices)
    return len(indices) == len(variables) and all(
        any(isinstance(index, Var) and index.same_as(var) for index in indices) for var in variables
    )


def _views(expression: Any) -> list[Any]:
    return [load for load in loads(expression) if load.source.scope() == "global"]


def _bytes(found: list[Any]) -> int:
    return sum(dtype_of(str(load.source.ty.dtype)).bytes for load in found)


def _operations(expression: Any) -> int:
    """Arithmetic nodes, and four for each call of a function; reinterpreting bits is free."""
    count = 4 * sum(name != "tirx.reinterpret" for name in calls(expression))
    found: list[Any] = []
    kinds = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
    structural_walk(expression, [(kind, found.append) for kind in kinds])
    return max(1, count + len(found))


def _stride(update: Any) -> int:
    """Distance in memory of two consecutive elements of a reduction's first load."""
    var = update.loop.loop_var
    for load in loads(update.contribution):
        step = 1
        for index, extent in zip(
            reversed(load.indices), reversed(load.source.ty.shape), strict=True
        ):
            if mentions(index, var):
                return step
            step *= int(extent.value) if isinstance(extent, tirx.IntImm) else 2
    return 1


def _iterations(loop: Any) -> int:
    """The most iterations of a pipeline; only prices depend on it."""
    extent = loop.extent
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    return int(attrs.annotation(loop, attrs.ITERATIONS) or 1)

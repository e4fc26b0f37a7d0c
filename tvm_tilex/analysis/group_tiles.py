"""Who touches each tile of a group, at which coordinates, and whether that is safe to share out.

A phase accesses a tile *at its own coordinates* where the indices are the phase's loop variables,
each once and nothing else: then the thread that runs an element is the only one to touch the
tile's element in that phase. Obligations, checked here for every phase:

- a tile is stored at own coordinates, over its whole shape, and a phase that stores it reads it
  only at those coordinates (a product also adds to its own element);
- a global buffer that the group stores is neither loaded nor stored by another phase, and the
  elements of the phase store at distinct addresses;
- every tile has one allocation and does not escape.

Then phases commute with any distribution of their elements, and what orders them is who reads
what another phase stored: a matter of fences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.effects import is_compact
from tvm_tilex.analysis.group_structure import (
    Elements,
    GroupProgram,
    Outputs,
    Phase,
    Product,
    Steps,
    WholeOutputs,
)
from tvm_tilex.analysis.injectivity import store_is_injective
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.analysis.structure import Allocate
from tvm_tilex.tirx.compat import (
    Analyzer,
    TensorLoad,
    Var,
    structural_map,
    structural_walk,
    tirx,
)

__all__ = ["Access", "Tile", "Tiles", "own_order", "read_tiles", "tile_problem"]


@dataclass(frozen=True, eq=False)
class Access:
    """One access of a tile: the phase, and the positions of its loops by the tile's dimensions.

    ``order`` is None where the access is not at the phase's own coordinates.
    """

    phase: Any
    order: tuple[int, ...] | None


@dataclass(eq=False)
class Tile:
    """A buffer of the group's own with its accesses in program order."""

    buffer: Any
    stores: list[Access] = field(default_factory=list)
    loads: list[Access] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(int(extent.value) for extent in self.buffer.ty.shape)

    @property
    def placed(self) -> bool:
        """Whether a person placed it in shared memory."""
        return str(self.buffer.scope()) == "shared"

    @property
    def scalar(self) -> bool:
        """Whether it has one element, stored by phases of one element only.

        Then every thread can hold and compute it for itself.
        """
        alone = all(isinstance(a.phase, Elements) and not a.phase.loops for a in self.stores)
        return self.shape == (1,) and alone and not self.placed


@dataclass(frozen=True, eq=False)
class Tiles:
    """Every tile of a group by its buffer; ``scalars`` are the carries inside reductions."""

    by_buffer: dict[Any, Tile]
    carries: frozenset[Any]

    def of(self, buffer: Any) -> Tile | None:
        """The tile that stands in ``buffer``, or None."""
        return self.by_buffer.get(buffer)


def read_tiles(program: GroupProgram) -> Tiles:
    """Collect every tile's accesses; buffers used inside reductions alone are carries."""
    tiles: dict[Any, Tile] = {}
    inner: set[Any] = set()
    for phase in _leaves(program.body):
        if isinstance(phase, Allocate):
            tiles[phase.buffer] = Tile(phase.buffer)
    for phase in _leaves(program.body):
        if isinstance(phase, Outputs):
            inner.add(phase.update.carry)
        if isinstance(phase, WholeOutputs):
            inner |= _scratch(phase)
    carries = frozenset(buffer for buffer in inner if buffer in tiles)
    for carry in carries:
        del tiles[carry]
    for phase in _leaves(program.body):
        if isinstance(phase, Allocate):
            continue
        loops = _loops(phase)
        store = _store(phase)
        if store.buffer in tiles:
            tiles[store.buffer].stores.append(Access(phase, own_order(store.indices, loops)))
        for load in _loads(phase):
            if load.source in tiles:
                own = None if isinstance(phase, (Outputs, WholeOutputs)) else loops
                order = None if own is None else own_order(load.indices, own)
                tiles[load.source].loads.append(Access(phase, order))
    return Tiles(tiles, carries)


def tile_problem(program: GroupProgram, tiles: Tiles) -> str | None:
    """Which obligation of this module a group breaks, or None."""
    uses = buffer_uses(program.root)
    for tile in tiles.by_buffer.values():
        problem = _one_tile(tile, uses[tile.buffer])
        if problem is not None:
            return problem
    stored: dict[Any, Any] = {}
    for phase, repeated in _placed(program.body, ()):
        if not isinstance(phase, Elements) or phase.store.buffer.scope() != "global":
            continue
        buffer = phase.store.buffer
        if buffer in stored:
            return f"{buffer.name} is stored by two phases"
        stored[buffer] = phase
        if uses[buffer].loads or uses[buffer].escapes:
            return f"{buffer.name} is stored, and read by the group too"
        if not is_compact(buffer):
            return f"{buffer.name} is not compact: its elements may share addresses"
        if any(loads(index) for index in phase.store.indices):
            return f"{buffer.name} is stored at an index that is loaded"
        if not (store_is_injective(phase, repeated) or _strided(phase, repeated)):
            return f"elements of {buffer.name} may be stored more than once"
    return None


def _one_tile(tile: Tile, uses: Any) -> str | None:
    name = tile.buffer.name
    if uses.allocations != 1:
        return f"{name} has {uses.allocations} allocations"
    if uses.escapes:
        return f"{name} escapes through its variable"
    for access in tile.stores:
        whole = access.order is not None and _whole(tile, access)
        if not whole and tile.shape != (1,):
            return f"{name} is not stored whole at the coordinates of its phase"
        if isinstance(access.phase, (Outputs, WholeOutputs)):
            if any(load.phase is access.phase for load in tile.loads):
                return f"{name} is read by the reduction that stores it"
        elif any(load.phase is access.phase and load.order != access.order for load in tile.loads):
            return f"{name} is read by the phase that stores it at another element"
    return None


def _whole(tile: Tile, access: Access) -> bool:
    loops = _loops(access.phase)
    order = access.order or ()
    extents = tuple(int(loops[position].extent.value) for position in order)
    return extents == tile.shape or (tile.shape == (1,) and not extents)


def _strided(phase: Any, repeated: tuple[Any, ...]) -> bool:
    """Whether iterations of the loops around a phase store to blocks that lie apart.

    Each loop variable stands in one index. An index with a phase's variable v of extent E alone
    is v and a shift; one with a repeated variable r beside it grows by at least E with r.
    """
    own = {loop.loop_var: int(loop.extent.value) for loop in phase.loops}
    outer = [loop.loop_var for loop in repeated]
    seen: list[Any] = []
    for index in phase.store.indices:
        inside = [var for var in own if mentions(index, var)]
        around = [var for var in outer if mentions(index, var)]
        seen += inside + around
        if len(inside) > 1 or len(around) > 1:
            return False
        if inside and _growth(index, inside[0]) != 1:
            return False
        least = own[inside[0]] if inside else 1
        if around and (_growth(index, around[0]) or 0) < least:
            return False
    return all(sum(var.same_as(other) for other in seen) == 1 for var in (*own, *outer))


def _growth(index: Any, var: Any) -> int | None:
    """The constant by which an index grows with a variable, or None."""

    def following(found: Any) -> Any:
        return found + tirx.IntImm(str(var.ty.dtype), 1) if found.same_as(var) else found

    step = Analyzer().simplify(structural_map(index, (Var, following), order="post") - index)
    return int(step.value) if isinstance(step, tirx.IntImm) else None


def _leaves(body: tuple[Phase, ...]) -> Iterator[Any]:
    for phase in body:
        if isinstance(phase, Steps):
            yield from _leaves(phase.body)
        else:
            yield phase


def _placed(body: tuple[Phase, ...], outer: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    for phase in body:
        if isinstance(phase, Steps):
            yield from _placed(phase.body, (*outer, phase.loop))
        else:
            yield phase, outer


def _loops(phase: Any) -> tuple[Any, ...]:
    """The loops whose variables are a phase's own coordinates; extent 1 is no coordinate."""
    if isinstance(phase, Product):
        return phase.kept
    return tuple(loop for loop in phase.loops if int(loop.extent.value) > 1)


def _store(phase: Any) -> Any:
    return phase.publish if isinstance(phase, (Outputs, WholeOutputs)) else phase.store


def _loads(phase: Any) -> list[Any]:
    if isinstance(phase, Elements):
        parts = [phase.store.value, *phase.store.indices]
        parts += [] if phase.condition is None else [phase.condition]
        return [load for part in parts for load in loads(part)]
    if isinstance(phase, Product):
        return [phase.a, phase.b]
    if isinstance(phase, Outputs):
        return [*loads(phase.update.contribution), *loads(phase.publish.value)]
    found: list[Any] = []
    structural_walk(phase.body, (TensorLoad, found.append))
    return found


def own_order(indices: Any, loops: tuple[Any, ...]) -> tuple[int, ...] | None:
    """For each index that is a loop variable its loop's position; None if not all, each once."""
    order: list[int] = []
    for index in indices:
        if isinstance(index, tirx.IntImm) and index.value == 0:
            continue
        where = [n for n, loop in enumerate(loops) if _is(index, loop.loop_var)]
        if len(where) != 1 or where[0] in order:
            return None
        order.append(where[0])
    return tuple(order) if len(order) == len(loops) else None


def _is(index: Any, var: Any) -> bool:
    return isinstance(index, Var) and bool(index.same_as(var))


def _scratch(phase: WholeOutputs) -> set[Any]:
    """Local buffers that the body stores besides the result."""
    found: list[Any] = []
    structural_walk(phase.body, (tirx.BufferStore, lambda store: found.append(store.buffer)))
    return {b for b in found if b.scope() == "local" and not b.same_as(phase.publish.buffer)}

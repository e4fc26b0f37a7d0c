"""What every phase of a group shares: thread coordinates, storage of tiles, rewriting of loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.group_copies import reinterpreted
from tvm_tilex.analysis.group_facts import GroupSubject
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.plan.group_columns import ColumnShare
from tvm_tilex.plan.group_memory import version_bytes
from tvm_tilex.tirx.compat import TensorLoad, structural_map, tirx
from tvm_tilex.transform.common import as_index, substitute

__all__ = ["GroupFrame"]


@dataclass
class GroupFrame:
    """Storage and coordinates of one mapped group.

    ``shared`` and ``private`` hold the buffers of each tile by number; a tile may have both: its
    owners read the private one. ``versions`` is the parity of the running iteration for a tile
    of two versions. ``arena`` is the group's one allocation of shared memory. ``partials`` hold the
    partial results of a phase's slices.
    """

    subject: GroupSubject
    plan: CooperativePlan
    kind: str
    thread: Any  # the thread index variable
    arena: Any | None = None
    shared: dict[int, Any] = field(default_factory=dict)
    private: dict[int, Any] = field(default_factory=dict)
    versions: dict[int, Any] = field(default_factory=dict)
    partials: dict[int, Any] = field(default_factory=dict)
    # While a phase of fragments is emitted: the slot of its row, of an element's slot.
    row_slot: Any | None = None

    def __post_init__(self) -> None:
        scope = "shared"
        if self.kind == "cuda" and self.plan.shared_bytes > STATIC_BYTES:
            scope = "shared.dyn"
        if self.plan.shared_bytes:
            self.arena = self._arena(scope)
        for number, (tile, placement) in enumerate(
            zip(self.subject.tiles, self.plan.placements, strict=True)
        ):
            if placement.replicated:
                self.private[number] = self._local(tile, 1)
            if placement.private:
                self.private[number] = self._local(tile, placement.private)
            if placement.offset >= 0:
                self.shared[number] = self._in_arena(tile, placement, scope)

        for share in self.plan.columns:
            if share.fenced:
                self.partials[share.phase] = self._partial(share, scope)

    def _partial(self, share: ColumnShare, scope: str) -> Any:
        assert self.arena is not None
        shape = share.slices, self.subject.facts.phases[share.phase].count
        return tirx.decl_buffer(
            tuple(map(self.integer, shape)),
            "float32",
            "partial",
            data=self.arena.data,
            elem_offset=self.integer(share.offset // 4),
            scope=scope,
            layout=None,
        )

    def _arena(self, scope: str) -> Any:
        """The allocation, in the tiles' own type where they have one.

        TVM retypes memory that is accessed in a single type, without changing its length.
        """
        placed = zip(self.subject.tiles, self.plan.placements, strict=True)
        held = {self._held(tile) for tile, placement in placed if placement.offset >= 0}
        held |= {"float32" for share in self.plan.columns if share.fenced}
        dtype = held.pop() if len(held) == 1 else "float32"
        length = -(-self.plan.shared_bytes // dtype_of(_STORED.get(dtype, dtype)).bytes)
        return tirx.decl_buffer((length,), dtype, "arena", scope=scope, layout=None)

    def _local(self, tile: Any, slots: int) -> Any:
        name = f"{tile.buffer.name}_own"
        return tirx.decl_buffer(
            (self.integer(slots),), self._held(tile), name, scope="local", layout=None
        )

    def held(self, dtype: str) -> str:
        """The type that elements of a type are held in.

        Metal's code generator has no bfloat16; TVM's legalization would give the whole arena the
        type of its bits.
        """
        return "uint16" if dtype == "bfloat16" and self.kind != "cuda" else dtype

    def _held(self, tile: Any) -> str:
        return self.held(str(tile.buffer.ty.dtype))

    @staticmethod
    def element(buffer: Any, indices: Any, dtype: str) -> Any:
        """An element of a tile in its own type, wherever and however it is held."""
        found = buffer[tuple(indices)]
        return found if str(found.ty.dtype) == dtype else tirx.reinterpret(dtype, found)

    @staticmethod
    def store(buffer: Any, value: Any, indices: Any) -> Any:
        """A store of a tile's element, as the buffer holds it."""
        held = str(buffer.ty.dtype)
        if str(value.ty.dtype) != held and held == "uint16":
            bits = reinterpreted(value)
            value = bits if str(bits.ty.dtype) == held else tirx.reinterpret(held, value)
        return tirx.BufferStore(buffer, value, list(indices))

    def _in_arena(self, tile: Any, placement: Any, scope: str) -> Any:
        """A view of the arena with the tile's shape, after a dimension of versions."""
        assert self.arena is not None
        dtype = self._held(tile)
        facts = self.subject.facts.tiles[self.subject.tile_number(tile.buffer) or 0]
        item = facts.item_bytes
        shape, strides = list(tile.shape), _row_major(tile.shape)
        if placement.padding:
            strides[0] += placement.padding
        if placement.versions > 1:
            strides.insert(0, version_bytes(facts, placement.padding) // item)
            shape.insert(0, placement.versions)
        plain = strides == _row_major(tuple(shape))
        return tirx.decl_buffer(
            tuple(map(self.integer, shape)),
            dtype,
            str(tile.buffer.name),
            data=self.arena.data,
            strides=None if plain else list(map(self.integer, strides)),
            elem_offset=self.integer(placement.offset // item),
            scope=scope,
            layout=None,
        )

    # Coordinates

    @property
    def dtype(self) -> str:
        """Index type."""
        return self.subject.program.index_dtype

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    @property
    def worker(self) -> Any:
        """The thread in the index type."""
        return as_index(self.dtype, self.thread)

    @property
    def lane(self) -> Any:
        """Thread mod 32."""
        return tirx.floormod(self.worker, self.integer(self.plan.lanes))

    @property
    def subgroup(self) -> Any:
        """Thread div 32."""
        return tirx.floordiv(self.worker, self.integer(self.plan.lanes))

    # Accesses

    def load(self, load: Any, slot: Any | None, own: frozenset[int]) -> Any:
        """A load of the group's reference form as the mapped group reads it."""
        number = self.subject.tile_number(load.source)
        if number is None:
            return load
        dtype = str(load.ty.dtype)
        if self.plan.placements[number].replicated:
            return self.element(self.private[number], [self.integer(0)], dtype)
        if number in self.private and slot is not None and number in own:
            if self.row_slot is not None and self._is_row(number):
                slot = self.row_slot(slot)
            return self.element(self.private[number], [slot], dtype)
        return self.element(self.shared[number], self.place(number, load.indices), dtype)

    def _is_row(self, number: int) -> bool:
        return self.subject.facts.tiles[number].aligned in self.plan.row_classes

    def place(self, number: int, indices: Any) -> list[Any]:
        """Indices into a tile's shared buffer; ``ahead`` for the next iteration's version."""
        found = list(indices)
        if self.plan.placements[number].versions == 1:
            return found
        return [tirx.floormod(self.versions[number], self.integer(2)), *found]

    def pitch(self, number: int) -> int:
        """Elements between two rows of a two-dimensional tile in shared memory."""
        return self.subject.tiles[number].shape[-1] + self.plan.placements[number].padding

    def rewrite(
        self,
        expression: Any,
        at: dict[Any, Any],
        slot: Any | None = None,
        own: frozenset[int] = frozenset(),
    ) -> Any:
        """An expression with its coordinates put in and its tiles where the plan placed them."""
        placed = structural_map(
            substitute(expression, at),
            (TensorLoad, lambda load: self.load(load, slot, own)),
            order="post",
        )
        return placed


def _row_major(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return strides


# Bits that stand for a type which the language has.
_STORED = {"uint16": "bfloat16"}


# What CUDA grants without a request at launch.
STATIC_BYTES = 49152

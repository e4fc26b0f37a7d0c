"""Emits a planned group: its phases in order, its loops, its fences, its launch."""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.group_columns import read_columns
from tvm_tilex.analysis.group_copies import copy_width, read_copy
from tvm_tilex.analysis.group_facts import GroupSubject
from tvm_tilex.analysis.group_structure import Outputs, Product, Steps, WholeOutputs
from tvm_tilex.analysis.structure import Allocate
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import builder, tirx
from tvm_tilex.transform.common import as_index, launch, sequence, substitute, thread_axis
from tvm_tilex.transform.group_columns import emit_columns
from tvm_tilex.transform.group_frame import GroupFrame
from tvm_tilex.transform.group_maps import (
    ElementMap,
    LinearMap,
    MatrixMap,
    RowMap,
    ThreadGridMap,
)
from tvm_tilex.transform.group_phases import (
    emit_collective,
    emit_elements,
    emit_fragment,
    emit_serial,
)
from tvm_tilex.transform.group_products import emit_product

__all__ = ["GroupEmitter"]


class GroupEmitter:
    """Turns one readable group and its plan into a launch."""

    def __init__(
        self, subject: GroupSubject, plan: CooperativePlan, kind: str, vectors: dict[str, int]
    ) -> None:
        self.subject, self.plan = subject, plan
        self._block, self._thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        self._frame = GroupFrame(subject, plan, kind, self._thread.var)
        self._vectors = vectors
        self.alignment: dict[str, int] = {}
        self._maps = self._class_maps()

    def emit(self) -> Any:
        """The launch of all groups."""
        frame, root = self._frame, self.subject.program.root
        body = self._phases(self.subject.program.body, iter(range(len(self.subject.phases))))
        program = as_index(str(root.loop_var.ty.dtype), self._block.var)
        body = substitute(body, {root.loop_var: root.min + program})
        allocations = [tirx.AllocBuffer(buffer) for buffer in frame.private.values()]
        if frame.arena is not None:
            views = (*frame.shared.values(), *frame.partials.values())
            declared = [tirx.DeclBuffer(view, data=frame.arena.data) for view in views]
            allocations = [tirx.AllocBuffer(frame.arena), *declared, *allocations]
        body = launch(self._thread, self.plan.threads, sequence(*allocations, body))
        return launch(self._block, self.plan.programs, body)

    def _class_maps(self) -> dict[int, ElementMap]:
        """The distribution of every aligned class of tiles."""
        frame = self._frame
        maps: dict[int, ElementMap] = {}
        for tile, facts in zip(self.subject.tiles, self.subject.facts.tiles, strict=True):
            if facts.aligned >= 0:
                maps.setdefault(
                    facts.aligned,
                    LinearMap(
                        tile.shape,
                        self.plan.threads,
                        frame.worker,
                        frame.dtype,
                        frame.kind == "cuda",
                    ),
                )
        for phase, arrangement in zip(
            self.subject.facts.phases, self.plan.arrangements, strict=True
        ):
            if arrangement is None or phase.aligned < 0:
                continue
            extents = (phase.rows, phase.columns)
            if arrangement.kind == "fma":
                maps[phase.aligned] = ThreadGridMap(
                    extents,
                    arrangement.down,
                    arrangement.across,
                    self.plan.threads,
                    frame.worker,
                    frame.dtype,
                    frame.kind == "cuda",
                )
            elif arrangement.kind == "matrix" and arrangement.slots:
                maps[phase.aligned] = matrix = MatrixMap(
                    extents, arrangement.down, arrangement.across, frame.worker, frame.dtype
                )
                if arrangement.across == 1:
                    maps |= {number: RowMap(matrix) for number in self.plan.row_classes}
        return maps

    def _phases(self, body: tuple[Any, ...], numbers: Any) -> Any:
        found: list[Any] = []
        for phase in body:
            if isinstance(phase, Allocate):
                continue
            if isinstance(phase, Steps):
                found.append(self._steps(phase, numbers))
            else:
                found.append(self._phase(phase, next(numbers)))
        return sequence(*found) or tirx.Evaluate(tirx.IntImm("int32", 0))

    def _steps(self, steps: Any, numbers: Any) -> Any:
        """A pipeline; tiles of two versions are filled once before it, then one step ahead."""
        frame, loop = self._frame, steps.loop
        step = as_index(frame.dtype, loop.loop_var)
        number = next(n for n, found in enumerate(self.subject.loops) if found.same_as(loop))
        filled = self._filled_ahead(number)
        for phase in filled:
            tile = self.subject.facts.phases[phase].store
            frame.versions[tile] = step
        first = [self._fill(phase, loop, before=True) for phase in filled]
        body = self._phases(steps.body, numbers)
        if filled and self.plan.asynchronous:
            arrived = tirx.Evaluate(compat.wait_copies())
            first, body = [*first, arrived], sequence(body, arrived)
        looped = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, {})
        fence = self._fence(-1 - number) if filled else None
        return sequence(fence, *first, looped)

    def _filled_ahead(self, loop: int) -> list[int]:
        facts = self.subject.facts
        return [
            number
            for number, phase in enumerate(facts.phases)
            if phase.loops and phase.loops[-1] == loop and self._ahead(number)
        ]

    def _ahead(self, number: int) -> bool:
        store = self.subject.facts.phases[number].store
        return store >= 0 and self.plan.placements[store].versions > 1

    def _fill(self, number: int, loop: Any, *, before: bool) -> Any:
        """Fill a tile of two versions: before the loop, or one iteration ahead inside it.

        The phase is emitted for the running iteration; with another iteration in its place it
        fills that one's version.
        """
        phase = self.subject.phases[number]
        filled = emit_elements(
            self._frame,
            phase,
            None,
            None,
            frozenset(),
            vector=self._width(phase),
            asynchronous=self.plan.asynchronous,
        )
        if before:
            return substitute(filled, {loop.loop_var: loop.min})
        following = loop.loop_var + tirx.IntImm(str(loop.loop_var.ty.dtype), 1)
        filled = substitute(filled, {loop.loop_var: following})
        return tirx.IfThenElse(following < loop.extent, filled, None)

    def _phase(self, phase: Any, number: int) -> Any:
        return sequence(self._fence(number), self._work(phase, number))

    def _fence(self, number: int) -> Any:
        if number not in self.plan.fences:
            return None
        lanes_only = self.plan.independent_subgroups and self._frame.kind == "metal"
        return tirx.Evaluate(builder.tvm_storage_sync("warp" if lanes_only else "shared"))

    def _work(self, phase: Any, number: int) -> Any:
        facts = self.subject.facts.phases[number]
        of = facts.row_aligned if self.plan.realizations[number] == "fragment" else facts.aligned
        fragments = self._maps.get(of)
        self._frame.row_slot = fragments.row_slot if isinstance(fragments, MatrixMap) else None
        return self._realized(phase, number)

    def _realized(self, phase: Any, number: int) -> Any:
        frame, facts = self._frame, self.subject.facts.phases[number]
        realization = self.plan.realizations[number]
        own = frozenset((*facts.own_loads, *self._row_reads(facts), facts.store))
        order = self.subject.orders[number]
        aligned = self._maps.get(facts.aligned) if facts.aligned >= 0 else None
        if isinstance(phase, Product):
            arrangement = self.plan.arrangements[number]
            assert arrangement is not None and order is not None and aligned is not None
            return emit_product(
                frame,
                phase,
                arrangement,
                aligned,
                order,
                own,
                owned_factor=number in self.plan.owned_factors,
            )
        if isinstance(phase, Outputs) and realization == "collective":
            return emit_collective(frame, phase)
        if isinstance(phase, Outputs) and realization == "columns":
            (share,) = (share for share in self.plan.columns if share.phase == number)
            return emit_columns(
                frame, phase, share, frame.partials.get(number), self._column_width(phase)
            )
        if isinstance(phase, Outputs) and realization == "fragment":
            rows = self._maps[facts.row_aligned]
            assert isinstance(rows, MatrixMap)
            owned = frozenset((*facts.row_loads, *self._row_reads(facts)))
            return emit_fragment(frame, phase, rows, owned)
        if isinstance(phase, (Outputs, WholeOutputs)):
            return emit_serial(frame, phase)
        if self._ahead(number):
            loop = self.subject.loops[facts.loops[-1]]
            return self._fill(number, loop, before=False)
        if not self._needs_owner(facts):
            return emit_elements(frame, phase, None, None, own, vector=self._width(phase))
        return emit_elements(frame, phase, aligned, order, own)

    def _row_reads(self, facts: Any) -> tuple[int, ...]:
        """Vectors that a phase of fragments reads at its row and that its lanes hold."""
        tiles = self.subject.facts.tiles
        return tuple(t for t in facts.row_reads if tiles[t].aligned in self.plan.row_classes)

    def _needs_owner(self, facts: Any) -> bool:
        """Whether a phase touches a private slot, so that owners must run it."""
        tiles = (*facts.own_loads, *self._row_reads(facts))
        tiles += (facts.store,) if facts.store >= 0 else ()
        return any(tile in self._frame.private for tile in tiles)

    def _column_width(self, phase: Outputs) -> int:
        """Neighbouring elements of one access of the views that a reduction reads."""
        reads = read_columns(phase)
        assert reads is not None
        width = min(reads.width, self._vectors["max_lanes"])
        for load in reads.views:
            item = dtype_of(str(load.source.ty.dtype)).bytes
            width = min(width, max(1, self._vectors["max_bytes"] // item))
        for load in reads.views if width > 1 else ():
            name = str(load.source.name)
            size = width * dtype_of(str(load.source.ty.dtype)).bytes
            self.alignment[name] = max(size, self.alignment.get(name, 1))
        return width

    def _width(self, phase: Any) -> int:
        if self._vectors["max_lanes"] == 1:
            return 1
        width = copy_width(phase, self._vectors["max_bytes"])
        width = min(width, self._vectors["max_lanes"])
        number = self.subject.tile_number(phase.store.buffer)
        while number is not None and width > 1 and self._frame.pitch(number) % width:
            width //= 2  # every row of the tile begins at a multiple of the vector
        if width > 1:
            copied = read_copy(phase)
            assert copied is not None
            view = copied[1].source
            size = width * dtype_of(str(view.ty.dtype)).bytes
            name = str(view.name)
            self.alignment[name] = max(size, self.alignment.get(name, 1))
        return width

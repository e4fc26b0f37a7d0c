"""Emits reductions whose outputs lie side by side: a thread folds V of them over a slice of rows.

With L = outputs / V lanes and R slices, for thread t, lane = t % L and slice = t / L::

    if t < L * R:
        carries[0 .. V) = identity
        for batch:                                 # U rows, R apart, loaded before they are folded
            values[u, 0 .. V) = view[row(u), V * lane .. V * lane + V)
            carries[v] = op(carries[v], f(values[u, v]))
        partial[slice, V * lane + v] = carries[v]
    fence
    for output of this thread:
        carry = op(.. op(identity, partial[0, output]) .., partial[R - 1, output])
        tile[output] = carry

With R = 1 the threads take the vectors of outputs in turn and publish what they folded. Bounds are
decided at the corners of a batch (see :mod:`tvm_tilex.analysis.group_columns`); a batch that is not
inside folds element by element.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from tvm_tilex.analysis.group_columns import ColumnReads, inner_loop, read_columns
from tvm_tilex.analysis.group_structure import Outputs
from tvm_tilex.plan.group_columns import BATCH_ROWS, ColumnShare
from tvm_tilex.tirx.compat import TensorLoad, builder, structural_equal, structural_map, tirx
from tvm_tilex.transform.common import as_index, sequence, serial, substitute
from tvm_tilex.transform.group_frame import GroupFrame
from tvm_tilex.transform.group_maps import LinearMap, unflatten
from tvm_tilex.transform.group_phases import publish_output

__all__ = ["emit_columns"]

_UNROLL = {"pragma_unroll": True}
Statement = Callable[[Any], Any]


def emit_columns(
    frame: GroupFrame, phase: Outputs, share: ColumnShare, partial: Any | None, lanes: int
) -> Any:
    """One phase; ``partial`` holds the slices' results, ``lanes`` bounds an access of memory."""
    return _Columns(frame, phase, share, partial, lanes).emit()


class _Columns:
    def __init__(
        self, frame: GroupFrame, phase: Outputs, share: ColumnShare, partial: Any, lanes: int
    ) -> None:
        self.frame, self.phase, self.share, self.partial = frame, phase, share, partial
        reads = read_columns(phase)
        assert reads is not None and reads.width == share.vector
        self.reads: ColumnReads = reads
        self.width = min(share.vector, lanes)
        self.carries = self._local("carries", share.vector, "float32")
        self.values = [
            self._local(
                f"{load.source.name}_part",
                BATCH_ROWS * share.vector,
                frame.held(str(load.ty.dtype)),
            )
            for load in reads.views
        ]

    def emit(self) -> Any:
        """Fold, and combine the slices where there are several."""
        frame, share, integer = self.frame, self.share, self.integer
        buffers = [self.carries, *self.values]
        allocations = [tirx.AllocBuffer(buffer) for buffer in (*buffers, self.phase.update.carry)]
        if not share.fenced:
            taken = LinearMap(
                (share.lanes,), frame.plan.threads, frame.worker, frame.dtype, once=True
            )
            turn = taken.visit(
                lambda at, _: sequence(self._fold(at[0], None), self._publish(at[0]))
            )
            return sequence(*allocations, turn)
        lane = tirx.floormod(frame.worker, integer(share.lanes))
        slice_ = tirx.floordiv(frame.worker, integer(share.lanes))
        folded = sequence(self._fold(lane, slice_), self._keep(lane, slice_))
        working = share.lanes * share.slices
        if working < frame.plan.threads:
            folded = tirx.IfThenElse(frame.worker < integer(working), folded, None)
        fence = tirx.Evaluate(builder.tvm_storage_sync("shared"))
        return sequence(*allocations, folded, fence, self._combine())

    def integer(self, value: int) -> Any:
        return self.frame.integer(value)

    def _local(self, name: str, count: int, dtype: str) -> Any:
        return tirx.decl_buffer((self.integer(count),), dtype, name, scope="local", layout=None)

    def _each(self, statement: Statement, count: int | None = None) -> Any:
        var = tirx.Var("v", self.frame.dtype)
        extent = self.share.vector if count is None else count
        return serial(var, extent, statement(var), annotations=_UNROLL)

    # Coordinates

    def _outputs(self, lane: Any, v: Any) -> dict[Any, Any]:
        """The coordinates of output ``v`` of a lane."""
        inner = inner_loop(self.phase)
        vectors = [
            int(loop.extent.value) // (self.share.vector if loop.same_as(inner) else 1)
            for loop in self.phase.loops
        ]
        found = unflatten(lane, tuple(vectors), self.integer)
        return {
            loop.loop_var: as_index(
                str(loop.loop_var.ty.dtype),
                place * self.integer(self.share.vector) + v if loop.same_as(inner) else place,
            )
            for loop, place in zip(self.phase.loops, found, strict=True)
        }

    def _at(self, lane: Any, v: Any, row: Any) -> dict[Any, Any]:
        reduced = self.phase.update.loop.loop_var
        return {**self._outputs(lane, v), reduced: as_index(str(reduced.ty.dtype), row)}

    # Folding

    def _fold(self, lane: Any, slice_: Any | None) -> Any:
        """All rows of a slice, in batches; the rest row by row."""
        share, integer, depth = self.share, self.integer, self.phase.update.extent
        step = share.slices * BATCH_ROWS
        batches, rest = divmod(depth, step)

        def row(batch: Any, u: Any) -> Any:
            found = batch * integer(step) + u * integer(share.slices)
            return found if slice_ is None else found + slice_

        batch = tirx.Var("batch", self.frame.dtype)
        whole = self._batch(lane, lambda u: row(batch, u), BATCH_ROWS)
        found = [
            self._each(lambda v: tirx.BufferStore(self.carries, self.phase.initial.value, [v])),
            serial(batch, batches, whole) if batches else None,
        ]
        left = tirx.Var("left", self.frame.dtype)
        at = row(integer(batches), left)
        one = self._batch(lane, lambda u: at, 1)
        if rest % share.slices:
            one = tirx.IfThenElse(at < integer(depth), one, None)
        if rest:
            found.append(serial(left, -(-rest // share.slices), one))
        return sequence(*found)

    def _batch(self, lane: Any, row: Callable[[Any], Any], rows: int) -> Any:
        """``rows`` rows for the lane's outputs, by vectors where they are all inside."""
        zero = self.integer(0)
        value = self.phase.update.contribution

        def fold(expression: Any, u: Any, v: Any, loaded: bool) -> Any:
            there = self._at(lane, v, row(u))
            contribution = self._contribution(expression, there, u, v, loaded)
            state = self.phase.update.combine(self.carries[v], contribution)
            return tirx.BufferStore(self.carries, state, [v])

        def rowwise(statement: Callable[[Any], Any]) -> Any:
            return self._each(statement, rows) if rows > 1 else statement(zero)

        loads = [
            rowwise(lambda u, n=n: self._load(n, lane, row(u), u)) for n in range(len(self.values))
        ]
        inside = self.reads.inside
        fast = sequence(
            *loads, rowwise(lambda u: self._each(lambda v: fold(inside, u, v, loaded=True)))
        )
        conditions = self._corners(lane, row, rows)
        if not conditions:
            return fast
        slow = rowwise(lambda u: self._each(lambda v: fold(value, u, v, loaded=False)))
        return tirx.IfThenElse(tirx.all(*conditions), fast, slow)

    def _corners(self, lane: Any, row: Callable[[Any], Any], rows: int) -> list[Any]:
        """The conditions at the corners of a batch."""
        ends = [sorted({0, rows - 1}), sorted({0, self.share.vector - 1})]
        return [
            substitute(condition, self._at(lane, self.integer(v), row(self.integer(u))))
            for condition in self.reads.conditions
            for u, v in itertools.product(*ends)
        ]

    def _load(self, number: int, lane: Any, row: Any, u: Any) -> Any:
        """A view's elements of one row, by accesses of at most ``width``."""
        vector, width = self.share.vector, self.width
        load, buffer = self.reads.views[number], self.values[number]
        v = tirx.Var("v", self.frame.dtype)

        def access(part: Any) -> Any:
            at = part * self.integer(width) + v
            moved = substitute(load, self._at(lane, at, row))
            store = self.frame.store(buffer, moved, [u * self.integer(vector) + at])
            kind = tirx.ForKind.VECTORIZED if width > 1 else tirx.ForKind.SERIAL
            return serial(v, width, store, kind)

        if vector == width:
            return access(self.integer(0))
        return self._each(access, vector // width)

    def _contribution(
        self, expression: Any, at: dict[Any, Any], u: Any, v: Any, loaded: bool
    ) -> Any:
        """A contribution, with what was loaded for it in the place of its views."""
        if not loaded or not self.values:
            return self.frame.rewrite(expression, at)
        place = u * self.integer(self.share.vector) + v

        def held(load: Any) -> Any:
            for view, buffer in zip(self.reads.views, self.values, strict=True):
                if structural_equal(load, view):
                    return self.frame.element(buffer, [place], str(load.ty.dtype))
            return load

        return self.frame.rewrite(structural_map(expression, (TensorLoad, held), order="post"), at)

    # Results

    def _publish(self, lane: Any) -> Any:
        carry = self.phase.update.carry

        def result(v: Any) -> Any:
            found = tirx.BufferStore(carry, self.carries[v], [self.integer(0)])
            return sequence(found, publish_output(self.frame, self.phase, self._outputs(lane, v)))

        return self._each(result)

    def _keep(self, lane: Any, slice_: Any) -> Any:
        first = lane * self.integer(self.share.vector)
        return self._each(
            lambda v: tirx.BufferStore(self.partial, self.carries[v], [slice_, first + v])
        )

    def _combine(self) -> Any:
        """One thread an output folds the slices' results."""
        frame, phase, share = self.frame, self.phase, self.share
        carry, zero = phase.update.carry, self.integer(0)
        extents = tuple(int(loop.extent.value) for loop in phase.loops)
        count = math.prod(extents)
        outputs = LinearMap((count,), frame.plan.threads, frame.worker, frame.dtype, once=True)

        def output(at: list[Any], _: Any) -> Any:
            each = tirx.Var("slice", frame.dtype)
            state = phase.update.combine(carry[zero], self.partial[each, at[0]])
            coordinates = unflatten(at[0], extents, self.integer)
            there = {
                loop.loop_var: as_index(str(loop.loop_var.ty.dtype), place)
                for loop, place in zip(phase.loops, coordinates, strict=True)
            }
            return sequence(
                tirx.BufferStore(carry, phase.initial.value, [zero]),
                serial(each, share.slices, tirx.BufferStore(carry, state, [zero])),
                publish_output(frame, phase, there),
            )

        return outputs.visit(output)

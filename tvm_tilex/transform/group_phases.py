"""Emits the element and reduction phases of a group.

A collective reduction, for T threads in S = T / 32 SIMD groups::

    for batch: output = batch * S + subgroup
        if output < outputs:                      # uniform in the SIMD group
            carry[0] = identity
            for chunk: carry[0] = op(carry[0], f(32 * chunk + lane))
            if lane < rest: carry[0] = op(carry[0], f(32 * chunks + lane))
            carry[0] = subgroup(carry[0])         # every lane of the SIMD group
            if lane == 0: tile[output] = carry[0]

A serial one gives each output to a thread that folds it in the source's order.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.group_structure import Elements, Outputs, WholeOutputs
from tvm_tilex.tirx.compat import TensorLoad, builder, call, structural_map, tirx
from tvm_tilex.tirx.register import SUBGROUP
from tvm_tilex.transform.common import as_index, sequence, serial, substitute
from tvm_tilex.transform.group_frame import GroupFrame
from tvm_tilex.transform.group_maps import ElementMap, LinearMap, MatrixMap, RowMap, unflatten
from tvm_tilex.transform.group_vectors import vector_copy

__all__ = ["emit_collective", "emit_elements", "emit_fragment", "emit_serial", "publish_output"]


def emit_elements(
    frame: GroupFrame,
    phase: Elements,
    map: ElementMap | None,
    order: tuple[int, ...] | None,
    own: frozenset[int],
    *,
    vector: int = 1,
    asynchronous: bool = False,
) -> Any:
    """One element phase.

    ``map`` distributes the phase's aligned class, whose dimensions run along the loops at
    ``order``; without one the elements are dealt out in turn. ``own`` are the tiles accessed at
    the phase's own coordinates.
    ``asynchronous`` copies of views are started and not waited for.
    """
    loops = phase.loops
    number = frame.subject.tile_number(phase.store.buffer)
    if number is not None and frame.plan.placements[number].replicated:
        value = frame.rewrite(phase.store.value, {})
        return frame.store(frame.private[number], value, [frame.integer(0)])

    def element(at: dict[Any, Any], slot: Any | None) -> Any:
        value = frame.rewrite(phase.store.value, at, slot, own)
        indices = [substitute(index, at) for index in phase.store.indices]
        if number is None:
            store: Any = tirx.BufferStore(phase.store.buffer, value, indices)
            if isinstance(map, RowMap):
                store = tirx.IfThenElse(map.leader(), store, None)
            if phase.condition is None:
                return store
            return tirx.IfThenElse(frame.rewrite(phase.condition, at, slot, own), store, None)
        return _keep(frame, number, value, indices, slot)

    if map is not None and order is not None:
        return map.visit(
            lambda coordinates, slot: element(
                {
                    loops[position].loop_var: _typed(loops[position], coordinate)
                    for position, coordinate in zip(order, coordinates, strict=True)
                },
                slot,
            )
        )
    if vector > 1 and number is not None:
        copied = vector_copy(frame, phase, number, vector, asynchronous=asynchronous)
        if copied is not None:
            return copied
    extents = tuple(int(loop.extent.value) for loop in loops)
    linear = LinearMap(extents, frame.plan.threads, frame.worker, frame.dtype)
    return linear.visit(lambda coordinates, _: element(_at(loops, coordinates), None))


def _keep(frame: GroupFrame, number: int, value: Any, indices: list[Any], slot: Any) -> Any:
    """Store an element of a tile to its private slot, to shared memory, or to both."""
    private, shared = frame.private.get(number), frame.shared.get(number)
    if private is not None and slot is not None:
        kept = frame.store(private, value, [slot])
        if shared is None:
            return kept
        place = frame.place(number, indices)
        return sequence(kept, tirx.BufferStore(shared, private[slot], place))
    if shared is None:  # nothing reads it
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return frame.store(shared, value, frame.place(number, indices))


def emit_collective(frame: GroupFrame, phase: Outputs) -> Any:
    """One SIMD group an output."""
    update, integer = phase.update, frame.integer
    carry, zero, lanes = update.carry, frame.integer(0), frame.plan.lanes
    subgroups, count = frame.plan.subgroups, phase.count
    batches = -(-count // subgroups)

    def output(batch: Any) -> Any:
        place = frame.subgroup if batch is None else batch * integer(subgroups) + frame.subgroup
        extents = tuple(int(loop.extent.value) for loop in phase.loops)
        at = _at(phase.loops, unflatten(place, extents, integer))
        variable = update.loop.loop_var

        def fold(position: Any) -> Any:
            there = {**at, variable: as_index(str(variable.ty.dtype), position)}
            contribution = frame.rewrite(update.contribution, there)
            return tirx.BufferStore(carry, update.combine(carry[zero], contribution), [zero])

        full, rest = divmod(update.extent, lanes)
        chunk = tirx.Var("chunk", frame.dtype)
        first = frame.lane if full == 1 else chunk * integer(lanes) + frame.lane
        folded = fold(first)
        hint = {"pragma_unroll": True} if frame.kind == "cuda" and full <= 16 else None
        chunks = folded if full == 1 else serial(chunk, full, folded, annotations=hint)
        tail = None
        if rest:
            last = fold(integer(full * lanes) + frame.lane)
            tail = tirx.IfThenElse(frame.lane < integer(rest), last, None)
        result = call(SUBGROUP[update.combiner], carry[zero], dtype="float32")
        publish = tirx.IfThenElse(tirx.EQ(frame.lane, zero), publish_output(frame, phase, at), None)
        body = sequence(
            tirx.BufferStore(carry, phase.initial.value, [zero]),
            chunks if full else None,
            tail,
            tirx.BufferStore(carry, result, [zero]),
            publish,
        )
        # Uniform in each SIMD group, so that all of its lanes enter the collective or none.
        if count % subgroups:
            body = tirx.IfThenElse(place < integer(count), body, None)
        return body

    if batches == 1:
        return sequence(tirx.AllocBuffer(carry), output(None))
    batch = tirx.Var("batch", frame.dtype)
    return sequence(tirx.AllocBuffer(carry), serial(batch, batches, output(batch)))


def emit_fragment(frame: GroupFrame, phase: Outputs, map: MatrixMap, own: frozenset[int]) -> Any:
    """The four lanes that own a row of fragments fold it and publish its output.

    Lanes 4 g to 4 g + 3 hold rows g and g + 8 of a fragment, so that two exchanges among them
    leave each row's result in all four.
    """
    update, integer = phase.update, frame.integer
    (loop,) = (loop for loop in phase.loops if int(loop.extent.value) > 1)
    count = 2 * map.rows
    carries = tirx.decl_buffer((integer(count),), "float32", "rows", scope="local", layout=None)
    other = tirx.decl_buffer((integer(1),), "float32", "other", scope="local", layout=None)
    zero = integer(0)

    def each(name: str, statement: Any) -> Any:
        var = tirx.Var(name, frame.dtype)
        return serial(var, count, statement(var), annotations={"pragma_unroll": True})

    def fold(coordinates: list[Any], slot: Any) -> Any:
        row = map.row_slot(slot)
        at = {loop.loop_var: coordinates[0], update.loop.loop_var: coordinates[1]}
        contribution = frame.rewrite(update.contribution, at, slot, own)
        return tirx.BufferStore(carries, update.combine(carries[row], contribution), [row])

    def exchange(row: Any) -> Any:
        steps = []
        for offset in (1, 2):
            shuffled = builder.tvm_warp_shuffle_xor(
                tirx.IntImm("uint32", 0xFFFFFFFF), carries[row], offset, 32, 32
            )
            steps.append(tirx.BufferStore(other, shuffled, [zero]))
            both = update.combine(carries[row], other[zero])
            steps.append(tirx.BufferStore(carries, both, [row]))
        return sequence(*steps)

    def result_of(row: Any) -> Any:
        return lambda load: carries[row] if load.source.same_as(update.carry) else load

    def publish(row: Any) -> Any:
        first = map.first_row(tirx.floordiv(row, integer(2)))
        half = tirx.floormod(row, integer(2)) * integer(8)
        m = first + tirx.floordiv(frame.lane, integer(4)) + half
        stored = publish_output(frame, phase, {loop.loop_var: m})
        return structural_map(stored, (TensorLoad, result_of(row)), order="post")

    number = frame.subject.tile_number(phase.publish.buffer)
    assert number is not None
    kept = frame.private.get(number)

    def keep(row: Any) -> Any:
        stored = frame.store(kept, frame.rewrite(phase.publish.value, {}), [row])
        return structural_map(stored, (TensorLoad, result_of(row)), order="post")

    leader = tirx.EQ(tirx.floormod(frame.lane, integer(4)), zero)
    return sequence(
        tirx.AllocBuffer(carries),
        tirx.AllocBuffer(other),
        each("row", lambda row: tirx.BufferStore(carries, phase.initial.value, [row])),
        map.visit(fold),
        each("row", exchange),
        each("row", keep) if kept is not None else None,
        tirx.IfThenElse(leader, each("row", publish), None) if number in frame.shared else None,
    )


def publish_output(frame: GroupFrame, phase: Any, at: dict[Any, Any]) -> Any:
    """Store the result in the reduction's carry to its tile in shared memory."""
    number = frame.subject.tile_number(phase.publish.buffer)
    assert number is not None
    value = frame.rewrite(phase.publish.value, at)
    indices = [substitute(index, at) for index in phase.publish.indices]
    if number not in frame.shared:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return frame.store(frame.shared[number], value, frame.place(number, indices))


def emit_serial(frame: GroupFrame, phase: Outputs | WholeOutputs) -> Any:
    """One thread an output, in the source's order."""
    extents = tuple(int(loop.extent.value) for loop in phase.loops)
    linear = LinearMap(extents, frame.plan.threads, frame.worker, frame.dtype, once=True)
    scratch = _scratch(frame, phase)

    def output(coordinates: list[Any], _: Any) -> Any:
        at = _at(phase.loops, coordinates)
        if isinstance(phase, Outputs):
            first = phase.initial
            loop = frame_statement(frame, phase.update.loop, at)
            return sequence(first, loop, publish_output(frame, phase, at))
        return frame_statement(frame, phase.body, at)

    allocations = [tirx.AllocBuffer(buffer) for buffer in scratch]
    return sequence(*allocations, linear.visit(output))


def _scratch(frame: GroupFrame, phase: Any) -> list[Any]:
    """Carries of the phase that it does not allocate itself."""
    body = phase.body if isinstance(phase, WholeOutputs) else phase.update.loop
    uses = buffer_uses(body)
    return [
        buffer
        for buffer, found in uses.items()
        if found.stores and not found.allocations and frame.subject.tile_number(buffer) is None
    ]


def frame_statement(frame: GroupFrame, statement: Any, at: dict[Any, Any]) -> Any:
    """A statement with its coordinates put in and its tiles where the plan placed them."""

    def store(node: Any) -> Any:
        number = frame.subject.tile_number(node.buffer)
        if number is None:
            return node
        if number not in frame.shared:
            return tirx.Evaluate(tirx.IntImm("int32", 0))
        place = frame.place(number, node.indices)
        return frame.store(frame.shared[number], node.value, place)

    placed = structural_map(
        substitute(statement, at),
        (TensorLoad, lambda load: frame.load(load, None, frozenset())),
        order="post",
    )
    return structural_map(placed, (tirx.BufferStore, store), order="post")


def _at(loops: tuple[Any, ...], coordinates: list[Any]) -> dict[Any, Any]:
    return {
        loop.loop_var: _typed(loop, coordinate)
        for loop, coordinate in zip(loops, coordinates, strict=True)
    }


def _typed(loop: Any, coordinate: Any) -> Any:
    return as_index(str(loop.loop_var.ty.dtype), coordinate)

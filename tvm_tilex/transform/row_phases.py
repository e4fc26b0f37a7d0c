"""Runs the phases of consecutive programs one after the other: all maxima, then all sums.

Before, one program after the other::

    for row in T.serial(16):
        carry = alloc(1); lanes = alloc(16)
        carry[0] = maximum of x[row, :]                     # waits for a fold of 16 lanes
        out[row] = sum of exp(x[row, :] - carry[0])         # waits for carry[0]

After, phase by phase, with what one phase leaves to another held for every row::

    carry = alloc(16, 1)
    for row in T.serial(16):
        lanes = alloc(16)
        carry[row, 0] = maximum of x[row, :]
    for row in T.serial(16):
        out[row] = sum of exp(x[row, :] - carry[row, 0])

Within a program a loop over the row waits for the number that the loop before it ends in; here the
loops of other rows stand between. Programs are independent and each one's statements keep their
order, so that no value changes.
"""

from __future__ import annotations

import itertools
from typing import Any

from tvm_tilex.analysis.purity import calls, loads
from tvm_tilex.tirx.compat import (
    IF_THEN_ELSE,
    Call,
    Op,
    TensorLoad,
    structural_map,
    structural_walk,
    tirx,
)
from tvm_tilex.tirx.register import CHEAP
from tvm_tilex.transform.common import sequence, serial, substitute
from tvm_tilex.transform.vector_loop import split_loop

__all__ = ["by_phases", "phases_of"]

_LANES = 16


def phases_of(statements: list[Any]) -> list[list[Any]]:
    """A program's statements, without allocations, cut where a loop waits for a number.

    What a program does last with a number, such as storing its logarithm, is a phase too: the rows
    are then a vector's lanes. One phase where a statement is of a kind that is not understood here.
    """
    plain = [s for s in statements if not isinstance(s, tirx.AllocBuffer)]
    known = (tirx.BufferStore, tirx.For, tirx.IfThenElse, tirx.Evaluate)
    if not all(isinstance(statement, known) for statement in plain):
        return [plain]
    ends: set[int] = set()
    for position, statement in enumerate(plain):
        if not isinstance(statement, tirx.For):
            continue
        stored = _stored(statement)
        for buffer in _numbers(statement):
            if any(buffer.same_as(other) for other in stored):
                continue
            before = [
                index
                for index, other in enumerate(plain[:position])
                if any(buffer.same_as(b) for b in _stored(other))
            ]
            ends.update(before[-1:])
    if ends and _stores_number(plain[-1]):
        ends.add(len(plain) - 2)
    cuts = [0, *(end + 1 for end in sorted(ends)), len(plain)]
    return [plain[a:b] for a, b in itertools.pairwise(cuts) if a < b]


def _stores_number(statement: Any) -> bool:
    if not isinstance(statement, tirx.BufferStore) or statement.buffer.scope() != "global":
        return False
    return not CHEAP.issuperset(calls(statement.value))


def by_phases(
    body: list[Any], program: Any, first: Any, rows: int, count: Any
) -> tuple[list[Any], list[Any]]:
    """Run the programs ``first + row`` of ``count <= rows`` rows phase by phase.

    Returns the allocations of storage for every row, and a loop over the rows for each phase.
    """
    body = _choices_first(body)
    phases = phases_of(body)
    shared, own = _crossing(body, phases)
    held = [(buffer, _for_every_row(buffer, rows)) for buffer in shared]
    loops: list[Any] = []
    for phase, allocations in zip(phases, own, strict=True):
        row = tirx.Var("row", str(program.ty.dtype))
        statement = _of_row(sequence(*allocations, *phase), held, row)
        statement = substitute(statement, {program: first + row})
        loop = serial(row, count, statement)
        loops.append(split_loop(loop, _LANES) if isinstance(statement, tirx.BufferStore) else loop)
    return [tirx.AllocBuffer(every) for _, every in held], loops


def _choices_first(body: list[Any]) -> list[Any]:
    """Lazy selections of the last store as statements of their own: they have no vector form."""
    *before, last = body
    if not _stores_number(last):
        return body
    chosen: list[Any] = []

    def choose(found: Any) -> Any:
        if not isinstance(found.op, Op) or found.op.name != IF_THEN_ELSE:
            return found
        dtype = str(found.ty.dtype)
        buffer = tirx.decl_buffer((1,), dtype, "chosen", scope="local", layout=None)
        zero = tirx.IntImm("int32", 0)
        chosen.extend((tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, found, [zero])))
        return buffer[zero]

    value = structural_map(last.value, (Call, choose), order="post")
    return [*before, *chosen, tirx.BufferStore(last.buffer, value, last.indices)]


def _numbers(statement: Any) -> list[Any]:
    """Local buffers of one element that a statement reads."""
    return [
        load.source
        for load in loads(statement)
        if load.source.scope() == "local"
        and all(isinstance(e, tirx.IntImm) and e.value == 1 for e in load.source.ty.shape)
    ]


def _stored(statement: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(statement, (tirx.BufferStore, lambda store: found.append(store.buffer)))
    return found


def _crossing(body: list[Any], phases: list[list[Any]]) -> tuple[list[Any], list[list[Any]]]:
    """Buffers that several phases use, and for each phase the allocations that it alone uses."""
    shared: list[Any] = []
    own: list[list[Any]] = [[] for _ in phases]
    for allocation in body:
        if not isinstance(allocation, tirx.AllocBuffer):
            continue
        used = [i for i, phase in enumerate(phases) if _uses(phase, allocation.buffer)]
        if len(used) == 1:
            own[used[0]].append(allocation)
        elif used:
            shared.append(allocation.buffer)
    return shared, own


def _uses(phase: list[Any], buffer: Any) -> bool:
    return any(
        any(buffer.same_as(b) for b in _stored(statement))
        or any(buffer.same_as(load.source) for load in loads(statement))
        for statement in phase
    )


def _for_every_row(buffer: Any, rows: int) -> Any:
    shape = buffer.ty.shape
    index = str(shape[0].ty.dtype)
    return tirx.decl_buffer(
        (tirx.IntImm(index, rows), *shape),
        str(buffer.ty.dtype),
        buffer.name,
        scope="local",
        layout=None,
    )


def _of_row(statement: Any, held: list[tuple[Any, Any]], row: Any) -> Any:
    """The statement with its accesses to shared storage moved into a row's part."""

    def every(buffer: Any) -> Any:
        return next((new for old, new in held if buffer.same_as(old)), None)

    def load(found: Any) -> Any:
        new = every(found.source)
        return found if new is None else new[(row, *found.indices)]

    def store(found: Any) -> Any:
        new = every(found.buffer)
        return found if new is None else tirx.BufferStore(new, found.value, [row, *found.indices])

    moved = structural_map(statement, (TensorLoad, load), order="post")
    return structural_map(moved, (tirx.BufferStore, store), order="post")

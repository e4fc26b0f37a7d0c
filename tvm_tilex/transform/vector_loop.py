"""Splits a loop of independent stores into vector lanes, where independence is proved.

The one store writes the element of its own iteration, and the stored buffer is read, if at all, at
exactly that element.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import calls, impure_call, loads, mentions
from tvm_tilex.tirx.compat import IF_THEN_ELSE, Var, structural_equal, tirx
from tvm_tilex.transform.common import chunked, sequence, serial, substitute

__all__ = ["split_loop"]


def split_loop(loop: Any, lanes: int, *, noalias: bool = False) -> Any:
    """Chunks of ``lanes`` iterations as vectors, and the rest; the loop itself where not proved.

    The rest is one vector more, of the last ``lanes`` iterations, some of which run twice, where
    that changes nothing: nothing that is read is stored, ``noalias`` saying so of different
    buffers. Otherwise it is a loop.
    """
    while isinstance(loop.extent, tirx.IntImm) and lanes > loop.extent.value:
        lanes //= 2
    if lanes < 4 or not _independent(loop):
        return loop
    index = str(loop.loop_var.ty.dtype)
    chunk, lane = tirx.Var("chunk", index), tirx.Var("lane", index)
    element = chunk * tirx.IntImm(index, lanes) + lane
    main = substitute(loop.body, {loop.loop_var: element})
    chunks, left = chunked(loop.extent, lanes)
    vectors = serial(chunk, chunks, serial(lane, lanes, main, tirx.ForKind.VECTORIZED))
    known = isinstance(left, tirx.IntImm)
    if known and left.value and _repeatable(loop.body, noalias=noalias):
        first = tirx.IntImm(index, int(loop.extent.value) - lanes)
        again = tirx.Var("lane", index)
        last = substitute(loop.body, {loop.loop_var: first + again})
        return sequence(vectors, serial(again, lanes, last, tirx.ForKind.VECTORIZED))
    tail = tirx.Var(loop.loop_var.name, index)
    after = tail + chunks * tirx.IntImm(index, lanes)
    rest = substitute(loop.body, {loop.loop_var: after})
    return sequence(vectors, serial(tail, left, rest))


def _repeatable(store: Any, *, noalias: bool) -> bool:
    """Whether an element may be stored twice: its value reads nothing that is stored."""
    read = [load.source for load in loads(store.value)]
    if any(source.same_as(store.buffer) for source in read):
        return False
    local = store.buffer.scope() == "local" or all(source.scope() == "local" for source in read)
    return local or noalias


def _independent(loop: Any) -> bool:
    """One pure store to ``[..., c + e]``, and no other element of its buffer is read."""
    store = loop.body
    if not isinstance(store, tirx.BufferStore) or IF_THEN_ELSE in calls(store.value):
        return False
    if impure_call(store.value) is not None:
        return False
    *outer, last = store.indices
    if not _counts(last, loop.loop_var):
        return False
    if any(mentions(index, loop.loop_var) for index in outer):
        return False
    return all(
        len(load.indices) == len(store.indices)
        and all(map(structural_equal, load.indices, store.indices))
        for load in loads(store.value)
        if load.source.same_as(store.buffer)
    )


def _counts(index: Any, var: Any) -> bool:
    """Whether an index is the variable, or it plus what does not depend on it."""
    if isinstance(index, tirx.Add):
        return not mentions(index.a, var) and _counts(index.b, var)
    return isinstance(index, Var) and index.same_as(var)

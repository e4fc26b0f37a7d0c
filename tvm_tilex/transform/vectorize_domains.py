"""Vectorizes the innermost loop of an independent element domain on a CPU.

Before::

    for e in T.serial(N, annotations={"tilex.domain": 1}):
        out[row, e] = f(e)

After, with L lanes::

    for chunk in T.serial(N // L):
        for lane in T.vectorized(L):
            out[row, chunk * L + lane] = f(chunk * L + lane)
    for e in T.serial(N % L):
        out[row, N // L * L + e] = f(N // L * L + e)

Legal because the iterations are independent: the one store writes the element of its own
iteration, and the stored buffer is read, if at all, at exactly that element. That is checked here;
the marker alone is not enough. Removes the marker of what it rewrites and moves the function to the
stage ``scheduled``; it runs last.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import calls, impure_call, loads, mentions
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IF_THEN_ELSE, IRModule, PrimFunc, Var, structural_equal, tirx
from tvm_tilex.transform.common import (
    chunked,
    is_stage,
    replace_loops,
    sequence,
    serial,
    substitute,
    tilex_pass,
)

__all__ = ["VectorizeDomains"]


@tilex_pass("VectorizeDomains")
class VectorizeDomains:
    """Split the innermost loop of each one-store element domain into ``lanes``."""

    def __init__(self, lanes: int = 16) -> None:
        self.lanes = lanes

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite what qualifies; the function is then ``scheduled``."""
        if not is_stage(func, "reference"):
            return func
        body = replace_loops(func.body, self._rewrite)
        return func.with_body(body).with_attr(attrs.STAGE, "scheduled")

    def _rewrite(self, loop: Any) -> Any:
        depth = attrs.annotation(loop, attrs.DOMAIN)
        if depth is None:
            return loop
        if depth == 1:
            return self._split(loop)
        outer = [loop]
        while len(outer) < depth - 1 and isinstance(outer[-1].body, tirx.For):
            outer.append(outer[-1].body)
        inner = outer[-1].body
        if len(outer) != depth - 1 or not isinstance(inner, tirx.For):
            return loop
        body = self._split(inner)
        if body is inner:
            return loop
        for enclosing in reversed(outer):
            body = serial(enclosing.loop_var, enclosing.extent, body)
        return body

    def _split(self, loop: Any) -> Any:
        lanes = self.lanes
        while isinstance(loop.extent, tirx.IntImm) and lanes > loop.extent.value:
            lanes //= 2
        if lanes < 4 or not _independent(loop):
            return loop
        index = str(loop.loop_var.ty.dtype)
        chunk, lane = tirx.Var("chunk", index), tirx.Var("lane", index)
        element = chunk * tirx.IntImm(index, lanes) + lane
        main = substitute(loop.body, {loop.loop_var: element})
        tail = tirx.Var(loop.loop_var.name, index)
        chunks, left = chunked(loop.extent, lanes)
        after = tail + chunks * tirx.IntImm(index, lanes)
        rest = substitute(loop.body, {loop.loop_var: after})
        return sequence(
            serial(chunk, chunks, serial(lane, lanes, main, tirx.ForKind.VECTORIZED)),
            serial(tail, left, rest),
        )


def _independent(loop: Any) -> bool:
    """One pure store to ``[..., e]``, and no other element of its buffer is read."""
    store = loop.body
    if not isinstance(store, tirx.BufferStore) or IF_THEN_ELSE in calls(store.value):
        return False
    if impure_call(store.value) is not None:
        return False
    *outer, last = store.indices
    if not _is_loop_var(last, loop.loop_var):
        return False
    if any(mentions(index, loop.loop_var) for index in outer):
        return False
    return all(
        len(load.indices) == len(store.indices)
        and all(map(structural_equal, load.indices, store.indices))
        for load in loads(store.value)
        if load.source.same_as(store.buffer)
    )


def _is_loop_var(index: Any, var: Any) -> bool:
    return isinstance(index, Var) and index.same_as(var)

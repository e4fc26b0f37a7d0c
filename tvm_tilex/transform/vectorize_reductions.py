"""Lets an unordered reduction on a CPU fold into several lanes at once.

Before::

    for k in T.serial(N):                      # marked, policy unordered_tree
        carry[0] = op(carry[0], f(k))

After, with L lanes::

    for lane in T.vectorized(L): lanes[lane] = identity
    for chunk in T.serial(N // L):
        for lane in T.vectorized(L):
            lanes[lane] = op(lanes[lane], f(chunk * L + lane))
    for lane in T.vectorized(16): lanes[lane] = op(lanes[lane], f(N // L * L + lane))  # and so on
    for lane in T.vectorized(L // 2): lanes[lane] = op(lanes[lane], lanes[lane + L // 2])
    ...                                        # down to one lane
    carry[0] = op(carry[0], lanes[0])

What is left of N after whole chunks goes into the lanes too, in narrower and narrower vectors, and
the lanes combine as a tree: no element is added to a total of all the others, so that a sum's error
grows with the additions of one lane. A wide row's sum is folded block by block for the same reason.

Reads the reduction marker and consumes ``analysis.match_update``; a loop that it declines, an
ordered policy, and a short loop stay as they are. Removes the marker of what it rewrites.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import calls
from tvm_tilex.analysis.reduction import ReductionUpdate, match_update
from tvm_tilex.ir import Combiner
from tvm_tilex.ir.types import DTYPES, dtype_of
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IF_THEN_ELSE, IRModule, PrimFunc, tirx
from tvm_tilex.tirx.register import CHEAP
from tvm_tilex.transform.common import (
    chunked,
    is_stage,
    replace_loops,
    sequence,
    serial,
    substitute,
    tilex_pass,
)

__all__ = ["VectorizeReductions"]

_SERIAL, _VECTOR = tirx.ForKind.SERIAL, tirx.ForKind.VECTORIZED
_BLOCK = 32  # chunks that a lane of a sum folds before a new total begins


@tilex_pass("VectorizeReductions")
class VectorizeReductions:
    """Split unordered reductions into vector lanes.

    Parameters
    ----------
    lanes
        Accumulators of a reduction of cheap contributions: several native vectors, so that their
        additions overlap.
    narrow_lanes
        Accumulators where the contribution calls a function.
    """

    def __init__(self, lanes: int = 64, narrow_lanes: int = 16) -> None:
        self.lanes = lanes
        self.narrow_lanes = narrow_lanes

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every recognized reduction loop of a reference function."""
        if not is_stage(func, "reference"):
            return func
        return func.with_body(replace_loops(func.body, self._rewrite))

    def _rewrite(self, loop: Any) -> Any:
        if attrs.annotation(loop, attrs.REDUCTION) is None:
            return loop
        update = match_update(loop, dynamic=True)
        if not isinstance(update, ReductionUpdate) or not update.reorders:
            return loop
        if update.dtype not in DTYPES:
            return loop  # a state that the language has no identity for
        called = calls(update.contribution)
        if IF_THEN_ELSE in called:
            return loop  # lazy selection has no vector form
        lanes = self.lanes if CHEAP.issuperset(called) else self.narrow_lanes
        while isinstance(loop.extent, tirx.IntImm) and lanes > update.extent:
            lanes //= 2
        return _split(update, lanes) if lanes >= 4 else loop


def _split(update: ReductionUpdate, lanes: int) -> Any:
    fold = _Lanes(update, lanes)
    first = tirx.IntImm(fold.index, 0)
    chunks, left = chunked(update.loop.extent, lanes)
    blocks = None
    if update.operator == "add" and not _at_most(chunks, 2 * _BLOCK):
        count, chunks = chunked(chunks, _BLOCK)
        blocks = _blocks(fold, count)
        first = count * fold.integer(_BLOCK * lanes)
    whole = first + chunks * fold.integer(lanes)
    return sequence(
        fold.begin(),
        blocks,
        fold.vectors(chunks, lanes, first),
        *fold.rest(left, whole),
        *fold.combined(),
    )


def _at_most(extent: Any, bound: int) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value <= bound


def _blocks(fold: _Lanes, count: Any) -> Any:
    """Sums of :data:`_BLOCK` chunks each, added to the lanes."""
    inner = _Lanes(fold.update, fold.lanes, "block")
    block, lane = tirx.Var("block", fold.index), tirx.Var("lane", fold.index)
    total = fold.update.combine(fold.partial[lane], inner.partial[lane])
    add = tirx.BufferStore(fold.partial, total, [lane])
    first = block * fold.integer(_BLOCK * fold.lanes)
    body = sequence(
        inner.begin(),
        inner.vectors(fold.integer(_BLOCK), fold.lanes, first),
        serial(lane, fold.lanes, add, _VECTOR),
    )
    return serial(block, count, body)


class _Lanes:
    """The lanes of one reduction, and the loops that fold into them."""

    def __init__(self, update: ReductionUpdate, lanes: int, name: str = "lanes") -> None:
        self.update = update
        self.lanes = lanes
        self.index = str(update.loop.loop_var.ty.dtype)
        self.partial = tirx.decl_buffer(
            (self.integer(lanes),),
            update.dtype,
            f"{update.carry.name}_{name}",
            scope="local",
            layout=None,
        )

    def integer(self, value: int) -> Any:
        """A literal in the loop's type."""
        return tirx.IntImm(self.index, value)

    def begin(self) -> Any:
        """The allocation, and the identity in every lane."""
        update, lane = self.update, tirx.Var("lane", self.index)
        identity = Combiner[update.combiner].identity(dtype_of(update.dtype))
        store = tirx.BufferStore(self.partial, tirx.const(identity, update.dtype), [lane])
        return sequence(tirx.AllocBuffer(self.partial), serial(lane, self.lanes, store, _VECTOR))

    def vectors(self, count: Any, width: int, first: Any) -> Any:
        """Fold ``count`` vectors of ``width`` elements, from element ``first`` on."""
        chunk, lane = tirx.Var("chunk", self.index), tirx.Var("lane", self.index)
        element = first + (chunk * self.integer(width) + lane)
        step = serial(lane, width, self._step(element, lane), _VECTOR)
        return serial(chunk, count, step)

    def rest(self, count: Any, first: Any) -> list[Any]:
        """The last ``count`` elements, fewer than the lanes: vectors, then single elements."""
        found = []
        for width in (16, 8, 4):
            if width >= self.lanes:
                continue
            vectors, count = chunked(count, width)
            found.append(self.vectors(vectors, width, first))
            first = first + vectors * self.integer(width)
        lane = tirx.Var("lane", self.index)
        found.append(serial(lane, count, self._step(first + lane, lane)))
        return found

    def _step(self, element: Any, lane: Any) -> Any:
        update = self.update
        contribution = substitute(update.contribution, {update.loop.loop_var: element})
        return tirx.BufferStore(
            self.partial, update.combine(self.partial[lane], contribution), [lane]
        )

    def combined(self) -> list[Any]:
        """A tree over the lanes, into the carry."""
        found, width = [], self.lanes // 2
        while width:
            lane = tirx.Var("lane", self.index)
            other = self.partial[lane + self.integer(width)]
            both = self.update.combine(self.partial[lane], other)
            store = tirx.BufferStore(self.partial, both, [lane])
            found.append(serial(lane, width, store, _VECTOR if width > 1 else _SERIAL))
            width //= 2
        zero, carry = self.integer(0), self.update.carry
        total = self.update.combine(carry[zero], self.partial[zero])
        return [*found, tirx.BufferStore(carry, total, [zero])]

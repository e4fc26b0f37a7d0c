"""Lets an unordered reduction on a CPU fold into several lanes at once.

Before::

    for k in T.serial(N):                      # marked, policy unordered_tree
        carry[0] = op(carry[0], f(k))

After, with L lanes::

    for lane in T.vectorized(L): lanes[lane] = identity
    for chunk in T.serial(N // L):
        for lane in T.vectorized(L):
            lanes[lane] = op(lanes[lane], f(chunk * L + lane))
    for lane in T.serial(L): carry[0] = op(carry[0], lanes[lane])
    for k in T.serial(N % L): carry[0] = op(carry[0], f(N // L * L + k))

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
        if not isinstance(update, ReductionUpdate) or update.policy != "unordered_tree":
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
    index = str(update.loop.loop_var.ty.dtype)
    zero = tirx.IntImm(index, 0)

    def integer(value: int) -> Any:
        return tirx.IntImm(index, value)

    def fold(state: Any, at: Any) -> Any:
        contribution = substitute(update.contribution, {update.loop.loop_var: at})
        return update.combine(state, contribution)

    partial = tirx.decl_buffer(
        (integer(lanes),), update.dtype, f"{update.carry.name}_lanes", scope="local", layout=None
    )
    chunk, lane = tirx.Var("chunk", index), tirx.Var("lane", index)
    vectorized = tirx.ForKind.VECTORIZED
    identity = tirx.const(Combiner[update.combiner].identity(dtype_of(update.dtype)), update.dtype)
    begin = serial(lane, lanes, tirx.BufferStore(partial, identity, [lane]), vectorized)
    inner_lane = tirx.Var("lane", index)
    element = chunk * integer(lanes) + inner_lane
    step = tirx.BufferStore(partial, fold(partial[inner_lane], element), [inner_lane])
    chunks, left = chunked(update.loop.extent, lanes)
    main = serial(chunk, chunks, serial(inner_lane, lanes, step, vectorized))
    last = tirx.Var("lane", index)
    carry = update.carry
    gather = tirx.BufferStore(carry, update.combine(carry[zero], partial[last]), [zero])
    tail = tirx.Var("k", index)
    rest = tirx.BufferStore(carry, fold(carry[zero], tail + chunks * integer(lanes)), [zero])
    return sequence(
        tirx.AllocBuffer(partial),
        begin,
        main,
        serial(last, lanes, gather),
        serial(tail, left, rest),
    )

"""Runs loops over a dynamic width to the width's bound, masked by the width.

Before, with N in 1..512::

    for k in T.serial(N): tile[k] = f(x[program, k])                 # element domain
    for k in T.serial(N): carry[0] = carry[0] + g(tile[k])           # marked reduction
    for k in T.serial(N): out[program, k] = h(tile[k])

After::

    for k in T.serial(512): tile[k] = if_then_else(k < N, f(x[program, k]), 0)
    for k in T.serial(512): carry[0] = carry[0] + if_then_else(k < N, g(tile[k]), 0)
    for k in T.serial(512):
        if k < N: out[program, k] = h(tile[k])

Every loop is then static, as the admission table wants it, and private storage has a size. Nothing
past the width is read or written: selections are lazy. A masked contribution is the combiner's
identity; the mask costs no memory traffic, only the rounds of workers beyond the width.

Reads ``tilex.dimensions``. Acts on reference functions for targets whose threads share a row; a
processor's loops run to N itself.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.dimensions import Ranges, dimension_ranges, extent_range
from tvm_tilex.analysis.reduction import ReductionUpdate, match_update
from tvm_tilex.ir import Combiner
from tvm_tilex.ir.types import DTYPES, dtype_of
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tirx
from tvm_tilex.transform.common import is_stage, replace_loops, tilex_pass, with_extent

__all__ = ["PadDimensions"]


@tilex_pass("PadDimensions")
class PadDimensions:
    """Make every serial loop over a dynamic extent static, under a mask."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the loops of a reference function that has dynamic extents."""
        if not is_stage(func, "reference") or attrs.DIMENSIONS not in func.attrs:
            return func
        ranges = dimension_ranges(func)
        return func.with_body(replace_loops(func.body, lambda loop: _padded(loop, ranges)))


def _padded(loop: Any, ranges: Ranges) -> Any:
    static = isinstance(loop.extent, tirx.IntImm)
    if (
        static
        or loop.kind != tirx.ForKind.SERIAL
        or attrs.annotation(loop, attrs.NESTED) is not None
    ):
        return loop
    span = extent_range(loop.extent, ranges)
    from_zero = isinstance(loop.min, tirx.IntImm) and loop.min.value == 0
    if span is None or not from_zero:
        return loop  # the admission table declines it
    inside = loop.loop_var < loop.extent
    bound = tirx.IntImm(str(loop.loop_var.ty.dtype), span[1])
    return with_extent(loop, bound, _masked(loop, inside))


def _masked(loop: Any, inside: Any) -> Any:
    """The body of a loop that runs beyond its extent; inner loops are masked already."""
    if attrs.annotation(loop, attrs.REDUCTION) is not None:
        update = match_update(loop, dynamic=True)
        if isinstance(update, ReductionUpdate) and update.dtype in DTYPES:
            return _masked_update(update, inside)
        return tirx.IfThenElse(inside, loop.body, None)  # an ordered fold: a whole iteration
    return _masked_statement(loop.body, inside)


def _masked_update(update: ReductionUpdate, inside: Any) -> Any:
    identity = Combiner[update.combiner].identity(dtype_of(update.dtype))
    neutral = tirx.const(identity, update.dtype)
    contribution = tirx.if_then_else(inside, update.contribution, neutral)
    store = update.loop.body
    state = update.carry[tirx.IntImm(str(store.indices[0].ty.dtype), 0)]
    return tirx.BufferStore(update.carry, update.combine(state, contribution), store.indices)


def _masked_statement(statement: Any, inside: Any) -> Any:
    if isinstance(statement, tirx.For):  # a perfect nest: the mask goes to the element
        return with_extent(statement, statement.extent, _masked_statement(statement.body, inside))
    if isinstance(statement, tirx.BufferStore) and statement.buffer.scope() == "local":
        nothing = tirx.const(0, str(statement.value.ty.dtype))
        value = tirx.if_then_else(inside, statement.value, nothing)
        return tirx.BufferStore(statement.buffer, value, statement.indices)
    if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
        both = tirx.if_then_else(inside, statement.condition, tirx.const(False, "bool"))
        return tirx.IfThenElse(both, statement.then_case, None)
    return tirx.IfThenElse(inside, statement, None)

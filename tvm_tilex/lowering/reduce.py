"""Reductions as loops over one local scalar carry, in an order that their policy permits.

Before::

    %1: float32[one: 1] = reduce maximum %0 over columns

After (unordered_tree and fold_left; the marker is rechecked by every analysis)::

    carry1[0] = -inf
    for columns in T.serial(4096, annotations={"tilex.reduction": "maximum", ...}):
        carry1[0] = T.tilex.maximum(carry1[0], contribution)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tvm_tilex.ir import Dimension, Extent, Reduce, ReductionPolicy, most
from tvm_tilex.ir.program import state_dtype
from tvm_tilex.lowering.body import BodyLowering, Coordinates
from tvm_tilex.lowering.elementwise import combine
from tvm_tilex.lowering.numbers import constant, rounded, widened
from tvm_tilex.tirx import attrs, compat
from tvm_tilex.tirx.compat import builder as T
from tvm_tilex.tirx.compat import tirx

__all__ = ["fold", "lower_reduce"]


def lower_reduce(body: BodyLowering, reduce: Reduce) -> None:
    """Emit the loops of ``reduce`` and make its result readable.

    A result of one element is read from the carry itself; a wider one gets storage of its own.
    """
    body.definitions[reduce.result.number] = reduce
    result, state = reduce.result.type, state_dtype(reduce.source.type.dtype)
    carry = body.local([1], reduce.result, f"carry{reduce.result.number}", state.name)
    zero = body.space.integer(0)

    def current() -> Any:
        value = carry[(zero,)]
        return value if state == result.dtype else rounded(value, result.dtype)

    if result.elements == 1:
        at = {axis.name: zero for axis in result.axes}
        fold(body, reduce, carry, at)
        body.places[reduce.result.number] = lambda _: current()
        return
    storage = body.local(
        [most(axis.extent) for axis in result.axes if axis.extent != 1],
        reduce.result,
        f"tile{reduce.result.number}",
    )
    with contextlib.ExitStack() as stack:
        at = body.loops(result.axes, stack)
        fold(body, reduce, carry, at)
        T.buffer_store(storage, current(), body.slots(result.axes, at))
    body.places[reduce.result.number] = lambda at: storage[tuple(body.slots(result.axes, at))]


def fold(body: BodyLowering, reduce: Reduce, carry: Any, at: Coordinates) -> None:
    """Emit the loop that leaves the element ``at`` of the result in ``carry``."""
    state = state_dtype(reduce.source.type.dtype)
    operation = combine(reduce.combiner, reduce.nan, state)
    zero = body.space.integer(0)
    if reduce.policy is ReductionPolicy.ordered_tree:
        _ordered_tree(body, reduce, carry, at, operation)
        return
    T.buffer_store(carry, constant(reduce.combiner.identity(state), state), [zero])
    with _reduction_loop(body, reduce) as position:
        if reduce.policy is ReductionPolicy.fold_right:
            position = _last(body, reduce.axis.extent) - position
            value = operation(_contribution(body, reduce, at, position), carry[(zero,)])
        else:
            value = operation(carry[(zero,)], _contribution(body, reduce, at, position))
        T.buffer_store(carry, value, [zero])


@contextlib.contextmanager
def _reduction_loop(body: BodyLowering, reduce: Reduce) -> Any:
    annotations = {
        attrs.REDUCTION: reduce.combiner.value,
        attrs.POLICY: reduce.policy.value,
        attrs.VALUE: reduce.result.number,
    }
    extent = body.space.extent(reduce.axis.extent)
    with T.serial(body.space.integer(0), extent, annotations=annotations) as position:
        yield compat.name(reduce.axis.name, position)


def _contribution(body: BodyLowering, reduce: Reduce, at: Coordinates, position: Any) -> Any:
    """The element at ``position`` in the state's type; an inactive one gives the identity."""
    there = {**at, reduce.axis.name: position}
    source, state = reduce.source, state_dtype(reduce.source.type.dtype)
    value = body.expression(source, there)
    if source.type.dtype != state:
        value = widened(value)
    active = body.active(source, there)
    if active is None:
        return value
    identity = constant(reduce.combiner.identity(state), state)
    return tirx.if_then_else(active, value, identity)


def _ordered_tree(
    body: BodyLowering,
    reduce: Reduce,
    carry: Any,
    at: Coordinates,
    operation: Callable[[Any, Any], Any],
) -> None:
    """The fixed tree as a binary counter: slot l holds a finished subtree of 2**l elements.

    After element k, every finished pair of equal subtrees is combined, left operand first; at the
    end the subtrees left over combine from the smallest to the largest. That is the tree which
    splits at the largest power of two below the length.
    """
    levels = most(reduce.axis.extent).bit_length()
    integer, zero = body.space.integer, body.space.integer(0)
    dtype = state_dtype(reduce.source.type.dtype).name
    subtrees = body.local([levels], reduce.result, f"subtrees{reduce.result.number}", dtype)
    with _reduction_loop(body, reduce) as position:
        T.buffer_store(carry, _contribution(body, reduce, at, position), [zero])
        if levels > 1:
            with T.serial(zero, integer(levels - 1)) as level:
                compat.name("level", level)
                size = tirx.shift_left(integer(2), level)
                finished = tirx.EQ(tirx.floormod(position + integer(1), size), zero)
                with T.If(finished), T.Then():
                    T.buffer_store(carry, operation(subtrees[(level,)], carry[(zero,)]), [zero])
        with T.serial(zero, integer(levels)) as level:
            compat.name("level", level)
            size = tirx.shift_left(integer(2), level)
            here = tirx.floormod(position + integer(1), size)
            with T.If(tirx.EQ(here, tirx.shift_left(integer(1), level))), T.Then():
                T.buffer_store(subtrees, carry[(zero,)], [level])
    if isinstance(reduce.axis.extent, Dimension):
        _left_over(body, reduce.axis.extent, carry, subtrees, operation)
        return
    left_over = [level for level in range(levels) if reduce.axis.extent >> level & 1]
    T.buffer_store(carry, subtrees[(integer(left_over[0]),)], [zero])
    for level in left_over[1:]:
        T.buffer_store(carry, operation(subtrees[(integer(level),)], carry[(zero,)]), [zero])


def _left_over(
    body: BodyLowering,
    extent: Dimension,
    carry: Any,
    subtrees: Any,
    operation: Callable[[Any, Any], Any],
) -> None:
    """Combine the subtrees that a length known at launch leaves: one for each bit set in it."""
    integer, zero, length = body.space.integer, body.space.integer(0), body.space.extent(extent)
    for level in range(extent.maximum.bit_length()):
        subtree = subtrees[(integer(level),)]
        smaller = tirx.floormod(length, integer(1 << level))
        present = tirx.floormod(tirx.floordiv(length, integer(1 << level)), integer(2))
        combined = operation(subtree, carry[(zero,)])
        found = tirx.if_then_else(tirx.EQ(smaller, zero), subtree, combined)
        kept = tirx.if_then_else(tirx.EQ(present, integer(1)), found, carry[(zero,)])
        T.buffer_store(carry, kept, [zero])


def _last(body: BodyLowering, extent: Extent) -> Any:
    """The last position, folded where it is known."""
    if isinstance(extent, Dimension):
        return body.space.extent(extent) - body.space.integer(1)
    return body.space.integer(extent - 1)

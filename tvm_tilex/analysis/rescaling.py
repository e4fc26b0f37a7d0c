"""Finds sums of exponentials that may be taken relative to partial maxima.

    for k: peak[0] = maximum(peak[0], e(k))                      # any order
    shift[0] = g(peak[0])                                        # scalars, if any
    for k: total[0] = total[0] + f(e(k) - c)                     # rescaled_tree; f = exp or exp2

As f(a + b) = f(a) f(b), each SIMD group may sum relative to the maximum m of its own elements, and
the total is the sum of ``f(m - c) * partial``: both partial results are known at once, so that they
are exchanged together. The mathematics are proved here from the TIRx; that the rounding may differ
is the permission of the sum's policy.

The obligations: both loops have one extent and the same elements e, whose storage nothing between
them writes; c is the same for every element; between the loops there are only allocations and
stores to scalars. Those that observe the maximum are ``after``: they wait for the whole one, and
the others, which stay before the sum, store nothing that those read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.buffers import element_count
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.analysis.reduction import ReductionUpdate
from tvm_tilex.analysis.structure import Allocate, Enclosing, Node, ReductionLoop, Replicated
from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.tirx.compat import Call, Op, Var, call, structural_equal, structural_map, tirx
from tvm_tilex.tirx.register import EXP_APPROXIMATE, SUBTRACT

__all__ = ["RescaledSum", "count_rescaled", "rescaled_sums"]

_EXPONENTIALS = ("tirx.exp", "tirx.exp2", EXP_APPROXIMATE)


@dataclass(frozen=True)
class RescaledSum:
    """A maximum and the sum that may be rescaled by it, at ``first`` and ``last`` of their block.

    The sum is of ``exponential(element - shift)``; ``before`` and ``after`` are the statements
    between the loops that do not, and that do, wait for the whole maximum.
    """

    first: int
    last: int
    loops: tuple[ReductionLoop, ReductionLoop]
    function: str
    element: Any
    shift: Any
    before: tuple[Allocate | Replicated, ...]
    after: tuple[Replicated, ...]

    @property
    def maximum(self) -> ReductionUpdate:
        """The maximum's update."""
        return self.loops[0].update

    @property
    def total(self) -> ReductionUpdate:
        """The sum's update."""
        return self.loops[1].update

    def exponential(self, element: Any, shift: Any) -> Any:
        """The sum's own exponential of ``element - shift``, which no simplifier cancels."""
        difference = call(SUBTRACT, element, shift, dtype="float32")
        return call(self.function, difference, dtype="float32")


def rescaled_sums(body: tuple[Node, ...]) -> tuple[RescaledSum, ...]:
    """Every rescalable sum of one block, with the nearest maximum in front of it, in order."""
    found: list[RescaledSum] = []
    for last, node in enumerate(body):
        if not isinstance(node, ReductionLoop):
            continue
        first = _nearest_reduction(body, last)
        if first is None or (found and found[-1].last >= first):
            continue
        match = _match(body, first, last)
        found += [match] if match is not None else []
    return tuple(found)


def count_rescaled(body: tuple[Node, ...]) -> int:
    """How many sums of a program are exchanged together with their maximum."""
    inner = (node.body for node in body if isinstance(node, Enclosing))
    return len(rescaled_sums(body)) + sum(map(count_rescaled, inner))


def _nearest_reduction(body: tuple[Node, ...], last: int) -> int | None:
    for position in range(last - 1, -1, -1):
        if isinstance(body[position], ReductionLoop):
            return position
        if not isinstance(body[position], Allocate | Replicated):
            return None
    return None


def _match(body: tuple[Node, ...], first: int, last: int) -> RescaledSum | None:
    one, other = body[first], body[last]
    assert isinstance(one, ReductionLoop) and isinstance(other, ReductionLoop)
    maximum, total = one.update, other.update
    if total.policy != ReductionPolicy.rescaled_tree.value or total.combiner != "add":
        return None
    if maximum.combiner != "maximum" or not maximum.reorders:
        return None
    if total.extent != maximum.extent or {total.dtype, maximum.dtype} != {"float32"}:
        return None
    split = _difference(total.contribution)
    if split is None:
        return None
    element, shift = split
    if mentions(shift, total.loop.loop_var) or not _scalars(shift):
        return None
    if not structural_equal(_at(element, total, maximum), maximum.contribution):
        return None
    between = _separate(body[first + 1 : last], maximum.carry)
    if between is None or any(mentions(element, b) for b in _stored(body[first : last + 1])):
        return None
    if any(mentions(node.store, total.carry) for node in between[1]):
        return None
    return RescaledSum(
        first, last, (one, other), total.contribution.op.name, element, shift, *between
    )


def _difference(contribution: Any) -> tuple[Any, Any] | None:
    """(e, c) of ``f(e - c)``."""
    if not isinstance(contribution, Call) or not isinstance(contribution.op, Op):
        return None
    if contribution.op.name not in _EXPONENTIALS or len(contribution.args) != 1:
        return None
    argument = contribution.args[0]
    if isinstance(argument, tirx.Sub):
        return argument.a, argument.b
    subtracts = isinstance(argument, Call) and getattr(argument.op, "name", None) == SUBTRACT
    return tuple(argument.args) if subtracts else None


def _scalars(expression: Any) -> bool:
    """Whether an expression reads local scalars only, which every worker holds."""
    return all(
        load.source.scope() == "local" and element_count(load.source) == 1
        for load in loads(expression)
    )


def _at(element: Any, total: ReductionUpdate, maximum: ReductionUpdate) -> Any:
    """``element`` over the maximum's loop variable."""
    variable, other = total.loop.loop_var, maximum.loop.loop_var
    return structural_map(
        element, (Var, lambda var: other if var.same_as(variable) else var), order="post"
    )


def _separate(
    between: tuple[Node, ...], carry: Any
) -> tuple[tuple[Allocate | Replicated, ...], tuple[Replicated, ...]] | None:
    """(before, after) of the statements between the loops; None where one stands in the way."""
    before: list[Allocate | Replicated] = []
    after: list[Replicated] = []
    waiting = [carry]
    for node in between:
        if isinstance(node, Replicated) and any(mentions(node.store, b) for b in waiting):
            after.append(node)
            waiting.append(node.store.buffer)
            continue
        assert isinstance(node, Allocate | Replicated)  # _nearest_reduction stops at others
        if isinstance(node, Replicated) and _read_late(node, after):
            return None
        before.append(node)
    return tuple(before), tuple(after)


def _read_late(node: Replicated, after: list[Replicated]) -> bool:
    return any(mentions(late.store, node.store.buffer) for late in after)


def _stored(body: tuple[Node, ...]) -> list[Any]:
    """Buffers that the statements of a block store to."""
    found = [node.store.buffer for node in body if isinstance(node, Replicated)]
    return found + [node.update.carry for node in body if isinstance(node, ReductionLoop)]

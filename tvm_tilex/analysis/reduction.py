"""Recognizes the canonical update of a marked reduction.

The marker on a loop is a claim. What is recognized here is read off the loop itself:

    for k in serial(0, N):                      N > 0 constant, unit step, serial
        carry[0] = op(carry[0], f(k))           one store; carry local with one element;
                                                f pure, without any occurrence of carry

The permission to reorder is the resolved policy in the marker: it cannot be derived from TIRx.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import impure_call, mentions
from tvm_tilex.analysis.statements import Decline, foreign_statement
from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import Call, Op, TensorLoad, structural_walk, tirx
from tvm_tilex.tirx.register import (
    MAXIMUM,
    MAXIMUM_PROPAGATE,
    MINIMUM,
    MINIMUM_PROPAGATE,
)

__all__ = ["Decline", "ReductionUpdate", "match_update"]


@dataclass(frozen=True)
class ReductionUpdate:
    """A recognized reduction loop. ``operator`` rebuilds the update: op(state, contribution)."""

    loop: Any
    carry: Any
    combiner: str
    operator: str
    contribution: Any
    extent: int
    policy: str
    value: int

    @property
    def dtype(self) -> str:
        """Element type of the carry."""
        return str(self.carry.ty.dtype)

    @property
    def reorders(self) -> bool:
        """Whether the policy permits any order and association."""
        known = self.policy in ReductionPolicy.__members__
        return known and not ReductionPolicy[self.policy].ordered

    def combine(self, state: Any, contribution: Any) -> Any:
        """The update's own operation on other operands."""
        if self.operator == "add":
            return state + contribution
        if self.operator in ("max", "min"):
            return (tirx.max if self.operator == "max" else tirx.min)(state, contribution)
        return Call(Op.get(self.operator), [state, contribution], ret_ty=state.ty)


UNKNOWN_EXTENT = -1

_CALLS = {
    MAXIMUM: "maximum",
    MAXIMUM_PROPAGATE: "maximum",
    MINIMUM: "minimum",
    MINIMUM_PROPAGATE: "minimum",
}


def match_update(loop: Any, *, dynamic: bool = False) -> ReductionUpdate | Decline:
    """Recognize a marked loop, or say which rule it breaks.

    With ``dynamic`` the extent may be an expression; the update's ``extent`` is then
    :data:`UNKNOWN_EXTENT`.
    """
    claimed = attrs.annotation(loop, attrs.REDUCTION)
    if loop.kind != tirx.ForKind.SERIAL:
        return Decline("control", "the reduction loop is not serial")
    known = isinstance(loop.extent, tirx.IntImm)
    if (not known and not dynamic) or (known and loop.extent.value <= 0):
        return Decline("control", f"the extent {loop.extent} is not a positive constant")
    if not isinstance(loop.min, tirx.IntImm) or loop.min.value != 0:
        return Decline("control", f"the loop begins at {loop.min}, not at 0")
    if loop.step is not None and getattr(loop.step, "value", 0) != 1:
        return Decline("control", f"the step {loop.step} is not 1")
    store = loop.body
    if not isinstance(store, tirx.BufferStore):
        return _not_one_store(store)
    carry = store.buffer
    if not _is_scalar(carry) or not _at_zero(store.indices):
        return Decline("canonical state", f"{carry.name} is not a local scalar")
    matched = _operation(store.value)
    if matched is None:
        return Decline("reduction type", "the update is not add, maximum or minimum")
    combiner, operator, state, contribution = matched
    if combiner != claimed:
        return Decline("reduction type", f"the update is {combiner}, the marker says {claimed}")
    if not isinstance(state, TensorLoad) or not state.source.same_as(carry):
        return Decline("canonical state", "the first operand of the update is not the carry")
    if not _at_zero(state.indices):
        return Decline("canonical state", "the update reads another element of the carry")
    if mentions(contribution, carry):
        return Decline("contribution", "the contribution observes the carry")
    impure = impure_call(contribution)
    if impure is not None:
        return Decline("contribution", f"the contribution calls {impure}, which is not pure")
    return ReductionUpdate(
        loop=loop,
        carry=carry,
        combiner=combiner,
        operator=operator,
        contribution=contribution,
        extent=int(loop.extent.value) if known else UNKNOWN_EXTENT,
        policy=str(attrs.annotation(loop, attrs.POLICY)),
        value=int(attrs.annotation(loop, attrs.VALUE) or 0),
    )


def _not_one_store(body: Any) -> Decline:
    """Why a loop body that is not a single store declines."""
    foreign = foreign_statement(body)
    if foreign is not None:
        return foreign
    if isinstance(body, tirx.IfThenElse):
        return Decline("control", "the update stands under a condition")
    stored: list[Any] = []
    structural_walk(body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    outside = [buffer.name for buffer in stored if buffer.scope() != "local"]
    if outside:
        return Decline("global effects", f"{outside[0]} is stored inside a reduction")
    return Decline("canonical state", "the loop's body is not one store")


def _operation(value: Any) -> tuple[str, str, Any, Any] | None:
    """Combiner, operator name and the two operands of an update."""
    if isinstance(value, tirx.Add):
        return "add", "add", value.a, value.b
    if isinstance(value, tirx.Max):
        return "maximum", "max", value.a, value.b
    if isinstance(value, tirx.Min):
        return "minimum", "min", value.a, value.b
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _CALLS:
        return _CALLS[value.op.name], value.op.name, value.args[0], value.args[1]
    return None


def _is_scalar(buffer: Any) -> bool:
    shape = buffer.ty.shape
    return (
        buffer.scope() == "local"
        and len(shape) == 1
        and isinstance(shape[0], tirx.IntImm)
        and shape[0].value == 1
    )


def _at_zero(indices: Any) -> bool:
    return all(isinstance(index, tirx.IntImm) and index.value == 0 for index in indices)

"""The life of a reduction's carry (spec section 3, canonical state).

    allocate once;  carry = identity;  [nothing touches carry];  marked loop;  reads only

All in one statement list, so that the loop is always preceded by its own initialization; a loop
that runs once stands for its body.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tilex.analysis.purity import mentions
from tvm_tilex.analysis.structure import (
    Allocate,
    Domain,
    Enclosing,
    Node,
    OrderedLoop,
    ReductionLoop,
    Replicated,
    nodes,
)
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.ir.ops import Combiner
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx.compat import tirx

__all__ = ["carry_protocol", "is_identity"]


def carry_protocol(subject: Subject, reduction: ReductionLoop) -> str | None:
    """What breaks the protocol of this reduction's carry, or None."""
    carry = reduction.update.carry
    uses = subject.uses[carry]
    if uses.allocations != 1:
        return f"{carry.name} has {uses.allocations} allocations"
    if uses.escapes:
        return f"{carry.name} escapes through its variable"
    if len(uses.stores) != 2:
        return f"{carry.name} is stored {len(uses.stores)} times, not initialized and updated once"
    block = _block_of(_once(subject.row.body), reduction)
    position = next(i for i, node in enumerate(block) if node is reduction)
    before = [node for node in block[:position] if _touches(node, carry)]
    stores = [node for node in before if isinstance(node, Replicated)]
    others = [node for node in before if not isinstance(node, (Replicated, Allocate))]
    if others or len(stores) != 1 or not stores[0].store.buffer.same_as(carry):
        return f"{carry.name} is observed or not initialized right before its loop"
    first = stores[0].store
    if not all(isinstance(index, tirx.IntImm) and index.value == 0 for index in first.indices):
        return f"{carry.name} is initialized at another element"
    initial = first.value
    if not is_identity(initial, reduction.update.combiner, reduction.update.dtype):
        return f"{carry.name} starts from {initial}, not from the identity"
    inside = {id(node) for node in nodes(block)}
    for node in nodes(subject.row.body):
        leaf = not isinstance(node, (Enclosing, Allocate))
        if leaf and id(node) not in inside and _touches(node, carry):
            return f"{carry.name} is observed outside the loop that initializes it"
    return None


def is_identity(value: Any, combiner: str, dtype: str) -> bool:
    """Whether ``value`` is the exact identity: -inf, +inf, or +0 (not -0)."""
    if not isinstance(value, (tirx.FloatImm, tirx.IntImm)) or str(value.ty.dtype) != dtype:
        return False
    # The identities of every float type are those of FP32.
    wanted = Combiner[combiner].identity(dtype_of("float32" if "float" in dtype else dtype))
    number = float(value.value)
    return number == wanted and math.copysign(1.0, number) == math.copysign(1.0, wanted or 1.0)


def _once(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The statements with every loop that runs exactly once replaced by its body."""
    found: list[Node] = []
    for node in body:
        if isinstance(node, Enclosing):
            inner = _once(node.body)
            found += inner if node.unit else (Enclosing(node.loop, inner),)
        else:
            found.append(node)
    return tuple(found)


def _block_of(body: tuple[Node, ...], wanted: Node) -> tuple[Node, ...]:
    """The statement list that holds ``wanted`` directly."""
    if any(node is wanted for node in body):
        return body
    for node in body:
        if isinstance(node, Enclosing):
            found = _block_of(node.body, wanted)
            if found:
                return found
    return ()


def _touches(node: Node, buffer: Any) -> bool:
    if isinstance(node, Allocate):
        return bool(node.buffer.same_as(buffer))
    if isinstance(node, Replicated):
        return mentions(node.store, buffer)
    if isinstance(node, ReductionLoop):
        return mentions(node.update.loop, buffer)
    if isinstance(node, OrderedLoop):
        return mentions(node.loop, buffer)
    if isinstance(node, Domain):
        parts = [node.store] if node.condition is None else [node.store, node.condition]
        return any(mentions(part, buffer) for part in parts)
    return any(_touches(inner, buffer) for inner in node.body)

"""Who allocates, stores, loads and leaks each buffer of a function."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.purity import TAKES_ADDRESS
from tvm_tilex.tirx.compat import Call, Op, TensorLoad, Var, structural_walk, tirx

__all__ = ["BufferUses", "buffer_uses", "element_count"]


@dataclass
class BufferUses:
    """Occurrences of one buffer; ``addressed`` where the address of an element is taken."""

    buffer: Any
    allocations: int = 0
    stores: list[Any] = field(default_factory=list)
    loads: list[Any] = field(default_factory=list)
    mentions: int = 0
    addressed: bool = False

    @property
    def escapes(self) -> bool:
        """Whether the buffer can be reached otherwise than by its loads and stores."""
        known = self.allocations + len(self.stores) + len(self.loads)
        return self.addressed or self.mentions > known


def element_count(buffer: Any) -> int | None:
    """Number of elements of a buffer of constant shape, or None."""
    count = 1
    for extent in buffer.ty.shape:
        if not isinstance(extent, tirx.IntImm):
            return None
        count *= int(extent.value)
    return count


def buffer_uses(node: Any) -> dict[Any, BufferUses]:
    """Uses of every buffer that occurs in ``node``, by buffer."""
    found: dict[Any, BufferUses] = {}

    def of(buffer: Any) -> BufferUses:
        return found.setdefault(buffer, BufferUses(buffer))

    def visit_load(load: Any) -> None:
        of(load.source).loads.append(load)

    def visit_store(store: Any) -> None:
        of(store.buffer).stores.append(store)

    def visit_allocation(statement: Any) -> None:
        of(statement.buffer).allocations += 1

    def visit_call(call: Any) -> None:
        if isinstance(call.op, Op) and call.op.name in TAKES_ADDRESS:
            for argument in call.args:
                if isinstance(argument, TensorLoad):
                    of(argument.source).addressed = True

    counts: dict[Any, int] = defaultdict(int)

    def visit_var(var: Any) -> None:
        counts[var] += 1

    structural_walk(
        node,
        [
            (TensorLoad, visit_load),
            (tirx.BufferStore, visit_store),
            (tirx.AllocBuffer, visit_allocation),
            (Call, visit_call),
            (Var, visit_var),
        ],
    )
    for buffer, uses in found.items():
        uses.mentions = counts[buffer]
    return found

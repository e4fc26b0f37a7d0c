"""Where a worker keeps its part of each distributed tile.

In registers, a stripe of its own::

    stripe = alloc_local(slots)          # slot = chunk * V + v

or, for the elements of a view where the plan stages them, in memory that the threadgroup's launch
asks for, of which each thread has the places of its own::

    staged[((base + chunk) * T + thread) * V + v]     # base: packs of the tiles before this one

A thread reads only what it has copied itself, so that staging needs no barrier, and its V elements
are consecutive, so that they move as one vector
(proof: :func:`tvm_tilex.analysis.coverage.prove_staging`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.structure import Domain, Node, parts_of
from tvm_tilex.analysis.widening import stored_type, viewed
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import stripe_packs
from tvm_tilex.tirx.compat import TensorLoad, call, structural_walk, tirx
from tvm_tilex.tirx.register import WIDEN
from tvm_tilex.transform.execution_map import ExecutionMap, Pack

__all__ = ["StripeStorage"]


@dataclass
class StripeStorage:
    """Storage of the distributed tiles of one plan.

    ``thread`` is the thread's index in its threadgroup; ``narrow`` keeps widened 16-bit floats as
    they were. ``staged`` is the allocation of what the plan stages, None where there is nothing;
    ``packs`` are the packs that a thread has there of each tile, in order.
    """

    plan: GroupPlan
    execution: ExecutionMap
    thread: Any
    narrow: bool
    staged: Any | None = None
    packs: tuple[int, ...] = ()
    _private: dict[Any, Any] = field(default_factory=dict)
    _bases: dict[Any, int] = field(default_factory=dict)
    _types: dict[Any, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: GroupPlan,
        execution: ExecutionMap,
        thread: Any,
        domains: Iterable[Domain],
        *,
        program: Any,
        narrow: bool,
    ) -> StripeStorage:
        """Storage for the tiles that ``domains`` define; ``program`` counts programs."""
        storage = cls(plan, execution, thread, narrow)
        held = ""
        for domain in domains:
            store = domain.store
            if store.buffer.scope() != "local":
                continue
            storage._types[store.buffer] = storage._type(store)
            if plan.staged_bytes and viewed(store, program):
                storage._bases[store.buffer] = sum(storage.packs)
                packs = stripe_packs(domain.count, plan.workers, plan.lane_elements)
                storage.packs = (*storage.packs, packs)
                held = storage._type(store)
                continue
            storage._private[store.buffer] = tirx.decl_buffer(
                (execution.integer(execution.slots(domain.count)),),
                storage._type(store),
                store.buffer.name,
                scope="local",
                layout=None,
            )
        if storage.packs:
            length = execution.integer(sum(storage.packs) * plan.threads * plan.lane_elements)
            storage.staged = tirx.decl_buffer(
                (length,), held, "staged", scope="shared.dyn", layout=None
            )
        return storage

    def _type(self, store: Any) -> str:
        return stored_type(store) if self.narrow else str(store.buffer.ty.dtype)

    def allocate(self, buffer: Any) -> Any:
        """The statement in place of a distributed tile's allocation; None where it is staged."""
        private = self._private.get(buffer)
        return None if private is None else tirx.AllocBuffer(private)

    def holds(self, buffer: Any) -> bool:
        """Whether ``buffer`` is a distributed tile."""
        return buffer in self._types

    def stages(self, node: Node) -> bool:
        """Whether a node loads or stores elements of a staged tile."""
        found: list[Any] = []
        visitors = [
            (TensorLoad, lambda load: found.append(load.source)),
            (tirx.BufferStore, lambda store: found.append(store.buffer)),
        ]
        for part in parts_of(node):
            structural_walk(part, visitors)
        return any(buffer in self._bases for buffer in found)

    def read(self, load: Any, pack: Pack) -> Any:
        """The worker's own element, in place of ``load`` (the audit proved the ownership)."""
        storage, slot = self._place(load.source, pack)
        element, wide = storage[slot], str(load.source.ty.dtype)
        return element if wide == str(storage.ty.dtype) else call(WIDEN, element, dtype=wide)

    def write(self, buffer: Any, value: Any, pack: Pack) -> Any:
        """The store of the worker's own element; of what it was widened from, if kept narrow."""
        storage, slot = self._place(buffer, pack)
        narrowed = str(value.ty.dtype) != str(storage.ty.dtype)
        return tirx.BufferStore(storage, value.value if narrowed else value, [slot])

    def _place(self, buffer: Any, pack: Pack) -> tuple[Any, Any]:
        private = self._private.get(buffer)
        if private is not None:
            return private, pack.slot
        integer = self.execution.integer
        threads, elements = self.plan.threads, self.plan.lane_elements
        chunk = pack.chunk * integer(threads) + integer(self._bases[buffer] * threads)
        first = (chunk + self.thread) * integer(elements) if elements > 1 else chunk + self.thread
        return self.staged, first if pack.lane_element is None else first + pack.lane_element

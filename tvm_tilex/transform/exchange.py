"""Makes the partial results of a program's SIMD groups known to all of them.

In one threadgroup::

    if lane == 0: partials[s] = value
    barrier

On a cluster of C threadgroups, where every threadgroup holds the partials of all::

    wait for the barrier that all entered at their start          # before the first exchange
    if lane < C: partials[rank * S + s] of threadgroup lane = value
    arrive; wait

Only the writes are conditional. Each reduction has partials of its own, so that the next exchange
cannot overtake the reads of the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx.compat import builder, call, tirx
from tvm_tilex.tirx.register import CLUSTER_ARRIVE, CLUSTER_PUBLISH, CLUSTER_WAIT
from tvm_tilex.transform.common import sequence

__all__ = ["Exchange"]


@dataclass
class Exchange:
    """Exchanges between the SIMD groups of a program.

    ``packed`` is the program's coordinate in its threadgroup, ``rank`` the threadgroup's in its
    cluster, ``thread`` the worker's coordinate among its program's in the threadgroup. ``buffers``
    are the partials of every exchange so far.
    """

    plan: GroupPlan
    dtype: str
    packed: Any
    rank: Any
    thread: Any
    buffers: list[Any] = field(default_factory=list)

    @property
    def split(self) -> bool:
        """Whether several threadgroups serve a program."""
        return self.plan.blocks_per_program > 1

    def begin(self) -> Any:
        """What every threadgroup does first; nothing where there is no cluster."""
        return tirx.Evaluate(call(CLUSTER_ARRIVE, dtype="void")) if self.split else None

    def publish(self, *values: Any) -> tuple[Any, tuple[Any, ...]]:
        """Statements that publish each SIMD group's ``values``, and a buffer of partials for each.

        All go together: one barrier follows them.
        """
        first = not self.buffers
        partials = tuple(self._allocate() for _ in values)
        pairs = tuple(zip(partials, values, strict=True))
        if self.split:
            return self._to_cluster(pairs, first), partials
        stores = [
            tirx.BufferStore(buffer, value, [self._base + self._subgroup])
            for buffer, value in pairs
        ]
        alone = tirx.EQ(self._lane, self._integer(0))
        leader = tirx.IfThenElse(alone, sequence(*stores), None)
        return sequence(leader, tirx.Evaluate(builder.tvm_storage_sync("shared"))), partials

    def read(self, partial: Callable[[Any], Any], identity: Any) -> list[Any]:
        """``partial`` at each place of its program that a lane reads; ``identity`` past the end."""
        plan = self.plan
        count = plan.reduction_subgroups_per_program * plan.blocks_per_program
        found = []
        for first in range(0, count, plan.lanes):
            lane = self._lane + self._integer(first) if first else self._lane
            value = partial(self._base + lane)
            inside = lane < self._integer(count)
            whole = first + plan.lanes <= count
            found.append(value if whole else tirx.if_then_else(inside, value, identity))
        return found

    def _allocate(self) -> Any:
        plan = self.plan
        subgroups = plan.reduction_subgroups_per_program * plan.blocks_per_program
        buffer = tirx.decl_buffer(
            (self._integer(subgroups * plan.programs_per_group),),
            "float32",
            f"partials{len(self.buffers)}",
            scope="shared",
            layout=None,
        )
        self.buffers.append(buffer)
        return buffer

    def _to_cluster(self, pairs: tuple[tuple[Any, Any], ...], first: bool) -> Any:
        subgroups = self._integer(self.plan.reduction_subgroups_per_program)
        target = tirx.Cast("int32", self._lane)
        stores = []
        for partials, value in pairs:
            place = tirx.address_of(partials[self.rank * subgroups + self._subgroup])
            stores.append(tirx.Evaluate(call(CLUSTER_PUBLISH, place, target, value, dtype="void")))
        arrive, wait = (
            tirx.Evaluate(call(op, dtype="void")) for op in (CLUSTER_ARRIVE, CLUSTER_WAIT)
        )
        # Lane c writes into threadgroup c of the cluster, its own among them.
        to_each = self._lane < self._integer(self.plan.blocks_per_program)
        started = wait if first else None
        return sequence(started, tirx.IfThenElse(to_each, sequence(*stores), None), arrive, wait)

    def _integer(self, value: int) -> Any:
        return tirx.IntImm(self.dtype, value)

    @property
    def _base(self) -> Any:
        return self.packed * self._integer(self.plan.reduction_subgroups_per_program)

    @property
    def _subgroup(self) -> Any:
        return tirx.floordiv(self.thread, self._integer(self.plan.lanes))

    @property
    def _lane(self) -> Any:
        return tirx.floormod(self.thread, self._integer(self.plan.lanes))

"""Makes the partial results of a program's SIMD groups known to all of them.

In one threadgroup::

    if lane == 0: partials[s] = value
    barrier

On a cluster of C threadgroups, where every threadgroup holds the partials of all::

    prepare the mailbox of each exchange; arrive                  # at the start
    wait until all have                                           # before the first exchange
    if lane < C: send value to partials[rank * S + s] of threadgroup lane
    wait until the own mailbox has got C * S values

Only the writes are conditional. Each reduction has partials of its own, so that the next exchange
cannot overtake the reads of the last one. A threadgroup that has all its partials may go on and
end: whoever still sends to others needs nothing of it, and nobody sends to it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import SCALAR_BYTES
from tvm_tilex.tirx.compat import builder, call, tirx
from tvm_tilex.tirx.register import (
    CLUSTER_ARRIVE,
    CLUSTER_PREPARE,
    CLUSTER_RECEIVE,
    CLUSTER_SEND,
    CLUSTER_WAIT,
)
from tvm_tilex.transform.common import sequence

__all__ = ["Exchange"]


@dataclass
class Exchange:
    """Exchanges between the SIMD groups of a program.

    ``packed`` is the program's coordinate in its threadgroup, ``rank`` the threadgroup's in its
    cluster, ``thread`` the worker's coordinate among its program's in the threadgroup. ``buffers``
    are the partials, and the mailboxes, of every exchange so far; ``expected`` the bytes that come
    into each mailbox.
    """

    plan: GroupPlan
    dtype: str
    packed: Any
    rank: Any
    thread: Any
    buffers: list[Any] = field(default_factory=list)
    expected: dict[Any, int] = field(default_factory=dict)

    @property
    def split(self) -> bool:
        """Whether several threadgroups serve a program."""
        return self.plan.blocks_per_program > 1

    @property
    def _subgroups(self) -> int:
        """SIMD groups of a program, in all of its threadgroups."""
        return self.plan.reduction_subgroups_per_program * self.plan.blocks_per_program

    def begin(self) -> Any:
        """What every threadgroup does first, once all exchanges are known.

        Nothing where there is no cluster.
        """
        if not self.split:
            return None
        prepared = [
            _effect(CLUSTER_PREPARE, _first(mailbox), tirx.IntImm("int32", size))
            for mailbox, size in self.expected.items()
        ]
        return sequence(*prepared, _effect(CLUSTER_ARRIVE))

    def publish(self, *values: Any) -> tuple[Any, tuple[Any, ...]]:
        """Statements that publish each SIMD group's ``values``, and a buffer of partials for each.

        All go together: one barrier, or one mailbox, follows them.
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
        plan, count = self.plan, self._subgroups
        found = []
        for first in range(0, count, plan.lanes):
            lane = self._lane + self._integer(first) if first else self._lane
            value = partial(self._base + lane)
            inside = lane < self._integer(count)
            whole = first + plan.lanes <= count
            found.append(value if whole else tirx.if_then_else(inside, value, identity))
        return found

    def _allocate(self) -> Any:
        buffer = tirx.decl_buffer(
            (self._integer(self._subgroups * self.plan.programs_per_group),),
            "float32",
            f"partials{len(self.buffers) - len(self.expected)}",
            scope="shared",
            layout=None,
        )
        self.buffers.append(buffer)
        return buffer

    def _to_cluster(self, pairs: tuple[tuple[Any, Any], ...], first: bool) -> Any:
        plan = self.plan
        subgroups = self._integer(plan.reduction_subgroups_per_program)
        mailbox = tirx.decl_buffer(
            (1,), "int64", f"mailbox{len(self.expected)}", scope="shared", layout=None
        )
        self.expected[mailbox] = self._subgroups * len(pairs) * SCALAR_BYTES
        self.buffers.append(mailbox)
        target = tirx.Cast("int32", self._lane)
        sent = []
        for partials, value in pairs:
            place = tirx.address_of(partials[self.rank * subgroups + self._subgroup])
            sent.append(_effect(CLUSTER_SEND, place, _first(mailbox), target, value))
        # Lane c sends to threadgroup c of the cluster, its own among them.
        to_each = tirx.IfThenElse(
            self._lane < self._integer(plan.blocks_per_program), sequence(*sent), None
        )
        started = _effect(CLUSTER_WAIT) if first else None
        return sequence(started, to_each, _effect(CLUSTER_RECEIVE, _first(mailbox)))

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


def _effect(op: str, *arguments: Any) -> Any:
    return tirx.Evaluate(call(op, *arguments, dtype="void"))


def _first(mailbox: Any) -> Any:
    return tirx.address_of(mailbox[tirx.IntImm("int32", 0)])

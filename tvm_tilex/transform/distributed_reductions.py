"""Emits one distributed reduction: a worker's fold, then collectives of its SIMD groups.

With S SIMD groups a program::

    for chunk: carry[0] = op(carry[0], f(W * chunk + w))
    carry[0] = subgroup(carry[0])
    exchange of carry[0]                      # nothing of this where S = 1
    carry[0] = subgroup(partials[lane] if lane < S else identity)

Both collectives are uniform (spec section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.reduction import ReductionUpdate
from tvm_tilex.ir.ops import Combiner
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import as_index, sequence, substitute
from tvm_tilex.transform.exchange import Exchange
from tvm_tilex.transform.execution_map import ExecutionMap, Pack
from tvm_tilex.transform.lower_collectives import subgroup_collective
from tvm_tilex.transform.packed_extrema import packed_extrema
from tvm_tilex.transform.vector_access import VectorAccess

__all__ = ["DistributedReductions", "identity"]


@dataclass(frozen=True)
class DistributedReductions:
    """Emits the reductions of one plan.

    ``own`` reads distributed storage in a pack's own slots; ``unroll`` is how many chunks an
    iteration of a fold covers; ``pairs`` folds extrema of 16-bit elements in pairs.
    """

    execution: ExecutionMap
    vectors: VectorAccess
    exchange: Exchange
    own: Callable[[Any, Pack], Any]
    unroll: int
    pairs: bool = False

    def emit(self, update: ReductionUpdate) -> Any:
        """The reduction of ``update``; its carry holds the result in every worker."""
        carry = self.carry(update)
        fold, first = self.fold(update, update.contribution), self.collective(update, carry)
        if self.execution.plan.independent_subgroups:
            return sequence(fold, first)
        exchange, (partials,) = self.exchange.publish(carry)
        entries = self.exchange.read(partials.__getitem__, identity(update))
        return sequence(fold, first, exchange, self.gather(update, entries))

    def fold(self, update: ReductionUpdate, contribution: Any) -> Any:
        """Fold ``contribution`` over the worker's elements into the carry."""
        variable = update.loop.loop_var

        def element(pack: Pack) -> Any:
            at = {variable: as_index(str(variable.ty.dtype), pack.element)}
            own = self.own(substitute(contribution, at), pack)
            return self.vectors.pack(pack, self._store(update, self._combined(update, own)))

        fold = self.execution.visit(update.extent, element, unroll=self.unroll)
        return packed_extrema(fold, update) if self.pairs else fold

    def collective(self, update: ReductionUpdate, value: Any) -> Any:
        """Combine ``value`` over its program's lanes of a SIMD group into the carry."""
        workers = self.execution.plan.workers
        return self._store(update, subgroup_collective(update.combiner, value, workers))

    def gather(self, update: ReductionUpdate, entries: list[Any]) -> Any:
        """Combine what a lane has read of the partials, then over the lanes, into the carry."""
        first, *rest = entries
        if not rest:
            return self.collective(update, first)
        gathered = [self._store(update, first)]
        gathered += [self._store(update, self._combined(update, other)) for other in rest]
        return sequence(*gathered, self.collective(update, self.carry(update)))

    def carry(self, update: ReductionUpdate) -> Any:
        """What the carry holds."""
        return update.carry[self.execution.integer(0)]

    def _combined(self, update: ReductionUpdate, value: Any) -> Any:
        return update.combine(self.carry(update), value)

    def _store(self, update: ReductionUpdate, value: Any) -> Any:
        return tirx.BufferStore(update.carry, value, [self.execution.integer(0)])


def identity(update: ReductionUpdate) -> Any:
    """The exact identity of an update's combiner (spec section 3)."""
    return tirx.FloatImm("float32", Combiner[update.combiner].identity(DTYPES["float32"]))

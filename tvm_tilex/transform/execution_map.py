"""Who owns which element: e = (W * chunk + w) * V + v, 0 <= v < V (spec section 4.4).

A full chunk holds W * V elements; only the elements past the last full chunk carry a bound. The
owner of e keeps it in slot chunk * V + v of its stripe.

Packs of peeled rows begin behind the row's head (:mod:`tvm_tilex.transform.peeled_rows`) and are as
many wherever that is; the elements beside them have one owner each, in the last slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import peeled_packs, peels, stripe_length
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import sequence, serial

__all__ = ["ExecutionMap", "Pack"]


_UNROLLED_SCALARS = 64


@dataclass(frozen=True)
class Pack:
    """The V consecutive elements that a worker owns in ``chunk``.

    ``element`` and ``slot`` are the coordinate and the private slot of element ``lane_element`` (a
    variable, or None where V = 1). ``unroll`` asks the device compiler to unroll a loop over them.
    ``condition`` says whether the worker owns the pack, ``element_condition`` whether it owns an
    element of it; None where it does for certain. ``head`` elements of the row come before its
    packs, None where these begin with the row.
    """

    chunk: Any
    element: Any
    slot: Any
    lane_element: Any | None
    condition: Any | None
    element_condition: Any | None
    width: int
    unroll: bool = False
    head: Any | None = None

    @property
    def partial(self) -> bool:
        """Whether a worker may own some of its V elements and not the others."""
        return self.element_condition is not None

    def each(self, statement: Any) -> Any:
        """``statement`` for every owned element; in a partial pack each under the bound."""
        if self.element_condition is not None:
            statement = tirx.IfThenElse(self.element_condition, statement, None)
        if self.lane_element is None:
            return statement
        hint = {"pragma_unroll": True} if self.unroll else None
        return serial(self.lane_element, self.width, statement, annotations=hint)

    def within(self, statement: Any) -> Any:
        """``statement`` of a whole pack, under the one condition that the worker owns it."""
        if self.condition is None:
            return statement
        return tirx.IfThenElse(self.condition, statement, None)


@dataclass(frozen=True)
class ExecutionMap:
    """The map of one plan for index type ``dtype``; ``worker`` is the expression of w.

    ``hint_unroll`` asks the device compiler to unroll short chunk loops; ``scalar_elements`` is how
    many elements of a stripe share a register. ``head`` are the elements before the first pack of a
    peeled row.
    """

    plan: GroupPlan
    worker: Any
    dtype: str
    hint_unroll: bool = False
    scalar_elements: int = 1
    head: Any | None = None

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def slots(self, count: int) -> int:
        """Length of a worker's stripe over ``count`` elements."""
        plan = self.plan
        return stripe_length(count, plan.workers, plan.lane_elements, peeled=plan.peeled)

    def peels(self, count: int) -> bool:
        """Whether rows of ``count`` elements have a head."""
        return self.plan.peeled and peels(count, self.plan.lane_elements)

    def visit(self, count: int, body: Callable[[Pack], Any], *, unroll: int = 1) -> Any:
        """Statements that run ``body`` once for each owned pack of [0, count).

        Parameters
        ----------
        body
            Returns the statement of one pack; called for the full chunks and for the bounded rest.
        unroll
            How many full chunks one iteration of the chunk loop covers, in their order.
        """
        full = self._full(count)
        peeled = self.peels(count)
        head = self.head if peeled else None
        statements = [self._chunks(full // unroll, unroll, body, head)]
        statements += [
            body(self._pack(self.integer(chunk), head))
            for chunk in range(full // unroll * unroll, full)
        ]
        if peeled:
            statements += map(body, self._rest_of_peeled(count, full))
        elif count % (self.plan.workers * self.plan.lane_elements):
            statements.append(body(self._bounded(full, count)))
        return sequence(*statements)

    def _full(self, count: int) -> int:
        """Chunks that every worker owns a whole pack of."""
        elements = self.plan.lane_elements
        packs = peeled_packs(count, elements) if self.peels(count) else count // elements
        return packs // self.plan.workers

    def unrolls(self, count: int, unroll: int = 1) -> bool:
        """Whether :meth:`visit` of ``count`` elements leaves no loop over chunks at run time."""
        iterations = self._full(count) // unroll
        return iterations <= 1 or self._short(iterations, unroll)

    def _chunks(
        self, iterations: int, unroll: int, body: Callable[[Pack], Any], head: Any | None
    ) -> Any:
        """The chunk loop; an iteration holds ``unroll`` chunks one after the other."""
        loop = tirx.Var("chunk", self.dtype)
        first = loop * self.integer(unroll) if unroll > 1 else loop
        if iterations == 1:
            first = self.integer(0)
        copies = [
            body(self._pack(first + self.integer(copy) if copy else first, head))
            for copy in range(unroll if iterations else 0)
        ]
        if iterations <= 1:
            return sequence(*copies)
        hint = {"pragma_unroll": True} if self._short(iterations, unroll) else None
        return serial(loop, iterations, sequence(*copies), annotations=hint)

    def _short(self, iterations: int, unroll: int) -> bool:
        """Whether the device compiler is asked to unroll a chunk loop whole.

        Stripes stay in registers only if their slots are constants after unrolling; a longer loop
        holds no stripe, and unrolled whole it would spill.
        """
        elements = iterations * unroll * self.plan.lane_elements
        return self.hint_unroll and elements <= _UNROLLED_SCALARS * self.scalar_elements

    def _pack(self, chunk: Any, head: Any | None = None) -> Pack:
        """The worker's pack of a chunk, behind the row's head."""
        elements = self.plan.lane_elements
        element, slot, lane_element = self._first(chunk, head), chunk, None
        if elements > 1:
            lane_element = tirx.Var("v", self.dtype)
            slot = chunk * self.integer(elements) + lane_element
            element = element + lane_element
        return Pack(
            chunk, element, slot, lane_element, None, None, elements, self.hint_unroll, head
        )

    def _first(self, chunk: Any, head: Any | None) -> Any:
        """The coordinate of a pack's first element."""
        elements = self.plan.lane_elements
        first = chunk * self.integer(self.plan.workers) + self.worker
        first = first * self.integer(elements) if elements > 1 else first
        return first if head is None else head + first

    def _bounded(self, full: int, count: int) -> Pack:
        """The pack of the chunk behind all full ones, of which a worker may own a part."""
        chunk, bound = self.integer(full), self.integer(count)
        pack = self._pack(chunk)
        if count % self.plan.lane_elements:
            return replace(pack, element_condition=pack.element < bound)
        return replace(pack, condition=self._first(chunk, None) < bound)

    def _rest_of_peeled(self, count: int, full: int) -> Iterator[Pack]:
        """The last pack, which a worker may own, and the element beside all packs."""
        elements, workers = self.plan.lane_elements, self.plan.workers
        packs = peeled_packs(count, elements)
        left = packs - full * workers
        if left:
            owned = self.worker < self.integer(left)
            yield replace(self._pack(self.integer(full), self.head), condition=owned)
        behind = self.worker + self.integer(packs * elements)
        beside = tirx.Select(self.worker < self.head, self.worker, behind)
        chunks = self.integer(-(-packs // workers))
        owned = self.worker < self.integer(count - packs * elements)
        slot = chunks * self.integer(elements)
        yield Pack(chunks, beside, slot, None, owned, None, 1, self.hint_unroll)

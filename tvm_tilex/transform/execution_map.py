"""Who owns which element: e = (W * chunk + w) * V + v, 0 <= v < V (spec section 4.4).

A full chunk holds W * V elements; only the elements past the last full chunk carry a bound. The
owner of e keeps it in slot chunk * V + v of its stripe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import stripe_length
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import sequence, serial

__all__ = ["ExecutionMap", "Pack"]


_UNROLLED_SCALARS = 64


@dataclass(frozen=True)
class Pack:
    """The V consecutive elements that a worker owns in ``chunk``.

    ``element`` and ``slot`` are the coordinate and the private slot of element ``lane_element`` (a
    variable, or None where V = 1); ``first`` is the coordinate of the first. ``unroll`` asks the
    device compiler to unroll a loop over them. ``bound`` limits the
    coordinates of a partial chunk, and is None in a full one.
    """

    chunk: Any
    first: Any
    element: Any
    slot: Any
    lane_element: Any | None
    bound: Any | None
    width: int
    unroll: bool = False

    @property
    def partial(self) -> bool:
        """Whether a worker may own some of its V elements and not the others."""
        return self.bound is not None and int(self.bound.value) % self.width != 0

    def each(self, statement: Any) -> Any:
        """``statement`` for every owned element; in a partial pack each under the bound."""
        if self.partial:
            statement = tirx.IfThenElse(self.element < self.bound, statement, None)
        if self.lane_element is None:
            return statement
        hint = {"pragma_unroll": True} if self.unroll else None
        return serial(self.lane_element, self.width, statement, annotations=hint)

    def within(self, statement: Any) -> Any:
        """``statement`` of a whole pack, under the one condition that the worker owns it."""
        if self.bound is None or self.partial:
            return statement
        return tirx.IfThenElse(self.first < self.bound, statement, None)


@dataclass(frozen=True)
class ExecutionMap:
    """The map of one plan for index type ``dtype``; ``worker`` is the expression of w.

    ``hint_unroll`` asks the device compiler to unroll short chunk loops; ``scalar_elements`` is how
    many elements of a stripe share a register.
    """

    plan: GroupPlan
    worker: Any
    dtype: str
    hint_unroll: bool = False
    scalar_elements: int = 1

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def slots(self, count: int) -> int:
        """Length of a worker's stripe over ``count`` elements."""
        return stripe_length(count, self.plan.workers, self.plan.lane_elements)

    def visit(self, count: int, body: Callable[[Pack], Any], *, unroll: int = 1) -> Any:
        """Statements that run ``body`` once for each owned pack of [0, count).

        Parameters
        ----------
        body
            Returns the statement of one pack; called for the full chunks and for the bounded rest.
        unroll
            How many full chunks one iteration of the chunk loop covers, in their order.
        """
        pack = self.plan.workers * self.plan.lane_elements
        full = count // pack
        statements = [self._chunks(full // unroll, unroll, body)]
        statements += [
            body(self._pack(self.integer(chunk), None))
            for chunk in range(full // unroll * unroll, full)
        ]
        if count % pack:
            statements.append(body(self._pack(self.integer(full), count)))
        return sequence(*statements)

    def unrolls(self, count: int, unroll: int = 1) -> bool:
        """Whether :meth:`visit` of ``count`` elements leaves no loop over chunks at run time."""
        iterations = count // (self.plan.workers * self.plan.lane_elements) // unroll
        return iterations <= 1 or self._short(iterations, unroll)

    def _chunks(self, iterations: int, unroll: int, body: Callable[[Pack], Any]) -> Any:
        """The chunk loop; an iteration holds ``unroll`` chunks one after the other."""
        loop = tirx.Var("chunk", self.dtype)
        first = loop * self.integer(unroll) if unroll > 1 else loop
        if iterations == 1:
            first = self.integer(0)
        copies = [
            body(self._pack(first + self.integer(copy) if copy else first, None))
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

    def _pack(self, chunk: Any, bound: int | None) -> Pack:
        elements = self.plan.lane_elements
        first = chunk * self.integer(self.plan.workers) + self.worker
        element, slot, lane_element = first, chunk, None
        if elements > 1:
            lane_element = tirx.Var("v", self.dtype)
            first = first * self.integer(elements)
            element, slot = first + lane_element, chunk * self.integer(elements) + lane_element
        limit = None if bound is None else self.integer(bound)
        return Pack(chunk, first, element, slot, lane_element, limit, elements, self.hint_unroll)

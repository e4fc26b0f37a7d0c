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

__all__ = ["ExecutionMap", "Owned"]


@dataclass(frozen=True)
class Owned:
    """One owned element: its coordinate, its private slot, and its bound or None."""

    element: Any
    slot: Any
    bound: Any | None


@dataclass(frozen=True)
class ExecutionMap:
    """The map of one plan for index type ``dtype``; ``worker`` is the expression of w."""

    plan: GroupPlan
    worker: Any
    dtype: str

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def slots(self, count: int) -> int:
        """Length of a worker's stripe over ``count`` elements."""
        return stripe_length(count, self.plan.workers, self.plan.lane_elements)

    def visit(self, count: int, body: Callable[[Owned], Any]) -> Any:
        """Statements that run ``body`` once for each owned element of [0, count).

        ``body`` is called once for the full chunks and once for the bounded rest, and returns the
        statement for one element.
        """
        pack = self.plan.workers * self.plan.lane_elements
        chunk = tirx.Var("chunk", self.dtype)
        full = count // pack
        if full == 1:
            main = self._chunk(self.integer(0), None, body)
        else:
            main = serial(chunk, full, self._chunk(chunk, None, body)) if full else None
        rest = self._chunk(self.integer(full), count, body) if count % pack else None
        return sequence(main, rest)

    def _chunk(self, chunk: Any, bound: int | None, body: Callable[[Owned], Any]) -> Any:
        elements = self.plan.lane_elements
        if elements == 1:
            return self._element(chunk, None, bound, body)
        lane_element = tirx.Var("v", self.dtype)
        return serial(lane_element, elements, self._element(chunk, lane_element, bound, body))

    def _element(
        self, chunk: Any, lane_element: Any | None, bound: int | None, body: Callable[[Owned], Any]
    ) -> Any:
        elements = self.plan.lane_elements
        element = chunk * self.integer(self.plan.workers) + self.worker
        slot = chunk
        if lane_element is not None:
            element = element * self.integer(elements) + lane_element
            slot = chunk * self.integer(elements) + lane_element
        condition = None if bound is None else element < self.integer(bound)
        statement = body(Owned(element, slot, condition))
        return statement if condition is None else tirx.IfThenElse(condition, statement, None)

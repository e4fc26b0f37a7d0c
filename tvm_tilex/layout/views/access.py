"""``Access``: what one use of a view reads or writes, per event and local slot.

    Events(use) is a subset of P_frontier(op)
    Access(use) : Events(use) x LocalAccess(use) -> ViewCoord(use)

Two uses of one view have two accesses; producer and consumer need not agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.contiguity import contiguity
from tvm_tilex.layout.emission import ProvenMap, require_proven
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import Project
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.typing_rules import lands_in
from tvm_tilex.layout.verdict import Answer, Fact, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.views.view import TensorView

__all__ = ["Access"]


@dataclass(frozen=True)
class Access:
    """One use of ``view``.

    Parameters
    ----------
    view
        The view that is accessed.
    map
        Events x local slots -> coordinates of the view.
    events
        The domain axes that name the event (which participant, which iteration); the others are
        local: the elements that one event accesses together.
    """

    view: TensorView
    map: LayoutMap
    events: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.events:
            if name not in self.map.domain.names:
                raise LayoutError(f"access: '{name}' is not an axis of {self.map.domain.names}")
        if self.map.codomain.rank != self.view.domain.rank:
            raise LayoutError(
                f"access: {self.map.codomain.rank} coordinates for the view's axes"
                f" {self.view.domain.names}"
            )

    @property
    def local(self) -> tuple[str, ...]:
        """The axes of what one event accesses."""
        return tuple(n for n in self.map.domain.names if n not in self.events)

    @cached_property
    def use(self) -> TensorView:
        """The view over events and local slots: same buffer, composed map, intersected validity."""
        return self.view.compose(self.map)

    def within(self, frontier: IndexSet, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide whether every event is a point of the participants' space ``frontier``."""
        missing = [name for name in frontier.names if name not in self.events]
        if missing or len(self.events) != frontier.rank:
            return unknown(f"events {self.events} are not coordinates of {frontier.names}")
        event = Project(self.map.domain, frontier.names)
        if lands_in(event, frontier, None):
            return proven("the events lie in the participants' space")
        size = self.map.domain.box_size
        if size is None or self.map.domain.parameters or frontier.parameters or size > budget:
            return unknown("no range rule decides it, and the events exceed the budget")
        names = self.map.domain.names
        for point in self.map.domain.points():
            named = {n: point[names.index(n)] for n in frontier.names}
            if not frontier.contains(named):
                return disproven(f"{named} is no participant", Witness((point,)))
        return proven(f"exhaustive over {size} points")

    def emission(self, budget: int = DEFAULT_BUDGET) -> ProvenMap:
        """Return the address map, proved total and inside the buffer on every valid point.

        Raises
        ------
        ProofError
            Where it is not proved: code can't be generated from it.
        """
        return require_proven(self.use.address_map, (Fact.TOTALITY, Fact.BOUNDS), budget)

    def exclusive(self, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide whether no place is accessed twice: what a write without an order needs."""
        composed = self.use.prove(0).injectivity
        if not composed.unknown:
            return composed
        parts = (prove(self.view.address_map, 0), prove(self.map, 0))
        if all(part.injectivity.proven for part in parts):
            return proven("the view's address map and the access are both injective")
        return self.use.prove(budget).injectivity

    def vector(self, budget: int = DEFAULT_BUDGET) -> Answer[int]:
        """Return how many consecutive local slots are an aligned run of addresses.

        The run is along the last local axis, in a linear buffer.
        """
        if not self.local:
            return Answer(proven("one element an event"), 1)
        return contiguity(self.use.address_map, self.local[-1], None, budget)

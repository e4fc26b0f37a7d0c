"""Prices of a planned group: what a cost is told, who prices, and the prior without a device.

A cost prices the realizations that a reduction permits, the phases of a planned group, and the
group whole. It never makes a plan legal. :class:`PriorCost` counts rounds of one thread:

    elements     ceil(count / T) rounds of operations and loads
    serial       ceil(outputs / T) * N rounds
    collective   ceil(outputs / S) * ceil(N / 32) rounds, 5 exchanges and a publication each
    columns      ceil(N / R) rounds of V outputs, then a fence and R rounds for each output
    fragment     the results that a thread owns, and 2 exchanges for each of its rows
    scalar, fma  K rounds of the results of a thread and its factor loads
    matrix       the instructions of a SIMD group
    fence        a constant and a share for each SIMD group

each times its repeats. A round costs what it issues, times how many of the group's threads share
an issue slot (T / 128), and waits once for its views. A lane of a collective that reads a view with
a stride takes a transaction of its own; neighbouring lanes of a serial reduction over such an axis
share one. The score also counts how many groups run at once. Dimensionless priors, not time; the
cost that is fitted to a device is :class:`tvm_tilex.plan.group_queue.QueueCost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tvm_tilex.errors import OptionError
from tvm_tilex.plan.group_columns import ColumnShare
from tvm_tilex.plan.group_facts import GroupFacts, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement
from tvm_tilex.plan.group_queue import QueueCost

__all__ = ["GroupCost", "PlannedGroup", "PriorCost", "group_cost", "register_group_cost"]


@dataclass(frozen=True)
class PlannedGroup:
    """A legal plan of a group, as far as it has a price.

    ``fenced`` and ``ahead`` are the phases behind a fence and those that fill a tile one iteration
    ahead; ``slots`` a thread's elements of each aligned class, ``shares`` those of columns by
    phase, ``owned`` the products whose first factor is in registers, ``private`` the tiles that
    their owners read from registers.
    """

    facts: GroupFacts
    threads: int
    lanes: int
    realizations: tuple[str, ...]
    arrangements: tuple[Arrangement | None, ...]
    fenced: frozenset[int]
    ahead: frozenset[int]
    owned: frozenset[int]
    private: frozenset[int]
    slots: Mapping[int, int]
    shares: Mapping[int, ColumnShare]
    shared_bytes: int
    private_scalars: int
    kind: str


class GroupCost(Protocol):
    """Prices; lower is better, finite and not negative."""

    def reductions(
        self, phase: PhaseFacts, share: ColumnShare | None, threads: int, lanes: int
    ) -> dict[str, float]:
        """Prices of one run of a reduction, by the realizations that its order permits."""
        ...

    def prices(self, group: PlannedGroup) -> tuple[float, ...]:
        """The price of each phase over a whole program, with the fence before it."""
        ...

    def score(self, group: PlannedGroup, prices: tuple[float, ...]) -> float:
        """The price of the launch."""
        ...


@dataclass(frozen=True)
class PriorCost:
    """The prior: ``shared`` and ``view`` are loads against one operation of a thread.

    ``wait`` for the views of a round, ``overlap`` rounds whose loads are in flight together;
    ``scattered``: how much dearer a load is whose lanes do not share transactions. ``step`` is one
    exchange of a collective, ``publish`` a store of its result, ``matrix`` a matrix instruction
    with its fragment loads, ``setup`` of a group.
    """

    shared: float = 2.0
    view: float = 4.0
    wait: float = 24.0
    overlap: int = 8
    scattered: float = 8.0
    step: float = 3.0
    publish: float = 2.0
    fence: float = 16.0
    fence_subgroup: float = 1.0
    matrix: float = 16.0
    setup: float = 64.0
    issue: int = 128  # threads that issue at once
    units: int = 32
    resident_threads: int = 2048
    resident_bytes: int = 229376
    resident_scalars: int = 65536

    def reductions(
        self, phase: PhaseFacts, share: ColumnShare | None, threads: int, lanes: int
    ) -> dict[str, float]:
        """Prices of one run of a reduction, by realization."""
        found = {"serial": self._serial(phase, threads)}
        if phase.collective:
            found["collective"] = self._collective(phase, threads, lanes)
        if share is not None:
            found["columns"] = self._columns(phase, share, threads)
        return found

    def prices(self, group: PlannedGroup) -> tuple[float, ...]:
        """The price of each phase over a whole program."""
        subgroups = max(1, group.threads // group.lanes)
        fence = self.fence + self.fence_subgroup * subgroups
        return tuple(
            group.facts.repeats(phase)
            * (self._work(group, number, phase) + fence * (number in group.fenced))
            for number, phase in enumerate(group.facts.phases)
        )

    def score(self, group: PlannedGroup, prices: tuple[float, ...]) -> float:
        """The sum of the phases' prices, times how many rounds of resident groups there are."""
        threads, scalars = group.threads, group.private_scalars
        registers = threads * (32 + scalars)
        resident = max(
            1,
            min(
                self.resident_threads // threads if threads <= self.resident_threads else 1,
                self.resident_bytes // max(group.shared_bytes, 1024),
                self.resident_scalars // registers if registers <= self.resident_scalars else 1,
            ),
        )
        waiting = -(-group.facts.programs // self.units)  # groups for each unit
        together = min(resident, waiting)
        # Groups of one unit share its issue slots: more of them hide latency, up to a point.
        crowding = max(1.0, together * min(threads, self.issue) / 512)
        return (sum(prices) + self.setup) * (waiting / together) * crowding

    def _work(self, group: PlannedGroup, number: int, phase: PhaseFacts) -> float:
        realization, threads = group.realizations[number], group.threads
        if realization == "collective":
            return self._collective(phase, threads, group.lanes)
        if number in group.shares:
            return self._columns(phase, group.shares[number], threads)
        if realization == "fragment":
            exchanges = 2 * self.step * max(1, phase.count * group.lanes // (4 * threads))
            return (group.slots.get(phase.aligned, 0) * phase.operations + exchanges) * (
                self._crowd(threads)
            )
        if phase.kind is PhaseKind.product:
            arrangement = group.arrangements[number]
            assert arrangement is not None
            return self._product(phase, arrangement, threads, max(1, threads // group.lanes))
        if realization == "serial":
            return self._serial(phase, threads)
        width = phase.vector if phase.prefetchable else 1
        rounds = -(-phase.count // (threads * width))
        return self._rounds(phase, rounds, threads, scattered=False)

    def _crowd(self, threads: int) -> float:
        return max(1.0, threads / self.issue)

    def _rounds(self, phase: PhaseFacts, rounds: int, threads: int, *, scattered: bool) -> float:
        """Independent rounds: their loads overlap, so several wait together."""
        dear = self.scattered if scattered else 1.0
        reads = phase.global_loads * self.view * dear + len(phase.loads) * self.shared
        waits = self.wait * -(-rounds // self.overlap) if phase.global_loads else 0.0
        return rounds * (phase.operations + reads) * self._crowd(threads) + waits

    def _serial(self, phase: PhaseFacts, threads: int) -> float:
        # Neighbouring threads hold neighbouring outputs: together only where the reduced axis is
        # not the contiguous one. Threads without an output issue nothing.
        scattered = phase.stride == 1 and phase.depth > 1
        active = min(threads, -(-phase.count // 32) * 32)
        rounds = -(-phase.count // threads) * phase.depth
        return self._rounds(phase, rounds, active, scattered=scattered)

    def _collective(self, phase: PhaseFacts, threads: int, lanes: int) -> float:
        chunks = -(-phase.depth // lanes)
        fold = self._rounds(phase, chunks, threads, scattered=phase.stride != 1)
        batches = -(-phase.count // max(1, threads // lanes))
        return batches * (fold + (5 * self.step + self.publish) * self._crowd(threads))

    def _columns(self, phase: PhaseFacts, share: ColumnShare, threads: int) -> float:
        active = min(threads, share.lanes * share.slices)
        rows = -(-phase.depth // share.slices) * -(-share.lanes // threads)
        reads = phase.global_loads * self.view + share.vector * len(phase.loads) * self.shared
        waits = self.wait * -(-rows // self.overlap) if phase.global_loads else 0.0
        work = rows * (share.vector * phase.operations + reads) * self._crowd(active) + waits
        if not share.fenced:
            return work
        combined = -(-phase.count // threads) * share.slices * (1 + self.shared)
        publishing = share.vector * self.publish * self._crowd(active)
        return work + publishing + self.fence + combined * self._crowd(min(threads, phase.count))

    def _product(
        self, phase: PhaseFacts, arrangement: Arrangement, threads: int, subgroups: int
    ) -> float:
        crowd = self._crowd(threads)
        if arrangement.kind == "matrix":
            # mma.m16n8k16, or 8x8x8 with its loads and stores of results
            size, depth = (128, 16) if phase.half else (64, 8)
            results = max(1.0, phase.rows * phase.columns / size / subgroups)
            return results * max(1, phase.depth // depth) * self.matrix * crowd
        if arrangement.kind == "fma":
            rows, columns = phase.rows // arrangement.down, phase.columns // arrangement.across
            return phase.depth * (rows * columns + self.shared * (rows + columns)) * crowd
        return -(-phase.count // threads) * phase.depth * (1 + 2 * self.shared) * crowd


Factory = Callable[[], GroupCost]
_COSTS: dict[tuple[str, str | None], Factory] = {
    ("default", None): PriorCost,
    ("default", "cuda"): QueueCost,
    ("analytic", None): PriorCost,
    ("analytic", "cuda"): lambda: PriorCost(units=132),
}


def register_group_cost(name: str, factory: Factory, *, kind: str | None = None) -> None:
    """Make a cost of groups selectable by ``CompileOptions(cost_policy=name)``.

    The row kernels have their own policies (:func:`tvm_tilex.plan.cost.register_cost_policy`).

    Raises
    ------
    OptionError
        If another factory has the name for that kind.
    """
    known = _COSTS.setdefault((name, kind), factory)
    if known is not factory:
        raise OptionError(f"group cost {name!r} is registered already: choose another name")


def group_cost(name: str, kind: str | None = None) -> GroupCost:
    """The cost of that name for a target kind; a name for row kernels only means the default."""
    for key in ((name, kind), (name, None), ("default", kind)):
        if key in _COSTS:
            return _COSTS[key]()
    return PriorCost()

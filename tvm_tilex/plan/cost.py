"""Cost policies: immutable facts of a legal candidate in, a score out; lower is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvm_tilex.errors import OptionError
from tvm_tilex.plan.cost_facts import CostFacts
from tvm_tilex.plan.in_turn import in_turn
from tvm_tilex.plan.occupancy import OccupancyCost

__all__ = [
    "IN_TURN",
    "AnalyticCost",
    "CostFacts",
    "CostPolicy",
    "LatencyCost",
    "OccupancyCost",
    "ServiceCost",
    "cost_policy",
    "register_cost_policy",
    "score",
]


IN_TURN = "occupancy_in_turn"


class CostPolicy(Protocol):
    """Scores a legal candidate; must be finite and not negative."""

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        ...


@dataclass(frozen=True)
class AnalyticCost:
    """The uncalibrated prior of the specification, section 6: dimensionless, not time.

    alpha * rounds + beta * |R| * S + gamma / Q
    """

    alpha: float = 1.0
    beta: float = 2.0
    gamma: float = 16.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise OptionError(f"cost coefficient {name}={value} must be finite, not negative")

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        return (
            self.alpha * facts.rounds
            + self.beta * facts.reductions * facts.subgroups
            + self.gamma / facts.programs_per_group
        )


@dataclass(frozen=True)
class ServiceCost:
    """The analytic prior plus the memory service that a candidate's slots demand.

    A packed tail of cooperating programs replays the last row: its slots read but never write
    (spec section 6), so reads are priced for ``read_slots`` and writes for ``write_slots``, both as
    elements a thread and group. ``read`` and ``write`` are dimensionless, like the prior's.
    """

    analytic: AnalyticCost = AnalyticCost()
    read: float = 0.5
    write: float = 0.5

    def __post_init__(self) -> None:
        for name in ("read", "write"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise OptionError(f"cost coefficient {name}={value} must be finite, not negative")

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        group = facts.workers * facts.programs_per_group // facts.blocks_per_program
        threads = group * facts.physical_groups
        reads = self.read * facts.reads * facts.read_slots
        writes = self.write * facts.writes * facts.write_slots
        return self.analytic(facts) + (reads + writes) / threads


@dataclass(frozen=True)
class LatencyCost:
    """The longest path of one program, for launches of fewer programs than the device has cores.

    ``rounds * max(1, threads / issue) + |R| * steps + [S > 1] * (|R| * steps + |X| * barrier)``: a
    worker's elements one after the other, slower where a threadgroup has more threads than a core
    issues at once; then each reduction, a tree of ``steps`` over the lanes and, between SIMD
    groups, a second tree; X are the exchanges, each behind a barrier. In operations of one thread;
    not fitted to a device.
    """

    issue: float = 512.0
    steps: float = 5.0
    barrier: float = 4.0

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        threads = facts.workers * facts.programs_per_group
        trees = facts.reductions * self.steps
        between = trees + facts.exchanges * self.barrier if facts.subgroups > 1 else 0.0
        exchange = trees + between
        return facts.rounds * max(1.0, threads / self.issue) + exchange


Factory = Callable[[], CostPolicy]


# (name, target kind) -> factory; kind None serves every target without a policy of its own.
_POLICIES: dict[tuple[str, str | None], Factory] = {
    ("default", None): AnalyticCost,
    ("default", "cuda"): OccupancyCost,
    ("analytic", None): AnalyticCost,
    ("occupancy", None): OccupancyCost,
    (IN_TURN, None): in_turn,
    ("latency", None): LatencyCost,
    ("service", None): ServiceCost,
}


def register_cost_policy(name: str, factory: Factory, *, kind: str | None = None) -> None:
    """Make a policy selectable by ``CompileOptions(cost_policy=name)``.

    Parameters
    ----------
    name
        A new name: compiled kernels are cached under it, so that it can't change its meaning.
    factory
        Called without arguments for every plan; returns the policy.
    kind
        The target kind that the policy is for; None for every kind without one of its own.

    Raises
    ------
    OptionError
        If another factory has the name for that kind.
    """
    known = _POLICIES.setdefault((name, kind), factory)
    if known is not factory:
        raise OptionError(f"cost policy {name!r} is registered already: choose another name")


def cost_policy(name: str, kind: str | None = None, family: str | None = None) -> CostPolicy:
    """Return the policy of that name for a device family, else for its target kind.

    Raises
    ------
    OptionError
        If there is none.
    """
    of_family = _POLICIES.get((name, family)) if family is not None else None
    factory = of_family or _POLICIES.get((name, kind)) or _POLICIES.get((name, None))
    if factory is None:
        usable = sorted({known for known, of in _POLICIES if of in (None, kind)})
        raise OptionError(f"cost_policy={name!r}: registered are {', '.join(usable)}")
    return factory()


def score(policy: CostPolicy, facts: CostFacts) -> float:
    """Score a candidate, refusing a policy that answers nonsense.

    Raises
    ------
    OptionError
        If the score is not finite or is negative.
    """
    given = policy(facts)
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise OptionError(
            f"cost policy gave {given!r} for S={facts.subgroups}; must be finite, not negative"
        )
    return value

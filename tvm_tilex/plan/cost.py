"""Cost policies: immutable facts of a legal candidate in, a score out; lower is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvm_tilex.errors import OptionError

__all__ = [
    "AnalyticCost",
    "CostFacts",
    "CostPolicy",
    "ServiceCost",
    "StreamingCost",
    "cost_policy",
    "register_cost_policy",
    "score",
]


@dataclass(frozen=True)
class CostFacts:
    """Facts of one legal candidate. Counts are exact; nothing here is measured occupancy.

    ``physical_groups`` is ceil(P/Q); ``elements`` the useful scalar elements of a program over its
    separate domains and reductions; ``useful_lane_work`` is elements / (rounds * W).
    ``read_slots`` counts program slots that load (packed tails replay), ``write_slots`` those that
    store. ``widest`` is the most elements a worker owns of one domain or reduction, and
    ``vector_width`` how many consecutive ones could move together. ``repartitioned`` counts the
    elements that a program places anew: each is stored once more and read from there.
    """

    subgroups: int
    programs_per_group: int
    lane_elements: int
    workers: int
    rounds: int
    reductions: int
    physical_groups: int
    elements: int
    useful_lane_work: float
    shared_bytes: int
    stripe_scalars: int
    reads: int
    writes: int
    read_slots: int
    write_slots: int
    widest: int
    vector_width: int
    repartitioned: int = 0


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
        threads = facts.workers * facts.programs_per_group * facts.physical_groups
        reads = self.read * facts.reads * facts.read_slots
        writes = self.write * facts.writes * facts.write_slots
        return self.analytic(facts) + (reads + writes) / threads


@dataclass(frozen=True)
class StreamingCost:
    """A row operator on a GPU at its memory limit: distances from the shape that streams best.

    ``|log2(elements a worker / elements)| + thread * |log2(threads / threads)| + vector * [V is not
    the vector width] + waste * (1 - useful lane work)``. The coefficients are the fit of
    ``scripts/benchmark/fit_cuda_cost.py`` to 858 measured kernels of six operators on one H200
    (configs/measurements): mean regret 1.3 %, worst 7.9 % over rows of up to 32,000 elements.
    Dimensionless. ``configs/targets/h200.json`` states the same numbers for that device.
    """

    elements: float = 12.0
    thread: float = 0.1
    threads: float = 128.0
    vector: float = 0.3
    waste: float = 4.0

    def __call__(self, facts: CostFacts) -> float:
        """Return the score."""
        threads = facts.workers * facts.programs_per_group
        return (
            abs(math.log2(facts.widest / self.elements))
            + self.thread * abs(math.log2(threads / self.threads))
            + self.vector * (facts.lane_elements != facts.vector_width)
            + self.waste * (1 - facts.elements / (facts.rounds * facts.workers))
        )


Factory = Callable[[], CostPolicy]

# (name, target kind) -> factory; kind None serves every target without a policy of its own.
_POLICIES: dict[tuple[str, str | None], Factory] = {
    ("default", None): AnalyticCost,
    ("default", "cuda"): StreamingCost,
    ("analytic", None): AnalyticCost,
    ("streaming", None): StreamingCost,
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

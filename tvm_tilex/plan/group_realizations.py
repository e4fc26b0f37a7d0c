"""What realizes each phase of a group: permission first, then a demand, then the price."""

from __future__ import annotations

from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_columns import column_share
from tvm_tilex.plan.group_cost import GroupCost
from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement

__all__ = ["realize"]


def realize(
    facts: GroupFacts,
    target: TargetFacts,
    request: GroupRequest,
    arrangements: tuple[Arrangement | None, ...],
    threads: int,
    cost: GroupCost,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Each phase's realization, and notes on how those of reductions were chosen."""
    found: list[str] = []
    notes: list[str] = []
    for number, phase in enumerate(facts.phases):
        arrangement = arrangements[number]
        if arrangement is not None:
            found.append(arrangement.kind)
        elif phase.kind is PhaseKind.reduction and phase.aligned >= 0:
            found.append("fragment")
        elif phase.kind is PhaseKind.reduction:
            name, why = _reduction(number, phase, target, request, threads, cost)
            found.append(name)
            notes += [f"phase {number}: {why}"] if why else []
        else:
            found.append("elements")
    return tuple(found), tuple(notes)


def _reduction(
    number: int,
    phase: PhaseFacts,
    target: TargetFacts,
    request: GroupRequest,
    threads: int,
    cost: GroupCost,
) -> tuple[str, str]:
    """A reduction's realization, and why where it is not the collective that was possible."""
    share = column_share(number, phase, threads)
    if not phase.collective and share is None:
        return "serial", phase.reason
    if not request.collectives:
        return "serial", "the option is off"
    if target.lanes != 32:
        return "serial", f"the target has {target.lanes} lanes, not 32"
    if threads % target.lanes:
        return "serial", f"{threads} threads are not whole SIMD groups"
    prices = cost.reductions(phase, share, threads, target.lanes)
    if request.reductions is not None:
        if request.reductions in prices:
            return request.reductions, f"the {request.reductions} realization is asked for"
        return "serial", phase.reason or "its outputs do not lie side by side"
    best = min(prices, key=lambda name: prices[name])
    compared = ", ".join(f"{name} {price:.4g}" for name, price in sorted(prices.items()))
    shared = ""
    if best == "columns" and share is not None:
        shared = f", {share.vector} outputs a thread in {share.slices} slices"
    return best, f"{best} is the cheapest{shared} ({compared})"

"""How many trials each search needs, replayed on recorded measurements.

    python scripts/benchmark/search_trials.py configs/measurements/h200_float32.json ...

The times of ``configs/measurements`` stand for a device: a trial is a look at one of them. For each
search, in each cell (operator, shape, storage type): the trials until one is within 2 % of the
fastest plan of the cell; then, with the search's own end (the model's order stops after 8 trials
that brought nothing), the trials spent and how far the result is from the fastest. Random orders
and optuna are means over seeds. Combinations that are no measured plan cost optuna no trial.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import click
from measured_plans import Plan, candidates_of, order_of, read_plans

from tvm_tilex.plan import AnalyticCost, cost_policy
from tvm_tilex.tune.search import Exhaustive, ModelOrder, OptunaSearch, Strategy

NEAR = 0.02
PATIENCE = 8


@dataclass(frozen=True)
class Spent:
    """Trials until near the best, trials until the search's own end, and its regret there."""

    near: int
    trials: int
    regret: float


def replay(strategy: Strategy, plans: list[Plan]) -> Spent:
    """Run a strategy to its end, then through what is left in order, counting trials."""
    least = min(plan.microseconds for plan in plans)
    best, near, trials = float("inf"), 0, 0
    tried = set()
    while (index := strategy.next()) is not None:
        if index in tried:
            continue
        tried.add(index)
        trials += 1
        best = min(best, plans[index].microseconds)
        strategy.tell(index, plans[index].microseconds)
        if not near and best <= least * (1 + NEAR):
            near = trials
    return Spent(near or len(plans), trials, best / least - 1)


def searches(plans: list[Plan], seeds: int) -> dict[str, list[Callable[[], Strategy]]]:
    """Every search to compare, once for each seed where it has one."""
    everything = range(len(plans))
    analytic = order_of(plans, AnalyticCost())
    calibrated = order_of(plans, cost_policy("default", "cuda", "h200"))

    def ranked(order: list[int], patience: int) -> Callable[[], Strategy]:
        scores = {index: float(rank) for rank, index in enumerate(order)}
        return lambda: ModelOrder(everything, scores, patience=patience)

    def shuffled(seed: int) -> Callable[[], Strategy]:
        order = list(everything)
        random.Random(seed).shuffle(order)
        return lambda: Exhaustive(order)

    def optuna(seed: int, first: list[int]) -> Callable[[], Strategy]:
        known = candidates_of(plans)
        return lambda: OptunaSearch(known, trials=len(plans), seed=seed, first=first)

    return {
        "model, uncalibrated prior": [ranked(analytic, len(plans))],
        "model, calibrated": [ranked(calibrated, len(plans))],
        f"model, calibrated, patience {PATIENCE}": [ranked(calibrated, PATIENCE)],
        f"model, uncalibrated, patience {PATIENCE}": [ranked(analytic, PATIENCE)],
        "optuna": [optuna(seed, []) for seed in range(seeds)],
        "optuna after the model's first 3": [optuna(s, calibrated[:3]) for s in range(seeds)],
        "random order": [shuffled(seed) for seed in range(10 * seeds)],
    }


@click.command()
@click.argument("measurements", nargs=-1, required=True)
@click.option("--seeds", default=5, show_default=True)
def main(measurements: tuple[str, ...], seeds: int) -> None:
    cells = read_plans(measurements)
    sizes = [len(plans) for plans in cells.values()]
    click.echo(f"{len(cells)} cells of {min(sizes)} to {max(sizes)} plans, {sum(sizes)} in all\n")
    click.echo(
        "| search | trials to within 2 %: mean | worst | trials spent | regret: mean | worst |"
    )
    click.echo("|---|---|---|---|---|---|")
    spent: dict[str, list[Spent]] = {}
    began = time.monotonic()
    for plans in cells.values():
        for name, variants in searches(plans, seeds).items():
            found = [replay(make(), plans) for make in variants]
            mean = Spent(
                statistics.mean(s.near for s in found),
                statistics.mean(s.trials for s in found),
                statistics.mean(s.regret for s in found),
            )
            spent.setdefault(name, []).append(mean)
    for name, found in spent.items():
        click.echo(
            f"| {name} | {statistics.mean(s.near for s in found):.1f} | "
            f"{max(s.near for s in found):.1f} | {statistics.mean(s.trials for s in found):.1f} | "
            f"{statistics.mean(s.regret for s in found):.2%} | "
            f"{max(s.regret for s in found):.1%} |"
        )
    click.echo(f"\n{time.monotonic() - began:.0f} s, {seeds} seeds of optuna")


if __name__ == "__main__":
    main()

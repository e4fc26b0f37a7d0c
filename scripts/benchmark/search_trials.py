"""How many trials each search needs, replayed on recorded measurements.

    python scripts/benchmark/search_trials.py configs/measurements/h200_float32.json ...
    python scripts/benchmark/search_trials.py tuned/report.json ...

The times of ``configs/measurements`` stand for a device, and so do the values of exhaustive tuning
reports: a trial is a look at one of them. For each search, in each cell (operator, shape, storage
type): the trials until one is within 2 % of the best of the cell; then, with the search's own end
(the model's order stops after 8 trials that brought nothing), the trials spent and how far the
result is from the best. Random orders and optuna are means over seeds. Combinations that are no
candidate of the cell cost optuna no trial.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from command_line import RECORD
from measured_plans import Plan, candidates_of, order_of, read_plans, refused

import tvm_tilex as tx
from tvm_tilex.plan import AnalyticCost, cost_policy
from tvm_tilex.tune.report import Report, Section
from tvm_tilex.tune.search import Exhaustive, ModelOrder, Neighbours, OptunaSearch, Strategy
from tvm_tilex.tune.space import Candidate

NEAR = 0.02
PATIENCE = 8


@dataclass(frozen=True)
class Table:
    """Values of a cell's candidates, and the order in which each cost model would try them."""

    candidates: list[Candidate]
    values: list[float]
    orders: dict[str, list[int]]


@dataclass(frozen=True)
class Spent:
    """Trials until near the best, trials until the search's own end, and its regret there."""

    near: float
    trials: float
    regret: float


def of_plans(plans: list[Plan]) -> Table:
    """A cell of recorded times, with CUDA's models."""
    orders = {
        "uncalibrated": order_of(plans, AnalyticCost()),
        "calibrated": order_of(plans, cost_policy("default", "cuda", "h200")),
    }
    return Table(candidates_of(plans), [plan.microseconds for plan in plans], orders)


def of_section(section: Section, metric: str) -> Table:
    """A section of a report, with the model that its candidates were scored by."""
    found = [t for t in section.trials if t.choices and t.value(metric) is not None]
    found.sort(key=lambda trial: trial.candidate)
    scores = [(trial.facts or {})["score"] for trial in found]
    candidates = [
        Candidate(i, trial.choices, tx.CompileOptions.from_json(trial.options))
        for i, trial in enumerate(found)
    ]
    order = sorted(range(len(found)), key=lambda i: (scores[i], i))
    return Table(candidates, [trial.value(metric) or 0.0 for trial in found], {"used": order})


def replay(strategy: Strategy, values: list[float]) -> Spent:
    """Run a strategy to its end, counting trials."""
    least, best, near, tried = min(values), float("inf"), 0, set()
    while (index := strategy.next()) is not None:
        if index in tried:
            continue
        tried.add(index)
        best = min(best, values[index])
        strategy.tell(index, values[index])
        if not near and best <= least * (1 + NEAR):
            near = len(tried)
    return Spent(near or len(values), len(tried), best / least - 1)


def searches(table: Table, seeds: int) -> dict[str, list[Callable[[], Strategy]]]:
    """Every search to compare, once for each seed where it has one."""
    everything = range(len(table.values))

    def ranked(order: list[int], patience: int) -> Callable[[], Strategy]:
        scores = {index: float(rank) for rank, index in enumerate(order)}
        return lambda: ModelOrder(everything, scores, patience=patience)

    def near(order: list[int], patience: int) -> Callable[[], Strategy]:
        scores = {index: float(rank) for rank, index in enumerate(order)}
        return lambda: Neighbours(table.candidates, everything, scores, patience=patience)

    def shuffled(seed: int) -> Callable[[], Strategy]:
        order = list(everything)
        random.Random(seed).shuffle(order)
        return lambda: Exhaustive(order)

    def optuna(seed: int, first: list[int]) -> Callable[[], Strategy]:
        # Beyond this many trials it is no search any more.
        most = min(len(everything), 100)
        return lambda: OptunaSearch(table.candidates, trials=most, seed=seed, first=first)

    found: dict[str, list[Callable[[], Strategy]]] = {}
    last = list(table.orders.values())[-1]
    for name, order in table.orders.items():
        found[f"model ({name}), to the end"] = [ranked(order, len(everything))]
        found[f"model ({name}), patience {PATIENCE}"] = [ranked(order, PATIENCE)]
    for patience in (8, 12, 16):
        found[f"neighbours of the best, patience {patience}"] = [near(last, patience)]
    found["neighbours of the best, to the end"] = [near(last, len(everything))]
    found["optuna"] = [optuna(seed, []) for seed in range(seeds)]
    found["optuna after the model's first 3"] = [optuna(s, last[:3]) for s in range(seeds)]
    found["random order"] = [shuffled(seed) for seed in range(10 * seeds)]
    return found


def tables(paths: tuple[str, ...]) -> list[Table]:
    """The cells of records and of reports."""
    records = [path for path in paths if "schema" not in json.loads(Path(path).read_text())]
    found = [of_plans(plans) for plans in read_plans(records).values()]
    for path in paths:
        if path not in records:
            report = Report.read(Path(path))
            found += [of_section(section, report.settings.metric) for section in report.sections]
    return found


@click.command()
@click.argument("measurements", nargs=-1, required=True, type=RECORD)
@click.option("--seeds", default=5, show_default=True)
def main(measurements: tuple[str, ...], seeds: int) -> None:
    cells = tables(measurements)
    sizes = [len(table.values) for table in cells]
    click.echo(
        f"{len(cells)} cells of {min(sizes)} to {max(sizes)} candidates, {sum(sizes)} in all"
    )
    click.echo(f"({refused()} recorded plans are left out)\n")
    click.echo(
        "| search | trials to within 2 %: mean | worst | trials spent | regret: mean | worst |"
    )
    click.echo("|---|---|---|---|---|---|")
    spent: dict[str, list[Spent]] = {}
    for table in cells:
        for name, variants in searches(table, seeds).items():
            found = [replay(make(), table.values) for make in variants]
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


if __name__ == "__main__":
    main()

"""Fits the coefficients of plan.group_queue.QueueCost to measured cooperative groups.

    python scripts/benchmark/fit_group_cost.py configs/measurements/h200_attention.json \
        configs/measurements/h200_groups.json [--check]

For every kernel, shape and storage type (a problem), the regret of a cost is how much slower its
choice is than the fastest measured plan, tau is Kendall's rank correlation of price and time.
The fit minimizes the squared error of the logarithm of the times, up to a factor for each problem
and weighted to the fast plans, plus the mean regret, plus the mean regret among plans of equal tile
sizes, plus WEIGHT times the mean regret of automatic thread counts, plus the squared logarithm of
how far each coefficient is from START: what the measurements do not tell stays there. An automatic
thread count chooses among all that the planner considers of a tile, measured or not; one that
nobody has measured counts as UNMEASURED slower than the fastest that was.
`--without KERNEL` leaves a kernel out of the fit and reports its order alone, too. Rows whose text
is emitted no more are left out and counted. `--check` only prints the order of the coefficients in
use, and of the prior.
"""

import dataclasses
import itertools
import math

import click
import numpy
from command_line import RECORD
from group_choices import Choices
from group_features import group_features, scores
from measured_groups import read_groups, score_of

from tvm_tilex.plan.group_cost import PriorCost
from tvm_tilex.plan.group_queue import QueueCost

# A multiprocessor of an H200 multiplies 512 pairs a cycle and scheduler, so that m16n8k16 takes 4
# issue slots. A load of fragments moves 512 bytes of the 128 a cycle that four schedulers share.
START = QueueCost(
    shared=3.0, view=2.0, scattered=8.0, step=2.0, publish=2.0, matrix=4.0, fragment=16.0,
    wait=600.0, overlap=8.0, ahead=200.0, fence=30.0, fence_subgroup=2.0, start=800.0,
    cached_byte=0.02, dependency=1.5, registers=40.0, sharpness=2.0, tail=0.5,
)  # fmt: skip
TRUST = 0.004
WEIGHT, UNMEASURED, SPREAD = 4.0, 0.15, 0.01  # of automatic choices; SPREAD of the log of prices
# A warp issues one instruction a cycle at most; compiled kernels have 18 to 104 registers more than
# their tiles take, nine of ten of them 28 to 64.
BOUNDS = {
    "dependency": (1.0, 16.0),
    "sharpness": (1.0, 8.0),
    "overlap": (1.0, 64.0),
    "registers": (28.0, 64.0),
}
LIMITS = ("byte", "multiprocessors", "resident_threads", "resident_registers", "resident_bytes")
NAMES = [f.name for f in dataclasses.fields(QueueCost) if f.name not in LIMITS]


def order(plans, cost):
    """(tau, regret) of one problem."""
    pairs = [(score_of(plan, cost), plan.microseconds) for plan in plans]
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    agree, differ = sum(s > 0 for s in signs), sum(s < 0 for s in signs)
    best = min(us for _, us in pairs)
    return (agree - differ) / max(1, agree + differ), min(pairs)[1] / best - 1


def by_tile(plans):
    """Numbers of the plans that differ in threads and realizations alone, two or more each."""
    found = {}
    for number, plan in enumerate(plans):
        tile = (*plan.row["constants"].values(), plan.row.get("slices"))
        found.setdefault(tile, []).append(number)
    return [numbers for numbers in found.values() if len(numbers) > 1]


def chosen(scores, times):
    """How much slower the plan of the least price is than the fastest."""
    return times[int(numpy.argmin(scores))] / times.min() - 1


class Loss:
    """The loss of a cost over ``problems``; automatic choices are those of ``choices``."""

    def __init__(self, problems, choices):
        self.choices = choices
        self.kept = [problem in problems for problem, *_ in choices.tiles]
        self.problems, rows = [], []
        for plans in problems.values():
            first = len(rows)
            rows += [group_features(group) for plan in plans for group in plan.groups]
            starts = numpy.cumsum([0, *(len(plan.groups) for plan in plans)])[:-1]
            times = numpy.array([plan.microseconds for plan in plans])
            self.problems.append((slice(first, len(rows)), starts, times, by_tile(plans)))
        self.rows = numpy.array(rows)

    def __call__(self, cost):
        prices = scores(self.rows, cost)
        total, plans, regrets, within = 0.0, 0.0, [], []
        for part, starts, times, tiles in self.problems:
            found = numpy.log(numpy.add.reduceat(prices[part], starts))
            weight = numpy.exp(2 - 2 * times / times.min())
            error = found - numpy.log(times)
            error -= (weight * error).sum() / weight.sum()
            total += (weight * error**2).sum() / weight.sum() * len(times)
            plans += len(times)
            regrets.append(chosen(found, times))
            within += [chosen(found[numbers], times[numbers]) for numbers in tiles]
        moved = sum(math.log(getattr(cost, name) / getattr(START, name)) ** 2 for name in NAMES)
        risk = self.choices.risk(cost, UNMEASURED, SPREAD, self.kept)
        near = numpy.mean(regrets) + numpy.mean(within or [0.0])
        return 3 * total / plans + near + WEIGHT * risk + TRUST * moved


def fit(loss, seed, steps):
    generator = numpy.random.default_rng(seed)
    best = START
    least = loss(best)
    for _ in range(steps):
        size, share = generator.choice([0.03, 0.1, 0.3, 0.8]), generator.choice([0.1, 0.3])
        changed = {
            name: _bounded(name, getattr(best, name) * math.exp(size * generator.normal()))
            for name in NAMES
            if generator.random() < share
        }
        candidate = dataclasses.replace(best, **changed)
        value = loss(candidate)
        if value < least:
            best, least = candidate, value
    return best, least


def _bounded(name, value):
    least, most = BOUNDS.get(name, (0.0, math.inf))
    return min(max(value, least), most)


def report(name, problems, cost, whole=False):
    found = {problem: order(plans, cost) for problem, plans in problems.items()}
    taus, regrets = zip(*found.values(), strict=True)
    within = []
    for plans in problems.values():
        times = numpy.array([plan.microseconds for plan in plans])
        scores = numpy.array([score_of(plan, cost) for plan in plans])
        within += [chosen(scores[numbers], times[numbers]) for numbers in by_tile(plans)]
    click.echo(
        f"{name}: mean tau {numpy.mean(taus):.2f}, mean regret {numpy.mean(regrets):.1%}, "
        f"worst {max(regrets):.0%}, {len(found)} problems; "
        f"{len(within)} choices between plans of equal tiles: "
        f"mean regret {numpy.mean(within or [0.0]):.1%}, worst {max(within, default=0.0):.0%}"
    )
    if not whole:
        return
    click.echo("| problem | storage | plans | tau | slowdown |\n|---|---|---|---|---|")
    for (kernel, extents, dtype), (tau, regret) in found.items():
        sizes = " ".join(f"{key} {value}" for key, value in extents)
        plans = len(problems[kernel, extents, dtype])
        click.echo(f"| {kernel} {sizes} | {dtype} | {plans} | {tau:.2f} | {regret:.0%} |")


def report_choices(name, choices, cost):
    """What an automatic thread count takes of each tile, those that are slow or not measured."""
    found = choices.regrets(cost)
    slower = [slow for *_, slow in found if slow is not None]
    click.echo(
        f"{name}: automatic thread counts of {len(found)} tiles: {len(slower)} measured, "
        f"{numpy.mean(slower):.1%} slower than the fastest, {sum(s <= 0.05 for s in slower)} "
        f"within 5 %, worst {max(slower):.0%}"
    )
    for tile, threads, slow in found:
        if slow is None or slow > 0.03:
            (kernel, extents, dtype), key, _ = choices.tiles[tile]
            sizes = " ".join(f"{name} {value}" for name, value in extents)
            told = "not measured" if slow is None else f"{slow:.0%}"
            click.echo(f"    {kernel} {sizes} {dtype} {key}: {threads} {told}")


@click.command()
@click.argument("measurements", nargs=-1, required=True, type=RECORD)
@click.option("--check", is_flag=True)
@click.option("--seed", default=0)
@click.option("--steps", default=15000)
@click.option("--without", default="")
def main(measurements, check, seed, steps, without):
    problems, stale = read_groups(measurements)
    choices = Choices(problems)
    problems = {problem: plans for problem, plans in problems.items() if len(plans) > 1}
    count = sum(map(len, problems.values()))
    click.echo(f"{count} plans; {stale} rows left out, measured in another text")
    report("prior", problems, PriorCost(units=132), whole=check)
    report("coefficients in use", problems, QueueCost(), whole=True)
    report_choices("coefficients in use", choices, QueueCost())
    if check:
        return
    kept = {problem: plans for problem, plans in problems.items() if problem[0] != without}
    best, least = fit(Loss(kept, choices), seed, steps)
    click.echo(f"loss {least:.4f}")
    report("new fit", problems, best, whole=not without)
    report_choices("new fit", choices, best)
    if without:
        left = {problem: plans for problem, plans in problems.items() if problem[0] == without}
        report(f"{without}, which was not fitted", left, best, whole=True)
    for name in NAMES:
        click.echo(f"{name} = {getattr(best, name):.4g}")


if __name__ == "__main__":
    main()

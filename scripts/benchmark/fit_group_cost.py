"""Fits the coefficients of plan.group_queue.QueueCost to measured cooperative groups.

    python scripts/benchmark/fit_group_cost.py configs/measurements/h200_attention.json \
        configs/measurements/h200_groups.json [--check]

For every kernel, shape and storage type (a problem), the regret of a cost is how much slower its
choice is than the fastest measured plan, tau is Kendall's rank correlation of price and time.
The fit minimizes the squared error of the logarithm of the times, up to a factor for each problem
and weighted to the fast plans, plus the mean regret, plus the mean regret among plans of equal tile
sizes, between which the compiler chooses, plus the squared logarithm of how far each coefficient
is from START, estimates by hand: what the measurements do not tell stays there.
`--without KERNEL` leaves a kernel out of the fit and reports its order alone, too. Rows whose text
is emitted no more are left out and counted. `--check` only prints the order of the coefficients in
use, and of the prior.
"""

import dataclasses
import itertools
import math

import click
import numpy
from measured_groups import read_groups, score_of

from tvm_tilex.plan.group_cost import PriorCost
from tvm_tilex.plan.group_queue import QueueCost

START = QueueCost(
    shared=2.0, view=2.0, scattered=8.0, step=2.0, publish=2.0, matrix=6.0, fragment=4.0,
    wait=600.0, overlap=8.0, ahead=200.0, fence=30.0, fence_subgroup=2.0, start=800.0,
    cached_byte=0.02, dependency=4.0, registers=40.0, sharpness=2.0, tail=0.5,
)  # fmt: skip
TRUST = 0.004
# A warp issues one instruction a cycle at most; compiled kernels have 18 to 104 registers more than
# their tiles take, most of them fewer than 64.
BOUNDS = {
    "dependency": (1.0, 16.0),
    "sharpness": (1.0, 8.0),
    "overlap": (1.0, 64.0),
    "registers": (16.0, 64.0),
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


def loss(problems, cost):
    total, weights, regrets, within = 0.0, 0.0, [], []
    for plans in problems.values():
        times = numpy.array([plan.microseconds for plan in plans])
        scores = numpy.log([score_of(plan, cost) for plan in plans])
        weight = numpy.exp(2 - 2 * times / times.min())
        error = scores - numpy.log(times)
        error -= (weight * error).sum() / weight.sum()
        total += (weight * error**2).sum() / weight.sum() * len(plans)
        weights += len(plans)
        regrets.append(chosen(scores, times))
        within += [chosen(scores[numbers], times[numbers]) for numbers in by_tile(plans)]
    moved = sum(math.log(getattr(cost, name) / getattr(START, name)) ** 2 for name in NAMES)
    return 3 * total / weights + numpy.mean(regrets) + numpy.mean(within or [0.0]) + TRUST * moved


def fit(problems, seed, steps):
    generator = numpy.random.default_rng(seed)
    best = START
    least = loss(problems, best)
    for _ in range(steps):
        size = generator.choice([0.05, 0.2, 0.6])
        changed = {
            name: _bounded(name, getattr(best, name) * math.exp(size * generator.normal()))
            for name in NAMES
            if generator.random() < 0.3
        }
        candidate = dataclasses.replace(best, **changed)
        value = loss(problems, candidate)
        if value < least:
            best, least = candidate, value
    return best


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


@click.command()
@click.argument("measurements", nargs=-1, required=True)
@click.option("--check", is_flag=True)
@click.option("--seed", default=0)
@click.option("--steps", default=2000)
@click.option("--without", default="")
def main(measurements, check, seed, steps, without):
    problems, stale = read_groups(measurements)
    problems = {problem: plans for problem, plans in problems.items() if len(plans) > 1}
    count = sum(map(len, problems.values()))
    click.echo(f"{count} plans; {stale} rows left out, measured in another text")
    report("prior", problems, PriorCost(units=132), whole=check)
    report("coefficients in use", problems, QueueCost(), whole=True)
    if check:
        return
    kept = {problem: plans for problem, plans in problems.items() if problem[0] != without}
    best = fit(kept, seed, steps)
    report("new fit", problems, best, whole=True)
    if without:
        left = {problem: plans for problem, plans in problems.items() if problem[0] == without}
        report(f"{without}, which was not fitted", left, best)
    for name in NAMES:
        click.echo(f"{name} = {getattr(best, name):.4g}")


if __name__ == "__main__":
    main()

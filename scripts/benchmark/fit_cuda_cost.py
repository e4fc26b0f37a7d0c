"""Fits the coefficients of plan.occupancy.OccupancyCost to measured kernels.

    python scripts/benchmark/fit_cuda_cost.py configs/measurements/h200_*.json [--check]

For every operator, shape and storage type, the regret of a policy is how much slower its choice is
than the fastest measured plan. The fit minimizes the squared error of the logarithm of the times,
up to a factor for each such case and weighted to the fast plans, plus the mean regret. `--check`
only prints the regret of the coefficients in use, and of the uncalibrated prior.
"""

import dataclasses
import math

import click
import numpy
from measured_plans import read_plans, regret_of

from tvm_tilex.plan import AnalyticCost
from tvm_tilex.plan.occupancy import OccupancyCost

# Limits of the device are not fitted.
FIXED = (
    "bandwidth",
    "multiprocessors",
    "resident_threads",
    "resident_registers",
    "resident_groups",
)
STEPS = 6000


def regrets(cells, policy):
    return {cell: regret_of(plans, policy)[0] for cell, plans in cells.items()}


def loss(cells, policy):
    total, weights = 0.0, 0.0
    for plans in cells.values():
        times = numpy.array([plan.microseconds for plan in plans])
        weight = numpy.exp(4 - 4 * times / times.min())
        scores = numpy.array([math.log(policy(plan.facts)) for plan in plans])
        error = scores - numpy.log(times)
        error -= (weight * error).sum() / weight.sum()
        total += (weight * error**2).sum()
        weights += weight.sum()
    found = list(regrets(cells, policy).values())
    beyond = sum(max(regret - 0.03, 0.0) for regret in found) / len(found)
    return 3 * total / weights + 3 * sum(found) / len(found) + 3 * beyond


def fit(cells, seed):
    generator = numpy.random.default_rng(seed)
    best = OccupancyCost()
    least = loss(cells, best)
    names = [f.name for f in dataclasses.fields(best) if f.name not in FIXED]
    for _ in range(STEPS):
        size = generator.choice([0.02, 0.1, 0.4])
        changed = {
            name: getattr(best, name) * math.exp(size * generator.normal())
            for name in names
            if generator.random() < 0.4
        }
        candidate = dataclasses.replace(best, **changed)
        value = loss(cells, candidate)
        if value < least:
            best, least = candidate, value
    return best


def report(name, found):
    values = sorted(found.items(), key=lambda item: -item[1])
    mean = sum(found.values()) / len(found)
    click.echo(f"{name}: mean regret {mean:.2%}, worst {values[0][1]:.1%}, {len(found)} cases")
    for key, regret in values[:8]:
        click.echo(f"  {' '.join(map(str, key))}: {regret:.1%}")


@click.command()
@click.argument("measurements", nargs=-1, required=True)
@click.option("--check", is_flag=True)
@click.option("--seed", default=0)
def main(measurements, check, seed):
    cells = read_plans(measurements)
    report("uncalibrated prior", regrets(cells, AnalyticCost()))
    report("coefficients in use", regrets(cells, OccupancyCost()))
    if check:
        return
    best = fit(cells, seed)
    report("new fit", regrets(cells, best))
    for field in dataclasses.fields(best):
        click.echo(f"{field.name} = {getattr(best, field.name):.4g}")


if __name__ == "__main__":
    main()

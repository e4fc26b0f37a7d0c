"""Fits the coefficients of plan.occupancy.OccupancyCost to measured kernels.

    python scripts/benchmark/fit_cuda_cost.py configs/measurements/h200_*.json [--check]

For every operator, shape and storage type, the regret of a policy is how much slower its choice,
among the plans that automatic planning considers, is than the fastest measured plan of all. The
fit minimizes the squared error of the logarithm of the times, up to a factor for each such case and
weighted to the fast plans, plus the mean regret, what exceeds 2 %, and the worst; a coefficient
more than a factor of four from its physical estimate costs too. Simulated annealing from the
coefficients in use: about ten minutes a seed. `--check` only prints the regret of the coefficients
in use, and of the uncalibrated prior.
"""

import dataclasses
import math

import click
import numpy
from measured_plans import read_plans, regret_of

from tvm_tilex.plan import AnalyticCost
from tvm_tilex.plan.occupancy import OccupancyCost

# Estimates from the device's figures and from single kernels; limits of the device are not fitted.
ESTIMATES = {
    "bandwidth": 32_000,
    "cached": 0.3,
    "repeated": 0.4,
    "repeated_depth": 0.2,
    "registers": 25,
    "registers_per_scalar": 0.8,
    "start": 0.4,
    "start_per_warp": 0.0045,
    "barrier": 0.067,
    "barrier_per_doubling": 0.026,
    "cluster_start": 2.05,
    "cluster_barrier": 1.24,
    "cluster_barrier_per_warp": 0.02,
    "round": 0.0076,
    "access": 0.02,
    "staging": 0.3,
    "staging_per_element": 0.005,
    "launch": 0.1,
    "launch_per_warp": 0.13,
    "slots_per_round": 0.2,
    "slots_per_instruction": 0.5,
    "slots_per_access": 0.5,
    "slots_per_collective": 0.5,
    "knee": 2.4,
    "mixing": 3,
    "tail": 0.4,
    "vector": 0.1,
    "packed": 0.02,
    "cluster": 0.03,
    "staged": 0.01,
}
STEPS = 20_000
HOTTEST = 0.006


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
    beyond = sum(max(regret - 0.02, 0.0) for regret in found)
    distances = [abs(math.log(getattr(policy, n) / e)) for n, e in ESTIMATES.items()]
    implausible = sum(max(distance - 1.4, 0.0) ** 2 for distance in distances)
    choice = 4 * (sum(found) + beyond) / len(found) + 0.2 * max(found)
    return 1.5 * total / weights + choice + 0.01 * implausible


def fit(cells, seed):
    generator = numpy.random.default_rng(seed)
    here = best = OccupancyCost()
    value = least = loss(cells, best)
    for step in range(STEPS):
        size = generator.choice([0.02, 0.1, 0.4])
        changed = {
            name: getattr(here, name) * math.exp(size * generator.normal())
            for name in ESTIMATES
            if generator.random() < 0.35
        }
        candidate = dataclasses.replace(here, **changed)
        found = loss(cells, candidate)
        heat = max(HOTTEST * (1 - step / STEPS), 1e-9)
        if found < value or generator.random() < math.exp((value - found) / heat):
            here, value = candidate, found
        if value < least:
            best, least = here, value
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

"""Fits the coefficients of plan.occupancy.OccupancyCost to measured kernels.

    python scripts/benchmark/fit_cuda_cost.py configs/measurements/h200_*.json [--check]

For every operator, shape and storage type, the regret of a policy is how much slower its choice,
among the plans that automatic planning considers, is than the fastest measured plan of all. The
fit minimizes the squared error of the logarithm of the times, up to a factor for each such case and
weighted to the fast plans, plus the mean regret, what exceeds 2 %, and the worst; a coefficient
more than a factor of four from its physical estimate costs too. Simulated annealing from the
coefficients in use: about half an hour a seed. `--peers` adds what the choices lie behind the best
recorded peer. `--check` only prints the regret of the coefficients in use, and of the uncalibrated
prior.
"""

import dataclasses
import json
import math
from pathlib import Path

import click
import numpy
from command_line import RECORD
from measured_plans import read_plans, regret_of

from tvm_tilex.plan import AnalyticCost
from tvm_tilex.plan.occupancy import OccupancyCost

# Estimates from the device's figures and from single kernels, where a fit may begin; only their
# order of magnitude is meant. Limits of the device are not fitted.
ESTIMATES = {
    "bandwidth": 32_000,
    "cached": 0.3,
    "repeated": 0.4,
    "repeated_depth": 0.2,
    "registers": 20,
    "registers_per_scalar": 0.6,
    "registers_per_move": 0.15,
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
    "spilled": 1.0,
    "released": 0.02,
    "depth": 0.01,
    "crowd": 0.1,
    "latency_crowd": 0.03,
    "beside": 0.1,
    "slots_per_shifted": 2,
    "late": 0.1,
    "late_access": 0.02,
    "separate": 0.5,
}
STEPS = 20_000
HOTTEST = 0.006


def regrets(cells, policy):
    return {cell: regret_of(plans, policy)[0] for cell, plans in cells.items()}


def behind(found, margins):
    """How far each choice is behind the best peer, beyond what two runs differ by."""
    return [max((1 + found[cell]) / margins[cell] - 1 - 0.003, 0.0) for cell in margins]


def margins_of(cells, paths):
    """The fastest plan's rate over the best peer's, of every cell that ``paths`` have peers of."""
    peers = {}
    for path in paths:
        record = json.loads(Path(path).read_text())
        for row in record["rows"]:
            cell = (row["operator"], *row["shape"], row["dtype"])
            if not row["implementation"].startswith("tilex") and row.get("us"):
                peers[cell] = min(row["us"], peers.get(cell, math.inf))
    return {
        cell: peers[cell] / min(plan.microseconds for plan in plans)
        for cell, plans in cells.items()
        if cell in peers
    }


def loss(cells, policy, margins):
    total, weights = 0.0, 0.0
    for plans in cells.values():
        times = numpy.array([plan.microseconds for plan in plans])
        weight = numpy.exp(4 - 4 * times / times.min())
        scores = numpy.array([math.log(policy(plan.facts)) for plan in plans])
        error = scores - numpy.log(times)
        error -= (weight * error).sum() / weight.sum()
        total += (weight * error**2).sum()
        weights += weight.sum()
    chosen = regrets(cells, policy)
    found = list(chosen.values())
    beyond = sum(max(regret - 0.02, 0.0) for regret in found)
    distances = [abs(math.log(getattr(policy, n) / e)) for n, e in ESTIMATES.items()]
    implausible = sum(max(distance - 1.4, 0.0) ** 2 for distance in distances)
    choice = (6 * sum(found) + 3 * beyond) / len(found) + 0.2 * max(found)
    if margins:
        short = behind(chosen, margins)
        choice += sum(8 * min(value, 0.05) + (value > 0) for value in short) / len(short)
    return 1.5 * total / weights + choice + 0.01 * implausible


def fit(cells, seed, margins):
    generator = numpy.random.default_rng(seed)
    here = best = OccupancyCost()
    value = least = loss(cells, best, margins)
    for step in range(STEPS):
        size = generator.choice([0.02, 0.1, 0.4])
        changed = {
            name: getattr(here, name) * math.exp(size * generator.normal())
            for name in ESTIMATES
            if generator.random() < 0.35
        }
        candidate = dataclasses.replace(here, **changed)
        found = loss(cells, candidate, margins)
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
@click.argument("measurements", nargs=-1, required=True, type=RECORD)
@click.option("--check", is_flag=True)
@click.option("--seed", default=0)
@click.option("--peers", multiple=True, type=RECORD, help="peers.py's: what is behind costs too.")
def main(measurements, check, seed, peers):
    cells = read_plans(measurements)
    report("uncalibrated prior", regrets(cells, AnalyticCost()))
    report("coefficients in use", regrets(cells, OccupancyCost()))
    if check:
        return
    best = fit(cells, seed, margins_of(cells, peers))
    report("new fit", regrets(cells, best))
    for field in dataclasses.fields(best):
        click.echo(f"{field.name} = {getattr(best, field.name):.4g}")


if __name__ == "__main__":
    main()

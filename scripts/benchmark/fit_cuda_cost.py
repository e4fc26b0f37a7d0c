"""Fits the coefficients of plan.occupancy.OccupancyCost to measured kernels.

    python scripts/benchmark/fit_cuda_cost.py configs/measurements/h200_*.json [--check]

For every operator, shape and storage type, the regret of a policy is how much slower its choice is
than the fastest measured plan. The fit minimizes the squared error of the logarithm of the times,
up to a factor for each such case and weighted to the fast plans, plus the mean regret. `--check`
only prints the regret of the coefficients in use, and of the uncalibrated prior.
"""

import dataclasses
import json
import math
from collections import defaultdict
from pathlib import Path

import click
import numpy

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.plan import AnalyticCost
from tvm_tilex.plan.occupancy import OccupancyCost
from tvm_tilex.plan.planner import cost_facts
from tvm_tilex.plan.resources import MapShape
from tvm_tilex.transform import plan_groups as planning

# Limits of the device are not fitted.
FIXED = (
    "bandwidth",
    "multiprocessors",
    "resident_threads",
    "resident_registers",
    "resident_groups",
)
STEPS = 6000


def facts_of(operator, shape, dtype):
    """What the planner knows of a kernel on CUDA, and of the target."""
    seen = []
    original = planning.plan_groups

    def recording(facts, target, request, policy):
        seen.append((facts, target))
        return original(facts, target, request, policy)

    planning.plan_groups = recording
    try:
        entry = kernels.catalog()[operator]
        tx.compile(entry.kernel, *entry.specs(*shape, dtype), target="cuda")
    finally:
        planning.plan_groups = original
    return seen[-1]


def read(paths):
    """(cost facts, microseconds) of every measured plan, by operator, shape and storage."""
    groups = defaultdict(list)
    for path in paths:
        record = json.loads(Path(path).read_text())
        known = {}
        for row in record["rows"]:
            key = (row["operator"], *row["shape"], record["dtype"])
            if "us" not in row or not any(row["requested"]):
                continue
            if key not in known:
                known[key] = facts_of(row["operator"], row["shape"], record["dtype"])
            shape = MapShape(row["S"], row["Q"], row["V"], row["C"])
            groups[key].append((cost_facts(shape, *known[key]), row["us"]))
    return groups


def regrets(groups, policy):
    found = {}
    for key, rows in groups.items():
        best = min(us for _, us in rows)
        order = lambda row: (policy(row[0]), row[0].blocks_per_program, row[0].subgroups)  # noqa: E731
        found[key] = min(rows, key=order)[1] / best - 1
    return found


def loss(groups, policy):
    total, weights = 0.0, 0.0
    for rows in groups.values():
        best = min(us for _, us in rows)
        weight = numpy.array([math.exp(4 - 4 * us / best) for _, us in rows])
        error = numpy.array([math.log(policy(facts)) - math.log(us) for facts, us in rows])
        error -= (weight * error).sum() / weight.sum()
        total += (weight * error**2).sum()
        weights += weight.sum()
    found = list(regrets(groups, policy).values())
    beyond = sum(max(regret - 0.03, 0.0) for regret in found) / len(found)
    return 3 * total / weights + 3 * sum(found) / len(found) + 3 * beyond


def fit(groups, seed):
    generator = numpy.random.default_rng(seed)
    best = OccupancyCost()
    least = loss(groups, best)
    names = [f.name for f in dataclasses.fields(best) if f.name not in FIXED]
    for _ in range(STEPS):
        size = generator.choice([0.02, 0.1, 0.4])
        changed = {
            name: getattr(best, name) * math.exp(size * generator.normal())
            for name in names
            if generator.random() < 0.4
        }
        candidate = dataclasses.replace(best, **changed)
        value = loss(groups, candidate)
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
    groups = read(measurements)
    report("uncalibrated prior", regrets(groups, AnalyticCost()))
    report("coefficients in use", regrets(groups, OccupancyCost()))
    if check:
        return
    best = fit(groups, seed)
    report("new fit", regrets(groups, best))
    for field in dataclasses.fields(best):
        click.echo(f"{field.name} = {getattr(best, field.name):.4g}")


if __name__ == "__main__":
    main()

"""Fits the coefficients of plan.cost.StreamingCost to measured kernels.

    python scripts/benchmark/fit_cuda_cost.py configs/measurements/h200_float32.json

For every operator and shape, the regret of a policy is how much slower its choice is than the
fastest measured plan. The fit is the grid point with the least mean regret; rows beyond the
stripe bound, which are read again, are left out.
"""

import itertools
import json
import math
from pathlib import Path

import click

GRID = {
    "elements": (4, 6, 8, 10, 12, 16),
    "thread": (0.0, 0.1, 0.2, 0.3, 0.5),
    "threads": (128, 256, 384, 512),
    "vector": (0.05, 0.1, 0.3),
    "waste": (0.0, 0.5, 1.0, 2.0, 4.0),
}


def score(row, elements, thread, threads, vector, waste):
    columns = row["shape"][1]
    pack = 32 * row["S"] * row["V"]
    widest = columns // pack * row["V"] + min(columns % pack, row["V"])
    width = math.gcd(4, columns)
    return (
        abs(math.log2(widest / elements))
        + thread * abs(math.log2(32 * row["S"] * row["Q"] / threads))
        + vector * (row["V"] != width)
        + waste * (1 - columns / (widest * 32 * row["S"]))
    )


def regrets(groups, point):
    found = {}
    for key, rows in groups.items():
        best = min(row["us"] for row in rows)
        chosen = min(rows, key=lambda row: (score(row, **point), row["S"]))
        found[key] = chosen["us"] / best - 1
    return found


@click.command()
@click.argument("measurements")
def main(measurements):
    groups = {}
    for row in json.loads(Path(measurements).read_text())["rows"]:
        if "us" in row and row["shape"][1] < 100_000:
            groups.setdefault((row["operator"], *row["shape"]), []).append(row)
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    best = min(points, key=lambda point: sum(regrets(groups, point).values()))
    found = regrets(groups, best)
    click.echo(f"coefficients {best}")
    click.echo(
        f"mean regret {sum(found.values()) / len(found):.3%}, worst {max(found.values()):.2%}"
    )
    for key, regret in sorted(found.items(), key=lambda item: -item[1])[:8]:
        click.echo(f"  {key}: {regret:.2%}")


if __name__ == "__main__":
    main()

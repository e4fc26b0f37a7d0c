"""Regret of the cost models on recorded measurements, per operator and shape.

    python scripts/benchmark/model_regret.py configs/measurements/h200_float32.json ...

The regret of a model is how much slower the plan that it scores best is than the fastest measured
one, over the same plans. *Before* is the uncalibrated prior of the specification, *after* the
calibrated policy that CUDA uses by default.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import click
from command_line import RECORD
from measured_plans import Cell, Plan, read_plans, refused, regret_of

from tvm_tilex.plan import AnalyticCost, cost_policy
from tvm_tilex.plan.cost import CostPolicy

AIM = 0.03


def label(plan: Plan) -> str:
    facts = plan.facts
    cluster = f" C{facts.blocks_per_program}" if facts.blocks_per_program > 1 else ""
    shared = f" R{facts.programs_per_subgroup}" if facts.programs_per_subgroup > 1 else ""
    return f"S{facts.subgroups} Q{facts.programs_per_group} V{facts.lane_elements}{cluster}{shared}"


def table(cells: dict[Cell, list[Plan]], policies: dict[str, CostPolicy]) -> str:
    """A Markdown table: a row an operator and storage type, a column a shape."""
    shapes = list(dict.fromkeys(cell[1:3] for cell in cells))
    lines = ["| operator | " + " | ".join(f"{p}x{n}" for p, n in shapes) + " |"]
    lines.append("|---" * (len(shapes) + 1) + "|")
    grouped: dict[tuple[str, str], dict[tuple[int, int], str]] = defaultdict(dict)
    for cell, plans in cells.items():
        found = [f"{regret_of(plans, policy)[0]:.1%}" for policy in policies.values()]
        grouped[cell[0], cell[3]][cell[1:3]] = " / ".join(found)
    for (operator, dtype), row in grouped.items():
        values = " | ".join(row.get(shape, "-") for shape in shapes)
        lines.append(f"| {operator} {dtype} | {values} |")
    return "\n".join(lines)


@click.command()
@click.argument("measurements", nargs=-1, required=True, type=RECORD)
def main(measurements: tuple[str, ...]) -> None:
    cells = read_plans(measurements)
    policies = {"before": AnalyticCost(), "after": cost_policy("default", "cuda", "h200")}
    click.echo(f"after: {type(policies['after']).__name__}; {refused()} recorded plans left out\n")
    click.echo(table(cells, policies))
    for name, policy in policies.items():
        found = {cell: regret_of(plans, policy) for cell, plans in cells.items()}
        values = [regret for regret, *_ in found.values()]
        above = sorted((c for c in found if found[c][0] > AIM), key=lambda c: -found[c][0])
        click.echo(
            f"\n{name}: {len(values)} cells, mean {statistics.mean(values):.2%}, "
            f"worst {max(values):.1%}, {len(above)} above {AIM:.0%}"
        )
        for cell in above if name == "after" else ():
            regret, choice, best = found[cell]
            click.echo(
                f"  {' '.join(map(str, cell))}: {regret:.1%}, {label(choice)}: {label(best)}"
            )


if __name__ == "__main__":
    main()

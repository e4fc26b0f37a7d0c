"""How often a cost policy, by default the analytic prior, picks the cheapest counted candidate.

Every legal candidate of the automatic family (spec section 6: up to 39 on 1024 threads) of every
operator and shape is compiled with exactly that S and Q and run in the simulator. Its counted cost,
dimensionless, is the weighted sum of the events that ``tvm_tilex.tune.sim_cost`` defines and
weights.
``balanced`` of ``WEIGHTINGS`` is the stated cost. ``latency`` has a machine that is empty (what a
thread does last decides), ``throughput`` one that is full (all that is issued decides); they show
how much the answer depends on that. A pick is a hit if no candidate is cheaper; its regret is how
much dearer it is than the cheapest. These are counts of the emitted text, not time on a device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.driver import _ARTIFACTS
from tvm_tilex.tune.sim_cost import EVENTS, WEIGHTINGS, count_events, modelled_cost

OPERATORS = ("row_sum", "minmax", "softmax", "layernorm", "residual_layernorm", "cross_entropy")
# P x N: few and several programs, widths with and without a remainder
SHAPES = tuple(
    (rows, columns)
    for rows in (3, 17)
    for columns in (33, 127, 257, 512, 1000, 1024, 1536, 2048, 3001, 4096)
)


@dataclass(frozen=True)
class Counted:
    """One candidate: its plan, its score and what one launch counted, already per unit."""

    operator: str
    rows: int
    columns: int
    subgroups: int
    packed: int
    score: float
    segments: float
    barriers: float
    collectives: float
    arithmetic: float
    issued: float
    groups: float

    def cost(self, weighting: str) -> float:
        """The counted cost under a weighting of ``sim_cost``."""
        return modelled_cost({name: getattr(self, name) for name in EVENTS}, weighting)


def compile_exact(operator: str, rows: int, columns: int, **options: Any) -> Any:
    """The operator's artifact under an exact plan; not kept in the process's cache."""
    entry = kernels.catalog()[operator]
    chosen = tx.CompileOptions(**options, shared_tile_materialization="preserve")
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns), target="metal", options=chosen)
    _ARTIFACTS.clear()
    return artifact


def count(operator: str, rows: int, columns: int, policy: str) -> Iterator[Counted]:
    """Every legal candidate of the automatic family, counted."""
    plan = compile_exact(operator, rows, columns, cost_policy=policy).plan
    arguments = kernels.catalog()[operator].arguments(rows, columns)
    for candidate in plan.candidates:
        if candidate.score is None:
            continue
        subgroups, packed = candidate.subgroups, candidate.programs_per_group
        artifact = compile_exact(
            operator,
            rows,
            columns,
            threads_per_group=32 * subgroups * packed,
            reduction_programs_per_group=packed,
            cost_policy=policy,
        )
        assert artifact.plan.score == candidate.score
        launches = artifact.simulate(*(a.copy() for a in arguments))
        yield Counted(
            operator, rows, columns, subgroups, packed, candidate.score,
            **count_events(launches, rows),
        )  # fmt: skip


def judge(found: list[Counted], weighting: str) -> tuple[Counted, Counted, float]:
    """(the prior's pick, the cheapest, regret) of one operator and shape."""
    pick = min(found, key=lambda c: (c.score, c.subgroups))
    best = min(found, key=lambda c: (c.cost(weighting), c.subgroups))
    return pick, best, pick.cost(weighting) / best.cost(weighting) - 1


def table(cases: dict[tuple[str, int, int], list[Counted]], name: str) -> Table:
    """Hits and regret of each operator under one weighting."""
    shown = Table(title=f"policy against counted cost: {name}")
    for heading in (
        "operator",
        "shapes",
        "hits",
        "mean regret",
        "median",
        "largest",
        "at",
        "pick",
        "best",
    ):
        shown.add_column(heading, justify="left" if heading == "operator" else "right")
    grouped: dict[str, list[Any]] = defaultdict(list)
    for (operator, *_), found in cases.items():
        grouped[operator].append(judge(found, name))
        grouped["all"].append(grouped[operator][-1])
    total = grouped.pop("all")
    for operator, judged in [*grouped.items(), ("all", total)]:
        regrets = [regret for _, _, regret in judged]
        pick, best, worst = max(judged, key=lambda j: j[2])
        shown.add_row(
            operator, str(len(judged)), str(sum(r == 0 for r in regrets)),
            f"{statistics.mean(regrets):.1%}", f"{statistics.median(regrets):.1%}", f"{worst:.1%}",
            f"{pick.rows}x{pick.columns}" + ("" if operator != "all" else f" {pick.operator}"),
            f"S{pick.subgroups} Q{pick.packed}", f"S{best.subgroups} Q{best.packed}",
        )  # fmt: skip
    return shown


def main() -> int:
    """Count, print the tables, write the counts if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operators", nargs="+", default=OPERATORS, choices=OPERATORS)
    parser.add_argument("--shapes", nargs="+", help="PxN; the 20 shapes of this file by default")
    parser.add_argument("--policy", default="analytic", help="the cost policy that picks")
    parser.add_argument("--output", type=Path, help="JSON file for every counted candidate")
    chosen = parser.parse_args()
    shapes = SHAPES
    if chosen.shapes:
        shapes = tuple(tuple(int(n) for n in text.split("x")) for text in chosen.shapes)
    warnings.filterwarnings("ignore", message="no Apple GPU here")
    console, start = Console(width=120), time.monotonic()
    cases = {}
    for operator in chosen.operators:
        for rows, columns in shapes:
            cases[operator, rows, columns] = list(count(operator, rows, columns, chosen.policy))
        print(f"{operator}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    for name in WEIGHTINGS:
        console.print(table(cases, name))
    candidates = sum(map(len, cases.values()))
    console.print(f"{len(cases)} operator shapes, {candidates} candidates simulated")
    if chosen.output is not None:
        rows = [asdict(c) for found in cases.values() for c in found]
        chosen.output.write_text(
            json.dumps(
                {"weightings": {n: asdict(w) for n, w in WEIGHTINGS.items()}, "counted": rows},
                indent=1,
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Recorded times of plans (``configs/measurements``) with what a cost policy is told of each."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.materializations import materializations
from tvm_tilex.errors import MappingError
from tvm_tilex.plan import register_cost_policy
from tvm_tilex.plan.cost import CostFacts
from tvm_tilex.tune.space import Candidate

Cell = tuple[str, int, int, str]
Shapes = frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """One measured plan of a cell (operator, P, N, storage type).

    ``automatic`` says whether automatic planning considers it; the others were measured to know.
    """

    choices: dict[str, Any]
    microseconds: float
    facts: CostFacts
    automatic: bool


_SEEN: list[CostFacts] = []
_REFUSED: list[Cell] = []


def _record(facts: CostFacts) -> float:
    _SEEN.append(facts)
    return 1.0


register_cost_policy("recording", lambda: _record)


def read_plans(paths: Iterable[str | Path]) -> dict[Cell, list[Plan]]:
    """Every measured plan by cell, whether it was asked for or chosen."""
    found: dict[Cell, list[Plan]] = {}
    for path in paths:
        record = json.loads(Path(path).read_text())
        for row in record["rows"]:
            if "us" not in row or row.get("S") is None:
                continue
            cell = (row["operator"], *row["shape"], record["dtype"])
            sharing = row.get("R") or 1  # absent where programs had whole SIMD groups
            choices = {
                "threads_per_group": 32 * row["S"] * row["Q"] // sharing,
                "reduction_programs_per_group": row["Q"],
                "reduction_lane_elements": row["V"],
                "reduction_blocks_per_program": row.get("C") or 1,
                "reduction_programs_per_subgroup": sharing,
                "shared_tile_materialization": row["materialization"],
                "reduction_stripe_storage": "shared" if row.get("staged_bytes") else "register",
                "reduction_early_views": row.get("early", False),
                "reduction_peeled_rows": row.get("peeled", False),
            }
            if any(choices == other.choices for other in found.setdefault(cell, [])):
                continue
            kept = (choices["shared_tile_materialization"], choices["reduction_early_views"])
            considered = _considered(cell, *kept)
            try:
                found[cell].append(_plan(cell, choices, row, considered))
            except MappingError:  # was measured beyond the stripe bound of today
                _REFUSED.append(cell)
    return {cell: plans for cell, plans in found.items() if plans}


def refused() -> int:
    """How many recorded plans are left out: those that are not accepted now."""
    return len(_REFUSED)


def _plan(cell: Cell, choices: dict[str, Any], row: dict[str, Any], considered: Shapes) -> Plan:
    facts = _facts(cell, choices)[-1]
    return Plan(choices, row["us"], facts, _shape(facts) in considered)


@functools.cache
def _considered(cell: Cell, mode: str, early: bool) -> Shapes:
    """The shapes that automatic planning of the cell scores with such tiles and views."""
    entry = kernels.catalog()[cell[0]]
    program = entry.kernel.capture(entry.specs(*cell[1:]))
    (choices, *_), _ = materializations(program, "cuda", tx.CompileOptions())
    if (mode, early) not in {(choice.tiles.value, choice.early_views) for choice in choices}:
        return frozenset()
    kept = {"shared_tile_materialization": mode, "reduction_early_views": early}
    return frozenset(map(_shape, _facts(cell, kept)))


def _facts(cell: Cell, choices: dict[str, Any]) -> list[CostFacts]:
    """What the cost policy is told of every candidate."""
    operator, rows, columns, dtype = cell
    options = tx.CompileOptions(**choices, cost_policy="recording")
    entry = kernels.catalog()[operator]
    _SEEN.clear()
    tx.compile(entry.kernel, *entry.specs(rows, columns, dtype), target="h200", options=options)
    return list(_SEEN)


def _shape(facts: CostFacts) -> tuple[int, ...]:
    blocks, staged = facts.blocks_per_program, facts.staged_bytes > 0
    beyond = (staged, facts.programs_per_subgroup, facts.peeled)
    return facts.subgroups, facts.programs_per_group, facts.lane_elements, blocks, *beyond


def order_of(plans: list[Plan], policy: Callable[[CostFacts], float]) -> list[int]:
    """Positions by score; equal ones keep registers, whole rows, the smaller C, R, then S.

    As planned.
    """

    def key(position: int) -> tuple[float, bool, bool, int, int, int, int]:
        facts = plans[position].facts
        staged, blocks = facts.staged_bytes > 0, facts.blocks_per_program
        simpler = (staged, facts.peeled, blocks, facts.programs_per_subgroup, facts.subgroups)
        return policy(facts), *simpler, position

    return sorted(range(len(plans)), key=key)


def regret_of(plans: list[Plan], policy: Callable[[CostFacts], float]) -> tuple[float, Plan, Plan]:
    """(regret, the policy's choice of what planning considers, the fastest of all)."""
    automatic = [plan for plan in plans if plan.automatic] or plans
    choice = automatic[order_of(automatic, policy)[0]]
    best = min(plans, key=lambda plan: plan.microseconds)
    return choice.microseconds / best.microseconds - 1, choice, best


def candidates_of(plans: list[Plan]) -> list[Candidate]:
    """The plans as a tuner's candidates, numbered like ``plans``."""
    return [
        Candidate(i, plan.choices, tx.CompileOptions(**plan.choices))
        for i, plan in enumerate(plans)
    ]

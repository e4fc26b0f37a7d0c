"""Recorded times of cooperative groups (``configs/measurements``) with what a cost is told of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_tilex as tx
from tvm_tilex.errors import TilexError
from tvm_tilex.kernels import composed
from tvm_tilex.plan.group_cost import (
    GroupCost,
    PlannedGroup,
    PriorCost,
    group_cost,
    register_group_cost,
)

Problem = tuple[str, tuple[tuple[str, Any], ...], str]
LENGTHS = {"batch": 4, "heads": 16, "queries": 4096, "keys": 4096}


@dataclass(frozen=True)
class MeasuredGroup:
    """One measured plan of a problem; one planned group for each launch."""

    row: dict[str, Any]
    microseconds: float
    groups: tuple[PlannedGroup, ...]


class _Recorder:
    """Chooses reductions as a cost does, and keeps what it is asked to score."""

    def __init__(self) -> None:
        self.chooses: GroupCost = PriorCost()
        self.seen: list[PlannedGroup] = []

    def reductions(self, *arguments: Any) -> dict[str, float]:
        return self.chooses.reductions(*arguments)

    def prices(self, group: PlannedGroup) -> tuple[float, ...]:
        return ()

    def score(self, group: PlannedGroup, prices: tuple[float, ...]) -> float:
        self.seen.append(group)
        return 1.0


_RECORDER = _Recorder()
register_group_cost("recording", lambda: _RECORDER)


def read_groups(paths: Iterable[str | Path]) -> tuple[dict[Problem, list[MeasuredGroup]], int]:
    """Measured plans by problem, and how many rows were measured in a text that is not today's."""
    found: dict[Problem, dict[str, MeasuredGroup]] = {}
    stale = 0
    for path in paths:
        for row in json.loads(Path(path).read_text())["rows"]:
            if "us" not in row:
                continue
            plans = found.setdefault(_problem(row), {})
            known = plans.get(row["text"])
            # Two requests may end in one text; nothing is scored where an artifact is at hand.
            groups = known.groups if known else _groups(row)
            if groups is None:
                stale += 1
                continue
            if known is None or row["us"] < known.microseconds:
                plans[row["text"]] = MeasuredGroup(row, row["us"], groups)
    return {problem: list(plans.values()) for problem, plans in found.items()}, stale


def _extents(row: dict[str, Any]) -> dict[str, int]:
    if "kernel" not in row:
        return {**LENGTHS, "depth": row["depth"]}
    slices = {"slices": row["slices"]} if "slices" in row else {}
    return {**row["extents"], **slices}


def _problem(row: dict[str, Any]) -> Problem:
    if "kernel" in row:
        return row["kernel"], tuple(row["extents"].items()), row["dtype"]
    return "attention", (("depth", row["depth"]), ("causal", row["causal"])), row["dtype"]


def _groups(row: dict[str, Any]) -> tuple[PlannedGroup, ...] | None:
    """The planned groups of the text that was measured, or None where it is emitted no more."""
    entry = composed.catalog()[row.get("kernel", "attention")]
    # One thread count for every launch: that of the first, unless the row asked for none.
    asked = {**row["requested"]}
    if "slices" not in row:
        asked["group_threads"] = row["threads"]
    options = tx.CompileOptions(**asked, cost_policy="recording")
    for cost in (group_cost("default", "cuda"), PriorCost(units=132)):
        _RECORDER.chooses, _RECORDER.seen = cost, []
        try:
            artifact = tx.compile(
                entry.kernel,
                *entry.specs(_extents(row), row["dtype"]),
                target="h200",
                options=options,
                **row["constants"],
            )
        except TilexError:
            continue
        if hashlib.sha256(artifact.source.encode()).hexdigest()[:12] == row["text"]:
            wanted = [plan.threads for plan in artifact.group_plans]
            return _scored(wanted)
        _forget()
    return None


def _scored(threads: list[int]) -> tuple[PlannedGroup, ...] | None:
    """Of everything that was scored, the plans that were taken, one a launch in order."""
    found: list[PlannedGroup] = []
    rest = iter(_RECORDER.seen)
    for wanted in threads:
        found += [next((group for group in rest if group.threads == wanted), None)]  # type: ignore[list-item]
    return None if None in found else tuple(found)


def _forget() -> None:
    from tvm_tilex.driver import _ARTIFACTS

    _ARTIFACTS.clear()


def score_of(plan: MeasuredGroup, cost: GroupCost) -> float:
    """The price of all launches."""
    return sum(cost.score(group, cost.prices(group)) for group in plan.groups)

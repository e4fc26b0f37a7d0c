"""Recorded times of cooperative groups (``configs/measurements``) with what a cost is told of."""

from __future__ import annotations

import hashlib
import itertools
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
WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
LENGTHS = {"batch": 4, "heads": 16, "queries": 4096, "keys": 4096}


@dataclass(frozen=True)
class MeasuredGroup:
    """One measured plan of a problem; one planned group for each launch."""

    row: dict[str, Any]
    microseconds: float
    groups: tuple[PlannedGroup, ...]


class _Recorder:
    """Chooses reductions as a cost does and threads as it is told, and keeps what is scored."""

    def __init__(self) -> None:
        self.chooses: GroupCost = PriorCost()
        self.start(())

    def start(self, wanted: tuple[int, ...]) -> None:
        """Take these thread counts, one a launch."""
        self.wanted, self.launch = wanted, 0
        self.seen: list[tuple[int, PlannedGroup]] = []

    def reductions(self, *arguments: Any) -> dict[str, float]:
        return self.chooses.reductions(*arguments)

    def prices(self, group: PlannedGroup) -> tuple[float, ...]:
        return ()

    def score(self, group: PlannedGroup, prices: tuple[float, ...]) -> float:
        # A launch's thread counts are scored in rising order.
        self.launch += bool(self.seen) and group.threads <= self.seen[-1][1].threads
        self.seen.append((self.launch, group))
        wanted = self.wanted and self.wanted[self.launch % len(self.wanted)]
        return float(bool(wanted) and group.threads != wanted)


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


def extents_of(row: dict[str, Any]) -> dict[str, int]:
    """Every extent of a row's kernel."""
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
    asked, pairs = {**row["requested"]}, [()]
    if "slices" not in row:
        asked["group_threads"] = row["threads"]
    elif not asked["group_threads"]:  # each launch chose its threads, and the first's are recorded
        pairs = [(row["threads"], second) for second in WIDTHS]
    for cost, wanted in itertools.product(
        (group_cost("default", "cuda"), PriorCost(units=132)), pairs
    ):
        _RECORDER.chooses = cost
        _RECORDER.start(wanted)
        artifact = _compiled(row, asked)
        if artifact and hashlib.sha256(artifact.source.encode()).hexdigest()[:12] == row["text"]:
            return _scored([plan.threads for plan in artifact.group_plans])
        _forget()
    return None


def _compiled(row: dict[str, Any], asked: dict[str, Any]) -> Any | None:
    entry = composed.catalog()[row.get("kernel", "attention")]
    options = tx.CompileOptions(**asked, cost_policy="recording")
    specs = entry.specs(extents_of(row), row["dtype"])
    try:
        return tx.compile(entry.kernel, *specs, target="h200", options=options, **row["constants"])
    except TilexError:
        return None


def _scored(threads: list[int]) -> tuple[PlannedGroup, ...] | None:
    """Of everything that was scored, the plans that were taken, one a launch."""
    found: list[PlannedGroup] = []
    for wanted in enumerate(threads):
        taken = [group for n, group in _RECORDER.seen if (n, group.threads) == wanted]
        found += taken[-1:]  # the last: products that do not fit are planned again
    return tuple(found) if len(found) == len(threads) else None


def _forget() -> None:
    from tvm_tilex.driver import _ARTIFACTS

    _ARTIFACTS.clear()


def score_of(plan: MeasuredGroup, cost: GroupCost) -> float:
    """The price of all launches."""
    return sum(cost.score(group, cost.prices(group)) for group in plan.groups)


def same_plan(one: PlannedGroup, other: PlannedGroup) -> bool:
    """Whether two planned groups of the same kernel are one plan."""
    names = ("threads", "realizations", "arrangements", "shared_bytes", "private_scalars", "fenced")
    names += ("ahead", "owned", "private", "shares")
    return all(getattr(one, name) == getattr(other, name) for name in names)

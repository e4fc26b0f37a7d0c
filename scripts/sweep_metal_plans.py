"""Run every legal SIMD-group plan of the kernel library in the simulator against FP64.

Three sweeps, each a set of points that is enumerated in full:

widths     every kernel x S = 1..32 x the ragged widths; program counts and storage types rotate,
           so that every kernel and every width meets all of them
programs   softmax, LayerNorm and row sums x S = 1..32 x every program count
packing    four kernels x (S, Q, V) x program counts that divide by Q and that don't

A point passes if the artifact has exactly that plan, nothing fell back, S > 1 has two collectives
a reduction and one barrier a reduction in the counters, every output is within the tolerance table
and the elements before and after every output are unchanged; or if it is refused, with an error
that names the resource. Everything else is a failure and is printed. Exit status 1 on a failure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.driver import _ARTIFACTS
from tvm_tilex.errors import TilexError

WIDTHS = (1, 31, 33, 127, 257, 1000, 4095, 4097, 50257)
PROGRAMS = (1, 3, 7, 8, 9, 17, 300)
DTYPES = ("float32", "float16", "bfloat16")
RESOURCES = ("striped scalars", "threads exceed", "shared bytes exceed")
LARGEST = 1_300_000  # elements of one simulated matrix; wider rows take fewer programs
SENTINEL = 77


@dataclass(frozen=True)
class Point:
    """One kernel, shape and plan."""

    sweep: str
    kernel: str
    dtype: str
    programs: int
    columns: int
    subgroups: int
    packed: int = 0
    elements: int = 0

    @property
    def options(self) -> tx.CompileOptions:
        """The request that asks for exactly this plan."""
        return tx.CompileOptions(
            threads_per_group=32 * self.subgroups * max(self.packed, 1),
            reduction_programs_per_group=self.packed,
            reduction_lane_elements=self.elements,
            shared_tile_materialization="preserve",
        )


def widths() -> Iterator[Point]:
    """Every kernel, S and width; P and the storage type rotate with coprime steps."""
    turn = itertools.count()
    for name, columns, subgroups in itertools.product(kernels.catalog(), WIDTHS, range(1, 33)):
        number = next(turn)
        rows = PROGRAMS[number % len(PROGRAMS)]
        rows = min(rows, max(1, LARGEST // columns))
        yield Point("widths", name, DTYPES[number % len(DTYPES)], rows, columns, subgroups)


def programs() -> Iterator[Point]:
    """Every S and program count at three widths."""
    for name, rows, columns, subgroups in itertools.product(
        ("softmax", "layernorm", "row_sum"), PROGRAMS, (33, 257, 1000), range(1, 33)
    ):
        yield Point("programs", name, "float32", rows, columns, subgroups)


def packing() -> Iterator[Point]:
    """Explicit (S, Q, V) within 1024 threads."""
    for name, subgroups, packed, elements, rows, columns in itertools.product(
        ("row_sum", "softmax", "layernorm_no_affine", "minmax"),
        (1, 2, 3, 4, 5, 7, 8, 16, 32),
        (1, 2, 3, 8),
        (1, 2, 4, 8),
        (1, 7, 16, 24),
        (33, 1000),
    ):
        if subgroups * packed <= 32:
            yield Point("packing", name, "float32", rows, columns, subgroups, packed, elements)


SWEEPS = {"widths": widths, "programs": programs, "packing": packing}


@dataclass(frozen=True)
class Outcome:
    """``passed``, ``refused`` or ``failed``, and why."""

    verdict: str
    reason: str = ""


def run(point: Point) -> Outcome:
    """Compile, simulate and judge one point."""
    entry = kernels.catalog()[point.kernel]
    specs = entry.specs(point.programs, point.columns, point.dtype)
    try:
        artifact = tx.compile(entry.kernel, *specs, target="metal", options=point.options)
    except TilexError as error:
        reason = next((r for r in RESOURCES if r in str(error)), None)
        return Outcome("refused", reason) if reason else Outcome("failed", str(error))
    finally:
        _ARTIFACTS.clear()
    plan = artifact.plan
    if plan is None or artifact.fallback is not None:
        return Outcome("failed", f"fell back: {artifact.fallback}")
    got = (
        plan.reduction_subgroups_per_program,
        plan.programs_per_group,
        plan.lane_elements,
    )
    asked = (point.subgroups, max(point.packed, 1), max(point.elements, 1))
    if got != asked:
        return Outcome("failed", f"plan {got}, asked for {asked}")
    arguments = entry.arguments(point.programs, point.columns, point.dtype)
    guarded = {i: _guarded(arguments[i]) for i in entry.outputs}
    arguments = tuple(guarded[i][1] if i in guarded else a for i, a in enumerate(arguments))
    try:
        (counters,) = artifact.simulate(*arguments)
    except TilexError as error:
        return Outcome("failed", str(error))
    return _judge(point, plan, counters, entry.check(arguments), guarded)


def _judge(point: Point, plan: Any, counters: Any, checks: Any, guarded: Any) -> Outcome:
    reductions = len(plan.collectives)
    stages = 2 if point.subgroups > 1 else 1
    simd_groups = plan.blocks * plan.threads // 32
    if point.subgroups == 1:
        simd_groups = plan.programs  # a partial last group is guarded as a whole
    if counters.collectives.total() != stages * reductions * simd_groups:
        return Outcome("failed", f"{counters.collectives.total()} collectives")
    if counters.barriers != (reductions * plan.blocks if point.subgroups > 1 else 0):
        return Outcome("failed", f"{counters.barriers} barriers")
    worst = max(check.worst_ratio for check in checks)
    if not all(check.within for check in checks):
        return Outcome("failed", f"{worst:.2f} times the tolerance")
    for memory, array in guarded.values():
        outside = memory.copy()
        outside[SENTINEL : SENTINEL + array.size] = SENTINEL
        if not (outside == SENTINEL).all():
            return Outcome("failed", "wrote outside an output")
    return Outcome("passed")


def _guarded(array: Any) -> tuple[Any, Any]:
    """Memory filled with a sentinel, and the output inside it."""
    memory = np.full(array.size + 2 * SENTINEL, SENTINEL, array.dtype)
    inside = memory[SENTINEL : SENTINEL + array.size].reshape(array.shape)
    inside[...] = array
    return memory, inside


def main() -> int:
    """Run the chosen sweeps and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweeps", nargs="*", default=[*SWEEPS], help=", ".join(SWEEPS))
    parser.add_argument("--every", type=int, default=1, help="run one point in EVERY")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="no Apple GPU here")
    failures: list[tuple[Point, str]] = []
    rows = {}
    for name in given.sweeps:
        started, counts = time.perf_counter(), Counter[str]()
        for point in itertools.islice(SWEEPS[name](), 0, None, given.every):
            outcome = run(point)
            counts[
                f"refused: {outcome.reason}" if outcome.verdict == "refused" else outcome.verdict
            ] += 1
            if outcome.verdict == "failed":
                failures.append((point, outcome.reason))
                print(f"FAILED {point}: {outcome.reason}", file=sys.stderr, flush=True)
        rows[name] = {"points": counts.total(), "seconds": time.perf_counter() - started, **counts}
    if given.json:
        listed = [{**asdict(point), "reason": reason} for point, reason in failures]
        print(json.dumps({"sweeps": rows, "failures": listed}, indent=2))
    else:
        _print(rows)
    return 1 if failures else 0


def _print(rows: dict[str, Any]) -> None:
    columns = sorted({c for row in rows.values() for c in row} - {"points", "seconds"})
    table = Table(title="SIMD-group plans in the simulator against FP64")
    for column in ("sweep", "points", *columns, "seconds"):
        table.add_column(column)
    for name, row in rows.items():
        counts = [str(row.get(column, 0)) for column in columns]
        table.add_row(name, str(row["points"]), *counts, f"{row['seconds']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())

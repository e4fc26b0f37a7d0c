"""``tilex bench``: compile a kernel, check it against FP64, then time it beside a copy."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from tvm_tilex.driver import Artifact, compile
from tvm_tilex.ir import ViewAccess
from tvm_tilex.tools.bench_timing import Bench, Timing, bench_for
from tvm_tilex.tools.options import compile_options, kernel_options
from tvm_tilex.tools.report import describe_plan
from tvm_tilex.tools.subjects import Subject, make_subject, require_fixed
from tvm_tilex.transform.options import CompileOptions

__all__ = ["bench"]


@dataclass(frozen=True)
class _Row:
    """What was found of one shape; times and rates are None where the kernel is wrong."""

    kernel: str
    shape: tuple[int, ...]
    dtype: str
    target: str
    plan: str
    useful_bytes: int
    right: bool
    fraction_of_allowed_error: float
    seconds: Timing | None = None
    bytes_per_second: float | None = None
    copy_bytes_per_second: float | None = None
    fraction_of_copy: float | None = None


@click.command()
@kernel_options
@click.option(
    "--rounds", type=click.IntRange(min=1), default=7, show_default=True, help="Timed repetitions."
)
def bench(
    kernel: str,
    shapes: tuple[tuple[int, ...], ...],
    target: str,
    dtype: str,
    seed: int,
    as_json: bool,
    rounds: int,
    **choices: Any,
) -> int:
    """Time KERNEL beside an elementwise copy of as many bytes; a wrong kernel is not timed.

    A library kernel takes several --shape, one a row. Useful bytes are every input read once and
    every output written once; arguments rotate, so that none is found in the cache.
    """
    require_fixed(shapes, "bench times fixed extents")
    options = compile_options(**choices)
    subjects = [make_subject(kernel, given, dtype) for given in _split(kernel, shapes)]
    clock = bench_for(target)
    rows = [_measure(subject, target, options, seed, clock, rounds) for subject in subjects]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)
    return 0 if all(row.right for row in rows) else 1


def _split(
    kernel: str, shapes: tuple[tuple[int, ...], ...]
) -> Sequence[tuple[tuple[int, ...], ...]]:
    """One group of shapes a row: each shape of a library kernel, all of any other."""
    if ":" in kernel:
        return [shapes]
    return [(shape,) for shape in shapes]


def _measure(
    subject: Subject, target: str, options: CompileOptions, seed: int, clock: Bench, rounds: int
) -> _Row:
    artifact = compile(subject.kernel, *subject.specs, target=target, options=options)
    before = subject.arguments(seed)
    tensors = clock.moved(before)
    artifact(*tensors)
    comparisons = subject.check(artifact.tile_ir, before, clock.returned(tensors))
    size = useful_bytes(artifact)
    row = {
        "kernel": artifact.name,
        "shape": subject.shape,
        "dtype": subject.dtype,
        "target": artifact.kind,
        "plan": describe_plan(artifact),
        "useful_bytes": size,
        "right": all(comparison.within for comparison in comparisons),
        "fraction_of_allowed_error": max((c.worst_ratio for c in comparisons), default=0.0),
    }
    if not row["right"] or artifact.empty or not size:
        return _Row(**row)
    timing = clock.time(artifact, tensors, size, rounds)
    copy = clock.copy_rate(size, rounds)
    rate = size / timing.median
    return _Row(
        **row,
        seconds=timing,
        bytes_per_second=rate,
        copy_bytes_per_second=copy,
        fraction_of_copy=rate / copy,
    )


def useful_bytes(artifact: Artifact) -> int:
    """Bytes that must move: every input read once, every output written once."""
    return sum(
        math.prod(view.shape)
        * view.dtype.bytes
        * (2 if view.access is ViewAccess.read_write else 1)
        for view in artifact.tile_ir.views
    )


def _print(rows: Sequence[_Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    first = rows[0]
    table = Table(title=f"{first.kernel}, {first.dtype}, on {first.target}")
    for heading in ("shape", "time", "least to most", "useful GB/s", "copy GB/s", "of the copy"):
        table.add_column(heading, justify="right")
    table.add_column("error / allowed", justify="right")
    table.add_column("plan", overflow="fold")
    for row in rows:
        table.add_row(
            "x".join(map(str, row.shape)),
            *_times(row),
            f"{row.fraction_of_allowed_error:.3f}" + ("" if row.right else " WRONG"),
            row.plan,
        )
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    sets = ", ".join(str(row.seconds.sets) for row in rows if row.seconds is not None)
    if sets:
        console.print(f"medians; argument sets rotated: {sets}")


def _times(row: _Row) -> tuple[str, ...]:
    timing = row.seconds
    if timing is None or row.bytes_per_second is None or row.copy_bytes_per_second is None:
        return ("-",) * 5
    return (
        _duration(timing.median),
        f"{_duration(timing.least)} to {_duration(timing.most)}",
        f"{row.bytes_per_second / 1e9:.2f}",
        f"{row.copy_bytes_per_second / 1e9:.2f}",
        f"{row.fraction_of_copy:.3f}",
    )


def _duration(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} us"

"""Tunes library kernels cell by cell and says what tuning took: time, trials, default and winner.

    python scripts/benchmark/tune_shapes.py --target h200 --metric gpu-control --json out.json \
        --html out.html --cell softmax:8192x4096:float32 --cell rmsnorm:32768x256:bfloat16

Each cell is a run of `tvm_tilex.tune` of its own in the target's default space. One JSON file holds
every cell's summary and whole report, rewritten after each cell; one HTML file the table and every
report's page (with matplotlib). `--deadline` begins no further cell after so many seconds.
"""

from __future__ import annotations

import html
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from tvm_tilex.tune import Report, Timing, tune
from tvm_tilex.tune.errors import TuningError
from tvm_tilex.tune.live import LiveTable
from tvm_tilex.tune.page import PlotsMissing, render_page
from tvm_tilex.tune.regret import model_regret
from tvm_tilex.tune.text import describe_choices
from tvm_tilex.tune.times import times_of

Cell = tuple[str, tuple[int, int], str]


def parse_cell(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Cell]:
    """``kernel:PxN:dtype``."""
    cells = []
    for text in values:
        try:
            kernel, shape, dtype = text.split(":")
            rows, columns = map(int, shape.split("x"))
        except ValueError:
            raise click.BadParameter(f"{text!r}: write it as softmax:8192x4096:float32") from None
        cells.append((kernel, (rows, columns), dtype))
    return cells


def summary(report: Report, metric: str) -> dict[str, Any]:
    """One cell's row."""
    (section,) = report.sections
    times, winner = times_of(section, metric), section.winner
    row: dict[str, Any] = {
        "cell": section.subject.label,
        "ended": section.ended,
        "seconds": times.seconds,
        "phases": times.phases,
        "stages": times.stages,
        "candidates": len(section.order),
        "refused": times.refused,
        "trials": times.trials,
        "trials_to_within_2_percent": times.to_within,
        "outcomes": _outcomes(section.trials),
    }
    if winner is None:
        return row
    published, default = winner.trial.value(metric), winner.default.value(metric)
    row["winner"] = {"choices": winner.trial.choices, "seconds": published}
    row["default"] = {"seconds": default, "plan": (winner.default.facts or {}).get("plan")}
    row["searched"], row["device"] = winner.searched, winner.trial.device
    if section.useful_bytes and published:
        row["bytes_per_second"] = section.useful_bytes / published
    if published and default:
        row["speedup"] = default / published
    regret = model_regret(section, metric)
    row["model_regret"] = None if regret is None else regret.regret
    return row


def _outcomes(trials: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for trial in trials:
        found[trial.status] = found.get(trial.status, 0) + 1
    return found


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The rows as text, a heading first."""
    head = ["cell", "time s", "start", "screen", "ask", "search", "winner", "trials", "to 2 %"]
    lines = [[*head, "default us", "winner us", "ratio", "TB/s", "model regret", "choices"]]
    for row in rows:
        if "winner" not in row:
            lines.append([row["cell"], f"{row.get('seconds', 0):.1f}", str(row["ended"])])
            continue
        phases = [f"{seconds:.1f}" for seconds in row["phases"].values()]
        default, regret = row["default"]["seconds"], row["model_regret"]
        lines.append(
            [
                *(row["cell"], f"{row['seconds']:.1f}", *phases, str(row["trials"])),
                str(row["trials_to_within_2_percent"]),
                f"{1e6 * default:.2f}" if default else "-",
                f"{1e6 * row['winner']['seconds']:.2f}",
                f"{row.get('speedup', 0):.3f}",
                f"{row.get('bytes_per_second', 0) / 1e12:.3f}",
                "-" if regret is None else f"{100 * regret:.2f} %",
                describe_choices(row["winner"]["choices"]),
            ]
        )
    return lines


def print_table(rows: list[dict[str, Any]]) -> None:
    """Aligned columns."""
    lines = table(rows)
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=False)))


def page(rows: list[dict[str, Any]], reports: list[Report]) -> str:
    """One file: the table, then every report's page, folded."""
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
        for line in table(rows)
    )
    folded = "".join(
        f"<details><summary>{html.escape(report.sections[0].subject.label)}</summary>"
        f'<iframe style="width:100%;height:90vh" srcdoc="{html.escape(_page(report))}">'
        "</iframe></details>"
        for report in reports
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Tuned shapes</title>'
        "<style>body{font:14px sans-serif} td{padding:.1rem .5rem;border-bottom:1px solid #ddd}"
        f"</style></head><body><table>{cells}</table>{folded}</body></html>\n"
    )


def _page(report: Report) -> str:
    try:
        return render_page(report)
    except PlotsMissing as error:
        return f"no page: {error}"


@click.command()
@click.option("--cell", "cells", multiple=True, required=True, callback=parse_cell)
@click.option("--target", default="llvm", show_default=True)
@click.option("--metric", default=None, help="Default: what the target has here.")
@click.option("--search", default="neighbours", show_default=True)
@click.option("--patience", default=8, show_default=True)
@click.option("--jobs", default=None, type=int, help="Compilers beside the search.")
@click.option("--samples", default=9, show_default=True)
@click.option("--sample-ms", default=20.0, show_default=True)
@click.option("--warmup-ms", default=50.0, show_default=True)
@click.option("--json", "json_path", required=True, type=click.Path(path_type=Path))
@click.option("--html", "html_path", type=click.Path(path_type=Path))
@click.option("--reports", type=click.Path(path_type=Path), help="Keep every cell's report here.")
@click.option("--deadline", default=float("inf"), help="Begin no further cell after so long.")
def main(
    cells: list[Cell],
    target: str,
    metric: str | None,
    search: str,
    patience: int,
    jobs: int | None,
    samples: int,
    sample_ms: float,
    warmup_ms: float,
    json_path: Path,
    html_path: Path | None,
    reports: Path | None,
    deadline: float,
) -> None:
    """Tune every --cell."""
    began, rows, done = time.monotonic(), [], []
    root = reports or Path(tempfile.mkdtemp(prefix="tune-shapes-"))
    for kernel, shape, dtype in cells:
        if time.monotonic() - began > deadline:
            rows.append({"cell": f"{kernel} {shape} {dtype}", "ended": "not begun: deadline"})
            continue
        folder = root / f"{kernel}-{shape[0]}x{shape[1]}-{dtype}"
        given: dict[str, Any] = {"target": target, "search": search, "patience": patience}
        timing = Timing(samples, sample_ms, warmup_ms)
        before = time.monotonic()
        try:
            with LiveTable(metric or "host-wall") as progress:
                report = tune(
                    *(kernel, [shape]),
                    **given,
                    dtype=dtype,
                    metric=metric,
                    jobs=jobs,
                    timing=timing,
                    output=folder,
                    progress=progress,
                )
        except TuningError as error:
            rows.append({"cell": f"{kernel} {shape} {dtype}", "ended": str(error)})
            continue
        row = summary(report, report.settings.metric)
        row["wall_seconds"] = time.monotonic() - before  # with the start of processes
        rows.append(row)
        done.append(report)
        found = {
            "created": report.created,
            "environment": {**report.environment, "host": platform.node()},
            "target": report.settings.target,
            "metric": report.settings.metric,
            "rows": rows,
            "reports": [one.to_dict() for one in done],
        }
        json_path.write_text(json.dumps(found), encoding="utf-8")
        if html_path is not None:
            html_path.write_text(page(rows, done), encoding="utf-8")
    print_table(rows)


if __name__ == "__main__":
    main()

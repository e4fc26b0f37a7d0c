"""``tilex tune``: search, publish a fresh measurement of the winner, replay, resume."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tvm_tilex.build.target import resolve_target
from tvm_tilex.tools.options import TargetName
from tvm_tilex.tools.subjects import Shape, make_subject
from tvm_tilex.tools.tune_options import (
    endpoints_of,
    search_options,
    space_of,
    space_options,
    timing_of,
)
from tvm_tilex.tune import Database, Report, replay, resume, tune
from tvm_tilex.tune.api import default_output
from tvm_tilex.tune.errors import TuningError
from tvm_tilex.tune.live import LiveTable
from tvm_tilex.tune.metric import default_metric
from tvm_tilex.tune.replay import Replayed
from tvm_tilex.tune.space import has_odd_rows
from tvm_tilex.tune.text import describe_choices, format_value

__all__ = ["tune_command"]


@click.command("tune")
@click.argument("kernel", required=False)
@click.option(
    "--shape",
    "shapes",
    type=Shape(),
    multiple=True,
    help="Extents such as 8192x4096: each is tuned; for a kernel of your own, once a view.",
)
@click.option(
    "--target",
    type=TargetName(),
    default="llvm",
    show_default=True,
    help="llvm, metal or cuda, or a described family such as apple-m2 or h200.",
)
@click.option("--target-json", help="A target as TVM describes it, instead of --target.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs and of optuna.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="A new or empty folder for the report."
)
@click.option("--resume", "resumed", type=click.Path(path_type=Path), help="Carry on a run.")
@click.option("--replay", "replayed", type=click.Path(path_type=Path), help="Replay a report.")
@click.option(
    "--database", type=click.Path(path_type=Path), help="Where winners are stored (user's cache)."
)
@click.option("--no-database", is_flag=True, help="Store no winner.")
@click.option("--html/--no-html", default=True, show_default=True, help="Write report.html.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@search_options
@space_options
def tune_command(
    kernel: str | None,
    shapes: tuple[tuple[int, ...], ...],
    resumed: Path | None,
    replayed: Path | None,
    database: Path | None,
    no_database: bool,
    html: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Tune KERNEL (a library name or FILE.py:NAME), or --resume or --replay a report."""
    if sum(chosen is not None for chosen in (kernel, resumed, replayed)) != 1:
        raise click.UsageError("give a KERNEL, or --resume or --replay with a report")
    if replayed is not None:
        _refuse_others("--replay", {"replayed", "as_json"})
        return _replay(replayed, as_json)
    stored = None if no_database else Database(database)
    if stored is not None:
        stored.require_ours()
    if resumed is not None:
        _refuse_others("--resume", _RESUMABLE)
        folder = resumed if resumed.is_dir() else resumed.parent
        servers = endpoints_of(given["rpc_servers"], given["rpc_tracker"], given["rpc_key"])
        named = given["rpc_servers"] or given["rpc_tracker"]
        metric = Report.read(resumed).settings.metric
        with _resumable(folder), LiveTable(metric) as progress:
            report = resume(
                resumed,
                endpoints=servers if named else None,
                budget=_if_given("budget", given),
                limit=_if_given("time_limit", given),
                database=stored,
                progress=progress,
            )
        return _finish(report, folder, html, as_json)
    assert kernel is not None
    return _tune(kernel, shapes, given, stored, html, as_json)


# What a resumed run may have otherwise than the run that it carries on.
_RESUMABLE = (
    *("resumed", "database", "no_database", "html", "as_json", "budget", "time_limit"),
    *("rpc_servers", "rpc_tracker", "rpc_key"),
)


def _refuse_others(option: str, taken: Collection[str]) -> None:
    """The report says everything else: an option that would do nothing is a usage error."""
    for parameter in click.get_current_context().command.params:
        name = str(parameter.name)
        if name != "kernel" and name not in taken and _is_given(name):
            raise click.UsageError(f"{parameter.opts[0]} has no effect with {option}")


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def _if_given(name: str, given: dict[str, Any]) -> Any:
    return given[name] if _is_given(name) else None


def _tune(
    kernel: str,
    shapes: tuple[tuple[int, ...], ...],
    given: dict[str, Any],
    database: Database | None,
    html: bool,
    as_json: bool,
) -> int:
    if not shapes:
        raise click.UsageError("Missing option '--shape'.")
    grouped = [[shape] for shape in shapes] if ":" not in kernel else [list(shapes)]
    for group in grouped:
        make_subject(kernel, group, given["dtype"])  # usage errors in the command line's form
    target = given.pop("target_json") or given["target"]
    given.pop("target")
    resolved = resolve_target(target)
    kind = str(resolved.kind.name)
    endpoints = endpoints_of(
        given.pop("rpc_servers"), given.pop("rpc_tracker"), given.pop("rpc_key")
    )
    metric = given.pop("tuning_metric") or default_metric(kind, endpoints[0])
    output, limit = given.pop("output"), given.pop("time_limit")
    settings: dict[str, Any] = {
        "space": space_of(
            resolved,
            given.pop("subgroups"),
            given,
            given["dtype"],
            odd_rows=has_odd_rows(shapes, given["dtype"]),
        ),
        "timing": timing_of(given),
        "limit": limit,
        "metric": metric,
        "endpoints": endpoints,
        **given,
    }
    folder = output or default_output(kernel)
    with _resumable(folder), LiveTable(metric) as progress:
        report = tune(
            kernel,
            grouped,
            target=target,
            output=folder,
            database=database,
            progress=progress,
            **settings,
        )
    return _finish(report, folder, html, as_json)


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on after what ends a run early."""
    try:
        yield
    except (KeyboardInterrupt, TuningError):
        if (folder / "report.json").exists():
            click.echo(f"kept so far: tilex tune --resume {folder}", err=True)
        raise


def _finish(report: Report, folder: Path, html: bool, as_json: bool) -> int:
    """Say where everything is; 1 if some shape has no winner."""
    if html:
        _write_page(report, folder / "report.html")
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=1))
    else:
        click.echo(f"report: {folder / 'report.json'}")
    return 0 if all(section.winner is not None for section in report.sections) else 1


def _write_page(report: Report, path: Path) -> None:
    from tvm_tilex.tune.page import PlotsMissing, write_page

    try:
        write_page(report, path)
    except PlotsMissing as error:
        click.echo(f"tilex: no page: {error}", err=True)


def _replay(path: Path, as_json: bool) -> int:
    report = Report.read(path)
    found = replay(report)
    if as_json:
        rows = [
            {"subject": r.section.subject.label, "trial": r.trial.to_dict(), "notes": r.notes}
            for r in found
        ]
        click.echo(json.dumps(rows, indent=1))
        return 0
    for one in found:
        for line in _replay_lines(one, report.settings.metric):
            click.echo(line)
    return 0


def _replay_lines(one: Replayed, metric: str) -> list[str]:
    assert one.section.winner is not None
    then = format_value(one.section.winner.trial.value(metric), metric)
    now = format_value(one.trial.value(metric), metric)
    choices = describe_choices(one.trial.choices)
    label = one.section.subject.label
    return [
        f"{label}: {choices}: right over every output; {now}, published {then}",
        *(f"  note: {note}" for note in one.notes),
    ]

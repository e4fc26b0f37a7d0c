"""``tilex run``: compile a kernel, run it on random data, check every output against FP64."""

from __future__ import annotations

import inspect
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import click

from tvm_tilex.build.target import system_has
from tvm_tilex.driver import Artifact, compile
from tvm_tilex.kernels.tolerances import Comparison
from tvm_tilex.tools.options import compile_options, kernel_options
from tvm_tilex.tools.report import describe_plan, heading
from tvm_tilex.tools.subjects import Shape, Subject, make_subject, require_fixed

__all__ = ["run"]

_TIMED_SECONDS = 0.2
_TIMED_CALLS = 50


@click.command()
@kernel_options
@click.option(
    "--at",
    "sizes",
    type=Shape(),
    multiple=True,
    help="Extents of the call where --shape has dynamic ones, in the same form.",
)
@click.option("--no-source", is_flag=True, help="Leave out the kernel's text and Metal source.")
def run(
    kernel: str,
    shapes: tuple[tuple[int, ...], ...],
    target: str,
    dtype: str,
    seed: int,
    as_json: bool,
    no_source: bool,
    sizes: tuple[tuple[int, ...], ...],
    **choices: Any,
) -> int:
    """Compile KERNEL (a library name or FILE.py:NAME), run it and check it against FP64."""
    compiled_for = make_subject(kernel, shapes, dtype)
    if not sizes:
        require_fixed(shapes, "give the call's extents, such as --at 3x40")
    subject = make_subject(kernel, sizes, dtype) if sizes else compiled_for
    started = time.perf_counter()
    options = compile_options(**choices)
    artifact = compile(subject.kernel, *compiled_for.specs, target=target, options=options)
    compiled = time.perf_counter() - started
    before = subject.arguments(seed)
    after = tuple(array.copy() for array in before)
    execution = _execute(artifact, after)
    comparisons = subject.check(artifact.tile_ir, before, after)
    right = all(comparison.within for comparison in comparisons)
    facts = _facts(subject, artifact, comparisons, compiled, execution)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return 0 if right else 1
    if not no_source:
        heading("kernel")
        click.echo(inspect.getsource(subject.kernel.function).rstrip())
    heading("result")
    for name, value in facts["lines"]:
        click.echo(f"{name:<9} {value}")
    for launch in execution.counters:
        heading("counters of the simulator")
        click.echo(launch.table())
    if not no_source:
        heading("the same kernel as Metal source")
        metal = (
            artifact
            if artifact.kind == "metal"
            else compile(subject.kernel, *compiled_for.specs, target="metal")
        )
        click.echo(metal.source.strip())
    return 0 if right else 1


@dataclass(frozen=True)
class _Execution:
    """Where a kernel ran, the median seconds of a call, and the simulator's counters."""

    where: str
    seconds: float | None
    counters: tuple[Any, ...] = ()


def _execute(artifact: Artifact, arrays: tuple[Any, ...]) -> _Execution:
    """Run once for the result, then repeatedly for the median time of a call."""
    if not system_has(artifact.kind):
        return _Execution("simulator", None, artifact(*arrays) or ())
    artifact(*arrays)
    times: list[float] = []
    until = time.perf_counter() + _TIMED_SECONDS
    scratch = tuple(array.copy() for array in arrays)
    while len(times) < _TIMED_CALLS and (not times or time.perf_counter() < until):
        begin = time.perf_counter()
        artifact(*scratch)
        times.append(time.perf_counter() - begin)
    return _Execution("this machine's processor", statistics.median(times))


def _facts(
    subject: Subject,
    artifact: Artifact,
    comparisons: tuple[Comparison, ...],
    compiled: float,
    execution: _Execution,
) -> dict[str, Any]:
    where, seconds = execution.where, execution.seconds
    right = all(comparison.within for comparison in comparisons)
    views = [view for view in artifact.tile_ir.views if view.access.value != "in"]
    outputs = [
        {
            "name": view.name,
            "max_absolute_error": comparison.max_absolute_error,
            "max_relative_error": comparison.max_relative_error,
            "fraction_of_allowed_error": comparison.worst_ratio,
            "right": comparison.within,
        }
        for view, comparison in zip(views, comparisons, strict=True)
    ]
    shape = "x".join(map(str, subject.shape))
    verdict = "right" if right else "WRONG"
    lines = [
        ("kernel", f"{artifact.name} {shape} {subject.dtype} on {artifact.kind} ({where})"),
        ("plan", describe_plan(artifact)),
        ("compile", f"{1e3 * compiled:.1f} ms from Python source to module"),
    ]
    for output in outputs:
        lines.append(
            (
                "error",
                f"{output['name']}: {output['max_absolute_error']:.2e} absolute, "
                f"{output['max_relative_error']:.2e} relative to FP64, "
                f"{output['fraction_of_allowed_error']:.3f} of the allowed: {verdict}",
            )
        )
    if seconds is not None:
        lines.append(("time", f"{1e6 * seconds:.1f} us a call (median)" + _rate(subject, seconds)))
    return {
        "kernel": artifact.name,
        "shape": list(subject.shape),
        "dtype": subject.dtype,
        "target": artifact.kind,
        "executed_on": where,
        "plan": describe_plan(artifact),
        "compile_seconds": compiled,
        "seconds_per_call": seconds,
        "outputs": outputs,
        "right": right,
        "lines": lines,
    }


def _rate(subject: Subject, seconds: float) -> str:
    if subject.entry is None or seconds == 0:
        return ""
    moved = subject.entry.useful_bytes(subject.shape[0], subject.shape[1], subject.dtype)
    return f", {moved / seconds / 1e9:.2f} GB/s of useful traffic"

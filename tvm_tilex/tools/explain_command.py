"""``tilex explain``: every stage of one compilation, and the emitted source exactly once."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import click

from tvm_tilex.driver import compile
from tvm_tilex.ir.print import format_program
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.tools.options import compile_options, kernel_options
from tvm_tilex.tools.report import (
    access_lines,
    admission_lines,
    candidate_lines,
    class_lines,
    describe_plan,
    heading,
)
from tvm_tilex.tools.subjects import make_subject

__all__ = ["explain"]


@click.command()
@kernel_options
def explain(
    kernel: str,
    shapes: tuple[tuple[int, ...], ...],
    target: str,
    dtype: str,
    seed: int,
    as_json: bool,
    **choices: Any,
) -> None:
    """Show every stage of KERNEL (a library name or FILE.py:NAME) on a target."""
    subject = make_subject(kernel, shapes, dtype)
    options = compile_options(**choices)
    artifact = compile(subject.kernel, *subject.specs, target=target, options=options)
    stages = {
        "kernel": inspect.getsource(subject.kernel.function).rstrip(),
        "TileIR": format_program(artifact.tile_ir).rstrip(),
        "accesses": "\n".join(access_lines(artifact.tile_ir)),
        "reference TIRx": artifact.tirx.script().rstrip(),
        "admission": "\n".join(admission_lines(artifact)),
        "candidates": "\n".join(candidate_lines(artifact)),
        "plan": "\n".join((describe_plan(artifact), *class_lines(artifact))),
        "scheduled TIRx": artifact.scheduled.script().rstrip(),
        f"{target} source": artifact.source.strip(),
    }
    if as_json:
        click.echo(json.dumps(_facts(artifact, stages), indent=2))
        return
    for title, text in stages.items():
        heading(title)
        click.echo(text)


def _facts(artifact: Artifact, stages: dict[str, str]) -> dict[str, Any]:
    return {
        "kernel": artifact.name,
        "target": json.loads(str(artifact.target)),
        "options": json.loads(artifact.options.to_json()),
        "materialization": artifact.materialization.value,
        "materialization_reason": artifact.materialization_reason,
        "early_views": artifact.early_views,
        "requires_precise_math": artifact.requires_precise_math,
        "proof": None if artifact.proof is None else dataclasses.asdict(artifact.proof),
        "plan": None if artifact.plan is None else dataclasses.asdict(artifact.plan),
        "group_plans": [dataclasses.asdict(plan) for plan in artifact.group_plans],
        "classes": [
            {
                "ranges": {d.name: [d.minimum, d.maximum] for d in variant.dimensions},
                "plan": None if variant.plan is None else dataclasses.asdict(variant.plan),
            }
            for variant in artifact.variants
        ],
        "fallback": artifact.fallback,
        "launches": [
            dataclasses.asdict(launch)
            for launch in (artifact.device.launches if artifact.device else ())
        ],
        "stages": {
            name: text
            for name, text in stages.items()
            if name not in ("accesses", "admission", "candidates", "plan")
        },
    }

"""``tilex explain``: every stage of one compilation, and the emitted source exactly once."""

from __future__ import annotations

import inspect
import json

import click

from tvm_tilex.driver import compile
from tvm_tilex.ir.print import format_program
from tvm_tilex.tools.options import kernel_options
from tvm_tilex.tools.report import describe_plan, heading
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
) -> None:
    """Show every stage of KERNEL (a library name or FILE.py:NAME) on a target."""
    subject = make_subject(kernel, shapes, dtype)
    artifact = compile(subject.kernel, *subject.specs, target=target)
    stages = {
        "kernel": inspect.getsource(subject.kernel.function).rstrip(),
        "TileIR": format_program(artifact.tile_ir).rstrip(),
        "reference TIRx": artifact.tirx.script().rstrip(),
        "plan": describe_plan(artifact),
        "scheduled TIRx": artifact.scheduled.script().rstrip(),
        f"{target} source": artifact.source.strip(),
    }
    if as_json:
        facts = {
            "kernel": artifact.name,
            "target": str(artifact.target),
            "options": json.loads(artifact.options.to_json()),
            "requires_precise_math": artifact.requires_precise_math,
            "stages": stages,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for title, text in stages.items():
        heading(title)
        click.echo(text)

"""Text that several commands print."""

from __future__ import annotations

import math

import click

from tvm_tilex.ir import Parallel
from tvm_tilex.runtime.artifact import Artifact

__all__ = ["describe_plan", "heading"]


def heading(title: str) -> None:
    """A title over a section of output."""
    click.secho(f"\n== {title} ==", bold=True)


def describe_plan(artifact: Artifact) -> str:
    """One line: how programs are mapped, and which shared tiles are kept."""
    if artifact.plan is not None:
        return artifact.plan.describe()
    programs = sum(
        math.prod(axis.extent for axis in root.axes)
        for root in artifact.tile_ir.body
        if isinstance(root, Parallel)
    )
    who = "over the processor's cores" if artifact.kind == "llvm" else "one thread each"
    kept = artifact.materialization.value
    return f"reference map, {programs} programs {who}; shared tiles: {kept}"

"""``tilex list``: the kernels of the library."""

from __future__ import annotations

import json

import click

from tvm_tilex import kernels
from tvm_tilex.kernels.registry import KernelEntry

__all__ = ["list_kernels"]


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_kernels(as_json: bool) -> None:
    """List the kernels of the library with their arguments."""
    entries = kernels.catalog().values()
    if as_json:
        rows = [
            {"name": e.name, "arguments": list(e.parameters), "summary": e.summary} for e in entries
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(_call(entry)) for entry in entries)
    for entry in entries:
        click.echo(f"{_call(entry):<{width}}  {entry.summary}")


def _call(entry: KernelEntry) -> str:
    return f"{entry.name}({', '.join(entry.parameters)})"

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tvm_tilex.ir.types import DTYPES
from tvm_tilex.tools.subjects import Shape

__all__ = ["kernel_options"]

_STORAGE = [name for name, dtype in DTYPES.items() if dtype.is_float]


def kernel_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add KERNEL, --shape, --target, --dtype, --seed and --json to a command."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--seed", default=0, show_default=True, help="Seed of the random inputs."),
        click.option(
            "--dtype",
            type=click.Choice(_STORAGE),
            default="float32",
            show_default=True,
            help="Storage type; computation is FP32.",
        ),
        click.option(
            "--target",
            type=click.Choice(["llvm", "metal", "cuda"]),
            default="llvm",
            show_default=True,
        ),
        click.option(
            "--shape",
            "shapes",
            type=Shape(),
            multiple=True,
            required=True,
            help="Extents such as 3x4096; once for a library kernel, else once a view.",
        ),
        click.argument("kernel"),
    ):
        command = decorate(command)
    return command

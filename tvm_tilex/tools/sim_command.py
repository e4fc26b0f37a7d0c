"""``tilex sim``: run a kernel of an MSL file in the simulator and print its counters."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np

from tvm_tilex.errors import SimulatorError
from tvm_tilex.sim import Checks, MetalKernel, format_counters

__all__ = ["sim"]

_DTYPES = {name: np.dtype(name) for name in ("float32", "float16", "int64", "int32", "uint32")}
_DTYPES |= {name: np.dtype(name) for name in ("int16", "uint16", "int8", "uint8", "bool")}
_DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
_FILLS = ("zeros", "ones", "arange", "random")


def _triple(_: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Parse ``64`` or ``8x8x1``."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if not 1 <= len(parts) <= 3 or not all(p.isdigit() for p in parts):
        raise click.BadParameter(f"{text!r} is not one to three integers such as 64 or 8x8x1")
    return tuple(int(p) for p in parts)


def _argument(text: str, generator: np.random.Generator) -> Any:
    """Parse one argument: FILE.npy, a number, or DTYPE:SHAPE[:FILL]."""
    if text.endswith(".npy"):
        try:
            return np.load(text, allow_pickle=False)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise click.BadParameter(f"{text}: {error}") from None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    dtype, _, rest = text.partition(":")
    shape, _, fill = rest.partition(":")
    extents = shape.lower().split("x")
    if dtype not in _DTYPES or not all(e.isdigit() for e in extents):
        raise click.BadParameter(
            f"{text!r} is not FILE.npy, a number, or DTYPE:SHAPE[:FILL], "
            "such as float32:3x4096:random"
        )
    return _filled(_DTYPES[dtype], tuple(int(e) for e in extents), fill or "zeros", generator)


def _filled(
    dtype: np.dtype, shape: tuple[int, ...], fill: str, generator: np.random.Generator
) -> np.ndarray:
    if fill not in _FILLS:
        raise click.BadParameter(f"fill {fill!r} is not one of {', '.join(_FILLS)}")
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "arange":
        return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    if dtype.kind in "iub":
        return generator.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


@click.command("sim")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", "name", help="Kernel to run; the only one when left out.")
@click.option("--grid", callback=_triple, help="Threadgroups per grid, such as 64 or 8x8.")
@click.option("--group", callback=_triple, help="Threads per threadgroup, such as 256 or 16x16.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    help="One per buffer in order: FILE.npy, a number, or DTYPE:SHAPE[:zeros|ones|arange|random].",
)
@click.option("--save", type=click.Path(path_type=Path), help="Folder for the buffers afterwards.")
@click.option(
    "--seed", default=0, show_default=True, help="Order of SIMD reductions, random fills."
)
@click.option("--simd-width", default=32, show_default=True, help="Lanes per SIMD group.")
@click.option("--step-limit", default=1 << 20, show_default=True, help="Iterations of one loop.")
@click.option("--list", "listing", is_flag=True, help="List the kernels and their buffers.")
@click.option("--no-races", is_flag=True, help="Do not check for races.")
@click.option(
    "--uninitialized",
    type=click.Choice(["use", "read", "off"]),
    default="use",
    show_default=True,
    help="When a value that nothing wrote is a fault.",
)
def sim(
    file: Path,
    name: str | None,
    grid: tuple[int, ...] | None,
    group: tuple[int, ...] | None,
    arguments: tuple[str, ...],
    save: Path | None,
    seed: int,
    simd_width: int,
    step_limit: int,
    listing: bool,
    no_races: bool,
    uninitialized: Any,
) -> None:
    """Run a kernel of the Metal source FILE in the simulator and print its counters.

    Exit code 1: the source is refused or a check fails. Exit code 2: bad usage.
    """
    try:
        library = MetalKernel.from_source(file.read_text(encoding="utf-8"))
        if listing:
            for kernel in library.values():
                buffers = ", ".join(f"{b.symbol.name}: {b.symbol.type}" for b in kernel.buffers)
                click.echo(f"{kernel.name}({buffers})")
            return
        name = name or _only(list(library))
        if grid is None or group is None:
            raise click.UsageError("--grid and --group are needed to run a kernel")
        generator = np.random.default_rng(seed)
        values = [_argument(a, generator) for a in arguments]
        counters = library[name].launch(
            grid,
            group,
            *values,
            seed=seed,
            simd_width=simd_width,
            step_limit=step_limit,
            checks=Checks(races=not no_races, uninitialized=uninitialized),
        )
    except SimulatorError as error:
        click.echo(f"{file}: {error}", err=True)
        raise click.exceptions.Exit(1) from None
    click.echo(format_counters(counters), nl=False)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for buffer, value in zip(library[name].buffers, values, strict=False):
            if isinstance(value, np.ndarray):
                np.save(save / f"{buffer.symbol.name}.npy", value)


def _only(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise click.UsageError(f"--kernel is needed: the file has {', '.join(names)}")

"""What a command works on: a kernel named on the command line, with arguments and an oracle."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from tvm_tilex import kernels
from tvm_tilex.ir import Program, ViewAccess
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.kernels.registry import KernelEntry, numpy_dtype
from tvm_tilex.kernels.tolerances import Comparison, compare
from tvm_tilex.lang.kernel import TensorSpec, TileKernel

__all__ = ["Shape", "Subject", "find_kernel", "make_subject"]


class Shape(click.ParamType):
    """Extents as ``3x4096``."""

    name = "PxN"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the extents; a malformed text is a usage error."""
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split("x")
        if not all(part.isascii() and part.isdigit() for part in parts):
            self.fail(f"--shape {value}: write extents as 3x4096", param, ctx)
        return tuple(map(int, parts))


@dataclass(frozen=True)
class Subject:
    """A kernel with its argument types. ``entry`` is set for kernels of the library."""

    kernel: TileKernel
    specs: tuple[TensorSpec, ...]
    shape: tuple[int, ...]
    dtype: str
    entry: KernelEntry | None

    def arguments(self, seed: int) -> tuple[np.ndarray, ...]:
        """Random inputs and poisoned outputs, as NumPy arrays in call order."""
        if self.entry is not None:
            return self.entry.arguments(self.shape[0], self.shape[1], self.dtype, seed=seed)
        generator = np.random.default_rng(seed)
        accesses = [view.access for view in self.kernel.parameters.values()]
        pairs = zip(self.specs, accesses, strict=True)
        return tuple(_array(generator, spec, access) for spec, access in pairs)

    def check(
        self, program: Program, before: Sequence[Any], after: Sequence[Any]
    ) -> tuple[Comparison, ...]:
        """Compare every output with its FP64 oracle.

        The oracle of a library kernel is a formula of its own; that of any other kernel is the
        TileIR interpreter in float64.
        """
        if self.entry is not None:
            return self.entry.check(after)
        from tvm_tilex.ir.interp import interpret

        expected = interpret(program, before, precision="float64")
        written = [i for i, v in enumerate(program.views) if v.access is not ViewAccess.read]
        return tuple(
            compare("composition", program.views[i].dtype, after[i], wanted)
            for i, wanted in zip(written, expected, strict=True)
        )


def find_kernel(name: str) -> TileKernel:
    """Return a kernel of the library, or ``file.py:name``.

    Raises
    ------
    click.UsageError
        If there is none of that name; the closest one is suggested.
    """
    path, _, attribute = name.rpartition(":")
    if path:
        return _from_file(Path(path), attribute)
    entry = kernels.catalog().get(name)
    if entry is not None:
        return entry.kernel
    close = difflib.get_close_matches(name, kernels.catalog(), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`tilex list` shows them"
    raise click.UsageError(f"no kernel {name!r}; {hint}")


def _from_file(path: Path, attribute: str) -> TileKernel:
    if not path.is_file():
        raise click.UsageError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # a dataclass in the file looks its module up
    spec.loader.exec_module(module)
    found = getattr(module, attribute, None)
    if not isinstance(found, TileKernel):
        raise click.UsageError(f"{path} has no tile kernel {attribute!r}")
    return found


def make_subject(name: str, shapes: Sequence[tuple[int, ...]], dtype: str) -> Subject:
    """Pair a kernel with argument types from the command line's shapes.

    Raises
    ------
    click.UsageError
        If the shapes do not fit the kernel's views.
    """
    kernel = find_kernel(name)
    entry = kernels.catalog().get(name)
    if entry is not None:
        if len(shapes) != 1 or len(shapes[0]) != 2:
            raise click.UsageError(f"{name} takes one --shape of two extents, such as 3x4096")
        return Subject(kernel, entry.specs(*shapes[0], dtype), shapes[0], dtype, entry)
    views = list(kernel.parameters.values())
    if len(shapes) == 1 and len({view.rank for view in views}) == 1:
        shapes = [shapes[0]] * len(views)
    if len(shapes) != len(views) or any(
        len(shape) != view.rank for shape, view in zip(shapes, views, strict=False)
    ):
        ranks = ", ".join(f"{n}: rank {v.rank}" for n, v in kernel.parameters.items())
        raise click.UsageError(f"{name} takes one --shape a view, in order ({ranks})")
    storage = dtype_of(dtype)
    specs = tuple(
        TensorSpec(shape, storage if storage in view.dtypes else view.dtypes[0])
        for shape, view in zip(shapes, views, strict=True)
    )
    return Subject(kernel, specs, shapes[0], dtype, None)


def _array(generator: np.random.Generator, spec: TensorSpec, access: ViewAccess) -> np.ndarray:
    assert spec.dtype is not None
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype.is_float:
        if access is ViewAccess.write:
            return np.full(spec.shape, np.nan, dtype)
        return generator.standard_normal(spec.shape, dtype=np.float32).astype(dtype)
    return generator.integers(0, 2, spec.shape).astype(dtype)

"""A kernel found by name, with argument types, inputs and an oracle: what a command works on.

A name is one of the library, or ``file.py:name``. A user's kernel is judged by the TileIR
interpreter in float64, a library kernel by a formula of its own.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, TilexError
from tvm_tilex.ir.index import Extent
from tvm_tilex.ir.program import Program, ViewAccess
from tvm_tilex.ir.types import dtype_of, numpy_dtype
from tvm_tilex.kernels.registry import KernelEntry
from tvm_tilex.kernels.tolerances import Comparison, compare
from tvm_tilex.lang.kernel import TensorSpec, TileKernel

__all__ = ["Subject", "SubjectError", "find_kernel", "kernel_name", "make_subject"]

Array = NDArray[Any]


class SubjectError(ArgumentError):
    """A kernel that is not found under its name, or shapes that do not fit its views."""


@dataclass(frozen=True)
class Subject:
    """A kernel with its argument types. ``entry`` is set for kernels of the library.

    Dynamic extents in ``shapes`` have no arguments: those are of a subject with fixed ones.

    ``static`` are values of compile-time constants that differ from their defaults.
    """

    name: str
    kernel: TileKernel
    specs: tuple[TensorSpec, ...]
    shapes: tuple[tuple[Extent, ...], ...]
    dtype: str
    entry: KernelEntry | None
    static: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The first shape, which is the whole of it for a library kernel."""
        return self.shapes[0]

    def capture(self) -> Program:
        """Run the kernel's Python body again."""
        return self.kernel.capture(self.specs, self.static)

    def arguments(self, seed: int) -> tuple[Array, ...]:
        """Random inputs and poisoned outputs, as NumPy arrays in call order."""
        if self.entry is not None:
            return self.entry.arguments(self.shape[0], self.shape[1], self.dtype, seed=seed)
        generator = np.random.default_rng(seed)
        accesses = [view.access for view in self.kernel.parameters.values()]
        pairs = zip(self.specs, accesses, strict=True)
        return tuple(_array(generator, spec, access) for spec, access in pairs)

    def expected(self, program: Program, before: Sequence[Any]) -> tuple[NDArray[Any], ...]:
        """FP64 value of each output, from the arguments before the call."""
        if self.entry is not None:
            return self.entry.expected(before)
        from tvm_tilex.ir.interp import interpret

        return tuple(interpret(program, before, precision="float64"))

    def check(
        self,
        program: Program,
        before: Sequence[Any],
        after: Sequence[Any],
        expected: Sequence[NDArray[Any]] | None = None,
    ) -> tuple[Comparison, ...]:
        """Compare every output with its FP64 oracle, ``expected`` where it is at hand."""
        wanted = self.expected(program, before) if expected is None else expected
        if self.entry is not None:
            return self.entry.check(after, wanted)
        written = [i for i, v in enumerate(program.views) if v.access is not ViewAccess.read]
        return tuple(
            compare("composition", program.views[i].dtype, after[i], value)
            for i, value in zip(written, wanted, strict=True)
        )


def find_kernel(name: str) -> TileKernel:
    """Return a kernel of the library, or ``file.py:name``.

    Raises
    ------
    SubjectError
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
    raise SubjectError(f"no kernel {name!r}; {hint}")


def kernel_name(kernel: TileKernel) -> str:
    """The name under which another process finds ``kernel``.

    Raises
    ------
    SubjectError
        If its source is no file (a notebook, an interactive session).
    """
    entry = kernels.catalog().get(kernel.name)
    if entry is not None and entry.kernel is kernel:
        return kernel.name
    path = Path(kernel.function.__code__.co_filename)
    if not path.is_file():
        raise SubjectError(
            f"{kernel.name}: its source is {path}, which is no file that another process can load"
        )
    return f"{path.resolve()}:{kernel.name}"


# Loaded once per content: executing a file again would register its cost policies again.
_LOADED: dict[tuple[Path, str], Any] = {}


def _from_file(path: Path, attribute: str) -> TileKernel:
    if not path.is_file():
        raise SubjectError(f"no file {path}")
    key = (path.resolve(), path.read_text(encoding="utf-8"))
    if key not in _LOADED:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # a dataclass in the file looks its module up
        try:
            spec.loader.exec_module(module)
        except TilexError:
            raise  # names the line itself
        except Exception as error:
            raise SubjectError(f"{_place(path, error)}: {type(error).__name__}: {error}") from None
        _LOADED[key] = module
    found = getattr(_LOADED[key], attribute, None)
    if not isinstance(found, TileKernel):
        raise SubjectError(f"{path} has no tile kernel {attribute!r}")
    return found


def _place(path: Path, error: Exception) -> str:
    """``file:line`` of the user's file where an error arose."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def make_subject(
    name: str,
    shapes: Sequence[tuple[Extent, ...]],
    dtype: str,
    static: Mapping[str, Any] | None = None,
) -> Subject:
    """Pair a kernel with argument types from the command line's shapes.

    Raises
    ------
    SubjectError
        If there is no such kernel, or the shapes do not fit its views.
    """
    kernel, static = find_kernel(name), dict(static or {})
    entry = kernels.catalog().get(name)
    if entry is not None:
        if len(shapes) != 1 or len(shapes[0]) != 2:
            raise SubjectError(f"{name} takes one --shape of two extents, such as 3x4096")
        specs = entry.specs(shapes[0][0], shapes[0][1], dtype)
        return Subject(name, kernel, specs, tuple(shapes), dtype, entry, static)
    views = list(kernel.parameters.values())
    if len(shapes) == 1 and len({view.rank for view in views}) == 1:
        shapes = [shapes[0]] * len(views)
    if len(shapes) != len(views) or any(
        len(shape) != view.rank for shape, view in zip(shapes, views, strict=False)
    ):
        ranks = ", ".join(f"{n}: rank {v.rank}" for n, v in kernel.parameters.items())
        raise SubjectError(f"{name} takes one --shape a view, in order ({ranks})")
    storage = dtype_of(dtype)
    specs = tuple(
        TensorSpec(shape, storage if storage in view.dtypes else view.dtypes[0])
        for shape, view in zip(shapes, views, strict=True)
    )
    return Subject(name, kernel, specs, tuple(shapes), dtype, None, static)


def _array(generator: np.random.Generator, spec: TensorSpec, access: ViewAccess) -> Array:
    assert spec.dtype is not None
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype.is_float:
        if access is ViewAccess.write:
            return np.full(spec.shape, np.nan, dtype)
        return generator.standard_normal(spec.shape, dtype=np.float32).astype(dtype)
    return generator.integers(0, 2, spec.shape).astype(dtype)

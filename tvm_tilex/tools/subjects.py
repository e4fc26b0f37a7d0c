"""What a command works on, with errors in the command line's own form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from tvm_tilex.errors import ShapeError
from tvm_tilex.ir.index import MAX_EXTENT, Dimension, Extent
from tvm_tilex.kernels import subjects
from tvm_tilex.kernels.subjects import Subject, SubjectError

__all__ = ["Shape", "Subject", "make_subject", "require_fixed"]

# P, or N=1..300; the x between extents is in no name.
_DYNAMIC = re.compile(r"([A-WYZ][A-WYZ0-9_]*)(?:=([0-9]+)\.\.([0-9]+))?", re.IGNORECASE)


class Shape(click.ParamType):
    """Extents as ``3x4096``; with ``dynamic`` also ``Px4096`` and ``PxN=1..300``."""

    name = "PxN"

    def __init__(self, *, dynamic: bool = False) -> None:
        self.dynamic = dynamic

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Extent, ...]:
        """Return the extents; a malformed text is a usage error."""
        if isinstance(value, tuple):
            return value
        found = []
        for part in re.split("[xX]", str(value)):
            named = _DYNAMIC.fullmatch(part) if self.dynamic else None
            if named is None and not (part.isascii() and part.isdigit()):
                forms = "3x4096, Px4096 or PxN=1..300" if self.dynamic else "3x4096"
                self.fail(f"--shape {value}: write extents as {forms}", param, ctx)
            try:
                found.append(int(part) if named is None else _dimension(*named.groups()))
            except ShapeError as error:
                self.fail(f"--shape {value}: {error}", param, ctx)
        return tuple(found)


def _dimension(name: str, least: str | None, greatest: str | None) -> Dimension:
    if least is None or greatest is None:
        return Dimension(name, 0, MAX_EXTENT)
    return Dimension(name, int(least), int(greatest))


def require_fixed(shapes: Sequence[Sequence[Extent]], instead: str) -> None:
    """Refuse dynamic extents where arrays are to be made.

    Raises
    ------
    click.UsageError
        Naming the extent, and what to give ``instead``.
    """
    for extent in (extent for shape in shapes for extent in shape):
        if isinstance(extent, Dimension):
            raise click.UsageError(f"the extent {extent.name} is dynamic; {instead}")


def make_subject(name: str, shapes: Sequence[tuple[Extent, ...]], dtype: str) -> Subject:
    """Pair a kernel with argument types from the command line's shapes.

    Raises
    ------
    click.UsageError
        If there is no such kernel, or the shapes do not fit its views.
    """
    try:
        return subjects.make_subject(name, shapes, dtype)
    except SubjectError as error:
        raise click.UsageError(str(error)) from None

"""What a command works on, with errors in the command line's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tvm_tilex.kernels import subjects
from tvm_tilex.kernels.subjects import Subject, SubjectError

__all__ = ["Shape", "Subject", "make_subject"]


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


def make_subject(name: str, shapes: Sequence[tuple[int, ...]], dtype: str) -> Subject:
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

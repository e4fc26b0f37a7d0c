"""Ranges of a function's dynamic extents, as far as its launch guarantees them."""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import PrimFunc, Var, tirx

__all__ = ["Ranges", "dimension_ranges", "extent_range"]

Ranges = dict[Any, tuple[int, int]]


def dimension_ranges(function: PrimFunc) -> Ranges:
    """Least and greatest value of each variable in the parameters' shapes that has a range.

    ``tilex.dimensions`` is not a claim to be proved: :class:`.GuardDimensions` makes the host
    function refuse every launch outside of it.
    """
    stated = function.attrs.get(attrs.DIMENSIONS, None) if function.attrs else None
    if stated is None:
        return {}
    found: Ranges = {}
    for parameter in function.params:
        for extent in getattr(parameter.ty, "shape", ()):
            if isinstance(extent, Var) and extent.name in stated:
                least, greatest = stated[extent.name]
                found[extent] = int(least), int(greatest)
    return found


def extent_range(extent: Any, ranges: Ranges) -> tuple[int, int] | None:
    """Interval of a product of integers and ranged variables; None for anything else."""
    if isinstance(extent, tirx.IntImm):
        return int(extent.value), int(extent.value)
    if isinstance(extent, Var):
        return ranges.get(extent)
    if not isinstance(extent, tirx.Mul):
        return None
    a, b = extent_range(extent.a, ranges), extent_range(extent.b, ranges)
    if a is None or b is None or a[0] < 0 or b[0] < 0:
        return None
    return a[0] * b[0], a[1] * b[1]

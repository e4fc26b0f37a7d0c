"""Axes, shapes, coordinates and the parallel nest."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex

from tvm_tilex.errors import CaptureError, ShapeError
from tvm_tilex.ir.index import (
    Dimension,
    Extent,
    Index,
    IndexValue,
    ProgramCoordinate,
    as_index,
)
from tvm_tilex.ir.program import Binding
from tvm_tilex.ir.types import Axis
from tvm_tilex.lang.capture import OpenNest, current_capture, running_capture
from tvm_tilex.support.srcloc import caller_location

__all__ = ["Coord", "Nest", "Shape", "axis", "coord", "parallel", "shape"]


def axis(name: str, extent: SupportsIndex) -> Axis:
    """Name an extent: an integer or ``view.extent(...)``. One name always means one extent.

    Raises
    ------
    ShapeError
        If the extent is negative or the name already means another extent.
    """
    if not isinstance(name, str):
        raise ShapeError(f"axis name {name!r} is not text", location=caller_location())
    try:
        made = Axis(name, _extent(extent))
    except TypeError:
        raise ShapeError(
            f"axis {name!r}: the extent is {extent!r}, not an integer or view.extent(...)",
            location=caller_location(),
        ) from None
    except ShapeError as error:
        raise ShapeError(str(error), location=caller_location()) from None
    capture = running_capture()
    return capture.know(made) if capture is not None else made


def _extent(extent: Any) -> Extent:
    if isinstance(extent, Dimension):
        return extent
    if isinstance(extent, IndexValue):
        raise TypeError("an expression is no extent")
    return operator.index(extent)


@dataclass(frozen=True)
class Shape:
    """One entry per dimension of a view: a tile axis, or None for a single index."""

    entries: tuple[Axis | None, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The tile axes, in order."""
        return tuple(entry for entry in self.entries if entry is not None)


def shape(*entries: Axis | int) -> Shape:
    """Return the extents of a tile or of a parallel nest, as axes; the literal 1 is no axis.

    Raises
    ------
    ShapeError
        If an entry is neither an axis nor 1, or an axis occurs twice.
    """
    where = caller_location()
    for entry in entries:
        if not isinstance(entry, Axis) and entry != 1:
            raise ShapeError(
                f"shape(...) takes axes (or the literal 1), not {entry!r}", location=where
            )
    names = [entry.name for entry in entries if isinstance(entry, Axis)]
    if len(set(names)) != len(names):
        raise ShapeError(f"shape({', '.join(names)}) names an axis twice", location=where)
    capture = running_capture()
    for entry in entries:
        if isinstance(entry, Axis) and capture is not None:
            capture.know(entry)
    return Shape(tuple(entry if isinstance(entry, Axis) else None for entry in entries))


@dataclass(frozen=True)
class Coord:
    """Where a tile begins in a view: one index per dimension."""

    indices: tuple[Index, ...]


def coord(*indices: Any) -> Coord:
    """Return the origin of a tile, one index per dimension of the view."""
    return Coord(tuple(as_index(index, "coord(...)") for index in indices))


class Nest:
    """The running program of a parallel nest."""

    def __init__(self, nest: OpenNest) -> None:
        self._nest = nest

    def index(self, dimension: int | None = None) -> IndexValue:
        """Return the program's coordinate along ``dimension`` (optional in a 1-D nest)."""
        rank = len(self._nest.axes)
        if dimension is None and rank != 1:
            raise CaptureError(
                f"nest.index() needs a dimension: the nest has {rank}", location=caller_location()
            )
        dimension = 0 if dimension is None else dimension
        if not isinstance(dimension, int) or not 0 <= dimension < rank:
            raise CaptureError(
                f"nest.index({dimension!r}): the nest has dimensions 0 to {rank - 1}",
                location=caller_location(),
            )
        return IndexValue(ProgramCoordinate(self._nest.number, dimension))


def parallel(extents: Shape, *, binding: str = "auto") -> Iterator[Nest]:
    """Run the loop body once per coordinate of ``extents``, in no order.

    Parameters
    ----------
    extents
        ``tx.shape(...)`` of one or more axes. An extent of 0 means no program runs.
    binding
        ``"auto"``, or ``"subgroup"`` to demand SIMD groups: what cannot be mapped so is an error.
    """
    if not isinstance(extents, Shape) or None in extents.entries or not extents.entries:
        raise ShapeError(
            "parallel(...) takes tx.shape(axis, ...) with at least one axis",
            location=caller_location(),
        )
    if binding not in Binding.__members__:
        raise CaptureError(
            f"parallel(binding={binding!r}): use 'auto' or 'subgroup'", location=caller_location()
        )
    return _nest_once(extents.axes, Binding[binding])


def _nest_once(axes: tuple[Axis, ...], binding: Binding) -> Iterator[Nest]:
    capture = current_capture("parallel(...)")
    nest = capture.open(axes, binding)
    try:
        yield Nest(nest)
    except GeneratorExit:
        # `break`, `return` or an exception left the body: the program would be incomplete.
        capture.abandoned = nest.location
        raise
    capture.close(nest)

"""The dynamic dimensions of a program: which there are, what arrays make of them, restricting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tvm_tilex.errors import ArgumentError
from tvm_tilex.ir.index import Dimension, Extent, Index, IndexBinary, IndexConstant
from tvm_tilex.ir.program import Coordinate, Load, Program, Store, View
from tvm_tilex.ir.types import Axis
from tvm_tilex.ir.walk import walk

__all__ = [
    "bind_shapes",
    "dimensions_of",
    "fixed_index",
    "fixed_views",
    "restrict",
    "tile_dimensions",
]


def dimensions_of(views: Iterable[View]) -> tuple[Dimension, ...]:
    """The dynamic dimensions in order of first appearance."""
    found: dict[str, Dimension] = {}
    for view in views:
        for extent in view.shape:
            if isinstance(extent, Dimension):
                found.setdefault(extent.name, extent)
    return tuple(found.values())


def tile_dimensions(program: Program) -> frozenset[str]:
    """Names of the dimensions along which tiles run; the others only count programs."""
    found: set[str] = set()
    for statement in walk(program):
        axes: Iterable[Axis | None] = ()
        if isinstance(statement, (Load, Store)):
            axes = statement.dimensions
        elif isinstance(statement, Coordinate):
            axes = (statement.axis,)
        found |= {a.extent.name for a in axes if a is not None and isinstance(a.extent, Dimension)}
    return frozenset(found)


def bind_shapes(
    views: Sequence[View], shapes: Sequence[Sequence[int] | None], what: str
) -> dict[str, int]:
    """Values of the dimensions by name, from one shape a view (None where there is none).

    Raises
    ------
    ArgumentError
        If a shape differs from the view's, two views disagree, or a value leaves its range.
    """
    found: dict[str, tuple[int, View]] = {}
    for view, shape in zip(views, shapes, strict=True):
        if shape is None:
            continue
        where = f"{what}: argument {view.name!r}"
        given = "(" + ", ".join(map(str, view.shape)) + ("," if len(view.shape) == 1 else "") + ")"
        if len(shape) != len(view.shape):
            raise ArgumentError(
                f"{where} has shape {tuple(shape)}; the kernel was compiled for {given}"
            )
        for extent, value in zip(view.shape, shape, strict=True):
            if not isinstance(extent, Dimension):
                if extent != value:
                    raise ArgumentError(
                        f"{where} has shape {tuple(shape)}; the kernel was compiled for {given}"
                    )
                continue
            if not extent.minimum <= value <= extent.maximum:
                raise ArgumentError(
                    f"{where} has shape {tuple(shape)}; {extent.name} is {value}, the kernel was "
                    f"compiled for {extent.minimum} to {extent.maximum}"
                )
            known, first = found.setdefault(extent.name, (value, view))
            if known != value:
                raise ArgumentError(
                    f"{where} has shape {tuple(shape)}; {extent.name} is {value}, but {known} in "
                    f"{first.name!r}"
                )
    return {name: value for name, (value, _) in found.items()}


def fixed_views(views: Sequence[View], extents: Mapping[str, Extent]) -> tuple[View, ...]:
    """The views with these dimensions fixed to integers or given other ranges."""
    return tuple(_restricted(tuple(views), extents))


def restrict(program: Program, extents: Mapping[str, Extent]) -> Program:
    """The same program with these dimensions fixed to integers or given other ranges."""
    if not extents:
        return program
    restricted: Program = _restricted(program, extents)
    return restricted


def fixed_index(index: Index, extents: Mapping[str, Extent]) -> Index:
    """An index expression with these dimensions fixed or given other ranges."""
    if isinstance(index, IndexBinary):
        lhs, rhs = fixed_index(index.lhs, extents), fixed_index(index.rhs, extents)
        return IndexBinary(index.op, lhs, rhs)
    if not isinstance(index, Dimension):
        return index
    found = extents.get(index.name, index)
    return IndexConstant(found) if isinstance(found, int) else found


def _restricted(node: Any, extents: Mapping[str, Extent]) -> Any:
    """A node of TileIR, or a tuple of nodes, with the extents in it replaced."""
    if isinstance(node, (Dimension, IndexBinary)):
        return fixed_index(node, extents)
    if isinstance(node, Axis):
        return Axis(node.name, _extent(node.extent, extents))
    if isinstance(node, View):
        return replace(node, shape=tuple(_extent(extent, extents) for extent in node.shape))
    if isinstance(node, tuple):
        return tuple(_restricted(part, extents) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {name: _restricted(part, extents) for name, part in parts.items()}
    if all(changed[name] is part for name, part in parts.items()):
        return node
    return replace(node, **changed)


def _extent(extent: Extent, extents: Mapping[str, Extent]) -> Extent:
    return extents.get(extent.name, extent) if isinstance(extent, Dimension) else extent

"""Arrays that a program is interpreted on: by name, checked, copied where they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_tilex.errors import ArgumentError
from tvm_tilex.ir.dimensions import bind_shapes, dimensions_of, restrict
from tvm_tilex.ir.interp_elementwise import Array
from tvm_tilex.ir.program import Program, View, ViewAccess
from tvm_tilex.ir.types import numpy_dtype

__all__ = ["at_shapes", "memory_of"]


def at_shapes(program: Program, arrays: Sequence[Any] | Mapping[str, Any]) -> Program:
    """The program with its dynamic dimensions fixed to the extents of the arrays."""
    dynamic = dimensions_of(program.views)
    if not dynamic:
        return program
    given = dict(arrays) if isinstance(arrays, Mapping) else _by_name(program.views, arrays)
    shapes = [
        None if given.get(view.name) is None else np.shape(given[view.name])
        for view in program.views
    ]
    values = bind_shapes(program.views, shapes, program.name)
    missing = [d.name for d in dynamic if d.name not in values]
    if missing:
        raise ArgumentError(f"no array gives the dynamic extent {missing[0]!r}")
    return restrict(program, values)


def memory_of(
    views: tuple[View, ...], arrays: Sequence[Any] | Mapping[str, Any], precision: str
) -> dict[str, Array]:
    """Map each view name to its array: converted copies, safe to write to."""
    given = dict(arrays) if isinstance(arrays, Mapping) else _by_name(views, arrays)
    unknown = [name for name in given if name not in {view.name for view in views}]
    if unknown:
        raise ArgumentError(f"there is no view {unknown[0]!r}")
    return {view.name: _storage(view, given.get(view.name), precision) for view in views}


def _by_name(views: tuple[View, ...], arrays: Sequence[Any]) -> dict[str, Any]:
    read = [view for view in views if view.access is not ViewAccess.write]
    # As many arrays as there are views to read: the out views are left out everywhere.
    targets = read if len(arrays) == len(read) else views
    if len(arrays) > len(targets):
        raise ArgumentError(f"{len(arrays)} arrays are given for {len(views)} views")
    return {view.name: array for view, array in zip(targets, arrays, strict=False)}


def _storage(view: View, given: Any, precision: str) -> Array:
    dtype = numpy_dtype(view.dtype, precision)
    if given is None:
        if view.access is not ViewAccess.write:
            raise ArgumentError(f"view {view.name!r} is {view.access.value} and has no array")
        fill = math.nan if view.dtype.is_float else 0
        if view.dtype.is_integer:
            fill = np.iinfo(dtype).max
        return np.full(view.shape, fill, dtype)
    array = np.asarray(given)
    if array.shape != view.shape:
        raise ArgumentError(f"view {view.name!r} has the shape {view.shape}, not {array.shape}")
    if array.dtype not in (numpy_dtype(view.dtype), dtype):
        raise ArgumentError(f"view {view.name!r} holds {view.dtype}, not {array.dtype}")
    if view.access is ViewAccess.read:
        return array.astype(dtype, copy=False)
    return array.astype(dtype, order="C", copy=True)

"""Tiles of a batch of programs as arrays, and the nests that are around a running statement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_tilex.ir.index import most
from tvm_tilex.ir.interp_elementwise import Array
from tvm_tilex.ir.program import Parallel
from tvm_tilex.ir.types import Axis

__all__ = ["Frame", "Tile", "along", "both", "choose", "spread"]


@dataclass(frozen=True)
class Tile:
    """``data`` has the enclosing nests' dimensions (each 1 or the batch's), then the axes'.

    ``valid`` is None when every element is active (the ``predicate`` policy); otherwise a bool
    array of ``data``'s rank that broadcasts to it.
    """

    axes: tuple[Axis, ...]
    data: Array
    valid: Array | None = None


class Frame:
    """The nests around the running statement, and the values defined so far in them."""

    def __init__(self, outer: Frame | None = None) -> None:
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.batch: int = 1 if outer is None else outer.batch
        self.coordinates: dict[tuple[int, int], Array] = dict(outer.coordinates) if outer else {}
        self.values: dict[int, Tile] = dict(outer.values) if outer else {}
        self.memories: dict[int, Tile] = dict(outer.memories) if outer else {}
        self.axes: dict[int, tuple[Axis, ...]] = dict(outer.axes) if outer else {}
        # Which programs run at all (a pipeline may stop earlier for some); None: every one.
        self.running: Array | None = outer.running if outer else None

    def enter(self, nest: Parallel, first: int, count: int) -> Frame:
        """Frame of programs ``first .. first + count`` of ``nest``, numbered row-major."""
        inner = Frame(self)
        inner.batch = self.batch * count
        shape = tuple(axis.extent for axis in nest.axes)
        places = np.unravel_index(np.arange(first, first + count), shape) if shape else ()
        for dimension, place in enumerate(places):
            inner.coordinates[nest.nest, dimension] = place.reshape((1,) * self.depth + (count,))
        return inner


def both(a: Array | None, b: Array | None) -> Array | None:
    """Where both masks hold; None holds everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a & b)


def choose(going: Array | None, new: Tile, old: Tile, depth: int) -> Tile:
    """``new`` for the programs that are going, ``old`` for the others."""
    if going is None or new is old:
        return new
    mask = going.reshape(going.shape + (1,) * (new.data.ndim - depth))
    return Tile(new.axes, np.where(mask, new.data, old.data), new.valid)


def along(axis: Axis, axes: tuple[Axis, ...], depth: int) -> Array:
    """0 .. extent along ``axis`` of an array over ``depth`` nests and ``axes``."""
    shape = [1] * depth + [axis.extent if a == axis else 1 for a in axes]
    return np.arange(most(axis.extent)).reshape(shape)


def spread(array: Array, own: tuple[Axis, ...], axes: tuple[Axis, ...], depth: int) -> Array:
    """Lay ``array`` out over ``depth`` nests and ``axes``, with 1 where it does not vary."""
    nests = array.ndim - len(own)
    order = [own.index(axis) for axis in axes if axis in own]
    array = array.transpose(*range(nests), *(nests + place for place in order))
    lead = array.shape[:nests] + (1,) * (depth - nests)
    extents = iter(array.shape[nests:])
    return array.reshape(lead + tuple(next(extents) if axis in own else 1 for axis in axes))

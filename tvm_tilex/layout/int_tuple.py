"""Hierarchical integer tuples: CuTe's IntTuple, as an integer or a nested tuple of integers.

Order is colexicographic throughout: the first entry of a tuple is the fastest.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.errors import DomainError

__all__ = [
    "IntTuple",
    "colex_digits",
    "compact_strides",
    "congruent",
    "coordinate_index",
    "leaves_of",
    "modes_of",
    "size_of",
    "with_leaves",
]

IntTuple = int | tuple[Any, ...]


def modes_of(nest: IntTuple) -> tuple[IntTuple, ...]:
    """Return the top-level entries; an integer is one entry."""
    return nest if isinstance(nest, tuple) else (nest,)


def leaves_of(nest: IntTuple) -> tuple[int, ...]:
    """Return the integers, left to right."""
    if isinstance(nest, int):
        return (nest,)
    return tuple(leaf for entry in nest for leaf in leaves_of(entry))


def size_of(shape: IntTuple) -> int:
    """Return the product of all integers; 1 for ``()``."""
    return shape if isinstance(shape, int) else prod(leaves_of(shape))


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether two nests have the same hierarchy."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int)
    return len(a) == len(b) and all(congruent(x, y) for x, y in zip(a, b, strict=True))


def with_leaves(like: IntTuple, leaves: tuple[Any, ...]) -> Any:
    """Return the nest ``like`` with its integers replaced, left to right."""
    return _refill(like, iter(leaves))


def _refill(like: IntTuple, leaves: Any) -> Any:
    if isinstance(like, int):
        return next(leaves)
    return tuple(_refill(entry, leaves) for entry in like)


def compact_strides(shape: IntTuple, start: int = 1) -> IntTuple:
    """Return the colexicographic strides, first mode ``start``: ``(4,8)`` gives ``(1,4)``."""
    steps, below = [], start
    for extent in leaves_of(shape):
        steps.append(below)
        below *= extent
    built: IntTuple = with_leaves(shape, tuple(steps))
    return built


def colex_digits(index: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the mixed-radix digits of ``index``, first fastest; the last digit isn't reduced."""
    digits = []
    for extent in extents[:-1]:
        index, digit = divmod(index, extent)
        digits.append(digit)
    return (*digits, index) if extents else ()


def coordinate_index(coord: Any, shape: IntTuple, where: str = "coordinate") -> int:
    """Return the linear index of a coordinate that is congruent with ``shape`` or coarser.

    Raises
    ------
    DomainError
        Where an entry is outside its mode; names the mode.
    LayoutError
        Where the coordinate has another hierarchy than the shape.
    """
    if isinstance(coord, int) and not isinstance(coord, bool):
        if not 0 <= coord < size_of(shape):
            raise DomainError(f"{where} {coord} is outside a mode of {size_of(shape)} points")
        return coord
    if not isinstance(coord, tuple) or isinstance(shape, int) or len(coord) != len(shape):
        raise LayoutError(f"{where} {coord} does not fit the shape {shape}")
    index, below = 0, 1
    for number, (entry, mode) in enumerate(zip(coord, shape, strict=True)):
        index += below * coordinate_index(entry, mode, f"{where}.{number}")
        below *= size_of(mode)
    return index

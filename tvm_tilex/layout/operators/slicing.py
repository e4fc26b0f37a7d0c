"""Slices: fixed coordinates become an offset, free ones stay modes."""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout
from tvm_tilex.layout.errors import DomainError, OperatorError
from tvm_tilex.layout.operators.derived import LayoutLike, concatenated, of_digits, unwrap

__all__ = ["slice_layout"]


def slice_layout(layout: LayoutLike, coord: Any) -> tuple[AnyCuteLayout, int]:
    """Return the layout of the free modes and the offset of the fixed coordinates.

    ``layout(coord with free entries x) = sliced(x) + offset``. A swizzle does not commute with an
    offset: of a composed layout the offset stays inside, and 0 is returned beside it.

    Parameters
    ----------
    layout
        Strides of any sign.
    coord
        None for a free mode, an integer or a coordinate for a fixed one; nested as the shape.

    Raises
    ------
    DomainError, OperatorError
        Where a fixed entry is outside its mode, or the coordinate has another hierarchy.
    """
    source = unwrap(layout)
    if isinstance(source, ComposedLayout):
        inner, offset = slice_layout(source.layout, coord)
        return ComposedLayout(source.outer, source.offset + offset, inner), 0
    modes, offset = _slice(source, coord)
    if not modes:
        return of_digits(()), offset
    return (modes[0] if len(modes) == 1 else concatenated(modes)), offset


def _slice(layout: CuteLayout, coord: Any) -> tuple[list[CuteLayout], int]:
    if coord is None:
        return [layout], 0
    if not _has_free(coord):
        try:
            return [], layout(coord)
        except DomainError:
            raise
        except LayoutError as error:
            raise OperatorError(f"slice: {error}") from None
    if not isinstance(layout.shape, tuple) or len(coord) != layout.rank:
        raise OperatorError(f"slice: the coordinate {coord} does not fit the shape {layout.shape}")
    modes: list[CuteLayout] = []
    total = 0
    for mode, entry in zip(layout.modes, coord, strict=True):
        kept, offset = _slice(mode, entry)
        nested = isinstance(entry, tuple) and len(kept) > 1
        modes.extend([concatenated(kept)] if nested else kept)
        total += offset
    return modes, total


def _has_free(coord: Any) -> bool:
    return coord is None or (isinstance(coord, tuple) and any(_has_free(c) for c in coord))

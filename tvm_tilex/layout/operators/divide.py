"""Divides: a layout seen as tiles, by composition with a tiler and its complement."""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout.cute_layout import CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.operators import tiling
from tvm_tilex.layout.operators.complement import complement
from tvm_tilex.layout.operators.composition import (
    composed,
    composed_map,
    require_modes,
    tiler_layout,
)
from tvm_tilex.layout.operators.derived import (
    Derived,
    Operand,
    compact,
    concatenated,
    discharge,
    innermost,
    is_empty,
    map_of,
    scaled,
    shape_of_map,
    unwrap,
    with_innermost,
)
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.verdict import Verdict, unknown

__all__ = ["flat_divide", "logical_divide", "tiled_divide", "zipped_divide"]


def logical_divide(
    layout: Operand,
    tiler: Any,
    *,
    round_up: bool = False,
    budget: int = DEFAULT_BUDGET,
) -> Derived[Any]:
    """Return ``A o (B, complement(B))``: first mode inside a tile, second over the tiles.

    Parameters
    ----------
    layout
        A, strides of any sign, zero included; composed layouts too, and any ``LayoutMap`` on a
        static box, as a function of its colexicographic index (the result is then a map).
    tiler
        B: a layout that tiles the indices of A (nonnegative strides; stride 0 needs extent 1), an
        integer ``n`` for ``n:1``, or a tuple of these, None and tuples for nested modes, one entry
        per leading mode of A.
    round_up
        Where a tile does not fit evenly, extend A (its last mode, or with a tuple each mode) to
        whole tiles. The size is then larger than A's; indices past A need a guard.

    Returns
    -------
    Derived
        A ``CuteLayout`` where a flat one has these values, else a ``ComposedLayout``. Obligations:
        the tiler and its complement take every index of A once, and the composition is exact.

    Raises
    ------
    OperatorError
        Where the tiler has no complement in A's size.
    """
    return _divide("logical_divide", layout, tiler, tiling.logical, round_up, budget)


def zipped_divide(
    layout: Operand,
    tiler: Any,
    *,
    round_up: bool = False,
    budget: int = DEFAULT_BUDGET,
) -> Derived[Any]:
    """Return the divide as ``((tile0, tile1, ...), (rest0, rest1, ...))``.

    Parameters, obligations and errors as of :func:`logical_divide`.
    """
    return _divide("zipped_divide", layout, tiler, tiling.zipped, round_up, budget)


def tiled_divide(
    layout: Operand,
    tiler: Any,
    *,
    round_up: bool = False,
    budget: int = DEFAULT_BUDGET,
) -> Derived[Any]:
    """Return the divide as ``((tile0, tile1, ...), rest0, rest1, ...)``.

    Parameters, obligations and errors as of :func:`logical_divide`.
    """
    return _divide("tiled_divide", layout, tiler, tiling.tiled, round_up, budget)


def flat_divide(
    layout: Operand,
    tiler: Any,
    *,
    round_up: bool = False,
    budget: int = DEFAULT_BUDGET,
) -> Derived[Any]:
    """Return the divide as ``(tile0, tile1, ..., rest0, rest1, ...)``.

    Parameters, obligations and errors as of :func:`logical_divide`.
    """
    return _divide("flat_divide", layout, tiler, tiling.flat, round_up, budget)


def _divide(
    operator: str,
    layout: Operand,
    tiler: Any,
    arrange: tiling.Arrangement,
    round_up: bool,
    budget: int,
) -> Derived[Any]:
    map = map_of(layout)
    if map is not None:
        if round_up:
            raise OperatorError(f"{operator}: a map has no values past its domain to round up to")
        whole = shape_of_map(operator, map)
        index = _divide(operator, whole, tiler, arrange, False, budget)
        return composed_map(map, index, budget)
    source = unwrap(layout)
    plain = innermost(source)
    if is_empty(plain):
        raise OperatorError(f"{operator}: the layout {plain} is empty")
    if isinstance(tiler, tuple):
        extended, parts = _by_mode(operator, plain, tiler, round_up)
    else:
        extended, parts = _by_layout(operator, plain, tiler, round_up)
    tiles = arrange(parts)
    result = composed(with_innermost(source, extended), tiles, False, budget)
    law = "tiler and complement take every index once"
    onto = discharge(operator, law, _covers(tiles, extended.size(), plain.size()))
    return Derived(result.layout, (onto, *result.obligations))


def _pair(
    operator: str, tiler: Any, size: int, round_up: bool, where: str
) -> tuple[CuteLayout, CuteLayout]:
    tile = tiler_layout(operator, tiler)
    if not isinstance(tile, CuteLayout):
        raise OperatorError(f"{operator}: the tiler {tile}{where} is composed")
    if any(step == 0 and n > 1 for n, step in tile.digits):
        raise OperatorError(f"{operator}: the tiler {tile}{where} repeats an index (stride 0)")
    try:
        return tile, complement(tile, size, round_up=round_up).layout
    except OperatorError as error:
        raise OperatorError(f"{operator}{where}: {error}") from None


def _by_layout(
    operator: str, plain: CuteLayout, tiler: Any, round_up: bool
) -> tuple[CuteLayout, tiling.Tiling]:
    tile, over = _pair(operator, tiler, plain.size(), round_up, "")
    extended = plain.extended(tile.size() * over.size())
    return extended, tiling.Tiling((tile,), (over,))


def _by_mode(
    operator: str, plain: CuteLayout, tiler: tuple[Any, ...], round_up: bool, below: int = 1
) -> tuple[CuteLayout, tiling.Tiling]:
    """Return the extended layout and its tiling, as indices that are multiples of ``below``."""
    require_modes(operator, plain, tiler)
    modes: list[CuteLayout] = []
    inside, over, rest, nested = [], [], [], []
    for number, mode in enumerate(plain.modes):
        entry = tiler[number] if number < len(tiler) else None
        if number >= len(tiler):
            rest.append(scaled(compact(mode.shape), below))
        elif isinstance(entry, tuple):
            mode, parts = _by_mode(operator, mode, entry, round_up, below)
            nested.append((number, parts))
            inside.append(parts.nested_inside)
            over.append(parts.nested_over)
        else:
            whole = mode.size() if entry is None else entry
            tile, free = _pair(operator, whole, mode.size(), round_up, f", mode {number}")
            mode = mode.extended(tile.size() * free.size())
            if entry is None:
                tile = compact(mode.shape)
            inside.append(scaled(tile, below))
            over.append(scaled(free, below))
        modes.append(mode)
        below *= mode.size()
    built = tiling.Tiling(tuple(inside), tuple(over), tuple(rest), True, tuple(nested))
    # An integer shape is one mode; a tuple of one mode has the same indices.
    return (concatenated(modes) if isinstance(plain.shape, tuple) else modes[0]), built


def _covers(index: CuteLayout, whole: int, asked: int) -> Verdict:
    """Whether the index layout is injective and reaches every index below ``asked``."""
    if index.index_range()[1] >= whole or index.size() < asked:
        return unknown(f"{index} does not take the {asked} indices below {whole}")
    proof = prove(index.to_map(linear=True))
    if index.size() == index.cosize():
        return proof.injectivity if proof.injectivity.proven else proof.surjectivity
    # Extended modes: each mode's pair was proved to cover its mode by ``complement``.
    return proof.injectivity

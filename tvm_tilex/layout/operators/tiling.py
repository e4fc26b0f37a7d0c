"""What divides and products share: pairs of index layouts, arranged as the variants ask.

A divide and a product are both a composition ``outer o T``. ``T`` has, for each tiled mode, one
index layout that runs inside a tile and one that runs over the tiles; the variants differ only in
how those are grouped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_tilex.layout.cute_layout import CuteLayout
from tvm_tilex.layout.operators.derived import concatenated

__all__ = ["Tiling", "blocked", "flat", "logical", "raked", "tiled", "zipped"]


@dataclass(frozen=True)
class Tiling:
    """Index layouts inside a tile and over the tiles, both into one linear index.

    ``by_mode`` says that there is one pair per mode of a tuple tiler; otherwise there is one pair
    whose layouts have modes of their own. ``rest`` are the modes past a tuple tiler. ``nested``
    holds, by number, the modes that a tuple inside the tuple tiles.
    """

    inside: tuple[CuteLayout, ...]
    over: tuple[CuteLayout, ...]
    rest: tuple[CuteLayout, ...] = ()
    by_mode: bool = False
    nested: tuple[tuple[int, Tiling], ...] = ()

    @property
    def inside_modes(self) -> tuple[CuteLayout, ...]:
        """The modes of the tile."""
        return self.inside if self.by_mode else self.inside[0].modes

    @property
    def over_modes(self) -> tuple[CuteLayout, ...]:
        """The modes over the tiles."""
        return (*self.over, *self.rest) if self.by_mode else self.over[0].modes

    @property
    def nested_inside(self) -> CuteLayout:
        """The tile as one mode of an outer tile."""
        return concatenated(self.inside)

    @property
    def nested_over(self) -> CuteLayout:
        """The modes over the tiles as one mode of an outer rest."""
        return concatenated(self.over_modes)


Arrangement = Callable[[Tiling], CuteLayout]


def logical(tiling: Tiling) -> CuteLayout:
    """``(tile, rest)``, or per mode ``((tile0, rest0), (tile1, rest1), ...)``."""
    pairs = [concatenated(p) for p in zip(tiling.inside, tiling.over, strict=True)]
    for number, inner in tiling.nested:
        pairs[number] = logical(inner)
    return concatenated((*pairs, *tiling.rest)) if tiling.by_mode else pairs[0]


def zipped(tiling: Tiling) -> CuteLayout:
    """``((tile0, tile1, ...), (rest0, rest1, ...))``."""
    if not tiling.by_mode:
        return logical(tiling)
    return concatenated((concatenated(tiling.inside), concatenated(tiling.over_modes)))


def tiled(tiling: Tiling) -> CuteLayout:
    """``((tile0, tile1, ...), rest0, rest1, ...)``."""
    first = concatenated(tiling.inside) if tiling.by_mode else tiling.inside[0]
    return concatenated((first, *tiling.over_modes))


def flat(tiling: Tiling) -> CuteLayout:
    """``(tile0, tile1, ..., rest0, rest1, ...)``."""
    return concatenated((*tiling.inside_modes, *tiling.over_modes))


def blocked(tiling: Tiling) -> CuteLayout:
    """``((tile0, rest0), (tile1, rest1), ...)``: whole tiles side by side."""
    pairs = zip(tiling.inside_modes, tiling.over_modes, strict=True)
    return concatenated(concatenated(pair) for pair in pairs)


def raked(tiling: Tiling) -> CuteLayout:
    """``((rest0, tile0), (rest1, tile1), ...)``: tiles interleaved."""
    pairs = zip(tiling.over_modes, tiling.inside_modes, strict=True)
    return concatenated(concatenated(pair) for pair in pairs)

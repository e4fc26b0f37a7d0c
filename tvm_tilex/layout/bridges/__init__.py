"""Layouts of other systems as plain data with a map each; no peer is needed to use them.

CuTe, Triton, TileLang and TVM layouts are imported from text, from plain data, or from the real
objects by their attributes; each has a map (a :class:`~tvm_tilex.layout.LayoutMap`) with the
source's own names and direction, occurrences with copies where there are any, and an export.
"""

from tvm_tilex.layout.bridges.cute import (
    cute_of_map,
    from_cute,
    recast_cute,
    to_cute_dsl,
    to_pycute,
)
from tvm_tilex.layout.bridges.placement import Placement
from tvm_tilex.layout.bridges.tile_layout import ComposeLayout, Iter, TileLayout
from tvm_tilex.layout.bridges.tile_layout_text import parse_tvm
from tvm_tilex.layout.bridges.tilelang import TileLangFragment, TileLangLayout
from tvm_tilex.layout.bridges.tilelang_text import parse_tilelang
from tvm_tilex.layout.bridges.triton import TritonLayout
from tvm_tilex.layout.bridges.triton_text import parse_triton

__all__ = [
    "ComposeLayout",
    "Iter",
    "Placement",
    "TileLangFragment",
    "TileLangLayout",
    "TileLayout",
    "TritonLayout",
    "cute_of_map",
    "from_cute",
    "parse_tilelang",
    "parse_triton",
    "parse_tvm",
    "recast_cute",
    "to_cute_dsl",
    "to_pycute",
]

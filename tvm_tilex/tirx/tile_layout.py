"""Native ``tvm.tirx.layout`` objects and the plain forms of :mod:`tvm_tilex.layout.bridges`.

Every constant is exported as int64: TVM makes a Python integer an int32 and then wraps silently.
Import reads iterators, replica and offset as they are and never canonicalizes: under a CUDA
target TVM's canonical form loses an offset where two thread axes fuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_tilex.errors import LayoutError, LoweringError
from tvm_tilex.layout import LayoutMap, Transform
from tvm_tilex.layout.bridges.prim_expr import constant_of
from tvm_tilex.layout.bridges.tile_layout import ComposeLayout, Iter, TileLayout
from tvm_tilex.tirx.compat import tirx

__all__ = ["from_native", "to_native", "to_tile_layout"]

_PEER = "tvm"


def from_native(native: Any) -> TileLayout | ComposeLayout:
    """Return the plain form of a native ``TileLayout`` or ``ComposeLayout``.

    Raises
    ------
    LayoutError
        For an extent, stride or offset that is not an integer constant (nothing is approximated),
        and for the swizzles that :class:`~tvm_tilex.layout.bridges.ComposeLayout` refuses.
    """
    if hasattr(native, "tile_layout"):
        tile = from_native(native.tile_layout)
        if not isinstance(tile, TileLayout):
            raise LayoutError("tvm layout: a ComposeLayout composes a TileLayout")
        numbers = [int(getattr(native, n)) for n in ("per_element", "swizzle_len", "atom_len")]
        return ComposeLayout(numbers[0], numbers[1], numbers[2], tile, bool(native.swizzle_inner))
    if not hasattr(native, "shard"):
        raise LayoutError(f"tvm layout: '{type(native).__name__}' is not a TileLayout")
    offset = tuple(
        (str(axis.name), constant_of(_PEER, value, "offset"))
        for axis, value in native.offset.items()
    )
    return TileLayout(_iters(native.shard), _iters(native.replica), offset)


def _iters(native: Any) -> tuple[Iter, ...]:
    return tuple(
        Iter(
            constant_of(_PEER, it.extent, "extent"),
            constant_of(_PEER, it.stride, "stride"),
            str(it.axis.name),
        )
        for it in native
    )


def _integer(value: int) -> Any:
    return tirx.IntImm("int64", value)


def to_native(layout: TileLayout | ComposeLayout) -> Any:
    """Build the native object with int64 constants; names and digit order are kept."""
    from tvm.tirx import layout as native

    if isinstance(layout, ComposeLayout):
        return native.ComposeLayout(
            layout.per_element,
            layout.swizzle_len,
            layout.atom_len,
            to_native(layout.tile),
            layout.swizzle_inner,
        )
    shard, replica = (
        [native.Iter(_integer(it.extent), _integer(it.stride), it.axis) for it in iters]
        for iters in (layout.shard, layout.replica)
    )
    offset = {name: _integer(value) for name, value in layout.offset}
    return native.TileLayout.from_iters(shard, replica, offset)


def to_tile_layout(map: LayoutMap, replica: Sequence[str] = ()) -> Any:
    """Return the native layout of a mixed-radix map, or of a swizzle of one.

    Domain axes named in ``replica`` become replica iterators, the others shard iterators (their
    digits in row-major order). Strides name TVM axes; an unnamed stride goes to axis ``m``. A
    registered ``xor_swizzle`` becomes a ``ComposeLayout``.

    Raises
    ------
    LoweringError
        For any other node, a guarded domain, or a name that is not an axis.
    """
    try:
        if isinstance(map, Transform) and not replica:
            return to_native(ComposeLayout.from_map(map))
        return to_native(TileLayout.from_map(map, replica))
    except LayoutError as error:
        raise LoweringError(str(error)) from None

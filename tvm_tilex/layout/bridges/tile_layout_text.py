"""``parse_tvm``: the ``S[shape:stride] + R[shape:stride] + offset`` spelling and TVM's print."""

from __future__ import annotations

import ast

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.bridges.literal import callee, integer, integers, parse_expression, refuse
from tvm_tilex.layout.bridges.tile_layout import MEMORY, ComposeLayout, Iter, TileLayout
from tvm_tilex.layout.errors import LayoutTextError

__all__ = ["parse_tvm"]

_PEER = "tvm"


def parse_tvm(text: str) -> TileLayout | ComposeLayout:
    """Return the layout of a text such as ``S[(8, 4):(4@laneid, 1)] + R[4:1@warpid] + 2@warpid``.

    ``TileLayout(...)``, ``ComposeLayout(per_element, swizzle_len, atom_len, tile)`` and the
    ``T.`` and ``Axis.`` prefixes of TVM's own print are read too. An unnamed stride or offset
    belongs to axis ``m``; ``S[8, 4]`` without strides is compact. Two ``R`` are all of their
    copies (TVM itself keeps only the last one).

    Raises
    ------
    LayoutTextError
        Where the text does not parse, a size is not an integer constant, or two ``S`` are added:
        which one varies faster is not said (TVM drops the second).
    """
    try:
        return _layout(parse_expression(_PEER, text))
    except LayoutTextError:
        raise
    except LayoutError as error:
        raise LayoutTextError(str(error)) from None


def _layout(node: ast.expr) -> TileLayout | ComposeLayout:
    if not isinstance(node, ast.Call):
        return _sum(node)
    kind = callee(node)
    if kind == "TileLayout" and len(node.args) == 1:
        return _sum(node.args[0])
    if kind == "from_iters":
        return _from_iters(node)
    if kind == "ComposeLayout":
        return _compose(node)
    refuse(_PEER, f"'{ast.unparse(node)[:60]}' is not a TileLayout")


def _compose(node: ast.Call) -> ComposeLayout:
    named = {k.arg: k.value for k in node.keywords}
    order = ("per_element", "swizzle_len", "atom_len", "tile_layout", "swizzle_inner")
    for name, value in zip(order, node.args, strict=False):
        named[name] = value
    missing = [n for n in order[:4] if n not in named]
    if missing:
        refuse(_PEER, f"ComposeLayout without {missing[0]}")
    tile = _layout(named["tile_layout"])
    if not isinstance(tile, TileLayout):
        refuse(_PEER, "a ComposeLayout composes a TileLayout")
    inner = named.get("swizzle_inner")
    flag = True if inner is None else getattr(inner, "value", None)
    if not isinstance(flag, bool):
        refuse(_PEER, "swizzle_inner is neither True nor False")
    numbers = [integer(_PEER, named[n], n) for n in order[:3]]
    return ComposeLayout(numbers[0], numbers[1], numbers[2], tile, flag)


def _from_iters(node: ast.Call) -> TileLayout:
    """Read what TVM prints for a layout without iterators: at most an offset."""
    named = {k.arg: k.value for k in node.keywords}
    offset = named.pop("offset", ast.Dict(keys=[], values=[]))
    if node.args or named or not isinstance(offset, ast.Dict):
        refuse(_PEER, "from_iters with iterators is not read; write S[...] + R[...]")
    pairs = zip(offset.keys, offset.values, strict=True)
    values = tuple((_key(k), integer(_PEER, v, "offset")) for k, v in pairs)
    return TileLayout((), (), values)


def _key(node: ast.expr | None) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        refuse(_PEER, "an offset's axis is written as a string")
    return node.value


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _terms(node.left) + _terms(node.right)
    return [node]


def _sum(node: ast.expr) -> TileLayout:
    shard: tuple[Iter, ...] | None = None
    replica: tuple[Iter, ...] = ()
    offset: dict[str, int] = {}
    for term in _terms(node):
        kind = callee(term.value) if isinstance(term, ast.Subscript) else ""
        if kind == "R" and isinstance(term, ast.Subscript):
            replica += _iters(term.slice)
        elif kind == "S" and isinstance(term, ast.Subscript):
            if shard is not None:
                refuse(_PEER, "two S[...] are added; write one with all extents, last fastest")
            shard = _iters(term.slice)
        else:
            value, axis = _on_axis(term)
            offset[axis] = offset.get(axis, 0) + value
    if shard is None and not replica:
        refuse(_PEER, f"no S[shape:stride] in '{ast.unparse(node)[:60]}'")
    return TileLayout(shard or (), replica, tuple(offset.items()))


def _iters(node: ast.expr) -> tuple[Iter, ...]:
    if not isinstance(node, ast.Slice):
        return _compact(integers(_PEER, node, "extent"))
    if node.lower is None or node.upper is None or node.step is not None:
        refuse(_PEER, f"'{ast.unparse(node)}' is not shape:stride")
    extents = integers(_PEER, node.lower, "extent")
    steps = node.upper.elts if isinstance(node.upper, (ast.Tuple, ast.List)) else [node.upper]
    if len(extents) != len(steps):
        refuse(_PEER, f"{len(extents)} extents and {len(steps)} strides in '{ast.unparse(node)}'")
    return tuple(Iter(n, *_on_axis(s)) for n, s in zip(extents, steps, strict=True))


def _compact(extents: tuple[int, ...]) -> tuple[Iter, ...]:
    built: list[Iter] = []
    step = 1
    for extent in reversed(extents):
        built.insert(0, Iter(extent, step))
        step *= extent
    return tuple(built)


def _on_axis(node: ast.expr) -> tuple[int, str]:
    """Read ``4``, ``4@laneid`` and ``-(4@laneid)`` with or without the prefix ``Axis.``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        axis = callee(node.right)
        if not axis or isinstance(node.right, ast.Call):
            refuse(_PEER, f"'{ast.unparse(node.right)}' is not an axis")
        return integer(_PEER, node.left, "stride"), axis
    return integer(_PEER, node, "value"), MEMORY

"""Parser of CuTe's text form. Every malformed text gives one LayoutTextError with the column."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout, Swizzle
from tvm_tilex.layout.errors import LayoutTextError
from tvm_tilex.layout.int_tuple import IntTuple

__all__ = ["parse"]


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = files("tvm_tilex.layout").joinpath("cute_layout.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True)


def parse(text: str) -> AnyCuteLayout:
    """Return the layout that ``text`` describes; LayoutTextError where there is none."""
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        column = getattr(error, "column", 0)
        where = f"column {column}" if isinstance(column, int) and column > 0 else "the end"
        raise LayoutTextError(f"CuTe layout: unexpected input at {where} of {text!r}") from None
    try:
        return _layout(tree.children[0])
    except LayoutTextError:
        raise
    except LayoutError as error:
        raise LayoutTextError(f"CuTe layout: {error}") from None
    except RecursionError:
        raise LayoutTextError("CuTe layout: nested too deeply") from None


def _int(token: Any) -> int:
    return int(str(token).lstrip("_"))


def _nest(node: Any) -> IntTuple:
    if node.data == "leaf":
        return _int(node.children[0])
    return tuple(_nest(child) for child in node.children if child is not None)


def _plain(node: Any) -> CuteLayout:
    shape, stride = node.children
    if stride is None:
        return CuteLayout(_nest(shape))
    return CuteLayout(_nest(shape), _nest(stride))


def _layout(node: Any) -> AnyCuteLayout:
    if node.data == "plain":
        return _plain(node)
    outer, offset, inner = node.children
    if outer.data == "swizzle":
        bits, base, shift = map(_int, outer.children)
        return ComposedLayout(Swizzle(bits, base, shift), _int(offset), _layout(inner))
    return ComposedLayout(_plain(outer), _int(offset), _layout(inner))

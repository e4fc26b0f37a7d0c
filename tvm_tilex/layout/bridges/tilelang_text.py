"""``parse_tilelang``: constructor calls, TileLang's print, and a short ``shape -> values`` form."""

from __future__ import annotations

import ast
import re

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.bridges.index_text import index_expression
from tvm_tilex.layout.bridges.literal import callee, integer, integers, parse_expression, refuse
from tvm_tilex.layout.bridges.tilelang import (
    REPLICA,
    TileLangFragment,
    TileLangLayout,
    axis_names,
)
from tvm_tilex.layout.errors import LayoutTextError
from tvm_tilex.layout.expr import Expr, coordinate
from tvm_tilex.layout.visitor import substitute

__all__ = ["parse_tilelang"]

_PEER = "tilelang"
_PRINTED = re.compile(
    r"^(?P<kind>\w+)\((?P<shape>\([\d, ]*\)) -> \([^()]*\)"
    r"(?:, replicate: (?P<replicate>\d+), thread: [^,]+, forward_thread: (?P<thread>.*),"
    r" forward_index: (?P<index>\(.*\))|, transform: \((?P<names>[\w, ]*)\) -> (?P<values>\(.*\)))"
    r"(?P<rest>, combine: \d+.*)?\)$",
    re.DOTALL,
)
_SHORT = re.compile(
    r"^\[(?P<shape>[\d, ]*)\](?:\s*\*\s*(?P<replicate>\d+))?\s*->(?P<values>.*)$", re.DOTALL
)
_COPIES = "a PartialFragment's replicas are addends, not equal copies; it is not a replication"


def parse_tilelang(text: str) -> TileLangLayout | TileLangFragment:
    """Return the layout of a text in one of TileLang's spellings.

    Read are ``Layout([8, 16], lambda i, j: i*16 + (j ^ i))``, ``Fragment([8],
    forward_thread_fn=lambda i, rep: i*4 + rep, replicate=4, forward_index_fn=lambda i: 0)``, what
    TileLang prints, and the short form ``[16, 16] -> (thread, index, ...)`` over ``i, j, k, l``
    (``[8] * 4 -> (i*4 + rep, 0)`` has four copies; a single value is a ``Layout``).

    Raises
    ------
    LayoutTextError
        Where the text is none of these, an expression is not integer index arithmetic, or the
        layout is a PartialFragment.
    """
    stripped = text.strip()
    try:
        layout = _read(stripped)
        _ = layout.map  # an expression that can leave 64 bits or divide by zero is refused here
        return layout
    except LayoutTextError:
        raise
    except LayoutError as error:
        raise LayoutTextError(str(error)) from None


def _read(text: str) -> TileLangLayout | TileLangFragment:
    if text.startswith("PartialFragment"):
        refuse(_PEER, _COPIES)
    printed, short = _PRINTED.match(text), _SHORT.match(text)
    if printed is not None:
        return _from_print(printed)
    if short is not None:
        return _from_short(short)
    return _from_call(parse_expression(_PEER, text))


def _shape(text: str) -> tuple[int, ...]:
    extents = [n.strip() for n in text.strip("()").split(",") if n.strip()]
    for extent in extents:
        if not extent.isdecimal():
            refuse(_PEER, f"the extent '{extent}' is not an integer constant")
    return tuple(map(int, extents))


def _row(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _known(names: tuple[str, ...], replica: str | None = None) -> dict[str, Expr]:
    known: dict[str, Expr] = {n: coordinate(n) for n in names}
    if replica is not None:
        known[replica] = coordinate(REPLICA)
    return known


def _values(text: str, known: dict[str, Expr]) -> tuple[Expr, ...]:
    tree = parse_expression(_PEER, text)
    rows = _row(tree)
    if not rows:
        refuse(_PEER, "no forward value is given")
    return tuple(index_expression(_PEER, node, known) for node in rows)


def _from_short(found: re.Match[str]) -> TileLangLayout | TileLangFragment:
    shape, copies = _shape(found["shape"]), int(found["replicate"] or 1)
    names = axis_names(len(shape))
    values = _values(found["values"], _known(names, REPLICA if copies > 1 else None))
    if len(values) == 1 and copies == 1:
        return TileLangLayout(shape, values)
    return TileLangFragment(shape, values[0], values[1:], copies)


def _from_print(found: re.Match[str]) -> TileLangLayout | TileLangFragment:
    if found["rest"] or found["kind"] == "PartialFragment":
        refuse(_PEER, _COPIES)
    shape = _shape(found["shape"])
    plain = axis_names(len(shape))
    if found["values"] is not None:
        spelled = [n.strip() for n in found["names"].split(",") if n.strip()]
        known: dict[str, Expr] = {n: coordinate(p) for n, p in zip(spelled, plain, strict=True)}
        return TileLangLayout(shape, _values(found["values"], known))
    known = {f"_{n}": coordinate(n) for n in plain}
    known["_rep"] = coordinate(REPLICA)
    thread = _values(found["thread"], known)[0]
    index = _values(found["index"], known)
    return TileLangFragment(shape, thread, index, int(found["replicate"]))


def _from_call(tree: ast.expr) -> TileLangLayout | TileLangFragment:
    kind = callee(tree) if isinstance(tree, ast.Call) else ""
    if kind == "PartialFragment":
        refuse(_PEER, _COPIES)
    if not isinstance(tree, ast.Call) or kind not in ("Layout", "Fragment") or not tree.args:
        refuse(_PEER, f"'{ast.unparse(tree)[:60]}' is not a Layout or a Fragment")
    shape = integers(_PEER, tree.args[0], "extent")
    named = {k.arg: k.value for k in tree.keywords if k.arg}
    if kind == "Layout":
        forward = tree.args[1] if len(tree.args) > 1 else named.get("forward_fn")
        names, values = _function(forward, len(shape), 1)
        return TileLangLayout(shape, values, names)
    order = ("forward_fn", "forward_thread_fn", "replicate", "forward_index_fn")
    named.update(zip(order, tree.args[1:], strict=False))
    copies = integer(_PEER, named["replicate"], "replicate") if "replicate" in named else 1
    return _fragment(shape, copies, named)


def _fragment(shape: tuple[int, ...], copies: int, named: dict[str, ast.expr]) -> TileLangFragment:
    if "forward_fn" in named and not _is_none(named["forward_fn"]):
        names, pair = _function(named["forward_fn"], len(shape), copies, nested=True)
        return TileLangFragment(shape, pair[0], pair[1:], copies, names)
    if "forward_thread_fn" not in named:
        refuse(_PEER, "a Fragment needs forward_thread_fn")
    names, thread = _function(named["forward_thread_fn"], len(shape), copies)
    index: tuple[Expr, ...] = ()
    if "forward_index_fn" in named and not _is_none(named["forward_index_fn"]):
        own, index = _function(named["forward_index_fn"], len(shape), 1)
        index = _renamed(index, own, names)
    return TileLangFragment(shape, thread[0], index, copies, names)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _renamed(
    values: tuple[Expr, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> tuple[Expr, ...]:
    return substitute(values, {a: coordinate(b) for a, b in zip(old, new, strict=True)})


def _function(
    node: ast.expr | None, rank: int, copies: int, nested: bool = False
) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """Return axis names and the values of a lambda, flat where thread and index nest."""
    if not isinstance(node, ast.Lambda):
        refuse(_PEER, "a forward function must be written as a lambda")
    arguments = [a.arg for a in node.args.args]
    replicated = copies > 1
    if len(arguments) != rank + replicated:
        refuse(_PEER, f"a lambda of {len(arguments)} arguments for {rank} coordinates")
    names = tuple(arguments[:rank])
    known = _known(names, arguments[rank] if replicated else None)
    rows = _row(node.body)
    flat = [rows[0], *_row(rows[1])] if nested and len(rows) == 2 else rows
    values = tuple(index_expression(_PEER, row, known) for row in flat)
    return names, values

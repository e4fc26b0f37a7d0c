"""Reductions whose outputs lie side by side in memory: what one thread may fold for several.

For ``out[.., o] = reduce over k of f(k, o)`` with the innermost output coordinate o as the last
index of the views that f reads, V neighbouring outputs read V neighbouring elements. Obligations
for a load of V elements are those of :mod:`tvm_tilex.analysis.group_copies`; the reduced coordinate
must not be in that index. Bounds that are conjunctions of linear inequalities hold within a box of
coordinates where they hold at its corners, so that they may be decided once for the box. A load
under any other condition stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.group_copies import contiguous, is_linear
from tvm_tilex.analysis.group_structure import Outputs
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx.compat import (
    IF_THEN_ELSE,
    Call,
    Op,
    structural_equal,
    structural_map,
)

__all__ = ["ColumnReads", "inner_loop", "read_columns"]

_BYTES = 16


@dataclass(frozen=True, eq=False)
class ColumnReads:
    """``inside`` is the contribution where all ``conditions`` hold.

    ``views`` are its loads of ``width`` neighbouring elements, one for each neighbouring output.
    """

    conditions: tuple[Any, ...]
    inside: Any
    views: tuple[Any, ...]
    width: int


def inner_loop(phase: Outputs) -> Any | None:
    """The innermost loop over more than one output."""
    wide = [loop for loop in phase.loops if int(loop.extent.value) > 1]
    return wide[-1] if wide else None


def read_columns(phase: Outputs) -> ColumnReads | None:
    """How neighbouring outputs read, or None where their elements are not neighbours."""
    inner, reduced = inner_loop(phase), phase.update.loop.loop_var
    if inner is None:
        return None
    conditions, inside = _inside(phase.update.contribution)
    found = loads(inside)
    along = [load for load in found if _along(load, inner.loop_var, reduced)]
    if not along:
        return None
    views = _unguarded_views(inside, along)
    width = min((_width(load, inner) for load in views), default=1)
    return ColumnReads(conditions, inside, views if width > 1 else (), width)


def _along(load: Any, inner: Any, reduced: Any) -> bool:
    last = load.indices[-1]
    return mentions(last, inner) and not mentions(last, reduced)


def _inside(contribution: Any) -> tuple[tuple[Any, ...], Any]:
    """The linear conditions of a contribution, and its value where they hold."""
    conditions: list[Any] = []

    def strip(node: Any) -> Any:
        if not _is_choice(node):
            return node
        condition, value, _ = node.args
        if loads(condition) or not is_linear(condition):
            return node
        if not any(structural_equal(condition, known) for known in conditions):
            conditions.append(condition)
        return value

    inside = structural_map(contribution, (Call, strip), order="post")
    return tuple(conditions), inside


def _is_choice(node: Any) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == IF_THEN_ELSE


def _unguarded_views(inside: Any, along: list[Any]) -> tuple[Any, ...]:
    """Views read side by side; none where a condition that is left may guard one of them."""
    left: list[Any] = []

    def note(node: Any) -> Any:
        if _is_choice(node):
            left.append(node)
        return node

    structural_map(inside, (Call, note), order="post")
    if left:
        return ()
    return tuple(
        load
        for load in along
        if load.source.scope() == "global" and not any(loads(index) for index in load.indices)
    )


def _width(load: Any, inner: Any) -> int:
    item = dtype_of(str(load.source.ty.dtype)).bytes
    width, extent = max(1, _BYTES // item), int(inner.extent.value)
    while width > 1 and (extent % width or not contiguous(load, inner.loop_var, width)):
        width //= 2
    return width

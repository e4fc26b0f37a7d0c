"""What may be built: composable codomain and domain, disjoint branches."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.bounds import bounds_reason, safety_reason
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.evaluate import evaluate
from tvm_tilex.layout.expr import Expr
from tvm_tilex.layout.gf2 import bit_matrix
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["lands_in", "require_composable", "require_disjoint"]

_ENUMERATED = 4096


def require_composable(outer: LayoutMap, inner: LayoutMap) -> None:
    """Raise LayoutError naming the mode unless values of ``inner`` are in ``outer``'s domain."""
    source, target = inner.codomain, outer.domain
    if source.rank != target.rank:
        raise LayoutError(
            f"composition: {source.rank} codomain axes {source.names} do not match the"
            f" {target.rank} domain axes {target.names}"
        )
    if source.axes == target.axes and _guards_included(source, target):
        return
    if _box_included(source, target) and not target.guards:
        return
    for number, axis in enumerate(target.axes):
        alone = IndexSet((axis,), (), target.parameters)
        if not lands_in(inner, alone, number):
            have = source.axes[number]
            raise LayoutError(
                f"composition past the domain: mode {number} '{axis.name}' of the outer map has"
                f" extent {axis.extent}, the inner codomain '{have.name}' has {have.extent}"
            )
    if target.guards and not lands_in(inner, target, None):
        raise LayoutError(
            f"composition past the domain: the guard '{target.guards[0]}' of the outer domain is"
            " not proved for the values of the inner map"
        )


def _guards_included(source: IndexSet, target: IndexSet) -> bool:
    rename: dict[str, Expr] = dict(zip(target.names, source.coordinates, strict=True))
    from tvm_tilex.layout.visitor import substitute

    return all(any(g is h for h in source.guards) for g in substitute(target.guards, rename))


def _box_included(source: IndexSet, target: IndexSet) -> bool:
    for a, b in zip(source.axes, target.axes, strict=True):
        if a.extent is b.extent and a.lower == b.lower:
            continue
        if not isinstance(a.extent, int):
            return False
        least = b.extent if isinstance(b.extent, int) else b.extent_range()[0]
        if a.extent and not (b.lower <= a.lower and a.bounds()[1] < b.lower + least):
            return False
    return True


def lands_in(inner: LayoutMap, target: IndexSet, number: int | None) -> bool:
    """Whether the values of ``inner`` (output ``number``, or all) are proved in ``target``."""
    domain = inner.domain
    if target.parameters:
        domain = IndexSet(domain.axes, domain.guards, domain.parameters + target.parameters)
    if domain.is_empty_box:
        return True
    for piece in inner.pieces:
        context = Context(domain, piece.guards)
        if context.empty:
            continue
        if safety_reason(context, piece) is not None:
            return False
        outputs = piece.outputs if number is None else (piece.outputs[number],)
        if bounds_reason(context, outputs, target, bit_matrix(context, outputs)) is None:
            return False
    return True


def require_disjoint(domain: IndexSet, branches: tuple[tuple[Expr, ...], ...]) -> None:
    """Raise LayoutError unless no domain point satisfies the guards of two branches."""
    if domain.is_empty_box:
        return
    base = Context(domain)
    for guards in branches:
        for guard in guards:
            reason = base.intervals.safe_reason(guard)
            if reason is not None:
                raise LayoutError(f"piecewise guard '{guard}' is not safe: {reason}")
    for i, first in enumerate(branches):
        for j in range(i + 1, len(branches)):
            _require_pair(domain, first, branches[j], (i, j))


def _require_pair(
    domain: IndexSet, first: tuple[Expr, ...], second: tuple[Expr, ...], numbers: tuple[int, int]
) -> None:
    one = Context(domain, first)
    if one.empty or any(one.decide(g) is False for g in second):
        return
    two = Context(domain, second)
    if two.empty or any(two.decide(g) is False for g in first):
        return
    if Context(domain, first + second).empty:
        return
    size = domain.box_size
    if size is None or size > _ENUMERATED or domain.parameters:
        raise LayoutError(
            f"branches {numbers[0]} and {numbers[1]} are not proved disjoint; state guards that"
            " exclude each other"
        )
    for point in domain.points():
        values = dict(zip(domain.names, point, strict=True))
        if all(evaluate(g, values) for g in first + second):
            raise LayoutError(f"branches {numbers[0]} and {numbers[1]} overlap at {point}")

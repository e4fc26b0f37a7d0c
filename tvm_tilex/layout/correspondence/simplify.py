"""Fewer occurrence axes, with the proof that both legs stay equal.

Only a change of coordinates of the occurrence space is made: a bijection h with both round trips
proved. Copies are therefore never merged, even where neither leg tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.correspondence.base import LayoutCorr, Span
from tvm_tilex.layout.correspondence.combine import Join
from tvm_tilex.layout.expr import Constant, Coordinate, Expr, Op, Operation, constant
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.preimage import narrowed
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import equal_maps, verify_inverse
from tvm_tilex.layout.verdict import Verdict
from tvm_tilex.layout.visitor import leaves, substitute

__all__ = ["Simplified", "simplify"]


@dataclass(frozen=True)
class Simplified:
    """A correspondence, and the proved laws that make it equal to the one it came from."""

    corr: LayoutCorr
    obligations: tuple[tuple[str, Verdict], ...]


def simplify(corr: LayoutCorr, budget: int = DEFAULT_BUDGET) -> Simplified:
    """Return an equal correspondence without the occurrence axes that others determine.

    An axis goes where a guard ``x == e`` of the space gives it in terms of the others (as in a join
    with a function), or where its extent is 1. Where a step is not proved, it is not taken.
    """
    current: LayoutCorr = corr
    laws: list[tuple[str, Verdict]] = []
    if isinstance(corr, Join):
        parts = (simplify(corr.first, budget), simplify(corr.second, budget))
        laws.extend(law for part in parts for law in part.obligations)
        current = Join(parts[0].corr, parts[1].corr) if laws else corr
    if not has_legs(current):
        return Simplified(current, tuple(laws))
    refused: set[str] = set()
    while True:
        axis = _determined(current.space, refused)
        if axis is None:
            return Simplified(current, tuple(laws))
        step = _without(current, axis[0], axis[1], budget)
        if step is None:
            refused.add(axis[0])
            continue
        current = step.corr
        laws.extend(step.obligations)


def has_legs(corr: LayoutCorr) -> bool:
    """Whether the occurrence space can be stated: its guards are safe on the whole box."""
    try:
        return corr.left.domain == corr.right.domain
    except LayoutError:
        return False


def _determined(space: IndexSet, refused: set[str]) -> tuple[str, Expr] | None:
    """Return an axis and its value in terms of the others."""
    for axis in space.axes:
        if axis.extent == 1 and axis.name not in refused and space.rank > 1:
            return axis.name, constant(axis.lower)
    for guard in space.guards:
        if not isinstance(guard, Operation) or guard.op is not Op.EQ:
            continue
        for x, value in ((guard.left, guard.right), (guard.right, guard.left)):
            if not isinstance(x, Coordinate) or x.name in refused:
                continue
            if isinstance(value, Constant) or x not in leaves((value,)):
                return x.name, value
    return None


def _without(corr: LayoutCorr, name: str, value: Expr, budget: int) -> Simplified | None:
    """Return the correspondence on the space without the axis, or None where not proved."""
    space = corr.space
    named = {name: value}
    kept = tuple(axis for axis in space.axes if axis.name != name)
    own = next(axis for axis in space.axes if axis.name == name)
    try:
        box = IndexSet(kept, (), space.parameters)
        inside = _range_guards(value, own)
        guards = (*substitute(space.guards, named), *inside)
        smaller = narrowed(box.where(*(g for g in guards if g is not constant(1))))
        full = dict(zip(space.names, space.coordinates, strict=True)) | named
        grow = IndexExpr(smaller, space, tuple(full[n] for n in space.names))
        shrink = IndexExpr(space, smaller, smaller.coordinates)
        inverse = verify_inverse(grow, shrink, budget)
        if not inverse.proven:
            return None
        legs, laws = [], [(f"dropping '{name}' is a bijection of occurrences", inverse)]
        for side, leg in (("left", corr.left), ("right", corr.right)):
            composed = Compose(leg, grow)
            short = normalize(composed)
            equal = equal_maps(short, composed, budget)
            legs.append(short if equal.proven else composed)
            if equal.proven:
                laws.append((f"the {side} leg is unchanged without '{name}'", equal))
        replicas = tuple((n, k) for n, k in corr.replicas if n != name)
        return Simplified(Span(legs[0], legs[1], replicas), tuple(laws))
    except LayoutError:
        return None


def _range_guards(value: Expr, axis: Axis) -> tuple[Expr, ...]:
    low: Expr = constant(axis.lower) <= value
    return (low, value < axis.lower + axis.extent)

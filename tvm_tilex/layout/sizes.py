"""Exact cardinality of index sets: boxes, tightened boxes, and boxes cut by a bijective guard."""

from __future__ import annotations

from math import prod

from tvm_tilex.layout.affine import prove_injective
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Coordinate, Expr, Op, Operation
from tvm_tilex.layout.forms import Form
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["cardinality_of"]


def cardinality_of(space: IndexSet) -> int | None:
    """Return the number of points of ``space``; None where symbolic or not decided.

    A guard ``h < T`` with linear ``h`` that maps its part of the box bijectively onto an interval
    ``[a, a + M)`` keeps exactly ``min(max(T - a, 0), M)`` of its M points (restriction).
    """
    if not space.guards and space.box_size is not None:
        return space.box_size
    if space.box_size is None or any(isinstance(p, Expr) for p in space.parameters):
        return None
    if space.is_empty_box:
        return 0
    context = Context(space)
    if context.empty:
        return 0
    bare = Context(space.unguarded())
    bare.bounds.update(context.bounds)
    bare._reset()
    open_guards = [g for g in space.guards if bare.decide(g) is not True]
    sizes = {c: _width(context, c) for c in space.coordinates}
    if not open_guards:
        return prod(sizes.values())
    if len(open_guards) > 1:
        return None
    return _cut(bare, open_guards[0], sizes)


def _width(context: Context, c: Coordinate) -> int:
    low, high = context.bounds[c]
    return high - low + 1


def _cut(context: Context, guard: Expr, sizes: dict[Coordinate, int]) -> int | None:
    if not isinstance(guard, Operation) or guard.op not in (Op.LT, Op.LE):
        return None
    try:
        difference = context.form(guard.left).add(context.form(guard.right), -1)
    except Unsafe:
        return None
    strict = 1 if guard.op is Op.LT else 0
    inside = [c for c in sizes if c in difference.terms]
    if len(inside) != len(difference.terms):
        return None
    part = prod(sizes[c] for c in inside)
    low, high = context.form_interval(Form(0, difference.terms))
    if high - low + 1 != part or not _injective_on(context, difference, inside):
        return None
    # h + const + strict <= 0, h takes each of low..high exactly once.
    kept = min(max(-difference.const - strict - low + 1, 0), part)
    return kept * prod(sizes[c] for c in sizes if c not in inside)


def _injective_on(context: Context, form: Form, inside: list[Coordinate]) -> bool:
    others = [c for c in context.bounds if c not in inside]
    saved = dict(context.bounds)
    for c in others:
        context.bounds[c] = (saved[c][0], saved[c][0])
    context._reset()
    reason = prove_injective(context, (form,))
    context.bounds.update(saved)
    context._reset()
    return reason is not None

"""Loads what every program reads before its first reduction.

Before::

    reductions
    for e: out[program, e] = f(e) * weight[e]

After::

    for e: early[e] = weight[e]
    reductions
    for e: out[program, e] = f(e) * early[e]

The early tile is a view's own elements, so that each worker loads its part while the row is on its
way and waits for both at once. Legal as the loads are unconditional, of memory that the function
does not write (the noalias contract), and as a program may read its views at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.guards import guarded_loads
from tvm_tilex.analysis.purity import mentions, reads_own
from tvm_tilex.analysis.structure import serial_nest, statements_of
from tvm_tilex.analysis.widening import NARROW_FLOATS
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    TensorLoad,
    structural_equal,
    structural_map,
    tirx,
)
from tvm_tilex.transform.common import is_stage, sequence, substitute, tilex_pass, with_body

__all__ = ["EarlyViews"]


@tilex_pass("EarlyViews")
class EarlyViews:
    """Load program-invariant views of results in front of the first reduction."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the root loops of a reference function."""
        if not is_stage(func, "reference") or not attrs.noalias(func):
            return func
        uses, roots = buffer_uses(func.body), statements_of(func.body)
        early = [_root(root, uses) for root in roots]
        if all(new is old for new, old in zip(early, roots, strict=True)):
            return func
        return func.with_body(sequence(*early))


def _root(root: Any, uses: Any) -> Any:
    if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
        return root
    body = statements_of(root.body)
    first = next((i for i, s in enumerate(body) if _reduces(s)), None)
    if first is None:
        return root
    before: list[Any] = []
    after = [_without_loads(s, root, uses, before) for s in body[first:]]
    if not before:
        return root
    return with_body(root, sequence(*body[:first], *before, *after))


def _reduces(statement: Any) -> bool:
    return (
        isinstance(statement, tirx.For) and attrs.annotation(statement, attrs.REDUCTION) is not None
    )


def _without_loads(statement: Any, root: Any, uses: Any, before: list[Any]) -> Any:
    """A result's domain that reads early tiles, which ``before`` defines."""
    loops, store = _domain(statement)
    if store is None or store.buffer.scope() != "global":
        return statement
    known: list[tuple[Any, Any]] = []
    for load in _movable(store.value, loops, root, uses):
        if not any(structural_equal(load, other) for other, _ in known):
            known.append((load, _early(load, loops, len(before) // 2, before)))
    if not known:
        return statement
    variables = [loop.loop_var for loop in loops]

    def element(load: Any) -> Any:
        for other, buffer in known:
            if structural_equal(load, other):
                return buffer[tuple(variables)]
        return None

    def widened(cast: Any) -> Any:
        """``cast(float32, view[e])``: the early tile holds that already."""
        found = element(cast.value) if isinstance(cast.value, TensorLoad) else None
        return cast if found is None or found.ty.dtype != cast.ty.dtype else found

    def early(load: Any) -> Any:
        found = element(load)
        if found is None or found.ty.dtype == load.ty.dtype:
            return load if found is None else found
        return tirx.Cast(str(load.ty.dtype), found)

    value = structural_map(store.value, (tirx.Cast, widened), order="pre")
    value = structural_map(value, (TensorLoad, early), order="post")
    nest: Any = tirx.BufferStore(store.buffer, value, list(store.indices))
    for loop in reversed(loops):
        nest = with_body(loop, nest)
    return nest


def _movable(value: Any, loops: list[Any], root: Any, uses: Any) -> Iterator[Any]:
    for guarded in guarded_loads(value):
        load = guarded.load
        if guarded.predicates or load.source.scope() != "global":
            continue
        if uses[load.source].stores or uses[load.source].escapes:
            continue
        if reads_own(load, root.loop_var):
            continue
        if all(any(mentions(i, loop.loop_var) for i in load.indices) for loop in loops):
            yield load


def _early(load: Any, loops: list[Any], number: int, before: list[Any]) -> Any:
    """Define a tile of the load's elements; 16-bit ones are widened, which loses nothing."""
    dtype = str(load.ty.dtype)
    held = "float32" if dtype in NARROW_FLOATS else dtype
    shape = [loop.extent for loop in loops]
    buffer = tirx.decl_buffer(shape, held, f"early{number}", scope="local", layout=None)
    fresh = {loop.loop_var: tirx.Var(loop.loop_var.name, loop.loop_var.ty) for loop in loops}
    value = substitute(load, fresh)
    value = value if held == dtype else tirx.Cast(held, value)
    nest: Any = tirx.BufferStore(buffer, value, list(fresh.values()))
    for loop in reversed(loops):
        nest = tirx.For(
            fresh[loop.loop_var], loop.min, loop.extent, loop.kind, nest, None, loop.annotations
        )
    before += [tirx.AllocBuffer(buffer), nest]
    return buffer


def _domain(statement: Any) -> tuple[list[Any], Any]:
    """Loops of constant extents and the store of an element domain; no store otherwise."""
    loops, store = serial_nest(statement)
    known = all(isinstance(loop.extent, tirx.IntImm) for loop in loops)
    if not loops or attrs.annotation(loops[0], attrs.DOMAIN) is None or not known:
        return [], None
    return loops, store

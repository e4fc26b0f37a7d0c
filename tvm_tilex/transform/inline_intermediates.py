"""Puts elementwise intermediates of a function of blocks into their consumers.

``te`` and Relax give every operation a buffer of the whole array. In a program of one row, one
value a row and one tile a row may keep storage; everything else, and whatever has one consumer, is
computed where it is read. Values are pure (:mod:`tvm_tilex.analysis.blocks`), and a buffer is
stored by one nest, so that computing a value later changes nothing.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.blocks import Blocks, Foreign, Nest
from tvm_tilex.analysis.counts import Count, known_extent
from tvm_tilex.analysis.purity import calls, loads
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx.compat import TensorLoad, Var, structural_map, tirx
from tvm_tilex.tirx.register import CHEAP
from tvm_tilex.transform.common import substitute

__all__ = ["remaining_nests"]

PRESERVE = SharedTileMaterialization.PRESERVE
EXPENSIVE_ONLY = SharedTileMaterialization.EXPENSIVE_ONLY


def remaining_nests(
    blocks: Blocks, rows: Count, mode: SharedTileMaterialization
) -> tuple[Nest, ...] | Foreign:
    """The nests that remain; ``rows`` is the number of programs, ``mode`` says what tiles stay."""
    values: list[tuple[Nest, tuple[Any, ...], Any]] = []  # nest, its variables, its value
    kept: list[Nest] = []
    for position, nest in enumerate(blocks.nests):

        def inline(load: Any) -> Any:
            for made, variables, value in values:
                if load.source.same_as(made.buffer):
                    return substitute(value, dict(zip(variables, load.indices, strict=True)))
            return load

        value = structural_map(nest.value, (TensorLoad, inline), order="post")
        nest = Nest(nest.name, nest.loops, nest.buffer, nest.indices, value, nest.initial)
        later = blocks.nests[position + 1 :]
        if not blocks.is_local(nest.buffer):
            kept.append(nest)
            continue
        uses = sum(_reads(other, nest.buffer) for other in later)
        if uses == 0:
            continue  # nothing observes it
        if nest.reduced or _stays(nest, rows, uses, mode):
            kept.append(nest)
            continue
        variables = _own_variables(nest)
        if variables is None:
            return Foreign(f"block {nest.name} does not store at its own loops")
        single = {
            loop.variable: tirx.IntImm(str(loop.variable.ty.dtype), 0)
            for loop in nest.loops
            if loop.unit and not any(loop.variable.same_as(v) for v in variables)
        }
        values.append((nest, variables, substitute(value, single)))
    return tuple(kept)


def _stays(nest: Nest, rows: Count, uses: int, mode: SharedTileMaterialization) -> bool:
    """Whether an elementwise intermediate keeps storage in the row's program."""
    elements = nest.count.over(rows)
    if not elements:
        return False  # not one value or one tile a row
    if str(nest.buffer.ty.dtype) not in ("float32", "int32"):
        return False  # private storage is of 32-bit scalars
    expensive = not CHEAP.issuperset(calls(nest.value))
    if elements == 1:
        return uses > 1 or expensive
    if mode is PRESERVE:
        return uses > 1
    return mode is EXPENSIVE_ONLY and uses > 1 and expensive


def _reads(nest: Nest, buffer: Any) -> int:
    return sum(load.source.same_as(buffer) for load in loads(nest.value))


def _own_variables(nest: Nest) -> tuple[Any, ...] | None:
    """The loop variables in the order in which the nest stores at them, or None."""
    variables: list[Any] = []
    for index, extent in zip(nest.indices, nest.buffer.ty.shape, strict=True):
        at_zero = isinstance(index, tirx.IntImm) and index.value == 0
        if at_zero and known_extent(extent) == 1:
            variables.append(tirx.Var("one", str(extent.ty.dtype)))
        elif isinstance(index, Var) and any(index.same_as(loop.variable) for loop in nest.loops):
            variables.append(index)
        else:
            return None
    stored = [[v.same_as(loop.variable) for v in variables].count(True) for loop in nest.loops]
    whole = all(n == 1 for n, loop in zip(stored, nest.loops, strict=True) if not loop.unit)
    return tuple(variables) if whole and max(stored, default=0) <= 1 else None

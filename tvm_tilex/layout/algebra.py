"""Constructors over maps: composition with its explicit options, unflattening, restriction."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Product
from tvm_tilex.layout.expr import ExprLike
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr
from tvm_tilex.layout.radix import MixedRadix

__all__ = ["compose", "flatten", "product", "restrict", "unflatten"]


def compose(outer: LayoutMap, inner: LayoutMap, *, unbounded_last_mode: bool = False) -> LayoutMap:
    """Return ``outer o inner``.

    Where ``inner`` has one codomain axis and ``outer`` several modes, the value is a linear
    index, split with the first mode fastest (as in CuTe).

    Parameters
    ----------
    unbounded_last_mode
        CuTe's convention: the last mode of ``outer`` (a MixedRadix) is taken to be as long as
        needed. Never the default.

    Raises
    ------
    LayoutError
        Where values of ``inner`` leave the domain of ``outer``; names the mode.
    """
    if unbounded_last_mode:
        outer = _lengthened(outer, inner.codomain)
    if inner.codomain.rank == 1 and outer.domain.rank > 1:
        return Compose(outer, Compose(unflatten(outer.domain, first_fastest=True), inner))
    return Compose(outer, inner)


def product(*maps: LayoutMap) -> LayoutMap:
    """Return the typed product of the maps."""
    return Product(maps)


def _lengthened(outer: LayoutMap, source: IndexSet) -> LayoutMap:
    if not isinstance(outer, MixedRadix):
        raise LayoutError("unbounded_last_mode needs a mixed-radix outer map")
    shape = outer.domain.shape
    if source.rank == 1:
        below = prod(shape[:-1])
        needed = -(-(source.axes[0].bounds()[1] + 1) // max(below, 1))
    else:
        needed = source.axes[-1].bounds()[1] + 1
    if not shape or needed <= shape[-1]:
        return outer
    modes = outer.shape if isinstance(outer.shape, tuple) else (outer.shape,)
    last = _lengthened_mode(modes[-1], needed)
    grown: Any = (*modes[:-1], last) if isinstance(outer.shape, tuple) else last
    return MixedRadix(grown, outer.stride, outer.offset)


def _lengthened_mode(mode: Any, needed: int) -> Any:
    if isinstance(mode, int):
        return needed
    from tvm_tilex.layout.radix import flatten_shape

    below = prod(flatten_shape(mode[:-1]))
    return (*mode[:-1], _lengthened_mode(mode[-1], -(-needed // below)))


def unflatten(target: IndexSet, *, name: str = "e", first_fastest: bool = False) -> LayoutMap:
    """Return the bijection of ``[0, |target|)`` to the box of ``target``, last axis fastest."""
    shape = target.shape
    size = prod(shape)
    order = range(len(shape)) if first_fastest else range(len(shape) - 1, -1, -1)
    x = IndexSet((Axis(name, size),)).coordinates[0]
    digits: dict[int, ExprLike] = {}
    below = 1
    for k in order:
        upper: ExprLike = x // below if below > 1 else x
        digit = upper if below * shape[k] == size else upper % max(shape[k], 1)
        low = target.axes[k].lower
        digits[k] = digit + low if low else digit
        below *= max(shape[k], 1)
    values = tuple(digits[k] for k in range(len(shape)))
    return IndexExpr(IndexSet((Axis(name, size),)), target.unguarded(), values)


def flatten(source: IndexSet, *, name: str = "e", first_fastest: bool = False) -> LayoutMap:
    """Return the bijection of the box of ``source`` to ``[0, |source|)``, last axis fastest."""
    shape = source.shape
    if any(axis.lower for axis in source.axes):
        raise LayoutError("flatten needs zero-based axes")
    steps = []
    for k in range(len(shape)):
        rest = shape[:k] if first_fastest else shape[k + 1 :]
        steps.append(prod(rest))
    codomain = IndexSet((Axis(name, prod(shape)),))
    return MixedRadix(shape, tuple(steps), 0, source, codomain)


def restrict(map: LayoutMap, *guards: Any, codomain: IndexSet | None = None) -> LayoutMap:
    """Return ``map`` on the points of its domain that satisfy ``guards``."""
    domain = map.domain.where(*guards)
    target = codomain if codomain is not None else map.codomain
    if isinstance(map, IndexExpr):
        return replace(map, domain=domain, codomain=target)
    if isinstance(map, MixedRadix):
        return MixedRadix(map.shape, map.stride, map.offset, domain, target)
    if codomain is not None:
        return IndexExpr(domain, target, map.outputs)
    return Compose(map, _inclusion(domain))


def _inclusion(domain: IndexSet) -> LayoutMap:
    return Identity(domain)

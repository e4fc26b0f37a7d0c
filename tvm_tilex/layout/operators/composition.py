"""Composition of layouts: flat where a flat layout exists, else a composed layout. Never wrong."""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout.algebra import compose
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout, Swizzle
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.int_tuple import with_leaves
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.operators.coalesce import merged
from tvm_tilex.layout.operators.derived import (
    Derived,
    Obligation,
    Operand,
    compact,
    concatenated,
    is_empty,
    map_of,
    scaled,
    shape_of_map,
    unwrap,
)
from tvm_tilex.layout.operators.digits import strided_digits
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Verdict, proven

__all__ = ["composition"]

LAW = "R(i) = A(B(i)) for every index"


def composition(
    outer: Operand | Swizzle,
    inner: Any,
    *,
    unbounded_last_mode: bool = False,
    budget: int = DEFAULT_BUDGET,
) -> Derived[Any]:
    """Return ``outer o inner``, on the shape of ``inner``.

    Each mode of ``inner`` becomes one mode. Where no flat layout has these values, the result is
    the ``ComposedLayout`` of the two: a composition is never refused for want of a flat form.

    Parameters
    ----------
    outer
        Strides of any sign, zero included; a swizzle composes to a swizzled layout. Any
        ``LayoutMap`` on a static box is accepted too, as a function of its colexicographic index;
        the result is then a map.
    inner
        A layout with values in ``[0, size(outer))`` (so no negative stride that matters), an
        integer ``n`` for ``n:1``, or a tuple with one of these, None or a tuple (for a nested mode)
        for each leading mode of ``outer`` (by-mode composition).
    unbounded_last_mode
        CuTe's convention: the last mode of ``outer`` is as long as needed.

    Raises
    ------
    OperatorError
        Where a value of ``inner`` leaves the domain of ``outer``.
    """
    if isinstance(outer, Swizzle):
        return Derived(ComposedLayout(outer, 0, unwrap(inner)), _definition())
    map = map_of(outer)
    if map is not None:
        whole = shape_of_map("composition", map)
        return composed_map(map, composition(whole, inner, budget=budget), budget)
    first = unwrap(outer)
    if isinstance(inner, tuple):
        if unbounded_last_mode:
            raise OperatorError("composition: by-mode tilers are bounded by their modes")
        second: AnyCuteLayout = by_mode(first, inner)
    else:
        second = tiler_layout("composition", inner)
    return composed(first, second, unbounded_last_mode, budget)


def composed(
    outer: AnyCuteLayout, inner: AnyCuteLayout, unbounded: bool, budget: int
) -> Derived[Any]:
    """Return the composition of two layouts with its obligation."""
    if isinstance(outer, ComposedLayout):
        below = composed(outer.layout, inner, unbounded, budget)
        return Derived(ComposedLayout(outer.outer, outer.offset, below.layout), below.obligations)
    if isinstance(inner, CuteLayout) and is_empty(inner):
        zeros = with_leaves(inner.shape, (0,) * len(inner.digits))
        return Derived(CuteLayout(inner.shape, zeros), _definition())
    outer = _covering(outer, inner, unbounded)
    if isinstance(inner, CuteLayout):
        found = _flat(outer, inner)
        if found is not None:
            flat, verdict = found[0], _same_values(found[1], outer, inner, budget)
            if verdict.proven:
                return Derived(flat, (Obligation(LAW, verdict),))
    return Derived(ComposedLayout(outer, 0, inner), _definition())


def composed_map(map: LayoutMap, index: Derived[Any], budget: int) -> Derived[Any]:
    """Return ``map o index`` for an index layout into the colexicographic index of ``map``."""
    target = compose(map, index.layout.to_map())
    short = normalize(target)
    verdict = equal_maps(short, target, budget)
    found = (*index.obligations, Obligation(LAW, verdict))
    return Derived(short, found) if verdict.proven else Derived(target, _definition())


def _definition() -> tuple[Obligation, ...]:
    return (Obligation(LAW, proven("kept as a composition")),)


def _covering(outer: CuteLayout, inner: AnyCuteLayout, unbounded: bool) -> CuteLayout:
    from tvm_tilex.layout.value_range import index_range

    low, high = index_range(inner)
    if low >= 0 and high < outer.size():
        return outer
    if low >= 0 and unbounded:
        return outer.extended(high + 1)
    more = "; unbounded_last_mode=True extends it" if low >= 0 else ""
    raise OperatorError(
        f"composition past the domain: {inner} has values in [{low}, {high}], mode"
        f" {outer.rank - 1} of {outer} ends at {outer.size() - 1}{more}"
    )


def _flat(outer: CuteLayout, inner: CuteLayout) -> tuple[CuteLayout, CuteLayout] | None:
    """Return the candidate on the shape of ``inner``, and with one mode per leaf of ``inner``."""
    digits = merged(outer) or [(1, 0)]
    shapes: list[Any] = []
    steps: list[Any] = []
    for extent, step in inner.digits:
        # The range was checked, so a negative stride has an extent of 1.
        found = strided_digits(digits, extent, abs(step))
        if found is None:
            return None
        shapes.append(found[0][0] if len(found) == 1 else tuple(n for n, _ in found))
        steps.append(found[0][1] if len(found) == 1 else tuple(s for _, s in found))
    shape = with_leaves(inner.shape, tuple(shapes))
    flat = CuteLayout(shape, with_leaves(inner.shape, tuple(steps)))
    return flat, CuteLayout(tuple(shapes), tuple(steps))


def _same_values(
    candidate: CuteLayout, outer: CuteLayout, inner: CuteLayout, budget: int
) -> Verdict:
    """Compare with one axis per leaf of ``inner``: a linear index splits alike on both sides."""
    leaves = of_leaves(inner)
    target = Compose(outer.to_map(linear=True), leaves.to_map())
    return equal_maps(candidate.to_map(), target, budget)


def of_leaves(layout: CuteLayout) -> CuteLayout:
    """Return the layout with one top-level mode per leaf."""
    return CuteLayout(tuple(n for n, _ in layout.digits), tuple(s for _, s in layout.digits))


def tiler_layout(operator: str, tiler: Any) -> AnyCuteLayout:
    """Return the layout of a tiler: an integer ``n`` is ``n:1``."""
    if isinstance(tiler, int) and not isinstance(tiler, bool):
        if tiler < 1:
            raise OperatorError(f"{operator}: a tile of {tiler} elements")
        return CuteLayout(tiler, 1)
    if isinstance(tiler, tuple):
        raise OperatorError(f"{operator}: the tuple {tiler} is no layout; use CuteLayout(shape)")
    return unwrap(tiler)


def modes_of_layout(layout: AnyCuteLayout) -> tuple[int, ...]:
    """Return the sizes of the top-level modes."""
    plain = layout
    while isinstance(plain, ComposedLayout):
        plain = plain.layout
    return tuple(mode.size() for mode in plain.modes)


def require_modes(operator: str, layout: CuteLayout, tiler: tuple[Any, ...]) -> None:
    """Raise OperatorError where a tuple tiler has more entries than the layout has modes."""
    if len(tiler) > layout.rank:
        raise OperatorError(
            f"{operator}: {len(tiler)} tilers for the {layout.rank} modes of {layout}"
        )


def by_mode(outer: AnyCuteLayout, tiler: tuple[Any, ...], below: int = 1) -> CuteLayout:
    """Return the layout into the linear index of ``outer`` that applies a tiler per mode.

    Raises
    ------
    OperatorError
        Where there are more tilers than modes, or a tiler leaves its mode.
    """
    plain = outer
    while isinstance(plain, ComposedLayout):
        plain = plain.layout
    require_modes("composition", plain, tiler)
    parts = []
    for number, mode in enumerate(plain.modes):
        entry = tiler[number] if number < len(tiler) else None
        if isinstance(entry, tuple):
            parts.append(by_mode(mode, entry, below))
            below *= mode.size()
            continue
        part = compact(mode.shape) if entry is None else tiler_layout("composition", entry)
        if not isinstance(part, CuteLayout):
            raise OperatorError(f"composition: the tiler {part} of mode {number} is composed")
        low, high = part.index_range()
        if low < 0 or high >= mode.size():
            raise OperatorError(
                f"composition past the domain: the tiler {part} has values in [{low}, {high}],"
                f" mode {number} of {plain} has {mode.size()} points"
            )
        parts.append(scaled(part, below))
        below *= mode.size()
    return concatenated(parts)

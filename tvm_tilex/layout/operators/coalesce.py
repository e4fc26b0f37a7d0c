"""Coalesce and filter: fewer modes, the same function or the same image.

Both accept strides of any sign, zero included, and empty layouts.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.int_tuple import IntTuple, with_leaves
from tvm_tilex.layout.operators.derived import (
    Derived,
    LayoutLike,
    Obligation,
    concatenated,
    discharge,
    is_empty,
    of_digits,
    unwrap,
)
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import equal_maps

__all__ = ["coalesce", "filter", "filter_zeros"]


def coalesce(
    layout: LayoutLike, profile: Any = None, *, budget: int = DEFAULT_BUDGET
) -> Derived[Any]:
    """Return the layout with the fewest modes that is the same function of a linear index.

    Adjacent modes ``(m, n):(d, m*d)`` become ``m*n:d``; modes of extent 1 disappear.

    Parameters
    ----------
    layout
        Strides of any sign, zero included. The inner layout of a composed one is coalesced.
    profile
        A nest whose leaves say which modes stay separate: ``coalesce(a, (1, 1))`` coalesces each
        of the first two modes by itself; modes past the profile are kept.

    Returns
    -------
    Derived
        Obligation: equal values at every linear index (with a profile, of every mode).
    """
    source = unwrap(layout)
    result = _by_profile(source, profile)
    law = "coalesce(A)(i) = A(i) for every index"
    verdict = equal_maps(result.to_map(linear=True), source.to_map(linear=True), budget)
    return Derived(result, (discharge("coalesce", law, verdict),))


def _by_profile(layout: AnyCuteLayout, profile: Any) -> AnyCuteLayout:
    if isinstance(layout, ComposedLayout):
        return ComposedLayout(layout.outer, layout.offset, _by_profile(layout.layout, profile))
    if not isinstance(profile, tuple):
        return of_digits(merged(layout))
    if len(profile) > layout.rank:
        raise OperatorError(
            f"coalesce: the profile {profile} has more modes than the layout {layout}"
        )
    modes = []
    for number, mode in enumerate(layout.modes):
        kept = mode if number >= len(profile) else _by_profile(mode, profile[number])
        assert isinstance(kept, CuteLayout)
        modes.append(kept)
    return concatenated(modes)


def merged(layout: CuteLayout) -> list[tuple[int, int]]:
    """Return the (extent, stride) digits after merging; at least one unless the size is 1."""
    if is_empty(layout):
        return [(0, 0)]
    found: list[tuple[int, int]] = []
    for extent, step in layout.digits:
        if extent == 1:
            continue
        if found and found[-1][0] * found[-1][1] == step:
            found[-1] = (found[-1][0] * extent, found[-1][1])
        else:
            found.append((extent, step))
    return found


def filter_zeros(layout: LayoutLike, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return the layout with the extent of every mode of stride 0 set to 1, hierarchy kept.

    Negative strides are accepted. Obligation: ``A = filter_zeros(A) o P`` with the projection
    ``P`` that forgets the coordinates of those modes, which is onto; so the images are equal.
    """
    source = unwrap(layout)
    plain = _plain("filter_zeros", source)
    extents = tuple(n if step or n == 0 else 1 for n, step in plain.digits)
    kept: IntTuple = with_leaves(plain.shape, extents)
    return _filtered("filter_zeros", source, CuteLayout(kept, plain.stride), extents, budget)


def filter(layout: LayoutLike, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return ``coalesce(filter_zeros(A))``: the image of ``A``, without broadcast modes.

    Negative strides are accepted. Obligation: as of :func:`filter_zeros`.
    """
    source = unwrap(layout)
    plain = _plain("filter", source)
    extents = tuple(n if step or n == 0 else 1 for n, step in plain.digits)
    kept = of_digits(merged(CuteLayout(with_leaves(plain.shape, extents), plain.stride)))
    return _filtered("filter", source, kept, extents, budget)


def _plain(operator: str, layout: AnyCuteLayout) -> CuteLayout:
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    if not isinstance(inner, CuteLayout):
        raise OperatorError(f"{operator}: {layout} has no modes of its own: its map isn't flat")
    return inner


def _filtered(
    operator: str,
    source: AnyCuteLayout,
    kept: CuteLayout,
    extents: tuple[int, ...],
    budget: int,
) -> Derived[Any]:
    plain = _plain(operator, source)
    law = f"A = {operator}(A) o P, P the projection that forgets stride-0 modes, onto"
    if is_empty(plain):
        return Derived(kept, ())
    steps, below = [], 1
    for extent, whole in zip(extents, (n for n, _ in plain.digits), strict=True):
        steps.append(below if extent == whole and extent > 1 else 0)
        below *= extent
    shape = tuple(n for n, _ in plain.digits)
    projection = CuteLayout(shape, tuple(steps)).to_map(linear=True)
    composed = Compose(kept.to_map(linear=True), projection)
    equal = equal_maps(composed, plain.to_map(linear=True), budget)
    onto = prove(projection, 0).surjectivity
    found = (discharge(operator, law, equal), Obligation("P is onto", onto))
    discharge(operator, "P is onto", onto)
    if isinstance(source, ComposedLayout):
        return Derived(ComposedLayout(source.outer, source.offset, kept), found)
    return Derived(kept, found)

"""One-sided inverses of layouts, as layouts."""

from __future__ import annotations

from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout, Swizzle
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.nodes import Identity
from tvm_tilex.layout.operators.coalesce import merged
from tvm_tilex.layout.operators.composition import of_leaves
from tvm_tilex.layout.operators.derived import (
    Derived,
    LayoutLike,
    Obligation,
    compact,
    discharge,
    is_empty,
    of_digits,
    unwrap,
)
from tvm_tilex.layout.operators.solve import solved_left_inverse
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import equal_maps

__all__ = ["left_inverse", "right_inverse"]

Digits = list[tuple[int, int]]
Weighted = tuple[int, int, int]


def right_inverse(layout: LayoutLike, *, budget: int = DEFAULT_BUDGET) -> Derived[AnyCuteLayout]:
    """Return R with ``A(R(i)) = i`` for every index of R, as long as its modes can be chained.

    Modes of A with a stride of 0 or below are passed over; ``1:0`` where no mode starts at 1. A
    mode is taken in part where that lets the next one continue, so the result may be longer than
    CuTe's. Of a swizzled layout the whole blocks are inverted, or what lies below the first bit
    that the swizzle reads.

    Raises
    ------
    OperatorError
        For an empty layout, a swizzle with an offset, or a composition that is not a swizzle.
    """
    source = unwrap(layout)
    law = "A(R(i)) = i for every index of R"
    if isinstance(source, ComposedLayout):
        swizzle, inner = _swizzled("right_inverse", source)
        below = of_digits(_chain(_weighted("right_inverse", inner)))
        size = below.size() // swizzle.block * swizzle.block
        result: AnyCuteLayout = ComposedLayout(
            below, 0, ComposedLayout(swizzle, 0, CuteLayout(size, 1))
        )
        if not size:
            result = _shortened(below, 1 << (swizzle.base + max(swizzle.shift, 0)))
    else:
        result = of_digits(_chain(_weighted("right_inverse", source)))
    return Derived(result, (_identity("right_inverse", law, source, result, budget),))


def left_inverse(layout: LayoutLike, *, budget: int = DEFAULT_BUDGET) -> Derived[AnyCuteLayout]:
    """Return L with ``L(A(i)) = i`` for every index of A.

    Values of L off the image of A have no meaning. Negative strides of A are refused (values below
    0 are no index of a layout), and so are strides of 0, which repeat a value; ``try_inverse``
    gives a map on the image where there is no layout.

    Raises
    ------
    OperatorError
        Where A is not injective (naming two points), has negative values, or is inverted by no
        layout that the search of digit systems finds (see ``solve``).
    """
    source = unwrap(layout)
    law = "L(A(i)) = i for every index of A"
    if isinstance(source, ComposedLayout):
        swizzle, inner = _swizzled("left_inverse", source)
        below = _left(inner, budget)
        size = -(-inner.cosize() // swizzle.block) * swizzle.block
        result: AnyCuteLayout = ComposedLayout(
            below.extended(size), 0, ComposedLayout(swizzle, 0, CuteLayout(size, 1))
        )
    else:
        result = _left(source, budget)
    return Derived(result, (_identity("left_inverse", law, result, source, budget),))


def _swizzled(operator: str, layout: ComposedLayout) -> tuple[Swizzle, CuteLayout]:
    plain = isinstance(layout.outer, Swizzle) and isinstance(layout.layout, CuteLayout)
    if not plain or layout.offset:
        raise OperatorError(f"{operator}: {layout} is not a swizzle of a layout at offset 0")
    assert isinstance(layout.outer, Swizzle) and isinstance(layout.layout, CuteLayout)
    return layout.outer, layout.layout


def _identity(
    operator: str, law: str, outer: AnyCuteLayout, inner: AnyCuteLayout, budget: int
) -> Obligation:
    if isinstance(inner, CuteLayout):
        # One axis per leaf: a linear index splits alike on both sides.
        second = of_leaves(inner).to_map()
        target = compact(of_leaves(inner).shape).to_map()
    else:
        second = inner.to_map(linear=True)
        target = Identity(second.domain)
    verdict = equal_maps(Compose(outer.to_map(linear=True), second), target, budget)
    return discharge(operator, law, verdict)


def _shortened(layout: CuteLayout, size: int) -> CuteLayout:
    """Return the longest prefix of at most ``size`` indices that ends within one mode."""
    kept: Digits = []
    for extent, step in layout.digits:
        taken = min(extent, size)
        kept.append((taken, step))
        size //= taken
        if size < 2:
            break
    return of_digits(merged(of_digits(kept)))


def _weighted(operator: str, layout: CuteLayout) -> list[Weighted]:
    """Return the coalesced modes as (extent, stride, weight in the linear index)."""
    if is_empty(layout):
        raise OperatorError(f"{operator}: the layout {layout} is empty")
    found, weight = [], 1
    for extent, step in merged(layout):
        found.append((extent, step, weight))
        weight *= extent
    return found


def _chain(modes: list[Weighted], reached: int = 1) -> Digits:
    """Return the longest chain of digits that continues ``[0, reached)``; whole modes first."""
    best: Digits = []
    for number, (extent, step, weight) in enumerate(modes):
        if step <= 0 or reached % step:
            continue
        pace = reached // step
        longest = (extent - 1) // pace + 1
        others = modes[:number] + modes[number + 1 :]
        starts = {other[1] for other in others if other[1] > reached}
        lengths = [longest] + [
            s // reached for s in starts if s % reached == 0 and 1 < s // reached < longest
        ]
        for length in lengths:
            if length < 2:
                continue
            rest = _chain(others, reached * length)
            if _count(rest) * length > _count(best):
                best = [(length, pace * weight), *rest]
    return merged(of_digits(best)) if best else []


def _count(digits: Digits) -> int:
    total = 1
    for extent, _ in digits:
        total *= extent
    return total


def _left(layout: CuteLayout, budget: int) -> CuteLayout:
    modes = _weighted("left_inverse", layout)
    proof = prove(layout.to_map(linear=True), budget).injectivity
    if not proof.proven:
        raise OperatorError(f"left_inverse of {layout}: not injective, {proof.reason}")
    if any(step < 0 for _, step, _ in modes):
        raise OperatorError(f"left_inverse of {layout}: negative values are no index of a layout")
    digits = _radices(modes)
    if digits is not None:
        return of_digits(merged(of_digits(digits)))
    found = solved_left_inverse(layout)
    if found is None:
        raise OperatorError(f"left_inverse of {layout}: no digit system that was tried inverts it")
    return found


def _radices(modes: list[Weighted]) -> Digits | None:
    """Return digits that read the index off the value, strides being a chain of divisors."""
    found: Digits = []
    reached = 1
    weight, extent = 0, 1
    for count, step, place in sorted(modes, key=lambda mode: mode[1]):
        if step % reached or step // reached < extent:
            return None
        if step > reached:
            found.append((step // reached, weight))
        reached, weight, extent = step, place, count
    found.append((extent, weight))
    return found

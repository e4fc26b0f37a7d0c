"""Exact least and greatest value of CuTe layouts, swizzled and composed ones included."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.cute_layout import AnyCuteLayout, CuteLayout, Swizzle

__all__ = ["index_range"]

_STEPS = 1 << 20


def index_range(layout: AnyCuteLayout) -> tuple[int, int]:
    """Return the least and the greatest value; ``(0, -1)`` where the layout is empty.

    A swizzle permutes aligned blocks, so its extremes come from the least and the greatest
    occupied block of the inner layout; only those values are enumerated.

    Raises
    ------
    LayoutError
        Where a composition of more than about a million relevant points would have to be
        enumerated.
    """
    if isinstance(layout, CuteLayout):
        return layout.index_range()
    if not layout.size():
        return (0, -1)
    if isinstance(layout.outer, Swizzle) and isinstance(layout.layout, CuteLayout):
        return _swizzled(layout.outer, layout.offset, layout.layout)
    if layout.size() > _STEPS:
        raise LayoutError(f"the extremes of {layout} would need {layout.size()} evaluations")
    values = list(layout.values())
    return (min(values), max(values))


def _swizzled(swizzle: Swizzle, offset: int, layout: CuteLayout) -> tuple[int, int]:
    low, high = layout.index_range()
    block = swizzle.block
    top = (high + offset) // block * block - offset
    bottom = (low + offset) // block * block + block - 1 - offset
    least = min(swizzle(y + offset) for y in _within(layout, low, bottom))
    most = max(swizzle(y + offset) for y in _within(layout, top, high))
    return (least, most)


def _within(layout: CuteLayout, first: int, last: int) -> set[int]:
    """Return the values in ``[first, last]``, by digits from the longest stride down."""
    digits = sorted(((n, s) for n, s in layout.digits if n > 1 and s), key=lambda d: -abs(d[1]))
    below, above = [0], [0]
    for extent, step in reversed(digits):
        reach = step * (extent - 1)
        below.append(below[-1] + min(reach, 0))
        above.append(above[-1] + max(reach, 0))
    partial = {0}
    for number, (extent, step) in enumerate(digits):
        rest = len(digits) - number - 1
        grown: set[int] = set()
        for x in partial:
            allowed = _digits_between(first - x - above[rest], last - x - below[rest], step)
            kept = range(max(allowed.start, 0), min(allowed.stop, extent))
            if len(grown) + len(kept) > _STEPS:
                raise LayoutError(
                    f"the extremes of a swizzle over {layout} need too many evaluations"
                )
            grown.update(x + digit * step for digit in kept)
        partial = grown
    return partial


def _digits_between(low: int, high: int, step: int) -> range:
    """Return the digits d with ``low <= d * step <= high``."""
    if step < 0:
        low, high, step = -high, -low, -step
    return range(-(-low // step), high // step + 1)

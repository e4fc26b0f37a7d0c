"""Recognition of flat layouts: the digits of ``i -> A(d * i)``, and of a list of values."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tilex.layout.cute_layout import CuteLayout

__all__ = ["RECOGNIZED", "digits_of_values", "strided_digits"]

RECOGNIZED = 1 << 12
Digits = list[tuple[int, int]]


def digits_of_values(values: Sequence[int]) -> Digits | None:
    """Return the coalesced digits of the layout with these values, or None where there is none.

    The first index at which the values stop being an arithmetic progression is the extent of the
    first coalesced mode, so the answer is unique and the search is complete.
    """
    if values and values[0]:
        return None
    found: Digits = []
    rest = list(values)
    while len(rest) > 1:
        step = rest[1]
        extent = next((i for i, v in enumerate(rest) if v != i * step), len(rest))
        if len(rest) % extent:
            return None
        found.append((extent, step))
        rest = rest[::extent]
    # A later mode may still break inside a run of an earlier one.
    return found if list(_values(found)) == list(values) else None


def _values(digits: Digits) -> list[int]:
    values = [0]
    for extent, step in digits:
        values = [v + digit * step for digit in range(extent) for v in values]
    return values


def strided_digits(outer: Digits, extent: int, step: int) -> Digits | None:
    """Return digits of ``i -> A(step * i)``, ``i < extent``; None where it is not a layout.

    ``outer`` are the coalesced digits of A, of which the last is unbounded. First by division of
    extents (exact: strong divisibility), else from the values where there are few.
    """
    if extent == 1 or step == 0:
        return [(extent, 0)]
    found = _by_division(outer, extent, step)
    if found is not None:
        return found
    if extent > RECOGNIZED:
        return None
    source = CuteLayout(tuple(n for n, _ in outer), tuple(s for _, s in outer))
    return digits_of_values([source.value(step * i) for i in range(extent)])


def _by_division(outer: Digits, extent: int, step: int) -> Digits | None:
    found: Digits = []
    for number, (size, stride) in enumerate(outer):
        if number == len(outer) - 1 or (extent - 1) * step < size:
            found.append((extent, stride * step))
            return found
        if step % size == 0:
            step //= size
            continue
        if size % step:
            return None
        taken = size // step
        if extent % taken:
            return None
        found.append((taken, stride * step))
        extent, step = extent // taken, 1
        if extent == 1:
            return found
    return found or [(extent, 0)]

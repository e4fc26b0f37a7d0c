"""A left inverse by search: the strides are the unknowns of a linear system per digit system."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, combinations
from math import gcd

from tvm_tilex.layout.cute_layout import CuteLayout
from tvm_tilex.layout.int_tuple import colex_digits
from tvm_tilex.layout.operators.derived import of_digits

__all__ = ["solved_left_inverse"]

_POINTS = 1 << 10
_MODES = 6
_SMALL = 256
_PRIME = 2**31 - 1


def solved_left_inverse(layout: CuteLayout) -> CuteLayout | None:
    """Return a layout L with ``L(A(i)) = i``, or None where the search finds none.

    For fixed extents the law is linear in the strides of L: one equation per index of A. Tried are
    the digit systems over the strides of A and their gcds, and for values below 256 every system
    there is. Layouts of up to 1024 points.
    """
    if layout.size() > _POINTS or len(layout.digits) > _MODES:
        return None
    values = list(layout.values())
    size = max(values) + 1
    every = _every_system(size) if size <= _SMALL else ()
    for extents in chain(_digit_systems(layout, size), every):
        rows = [colex_digits(value, extents) for value in values]
        steps = _solve(rows) if _consistent(rows) else None
        if steps is not None:
            return of_digits(zip(extents, steps, strict=True))
    return None


def _digit_systems(layout: CuteLayout, size: int) -> Iterator[tuple[int, ...]]:
    """Yield extents whose weights are chains of divisors, shortest chains first."""
    steps = {step for extent, step in layout.digits if extent > 1 and step > 1}
    weights = sorted(steps | {g for a in steps for b in steps if (g := gcd(a, b)) > 1})
    for length in range(len(weights) + 1):
        for upper in combinations(weights, length):
            whole = (1, *upper)
            if any(b % a for a, b in zip(whole, upper, strict=False)):
                continue
            inner = tuple(b // a for a, b in zip(whole, upper, strict=False))
            yield (*inner, -(-size // whole[-1]))


def _every_system(size: int) -> Iterator[tuple[int, ...]]:
    """Yield the extents of all digit systems for indices below ``size``, few digits first."""
    queue: deque[tuple[tuple[int, ...], int]] = deque([((), 1)])
    while queue:
        inner, below = queue.popleft()
        yield (*inner, -(-size // below))
        queue.extend(((*inner, n), below * n) for n in range(2, (size - 1) // below + 1))


def _consistent(rows: list[tuple[int, ...]]) -> bool:
    """Whether the system has a solution modulo a prime; a cheap test, most systems fail early."""
    pivots: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        work = [*row, number]
        for column, pivot in pivots.items():
            factor = work[column]
            if factor:
                work = [(a - factor * b) % _PRIME for a, b in zip(work, pivot, strict=True)]
        lead = next((k for k, entry in enumerate(work[:-1]) if entry), None)
        if lead is not None:
            scale = pow(work[lead], -1, _PRIME)
            pivots[lead] = [entry * scale % _PRIME for entry in work]
        elif work[-1]:
            return False
    return True


def _solve(rows: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return integers x with ``rows[i] . x = i`` for every i, or None."""
    width = len(rows[0])
    pivots: dict[int, list[Fraction]] = {}
    for number, row in enumerate(rows):
        work = [Fraction(entry) for entry in (*row, number)]
        for column, pivot in pivots.items():
            if work[column]:
                factor = work[column]
                work = [a - factor * b for a, b in zip(work, pivot, strict=True)]
        lead = next((k for k in range(width) if work[k]), None)
        if lead is None:
            if work[width]:
                return None
            continue
        scale = work[lead]
        work = [entry / scale for entry in work]
        for column, pivot in pivots.items():
            factor = pivot[lead]
            pivots[column] = [a - factor * b for a, b in zip(pivot, work, strict=True)]
        pivots[lead] = work
    # A digit that no value uses may have any stride; 0 is chosen.
    found = [pivots[k][width] if k in pivots else Fraction(0) for k in range(width)]
    if any(value.denominator != 1 for value in found):
        return None
    steps = tuple(int(value) for value in found)
    held = all(
        sum(digit * step for digit, step in zip(row, steps, strict=True)) == number
        for number, row in enumerate(rows)
    )
    return steps if held else None

"""Bounds of index expressions that hold for every program and every value of the dimensions.

A bound is linear in the dynamic extents, so that ``N - 1`` is known to lie below ``N`` whatever
``N`` is. All bounds are sound over-approximations: repeated coordinates count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tvm_tilex.ir.index import (
    Dimension,
    Extent,
    Index,
    IndexConstant,
    ProgramCoordinate,
)

__all__ = ["Linear", "index_bounds", "proved_below", "proved_from_zero"]

Extents = Mapping[tuple[int, int], Extent]


@dataclass(frozen=True)
class Linear:
    """``constant + sum(coefficient * dimension)``; ``terms`` is sorted by name, without zeros."""

    constant: Fraction
    terms: tuple[tuple[Dimension, Fraction], ...] = ()

    @classmethod
    def of(cls, extent: Extent) -> Linear:
        """An extent as a form."""
        if isinstance(extent, Dimension):
            return cls(Fraction(0), ((extent, Fraction(1)),))
        return cls(Fraction(extent))

    def plus(self, other: Linear, factor: Fraction | int = 1) -> Linear:
        """``self + factor * other``."""
        found = dict(self.terms)
        for dimension, coefficient in other.terms:
            found[dimension] = found.get(dimension, Fraction(0)) + coefficient * factor
        kept = sorted(((d, c) for d, c in found.items() if c), key=lambda item: item[0].name)
        return Linear(self.constant + other.constant * factor, tuple(kept))

    def least(self, positive: frozenset[str] = frozenset()) -> Fraction:
        """Smallest value over the dimensions' ranges; those in ``positive`` are at least 1."""
        return self._extreme(positive, smallest=True)

    def greatest(self, positive: frozenset[str] = frozenset()) -> Fraction:
        """Largest value over the dimensions' ranges."""
        return self._extreme(positive, smallest=False)

    def _extreme(self, positive: frozenset[str], *, smallest: bool) -> Fraction:
        value = self.constant
        for dimension, coefficient in self.terms:
            low = max(dimension.minimum, 1 if dimension.name in positive else 0)
            at_low = (coefficient > 0) == smallest
            value += coefficient * (low if at_low else dimension.maximum)
        return value


def _positive(extents: Extents) -> frozenset[str]:
    """Dimensions that count programs: where a program runs they are not empty."""
    return frozenset(e.name for e in extents.values() if isinstance(e, Dimension))


def _interval(index: Index, extents: Extents) -> tuple[Linear, Linear]:
    if isinstance(index, IndexConstant):
        point = Linear(Fraction(index.value))
        return point, point
    if isinstance(index, Dimension):
        return Linear.of(index), Linear.of(index)
    if isinstance(index, ProgramCoordinate):
        extent = extents[index.nest, index.dimension]
        if not isinstance(extent, Dimension):
            return Linear(Fraction(0)), Linear(Fraction(max(0, extent - 1)))
        return Linear(Fraction(0)), Linear.of(extent).plus(Linear(Fraction(1)), -1)
    low, high = _interval(index.lhs, extents)
    other_low, other_high = _interval(index.rhs, extents)
    if index.op == "+":
        return low.plus(other_low), high.plus(other_high)
    if index.op == "-":
        return low.plus(other_high, -1), high.plus(other_low, -1)
    if index.op == "*":
        return _product((low, high), (other_low, other_high), _positive(extents))
    divisor = int(other_low.constant)
    return _divided(index.op, low, high, divisor, _positive(extents))


def _product(
    a: tuple[Linear, Linear], b: tuple[Linear, Linear], positive: frozenset[str]
) -> tuple[Linear, Linear]:
    for (low, high), (factor, other) in ((a, b), (b, a)):
        if factor == other and not factor.terms:
            ends = (low, high) if factor.constant >= 0 else (high, low)
            zero = Linear(Fraction(0))
            return zero.plus(ends[0], factor.constant), zero.plus(ends[1], factor.constant)
    corners = [
        x * y
        for x in (a[0].least(positive), a[1].greatest(positive))
        for y in (b[0].least(positive), b[1].greatest(positive))
    ]
    return Linear(min(corners)), Linear(max(corners))


def _divided(
    op: str, low: Linear, high: Linear, divisor: int, positive: frozenset[str]
) -> tuple[Linear, Linear]:
    first, last = math.floor(low.least(positive)), math.floor(high.greatest(positive))
    if op == "//":
        above = Linear(Fraction(0)).plus(high, Fraction(1, divisor))
        return Linear(Fraction(first // divisor)), above if high.terms else Linear(
            Fraction(last // divisor)
        )
    if first // divisor == last // divisor:
        return Linear(Fraction(first % divisor)), Linear(Fraction(last % divisor))
    return Linear(Fraction(0)), Linear(Fraction(divisor - 1))


def index_bounds(index: Index, extents: Extents) -> tuple[int, int]:
    """Inclusive interval that contains ``index`` for every program of the enclosing nests.

    ``extents`` maps (nest, dimension) to an extent; the interval holds where programs run.
    """
    positive = _positive(extents)
    low, high = _interval(index, extents)
    return math.floor(low.least(positive)), math.floor(high.greatest(positive))


def proved_from_zero(index: Index, extents: Extents) -> bool:
    """Whether ``index >= 0`` is proved for every program."""
    return _interval(index, extents)[0].least(_positive(extents)) >= 0


def proved_below(index: Index, length: Extent, extent: Extent, extents: Extents) -> bool:
    """Whether ``index + length <= extent`` is proved for every program.

    ``length`` is that of a tile axis, and so at least 1, or 1 for a single index.
    """
    high = _interval(index, extents)[1]
    positive = _positive(extents) | (
        frozenset({length.name}) if isinstance(length, Dimension) else frozenset()
    )
    past = high.plus(Linear.of(length)).plus(Linear.of(extent), -1)
    return math.floor(past.greatest(positive)) <= 0  # an integer at most the bound

"""GF(2) helpers of the Triton bridge: bases of a map, and one solution of a linear system."""

from __future__ import annotations

from functools import reduce
from operator import xor

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.gf2 import bit_matrix

__all__ = ["bits_of_map", "pack", "solve"]

_WORD = 64
Bases = tuple[tuple[tuple[int, ...], ...], ...]


def pack(vector: tuple[int, ...]) -> int:
    """Return the output coordinates of one vector as a single bit string."""
    return sum(value << (_WORD * k) for k, value in enumerate(vector))


def solve(columns: list[int], target: int) -> int | None:
    """Return a bit mask of columns whose XOR is ``target``, or None; earlier columns first."""
    pivots: dict[int, tuple[int, int]] = {}
    for k, column in enumerate(columns):
        vector, mask = column, 1 << k
        while vector and vector.bit_length() in pivots:
            base, chosen = pivots[vector.bit_length()]
            vector, mask = vector ^ base, mask ^ chosen
        if vector:
            pivots[vector.bit_length()] = (vector, mask)
    found = 0
    while target:
        if target.bit_length() not in pivots:
            return None
        base, chosen = pivots[target.bit_length()]
        target, found = target ^ base, found ^ chosen
    return found


def bits_of_map(map: LayoutMap, budget: int) -> Bases:
    """Return the image of every unit bit of a power-of-two box, after a proof of linearity.

    Raises
    ------
    LayoutError
        Where 0 does not map to 0, or linearity is neither proved from the DAG nor found by
        enumerating at most ``budget`` points.
    """
    rank = map.domain.rank
    origin = _row(map, (0,) * rank)
    if any(origin):
        raise LayoutError(f"triton layout: 0 maps to {origin}; a linear layout maps 0 to 0")
    bases: Bases = tuple(
        tuple(
            _row(map, tuple((1 << bit) if k == row else 0 for k in range(rank)))
            for bit in range(axis.bounds()[1].bit_length())
        )
        for row, axis in enumerate(map.domain.axes)
    )
    if _proved_linear(map):
        return bases
    size = map.domain.box_size or 0
    if size > budget:
        raise LayoutError(f"triton layout: linearity over GF(2) is not proved on {size} points")
    for point in map.domain.points():
        expected = _combination(bases, point, map.codomain.rank)
        if _row(map, point) != expected:
            raise LayoutError(f"triton layout: the map is not linear over GF(2), see {point}")
    return bases


def _row(map: LayoutMap, point: tuple[int, ...]) -> tuple[int, ...]:
    value = map.apply(*point)
    return value if isinstance(value, tuple) else (value,)


def _proved_linear(map: LayoutMap) -> bool:
    if len(map.pieces) != 1 or map.pieces[0].guards:
        return False
    return bit_matrix(Context(map.domain), map.pieces[0].outputs) is not None


def _combination(bases: Bases, point: tuple[int, ...], rank: int) -> tuple[int, ...]:
    chosen = [
        vector
        for x, vectors in zip(point, bases, strict=True)
        for bit, vector in enumerate(vectors)
        if x >> bit & 1
    ]
    return tuple(reduce(xor, (v[k] for v in chosen), 0) for k in range(rank))

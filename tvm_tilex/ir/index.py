"""Scalar index expressions over program coordinates, with exact interval bounds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = [
    "INDEX_OPERATORS",
    "Index",
    "IndexBinary",
    "IndexConstant",
    "ProgramCoordinate",
    "evaluate_index",
    "index_bounds",
]

# Floor division and modulo round toward minus infinity, as Python's do.
INDEX_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


@dataclass(frozen=True)
class IndexConstant:
    """A known integer."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class ProgramCoordinate:
    """The coordinate of the running program along one dimension of a parallel nest."""

    nest: int
    dimension: int

    def __str__(self) -> str:
        return f"n{self.nest}.{self.dimension}"


@dataclass(frozen=True)
class IndexBinary:
    """``lhs op rhs`` with ``op`` in + - * // %; the divisor of // and % is a positive constant."""

    op: str
    lhs: Index
    rhs: Index

    def __str__(self) -> str:
        return f"({self.lhs} {self.op} {self.rhs})"


Index = IndexConstant | ProgramCoordinate | IndexBinary


def evaluate_index(index: Index, coordinates: Mapping[tuple[int, int], int]) -> int:
    """Value of ``index`` where ``coordinates`` maps (nest, dimension) to an integer."""
    if isinstance(index, IndexConstant):
        return index.value
    if isinstance(index, ProgramCoordinate):
        return coordinates[index.nest, index.dimension]
    return INDEX_OPERATORS[index.op](
        evaluate_index(index.lhs, coordinates), evaluate_index(index.rhs, coordinates)
    )


def index_bounds(index: Index, extents: Mapping[tuple[int, int], int]) -> tuple[int, int]:
    """Inclusive interval that contains ``index`` for every program of the enclosing nests.

    ``extents`` maps (nest, dimension) to a positive extent. The interval is a sound
    over-approximation: repeated coordinates are treated as independent.
    """
    if isinstance(index, IndexConstant):
        return index.value, index.value
    if isinstance(index, ProgramCoordinate):
        return 0, max(0, extents[index.nest, index.dimension] - 1)
    low, high = index_bounds(index.lhs, extents)
    other_low, other_high = index_bounds(index.rhs, extents)
    if index.op == "+":
        return low + other_low, high + other_high
    if index.op == "-":
        return low - other_high, high - other_low
    if index.op == "*":
        corners = [a * b for a in (low, high) for b in (other_low, other_high)]
        return min(corners), max(corners)
    divisor = other_low
    if index.op == "//":
        return low // divisor, high // divisor
    if low // divisor == high // divisor:
        return low % divisor, high % divisor
    return 0, divisor - 1

"""Index expressions, view accesses and the conditions under which they are in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_tilex.ir import (
    Axis,
    BoundsPolicy,
    Index,
    IndexConstant,
    ProgramCoordinate,
    index_bounds,
)
from tvm_tilex.tirx.compat import tirx

__all__ = ["IndexSpace"]

_OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": tirx.floordiv,
    "%": tirx.floormod,
}


class IndexSpace:
    """The integer type of a function's indices and its program coordinates in scope."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.coordinates: dict[tuple[int, int], Any] = {}
        self.extents: dict[tuple[int, int], int] = {}

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def lower(self, index: Index) -> Any:
        """An index expression over the program coordinates in scope."""
        if isinstance(index, IndexConstant):
            return self.integer(index.value)
        if isinstance(index, ProgramCoordinate):
            return self.coordinates[index.nest, index.dimension]
        return _OPERATORS[index.op](self.lower(index.lhs), self.lower(index.rhs))

    def access(
        self,
        origin: tuple[Index, ...],
        dimensions: tuple[Axis | None, ...],
        coordinates: Mapping[str, Any],
    ) -> list[Any]:
        """Indices of the element at ``coordinates`` of a region."""
        indices = []
        for base, axis in zip(origin, dimensions, strict=True):
            offset = coordinates[axis.name] if axis is not None else None
            if offset is None or _is_zero(offset):
                indices.append(self.lower(base))
            elif isinstance(base, IndexConstant) and base.value == 0:
                indices.append(offset)
            else:
                indices.append(self.lower(base) + offset)
        return indices

    def in_bounds(
        self,
        origin: tuple[Index, ...],
        dimensions: tuple[Axis | None, ...],
        shape: tuple[int, ...],
        indices: list[Any],
    ) -> Any | None:
        """The condition that ``indices`` are inside ``shape``; None where it always holds."""
        condition = None
        for base, axis, extent, index in zip(origin, dimensions, shape, indices, strict=True):
            low, high = index_bounds(base, self.extents)
            high += (axis.extent if axis is not None else 1) - 1
            for needed, test in (
                (low < 0, lambda i=index: i >= self.integer(0)),
                (high >= extent, lambda i=index, e=extent: i < self.integer(e)),
            ):
                if needed:
                    condition = test() if condition is None else tirx.all(condition, test())
        return condition


def _is_zero(expression: Any) -> bool:
    return isinstance(expression, tirx.IntImm) and expression.value == 0


def guarded(bounds: BoundsPolicy) -> bool:
    """Whether accesses under this policy carry their bounds condition."""
    return bounds in (BoundsPolicy.zero, BoundsPolicy.predicate)

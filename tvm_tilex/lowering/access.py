"""Index expressions, view accesses and the conditions under which they are in bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm_tilex.ir import (
    Axis,
    BoundsPolicy,
    Dimension,
    Extent,
    Index,
    IndexConstant,
    ProgramCoordinate,
)
from tvm_tilex.ir.bounds import proved_below, proved_from_zero
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
    """The integer type of a function's indices, its program coordinates and dynamic extents."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.coordinates: dict[tuple[int, int], Any] = {}
        self.extents: dict[tuple[int, int], Extent] = {}
        self.dimensions: dict[str, Any] = {}  # variables of the dynamic extents

    def integer(self, value: int) -> Any:
        """A literal index."""
        return tirx.IntImm(self.dtype, value)

    def extent(self, extent: Extent) -> Any:
        """An extent: a literal, or the variable of a dynamic one."""
        return (
            self.dimensions[extent.name] if isinstance(extent, Dimension) else self.integer(extent)
        )

    def product(self, extents: Sequence[Extent]) -> Any:
        """The product of extents, a literal as far as they are known."""
        known = math.prod(extent for extent in extents if isinstance(extent, int))
        dynamic = [self.extent(extent) for extent in extents if isinstance(extent, Dimension)]
        if not dynamic:
            return self.integer(known)
        product = dynamic[0]
        for factor in dynamic[1:]:
            product = product * factor
        return product if known == 1 else product * self.integer(known)

    def lower(self, index: Index) -> Any:
        """An index expression over the program coordinates in scope."""
        if isinstance(index, IndexConstant):
            return self.integer(index.value)
        if isinstance(index, ProgramCoordinate):
            return self.coordinates[index.nest, index.dimension]
        if isinstance(index, Dimension):
            return self.extent(index)
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
        shape: tuple[Extent, ...],
        indices: list[Any],
    ) -> Any | None:
        """The condition that ``indices`` are inside ``shape``; None where it always holds."""
        condition = None
        for base, axis, extent, index in zip(origin, dimensions, shape, indices, strict=True):
            length = axis.extent if axis is not None else 1
            for needed, test in (
                (
                    not proved_from_zero(base, self.extents),
                    lambda i=index: i >= self.integer(0),
                ),
                (
                    not proved_below(base, length, extent, self.extents),
                    lambda i=index, e=extent: i < self.extent(e),
                ),
            ):
                if needed:
                    condition = test() if condition is None else tirx.all(condition, test())
        return condition


def _is_zero(expression: Any) -> bool:
    return isinstance(expression, tirx.IntImm) and expression.value == 0


def guarded(bounds: BoundsPolicy) -> bool:
    """Whether accesses under this policy carry their bounds condition."""
    return bounds in (BoundsPolicy.zero, BoundsPolicy.predicate)

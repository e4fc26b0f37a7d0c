"""Scalar index expressions over program coordinates and the extents of dynamic dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from tvm_tilex.errors import CaptureError, ShapeError
from tvm_tilex.support.srcloc import asked_by_user, caller_location

__all__ = [
    "INDEX_OPERATORS",
    "MAX_EXTENT",
    "Dimension",
    "Extent",
    "Index",
    "IndexBinary",
    "IndexConstant",
    "IndexValue",
    "ProgramCoordinate",
    "as_index",
    "evaluate_index",
    "most",
]

# Floor division and modulo round toward minus infinity, as Python's do.
INDEX_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
# A launch counts its threadgroups in 31 bits, so no dimension is longer.
MAX_EXTENT = 2**31 - 1


class IndexArithmetic:
    """``+ - * // %`` with integers while a kernel is captured; it has no value to branch on."""

    _what: ClassVar[str] = "a program index"

    def _node(self) -> Index:
        raise NotImplementedError

    def _binary(self, op: str, other: Any, *, swap: bool = False) -> Any:
        if getattr(type(other), "takes_extents", False):
            return NotImplemented  # a tile: the extent becomes an operand of the tile's operation
        wrapped = as_index(other, f"index {op}")
        lhs, rhs = (wrapped, self._node()) if swap else (self._node(), wrapped)
        divisor = rhs.value if isinstance(rhs, IndexConstant) else 0
        if op in ("//", "%") and divisor <= 0:
            raise CaptureError(
                f"index {op}: the divisor must be a positive constant", location=caller_location()
            )
        if isinstance(lhs, IndexConstant) and isinstance(rhs, IndexConstant):
            return IndexValue(IndexConstant(INDEX_OPERATORS[op](lhs.value, rhs.value)))
        return IndexValue(IndexBinary(op, lhs, rhs))

    def __add__(self, other: Any) -> Any:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("+", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("-", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("*", other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary("//", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("%", other, swap=True)

    def __neg__(self) -> Any:
        return self._binary("-", 0, swap=True)

    def _refuse(self, *_: Any) -> NoReturn:
        raise CaptureError(
            f"{self._what} has no value while the kernel is captured: no if, while, comparison "
            "or range over it; use tx.coordinate(...) and tx.where",
            location=caller_location(),
        )

    def _fraction(self, other: Any) -> Any:
        if getattr(type(other), "takes_extents", False):
            return NotImplemented
        raise CaptureError(
            "a dynamic extent has no value while the kernel is captured: divide a tile by it, "
            "instead of a Python number",
            location=caller_location(),
        )

    __truediv__ = _fraction
    __rtruediv__ = _fraction
    __bool__ = _refuse
    __int__ = _refuse
    __float__ = _refuse
    __index__ = _refuse
    __lt__ = _refuse
    __le__ = _refuse
    __gt__ = _refuse
    __ge__ = _refuse


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


@dataclass(frozen=True, eq=False)
class Dimension(IndexArithmetic):
    """The extent of a dimension that is known when a kernel is launched, ``minimum..maximum``.

    Within this package it equals no integer; a kernel's body must not ask, since a branch on the
    answer would be wrong for some launch.

    Raises
    ------
    ShapeError
        If the name is no identifier or the range is empty or beyond 0 to 2**31 - 1.
    """

    _what: ClassVar[str] = "a dynamic extent"

    name: str
    minimum: int = 0
    maximum: int = MAX_EXTENT

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ShapeError(f"dimension name {self.name!r} is not an identifier")
        if not 0 <= self.minimum <= self.maximum <= MAX_EXTENT:
            raise ShapeError(
                f"dimension {self.name!r}: {self.minimum} to {self.maximum} is no range within "
                f"0 to {MAX_EXTENT}"
            )

    @property
    def bounded(self) -> bool:
        """Whether a bound was stated, which storage of this extent needs."""
        return self.maximum < MAX_EXTENT

    @property
    def range(self) -> str:
        """``minimum..maximum``."""
        return f"{self.minimum}..{self.maximum}"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash((self.name, self.minimum, self.maximum))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dimension):
            mine = (self.name, self.minimum, self.maximum)
            return mine == (other.name, other.minimum, other.maximum)
        if isinstance(other, (int, float)) and asked_by_user():
            self._refuse()
        return NotImplemented

    def _node(self) -> Index:
        return self


@dataclass(frozen=True)
class IndexBinary:
    """``lhs op rhs`` with ``op`` in + - * // %; the divisor of // and % is a positive constant."""

    op: str
    lhs: Index
    rhs: Index

    def __str__(self) -> str:
        return f"({self.lhs} {self.op} {self.rhs})"


Index = IndexConstant | ProgramCoordinate | Dimension | IndexBinary
Extent = int | Dimension


@dataclass(frozen=True, eq=False)
class IndexValue(IndexArithmetic):
    """An index expression as the user's code handles it."""

    index: Index

    def _node(self) -> Index:
        return self.index

    __eq__ = IndexArithmetic._refuse
    __ne__ = IndexArithmetic._refuse
    __hash__ = None  # type: ignore[assignment]


def as_index(value: Any, what: str) -> Index:
    """Return ``value`` as an index expression.

    Raises
    ------
    CaptureError
        If it is neither an integer nor an index.
    """
    if isinstance(value, IndexArithmetic):
        return value._node()
    try:
        return IndexConstant(operator.index(value))
    except TypeError:
        raise CaptureError(
            f"{what} takes integers and nest.index(), not {type(value).__name__}",
            location=caller_location(),
        ) from None


def most(extent: Extent) -> int:
    """The largest value of an extent."""
    return extent.maximum if isinstance(extent, Dimension) else extent


def evaluate_index(
    index: Index,
    coordinates: Mapping[tuple[int, int], int],
    dimensions: Mapping[str, int] | None = None,
) -> int:
    """Value of ``index`` for coordinates by (nest, dimension) and extents by name."""
    if isinstance(index, IndexConstant):
        return index.value
    if isinstance(index, ProgramCoordinate):
        return coordinates[index.nest, index.dimension]
    if isinstance(index, Dimension):
        return (dimensions or {})[index.name]
    return INDEX_OPERATORS[index.op](
        evaluate_index(index.lhs, coordinates, dimensions),
        evaluate_index(index.rhs, coordinates, dimensions),
    )

"""Numbers of elements: products of integers and of extents that are known at launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm_tilex.tirx.compat import Var, tirx

__all__ = ["Count", "known_extent"]


def known_extent(extent: Any) -> Any:
    """An extent as an int, or as the variable that it is; None for any other expression."""
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    return extent if isinstance(extent, Var) else None


@dataclass(frozen=True)
class Count:
    """``factor`` times the product of ``symbols``, which are sorted by name."""

    factor: int = 1
    symbols: tuple[Any, ...] = ()

    @classmethod
    def of(cls, extents: Iterable[Any]) -> Count:
        """The product of ints and variables."""
        factor, symbols = 1, []
        for extent in extents:
            if isinstance(extent, int):
                factor *= extent
            else:
                symbols.append(extent)
        return cls(factor, tuple(sorted(symbols, key=lambda var: str(var.name))))

    def over(self, other: Count) -> int | None:
        """The constant quotient, or None where there is none."""
        if len(self.symbols) != len(other.symbols) or not other.factor:
            return None
        if not all(a.same_as(b) for a, b in zip(self.symbols, other.symbols, strict=True)):
            return None
        return None if self.factor % other.factor else self.factor // other.factor

    def same(self, other: Count) -> bool:
        """Whether both are the same product."""
        return self.over(other) == 1

    def expression(self, dtype: str) -> Any:
        """The count as an index expression."""
        result: Any = tirx.IntImm(dtype, self.factor)
        for position, symbol in enumerate(self.symbols):
            result = symbol if position == 0 and self.factor == 1 else result * symbol
        return result

    def __str__(self) -> str:
        factor = [str(self.factor)] if self.factor != 1 or not self.symbols else []
        return " * ".join([*factor, *(str(var.name) for var in self.symbols)])

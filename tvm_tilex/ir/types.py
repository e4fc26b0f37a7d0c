"""Element types, named axes and the type of a tile."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_tilex.errors import DTypeError, ShapeError
from tvm_tilex.ir.index import Dimension, Extent, most

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "Axis", "BoundsPolicy", "DType", "TileType", "dtype_of", "numpy_dtype"]


@dataclass(frozen=True)
class DType:
    """An element type: its name as TVM and NumPy spell it, its kind and its width in bits."""

    name: str
    kind: str  # "float", "int", "uint" or "bool"
    bits: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tx.{self.name}"

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on this type rounds."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether this type is a signed or unsigned integer (bool is neither)."""
        return self.kind in ("int", "uint")

    @property
    def bytes(self) -> int:
        """Storage size of one element in bytes."""
        return max(1, self.bits // 8)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float32", "float", 32),
        DType("float16", "float", 16),
        DType("bfloat16", "float", 16),
        DType("int32", "int", 32),
        DType("int64", "int", 64),
        DType("uint8", "uint", 8),
        DType("bool", "bool", 8),
    )
}


def dtype_of(name: str | DType) -> DType:
    """Return the element type of that name.

    Raises
    ------
    DTypeError
        If the language has no such element type.
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise DTypeError(f"unknown dtype {name!r}; the element types are {', '.join(DTYPES)}")
    return found


def numpy_dtype(dtype: DType, precision: str = "float32") -> np.dtype[Any]:
    """Return NumPy's type of an element: float64 for floats in float64 precision.

    bfloat16 is ``ml_dtypes.bfloat16``.
    """
    import numpy as np  # where it is needed: kernels are listed without it

    if dtype.is_float and precision == "float64":
        return np.dtype(np.float64)
    if dtype.name != "bfloat16":
        return np.dtype(dtype.name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


@dataclass(frozen=True)
class Axis:
    """A named extent. Tiles broadcast by the axis' name, never by its position."""

    name: str
    extent: Extent

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ShapeError(f"axis name {self.name!r} is not an identifier")
        if not isinstance(self.extent, Dimension) and self.extent < 0:
            raise ShapeError(f"axis {self.name!r} has the negative extent {self.extent}")

    def __str__(self) -> str:
        return f"{self.name}: {self.extent}"


@dataclass(frozen=True)
class TileType:
    """An element type over an ordered tuple of distinct axes (row-major, last axis fastest)."""

    dtype: DType
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if len(set(names)) != len(names):
            raise ShapeError(f"a tile names an axis twice: {', '.join(names)}")

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]"

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Extents in axis order."""
        return tuple(axis.extent for axis in self.axes)

    @property
    def elements(self) -> int:
        """Number of elements of the tile; the most where an extent is dynamic."""
        return math.prod(map(most, self.shape))

    def axis(self, name: str) -> Axis | None:
        """Return the axis of that name, or None."""
        return next((axis for axis in self.axes if axis.name == name), None)


class BoundsPolicy(enum.Enum):
    """What an access that passes a view's extent means.

    ``checked``
        The access is proved in bounds at capture; otherwise it is refused. The default.
    ``zero``
        A load outside the view reads zero; a store outside writes nothing.
    ``predicate``
        An element outside the view is inactive: it contributes a reduction's identity, a store
        of anything computed from it writes nothing, and a gather that selects it gives the fill.
    ``assume``
        The author promises that no access leaves the view; nothing is checked.
    """

    checked = "checked"
    zero = "zero"
    predicate = "predicate"
    assume = "assume"

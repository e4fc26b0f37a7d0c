"""Types of the supported subset of the Metal Shading Language and their conversion rules.

Rules follow the Metal Shading Language specification, sections 2.1 to 2.6: integer promotion as in
C++14, no ``double``, floating point wins over integers, ``float`` over ``half``.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = [
    "BOOL",
    "FLOAT",
    "INT",
    "SCALAR_TYPES",
    "UINT",
    "VOID",
    "ArrayType",
    "MatrixType",
    "PointerType",
    "ScalarType",
    "StructType",
    "Type",
    "VectorType",
    "VoidType",
    "arithmetic_type",
    "element_type",
    "named_type",
    "promoted",
]


@dataclass(frozen=True)
class ScalarType:
    """A scalar: name, NumPy dtype, kind (``b`` bool, ``i`` signed, ``u`` unsigned, ``f`` float)."""

    name: str
    dtype: np.dtype
    kind: str
    rank: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self.dtype.itemsize)

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 8 * self.size

    @property
    def alignment(self) -> int:
        """Alignment in bytes."""
        return self.size

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class VectorType:
    """A vector of 2, 3 or 4 scalars; a 3-vector occupies four unless packed."""

    element: ScalarType
    lanes: int
    packed: bool = False

    @property
    def size(self) -> int:
        """Size in bytes, padding of a 3-vector included."""
        return self.element.size * (4 if self.lanes == 3 and not self.packed else self.lanes)

    @property
    def alignment(self) -> int:
        """Alignment in bytes: the element's when packed, otherwise the size."""
        return self.element.size if self.packed else self.size

    def __str__(self) -> str:
        return f"{'packed_' if self.packed else ''}{self.element.name}{self.lanes}"


@dataclass(frozen=True)
class VoidType:
    """The type without values."""

    size: int = 1
    alignment: int = 1

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True)
class MatrixType:
    """A SIMD-group matrix of 8x8 elements, held by the lanes of one SIMD group together."""

    element: ScalarType

    @property
    def size(self) -> int:
        """Bytes per thread: two elements on a SIMD group of 32."""
        return 2 * self.element.size

    def __str__(self) -> str:
        return f"simdgroup_{self.element.name}8x8"


@dataclass(frozen=True)
class ArrayType:
    """A constant-size array of scalars, vectors or matrices."""

    element: ScalarType | VectorType | MatrixType
    length: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.element.size * self.length

    def __str__(self) -> str:
        return f"{self.element}[{self.length}]"


@dataclass(frozen=True)
class StructType:
    """An argument struct or union: fields as (name, type, byte offset)."""

    name: str
    fields: tuple[tuple[str, ScalarType | VectorType | ArrayType | StructType, int], ...]
    size: int
    alignment: int
    is_union: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PointerType:
    """A pointer or reference: pointee, address space, and whether the pointee is const."""

    pointee: ScalarType | VectorType | VoidType | StructType | MatrixType
    space: str
    const: bool = False

    def __str__(self) -> str:
        return f"{self.space} {'const ' if self.const else ''}{self.pointee}*"


Type = ScalarType | VectorType | VoidType | MatrixType | ArrayType | StructType | PointerType

BOOL = ScalarType("bool", np.dtype(np.bool_), "b", 0)
CHAR = ScalarType("char", np.dtype(np.int8), "i", 1)
UCHAR = ScalarType("uchar", np.dtype(np.uint8), "u", 1)
SHORT = ScalarType("short", np.dtype(np.int16), "i", 2)
USHORT = ScalarType("ushort", np.dtype(np.uint16), "u", 2)
INT = ScalarType("int", np.dtype(np.int32), "i", 3)
UINT = ScalarType("uint", np.dtype(np.uint32), "u", 3)
LONG = ScalarType("long", np.dtype(np.int64), "i", 4)
ULONG = ScalarType("ulong", np.dtype(np.uint64), "u", 4)
HALF = ScalarType("half", np.dtype(np.float16), "f", 10)
BFLOAT = ScalarType("bfloat", np.dtype(ml_dtypes.bfloat16), "f", 10)
FLOAT = ScalarType("float", np.dtype(np.float32), "f", 11)
VOID = VoidType()

_BASES = (BOOL, CHAR, UCHAR, SHORT, USHORT, INT, UINT, LONG, ULONG, HALF, BFLOAT, FLOAT)
_ALIASES = {
    "int8_t": CHAR,
    "uint8_t": UCHAR,
    "int16_t": SHORT,
    "uint16_t": USHORT,
    "int32_t": INT,
    "uint32_t": UINT,
    "int64_t": LONG,
    "uint64_t": ULONG,
    "size_t": ULONG,
    "ptrdiff_t": LONG,
}


def _named() -> dict[str, Type]:
    table: dict[str, Type] = {"void": VOID, **_ALIASES}
    for base in _BASES:
        table[base.name] = base
        for lanes in (2, 3, 4):
            table[f"{base.name}{lanes}"] = VectorType(base, lanes)
            table[f"packed_{base.name}{lanes}"] = VectorType(base, lanes, packed=True)
    for base in (HALF, BFLOAT, FLOAT):
        table[f"simdgroup_{base.name}8x8"] = MatrixType(base)
    return table


SCALAR_TYPES: dict[str, Type] = _named()


def named_type(name: str) -> Type | None:
    """Return the built-in type of that name, or None."""
    return SCALAR_TYPES.get(name)


def element_type(kind: Type) -> ScalarType:
    """Return a vector's element type, and any other type itself."""
    return kind.element if isinstance(kind, VectorType) else kind  # type: ignore[return-value]


def promoted(kind: ScalarType) -> ScalarType:
    """Return the type after integer promotion (C++14 conv.prom): narrow integers become int."""
    if kind.kind in "biu" and kind.rank < INT.rank:
        return INT
    return kind


def arithmetic_type(left: ScalarType, right: ScalarType) -> ScalarType | None:
    """Return the common type of a binary arithmetic operation, None where there is none.

    ``half`` with ``bfloat`` has no common type; a float wins over any integer.
    """
    if left.kind == "f" or right.kind == "f":
        if left.kind != "f":
            return right
        if right.kind != "f":
            return left
        if left == right:
            return left
        return FLOAT if FLOAT in (left, right) else None
    left, right = promoted(left), promoted(right)
    if left == right:
        return left
    if left.rank == right.rank:
        return left if left.kind == "u" else right
    return left if left.rank > right.rank else right

"""The symbolic tile: operators build TileIR, nothing is computed."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from tvm_tilex.errors import CaptureError, DTypeError, ShapeError
from tvm_tilex.ir.index import Dimension, Index, IndexValue, as_index
from tvm_tilex.ir.ops import ElementOp, OpClass, result_dtype
from tvm_tilex.ir.program import Constant, Coordinate, Elementwise, Operand, Value
from tvm_tilex.ir.types import DTYPES, Axis, DType, TileType
from tvm_tilex.lang.capture import OpenNest, current_capture, nests_of
from tvm_tilex.support.srcloc import caller_location

__all__ = ["Tile", "broadcast_axes", "elementwise"]


class Tile:
    """A value over named axes inside a kernel. Broadcasting goes by axis name."""

    __slots__ = ("_nest", "value")
    takes_extents = True  # a dynamic extent defers to our operators
    __array_ufunc__ = None  # NumPy scalars defer to our operators
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, nest: OpenNest) -> None:
        self.value = value
        self._nest = nest

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.value.type.dtype

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes in row-major order."""
        return self.value.type.axes

    def __repr__(self) -> str:
        return f"Tile({self.value}: {self.value.type})"

    def require_in_scope(self, what: str) -> Value:
        """Return the SSA value, refusing a tile whose nest is closed."""
        if self._nest not in current_capture(what).open_nests:
            raise CaptureError(
                f"{what}: {self.value} was computed in a parallel nest that has ended",
                location=caller_location(),
            )
        return self.value

    def __bool__(self) -> NoReturn:
        raise CaptureError(
            "a tile has no truth value while the kernel is captured: use tx.where instead of "
            "`if`/`while`, and & | ~ instead of and/or/not",
            location=caller_location(),
        )

    def _refuse_scalar(self, *_: Any) -> NoReturn:
        raise CaptureError(
            "a tile has no Python value while the kernel is captured", location=caller_location()
        )

    __int__ = _refuse_scalar
    __float__ = _refuse_scalar
    __index__ = _refuse_scalar
    __iter__ = _refuse_scalar
    __len__ = _refuse_scalar

    def __getitem__(self, key: Any) -> NoReturn:
        raise CaptureError(
            "a tile is not indexed: load the region you want, or use tx.gather",
            location=caller_location(),
        )

    def __add__(self, other: Any) -> Tile:
        return elementwise(ElementOp.add, self, other)

    def __radd__(self, other: Any) -> Tile:
        return elementwise(ElementOp.add, other, self)

    def __sub__(self, other: Any) -> Tile:
        return elementwise(ElementOp.subtract, self, other)

    def __rsub__(self, other: Any) -> Tile:
        return elementwise(ElementOp.subtract, other, self)

    def __mul__(self, other: Any) -> Tile:
        return elementwise(ElementOp.multiply, self, other)

    def __rmul__(self, other: Any) -> Tile:
        return elementwise(ElementOp.multiply, other, self)

    def __truediv__(self, other: Any) -> Tile:
        return elementwise(ElementOp.divide, self, other)

    def __rtruediv__(self, other: Any) -> Tile:
        return elementwise(ElementOp.divide, other, self)

    def __floordiv__(self, other: Any) -> Tile:
        return elementwise(ElementOp.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Tile:
        return elementwise(ElementOp.floor_divide, other, self)

    def __mod__(self, other: Any) -> Tile:
        return elementwise(ElementOp.floor_modulo, self, other)

    def __rmod__(self, other: Any) -> Tile:
        return elementwise(ElementOp.floor_modulo, other, self)

    def __pow__(self, other: Any) -> Tile:
        return elementwise(ElementOp.power, self, other)

    def __rpow__(self, other: Any) -> Tile:
        return elementwise(ElementOp.power, other, self)

    def __and__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_and, self, other)

    def __rand__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_and, other, self)

    def __or__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_or, self, other)

    def __ror__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_or, other, self)

    def __xor__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> Tile:
        return elementwise(ElementOp.bitwise_xor, other, self)

    def __invert__(self) -> Tile:
        return elementwise(ElementOp.invert, self)

    def __neg__(self) -> Tile:
        return elementwise(ElementOp.negative, self)

    def __pos__(self) -> Tile:
        return self

    def __abs__(self) -> Tile:
        return elementwise(ElementOp.absolute, self)

    def __eq__(self, other: Any) -> Tile:  # type: ignore[override]
        return elementwise(ElementOp.equal, self, other)

    def __ne__(self, other: Any) -> Tile:  # type: ignore[override]
        return elementwise(ElementOp.not_equal, self, other)

    def __lt__(self, other: Any) -> Tile:
        return elementwise(ElementOp.less, self, other)

    def __le__(self, other: Any) -> Tile:
        return elementwise(ElementOp.less_equal, self, other)

    def __gt__(self, other: Any) -> Tile:
        return elementwise(ElementOp.greater, self, other)

    def __ge__(self, other: Any) -> Tile:
        return elementwise(ElementOp.greater_equal, self, other)


def elementwise(op: ElementOp, *operands: Any, dtype: DType | None = None) -> Tile:
    """Emit ``op`` over tiles and Python numbers; ``dtype`` is the result's of a cast.

    Raises
    ------
    DTypeError, ShapeError, CaptureError
        If the operands' types or axes do not fit, or none of them is a tile.
    """
    capture = current_capture(op.value)
    where = caller_location()
    tiles = [operand for operand in operands if isinstance(operand, Tile)]
    if not tiles:
        raise CaptureError(f"{op.value}: no operand is a tile", location=where)
    literal_dtype = _literal_dtype(op, operands)
    wrapped = tuple(as_operand(operand, literal_dtype, op.value) for operand in operands)
    try:
        result = dtype or result_dtype(op, tuple(_dtype(operand) for operand in wrapped))
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None
    type_ = TileType(result, broadcast_axes(tiles, op.value))
    value = capture.new_value(type_)
    capture.emit(Elementwise(value, op, wrapped, location=where))
    return Tile(value, capture.innermost())


def _dtype(operand: Operand) -> DType:
    return operand.type.dtype if isinstance(operand, Value) else operand.dtype


def _literal_dtype(op: ElementOp, operands: tuple[Any, ...]) -> DType:
    """Return the type that Python numbers take: the first tile's that they are computed with."""
    considered = operands[1:] if op.op_class is OpClass.SELECT else operands
    tiles = [operand for operand in considered if isinstance(operand, Tile)]
    if tiles:
        return tiles[0].dtype
    # where(condition, 1.0, 0.0): literals alone decide.
    if all(isinstance(operand, bool) for operand in considered):
        return DTYPES["bool"]
    return DTYPES["float32" if any(isinstance(o, float) for o in considered) else "int32"]


def as_operand(operand: Any, dtype: DType, what: str) -> Operand:
    """Return ``operand`` as an SSA value, or as a literal of ``dtype``."""
    if isinstance(operand, Tile):
        return operand.require_in_scope(what)
    if isinstance(operand, (Dimension, IndexValue)):
        return _extent(as_index(operand, what), dtype, what)
    return literal(operand, dtype, what)


def _extent(index: Index, dtype: DType, what: str) -> Value:
    """An expression of dynamic extents as a tile of one element and of ``dtype``."""
    where = caller_location()
    if nests_of(index):
        raise CaptureError(
            f"{what}: a program index is neither a tile nor a number; use tx.coordinate(...)",
            location=where,
        )
    if dtype.kind not in ("float", "int"):
        raise DTypeError(f"{what}: a dynamic extent is not a {dtype} number", location=where)
    capture = current_capture(what)
    position = capture.new_value(TileType(DTYPES["int64"], ()))
    capture.emit(Coordinate(position, None, index, location=where))
    if dtype == DTYPES["int64"]:
        return position
    result = capture.new_value(TileType(dtype, ()))
    capture.emit(Elementwise(result, ElementOp.cast, (position,), location=where))
    return result


def literal(value: Any, dtype: DType, what: str) -> Constant:
    """Return a Python or NumPy number as a constant of ``dtype``.

    Raises
    ------
    CaptureError, DTypeError
        If it is no number, or has no exact place in an integer or bool type.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise CaptureError(
            f"{what}: {type(value).__name__} is neither a tile nor a number",
            location=caller_location(),
        )
    if dtype.kind == "bool" and isinstance(value, bool):
        return Constant(value, dtype)
    if dtype.is_float and not isinstance(value, bool) and _fits(value, dtype):
        return Constant(float(value), dtype)
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
        if low <= value < low + (1 << dtype.bits):
            return Constant(value, dtype)
    raise DTypeError(f"{what}: {value!r} is not a {dtype} literal", location=caller_location())


# Smallest magnitude that rounds to infinity: half a spacing above the largest finite number.
_OVERFLOW = {
    "float32": 2.0**128 - 2.0**103,
    "float16": 65520.0,
    "bfloat16": 2.0**128 - 2.0**119,
}


def _fits(value: float, dtype: DType) -> bool:
    """Whether a number is infinite, NaN, or finite once rounded to ``dtype``."""
    return value in (math.inf, -math.inf) or not abs(value) >= _OVERFLOW[dtype.name]


def broadcast_axes(tiles: list[Tile], what: str) -> tuple[Axis, ...]:
    """Axes of the first tile, then the unseen axes of the others, in order."""
    found: dict[str, Axis] = {}
    for tile in tiles:
        for axis in tile.axes:
            known = found.setdefault(axis.name, axis)
            if known.extent != axis.extent:
                raise ShapeError(
                    f"{what}: axis {axis.name!r} has extents {known.extent} and {axis.extent}",
                    location=caller_location(),
                )
    return tuple(found.values())

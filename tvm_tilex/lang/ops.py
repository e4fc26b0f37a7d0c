"""Tile operations by name: elementwise functions, reductions, gather."""

from __future__ import annotations

import builtins
from typing import Any

from tvm_tilex.errors import CaptureError, DTypeError, ShapeError
from tvm_tilex.ir.index import Dimension, IndexValue, as_index
from tvm_tilex.ir.infer import reduce_type
from tvm_tilex.ir.ops import Combiner, ElementOp, NanPolicy, ReductionPolicy
from tvm_tilex.ir.program import Coordinate, Gather, Reduce, Repartition
from tvm_tilex.ir.types import DTYPES, Axis, DType, TileType, dtype_of
from tvm_tilex.lang.capture import current_capture
from tvm_tilex.lang.tile import Tile, elementwise, literal
from tvm_tilex.support.srcloc import caller_location

__all__ = [
    "abs",
    "add",
    "cast",
    "ceil",
    "coordinate",
    "erf",
    "exp",
    "exp2",
    "floor",
    "fma",
    "gather",
    "log",
    "log2",
    "maximum",
    "minimum",
    "pow",
    "reduce",
    "repartition",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "tanh",
    "where",
]


def exp(tile: Tile) -> Tile:
    """Exponential, elementwise on floats."""
    return elementwise(ElementOp.exp, tile)


def exp2(tile: Tile) -> Tile:
    """Two to the power of each element."""
    return elementwise(ElementOp.exp2, tile)


def log(tile: Tile) -> Tile:
    """Natural logarithm."""
    return elementwise(ElementOp.log, tile)


def log2(tile: Tile) -> Tile:
    """Binary logarithm."""
    return elementwise(ElementOp.log2, tile)


def sqrt(tile: Tile) -> Tile:
    """Square root."""
    return elementwise(ElementOp.sqrt, tile)


def rsqrt(tile: Tile) -> Tile:
    """Reciprocal square root."""
    return elementwise(ElementOp.rsqrt, tile)


def tanh(tile: Tile) -> Tile:
    """Hyperbolic tangent."""
    return elementwise(ElementOp.tanh, tile)


def sigmoid(tile: Tile) -> Tile:
    """Logistic function 1 / (1 + exp(-x))."""
    return elementwise(ElementOp.sigmoid, tile)


def erf(tile: Tile) -> Tile:
    """Error function."""
    return elementwise(ElementOp.erf, tile)


def abs(tile: Tile) -> Tile:
    """Absolute value of floats or integers."""
    return elementwise(ElementOp.absolute, tile)


def floor(tile: Tile) -> Tile:
    """Largest integer not above each element, as a float."""
    return elementwise(ElementOp.floor, tile)


def ceil(tile: Tile) -> Tile:
    """Smallest integer not below each element, as a float."""
    return elementwise(ElementOp.ceil, tile)


def pow(base: Any, exponent: Any) -> Tile:
    """``base ** exponent`` on floats."""
    return elementwise(ElementOp.power, base, exponent)


def fma(a: Any, b: Any, c: Any) -> Tile:
    """``a * b + c`` rounded once."""
    return elementwise(ElementOp.fma, a, b, c)


def where(condition: Tile, a: Any, b: Any) -> Tile:
    """``a`` where the bool tile holds, ``b`` elsewhere. Both are computed."""
    return elementwise(ElementOp.where, condition, a, b)


def cast(tile: Tile, dtype: str | DType) -> Tile:
    """Convert to another element type, rounding to nearest; the same type gives the tile itself.

    A float outside the range of an integer type converts to an unspecified value.
    """
    try:
        target = dtype_of(dtype)
    except DTypeError as error:
        raise DTypeError(str(error), location=caller_location()) from None
    if isinstance(tile, Tile) and tile.dtype == target:
        return tile
    return elementwise(ElementOp.cast, tile, dtype=target)


def add(a: Any, b: Any) -> Tile:
    """``a + b``; also names the combiner of ``reduce(tile, axis, add)``."""
    return elementwise(ElementOp.add, a, b)


def maximum(a: Any, b: Any) -> Tile:
    """Larger element, NaN if either is; also a combiner of :func:`reduce`."""
    return elementwise(ElementOp.maximum, a, b)


def minimum(a: Any, b: Any) -> Tile:
    """Smaller element, NaN if either is; also a combiner of :func:`reduce`."""
    return elementwise(ElementOp.minimum, a, b)


_COMBINERS = {add: Combiner.add, maximum: Combiner.maximum, minimum: Combiner.minimum}


def _combiner(op: Any) -> Combiner:
    if isinstance(op, Combiner):
        return op
    if isinstance(op, str) and op in Combiner.__members__:
        return Combiner[op]
    found = _COMBINERS.get(op) if callable(op) else None
    if found is None:
        raise CaptureError(
            f"reduce: {op!r} is no combiner; use tx.add, tx.maximum or tx.minimum",
            location=caller_location(),
        )
    return found


def _member(kind: type, value: Any, what: str) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in kind.__members__:  # type: ignore[attr-defined]
        return kind[value]  # type: ignore[index]
    choices = ", ".join(kind.__members__)  # type: ignore[attr-defined]
    raise CaptureError(f"{what}={value!r}: use one of {choices}", location=caller_location())


def _require_axis(tile: Tile, axis: Axis, what: str) -> Axis:
    if not isinstance(axis, Axis):
        raise ShapeError(f"{what}: {axis!r} is not an axis", location=caller_location())
    found = tile.value.type.axis(axis.name)
    if found != axis:
        have = ", ".join(map(str, tile.axes)) or "none"
        raise ShapeError(
            f"{what}: the tile has no axis {axis.name!r} of extent {axis.extent} (it has {have})",
            location=caller_location(),
        )
    return axis


def reduce(
    tile: Tile,
    axis: Axis,
    op: Any,
    *,
    policy: str | ReductionPolicy = ReductionPolicy.unordered_tree,
    nan: str | NanPolicy = NanPolicy.target,
) -> Tile:
    """Combine ``tile`` over ``axis``; the result has the remaining axes.

    Parameters
    ----------
    tile
        Float or integer tile. float16 and bfloat16 keep FP32 state and round the result once.
    axis
        One of the tile's axes, of extent at least 1.
    op
        ``tx.add``, ``tx.maximum`` or ``tx.minimum``.
    policy
        Which orders are permitted (:class:`tx.ReductionPolicy`); any order by default.
    nan
        ``"propagate"``, ``"unspecified"``, or by default what the target does
        (:class:`tvm_tilex.ir.NanPolicy`).

    Raises
    ------
    ShapeError, DTypeError, CaptureError
        If the tile lacks the axis, its type cannot be reduced, or an option is unknown.
    """
    capture = current_capture("reduce")
    where = caller_location()
    if not isinstance(tile, Tile):
        raise CaptureError(f"reduce: {type(tile).__name__} is not a tile", location=where)
    value = tile.require_in_scope("reduce")
    _require_axis(tile, axis, "reduce")
    capture.require_not_in_domain(axis, "reduce")
    combiner = _combiner(op)
    if tile.dtype.kind == "bool" or (tile.dtype.kind == "uint" and combiner is Combiner.add):
        raise DTypeError(
            f"reduce: a {tile.dtype} tile has no {combiner.value}; cast it to int32 first",
            location=where,
        )
    permitted = _member(ReductionPolicy, policy, "policy")
    try:
        type_ = reduce_type(value.type, axis, combiner, permitted)
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None
    result = capture.new_value(type_)
    capture.emit(
        Reduce(
            result,
            value,
            axis,
            combiner,
            permitted,
            _member(NanPolicy, nan, "nan"),
            location=where,
        )
    )
    return Tile(result, capture.innermost())


def gather(source: Tile, index: Tile, axis: Axis, fill: bool | int | float = 0) -> Tile:
    """Select ``source`` at ``axis = index``; an index outside [0, extent) selects ``fill``.

    No access is made for an index outside. ``index`` is an int32 or int64 tile.

    Raises
    ------
    ShapeError, DTypeError, CaptureError
        If the source lacks the axis, the index has it or isn't an integer tile.
    """
    capture = current_capture("gather")
    where = caller_location()
    if not isinstance(source, Tile) or not isinstance(index, Tile):
        raise CaptureError("gather: source and index are tiles", location=where)
    source_value = source.require_in_scope("gather")
    index_value = index.require_in_scope("gather")
    _require_axis(source, axis, "gather")
    if index.dtype not in (DTYPES["int32"], DTYPES["int64"]):
        raise DTypeError(f"gather: the index is {index.dtype}, not int32 or int64", location=where)
    if index.value.type.axis(axis.name) is not None:
        raise ShapeError(
            f"gather: the index must not have the gathered axis {axis.name!r}", location=where
        )
    kept = [a for a in source.axes if a.name != axis.name]
    kept += [a for a in index.axes if a not in kept]
    result = capture.new_value(TileType(source.dtype, tuple(kept)))
    value = literal(fill, source.dtype, "gather fill").value
    capture.emit(Gather(result, source_value, index_value, axis, value, location=where))
    return Tile(result, capture.innermost())


def repartition(tile: Tile) -> Tile:
    """Return the same tile in a placement of its own.

    Write it where the consumers of ``tile`` need another distribution than its producer has. The
    value is unchanged, element by element; it is stored here and read from there, never fused.

    Raises
    ------
    CaptureError
        If ``tile`` is not a tile of an open nest.
    """
    capture = current_capture("repartition")
    where = caller_location()
    if not isinstance(tile, Tile):
        raise CaptureError(f"repartition: {type(tile).__name__} is not a tile", location=where)
    source = tile.require_in_scope("repartition")
    result = capture.new_value(source.type)
    capture.emit(Repartition(result, source, location=where))
    return Tile(result, capture.innermost())


def coordinate(along: Axis | IndexValue | Dimension | int, dtype: str | DType = "int32") -> Tile:
    """Return positions 0, 1, ... along an axis, or an index or extent, as an integer tile."""
    capture = current_capture("coordinate")
    where = caller_location()
    try:
        target = dtype_of(dtype)
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None
    if target not in (DTYPES["int32"], DTYPES["int64"]):
        raise DTypeError(f"coordinate: {target} is not int32 or int64", location=where)
    if isinstance(along, Axis):
        axis, offset = capture.know(along), as_index(0, "coordinate")
    else:
        axis, offset = None, as_index(along, "coordinate")
        capture.check_in_scope(offset, "coordinate")
    result = capture.new_value(TileType(target, () if axis is None else (axis,)))
    capture.emit(Coordinate(result, axis, offset, location=where))
    return Tile(result, capture.innermost())


assert builtins.abs is not abs  # the tile function shadows the builtin on purpose

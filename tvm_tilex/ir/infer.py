"""The type rules of TileIR: what each definition's result type must be.

Each function raises a :class:`tvm_tilex.errors.CaptureError` (``ShapeError`` or ``DTypeError``)
without a location; the caller knows where the operation stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm_tilex.errors import DTypeError, ShapeError
from tvm_tilex.ir.ops import Combiner, ElementOp, ReductionPolicy, result_dtype
from tvm_tilex.ir.program import Constant, Operand
from tvm_tilex.ir.types import Axis, DType, TileType

__all__ = [
    "access_axes",
    "broadcast_axes",
    "dot_type",
    "elementwise_type",
    "gather_type",
    "operand_axes",
    "operand_dtype",
    "reduce_type",
]


def operand_axes(operand: Operand) -> tuple[Axis, ...]:
    """Axes of a value; a constant has none."""
    return () if isinstance(operand, Constant) else operand.type.axes


def operand_dtype(operand: Operand) -> DType:
    """Element type of a value or a constant."""
    return operand.dtype if isinstance(operand, Constant) else operand.type.dtype


def broadcast_axes(operands: Iterable[Operand]) -> tuple[Axis, ...]:
    """Axes of the first operand in order, then those of later operands not seen before.

    Raises
    ------
    ShapeError
        If two axes of one name differ in extent.
    """
    found: dict[str, Axis] = {}
    for operand in operands:
        for axis in operand_axes(operand):
            seen = found.setdefault(axis.name, axis)
            if seen != axis:
                raise ShapeError(
                    f"axis {axis.name!r} has the extents {seen.extent} and {axis.extent}"
                )
    return tuple(found.values())


def access_axes(dimensions: tuple[Axis | None, ...]) -> tuple[Axis, ...]:
    """Tile axes of an access, in the order of the view's dimensions they run along.

    Raises
    ------
    ShapeError
        If one axis runs along two dimensions.
    """
    axes = tuple(axis for axis in dimensions if axis is not None)
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ShapeError(f"axis {twice!r} runs along two dimensions of the view")
    return axes


def elementwise_type(op: ElementOp, operands: tuple[Operand, ...], cast: DType) -> TileType:
    """Type of ``op(operands)``; ``cast`` is the element type that a cast gives.

    Raises
    ------
    ShapeError
        If the operator has another number of operands, or axes of one name differ in extent.
    DTypeError
        If the operator does not take these element types.
    """
    if len(operands) != op.arity:
        raise ShapeError(f"{op.value}: takes {op.arity} operands, not {len(operands)}")
    axes = broadcast_axes(operands)
    if op is ElementOp.cast:
        return TileType(cast, axes)
    return TileType(result_dtype(op, tuple(map(operand_dtype, operands))), axes)


def reduce_type(
    source: TileType,
    axis: Axis,
    combiner: Combiner,
    policy: ReductionPolicy = ReductionPolicy.unordered_tree,
) -> TileType:
    """Type of a reduction: the source's without ``axis``.

    Raises
    ------
    ShapeError
        If the source lacks the axis.
    DTypeError
        If the source is bool, or uint8 under ``add`` (the sum of more than one element would
        wrap: cast it to int32 first), or anything but a float sum under ``rescaled_tree``.
    """
    if axis not in source.axes:
        raise ShapeError(f"reduce: the source {source} lacks the axis {axis}")
    if source.dtype.kind == "bool":
        raise DTypeError("reduce: takes numbers, not bool; cast the tile first")
    if source.dtype.kind == "uint" and combiner is Combiner.add:
        raise DTypeError(f"reduce add: a sum of {source.dtype} wraps; cast the tile to int32 first")
    rescaled = policy is ReductionPolicy.rescaled_tree
    if rescaled and not (combiner is Combiner.add and source.dtype.is_float):
        raise DTypeError(f"reduce {combiner.value}: rescaled_tree is a policy of float sums")
    return TileType(source.dtype, tuple(a for a in source.axes if a != axis))


def dot_type(a: TileType, b: TileType, axis: Axis, accumulator: TileType) -> TileType:
    """Type of a dot: the accumulator's.

    Raises
    ------
    ShapeError
        If an operand lacks the contracted axis, the accumulator has it, or the accumulator's
        axes are not those of the operands.
    DTypeError
        If the operands' types differ, are not floats, or the accumulator is not float32.
    """
    for name, operand in (("first", a), ("second", b)):
        if axis not in operand.axes:
            raise ShapeError(f"dot: the {name} operand {operand} lacks the axis {axis}")
    if accumulator.axis(axis.name) is not None:
        raise ShapeError(f"dot: the accumulator {accumulator} has the contracted axis {axis}")
    wanted = {*a.axes, *b.axes} - {axis}
    if set(accumulator.axes) != wanted:
        names = ", ".join(sorted(str(found) for found in wanted))
        raise ShapeError(f"dot: the accumulator {accumulator} has other axes than {names}")
    if a.dtype != b.dtype or not a.dtype.is_float:
        raise DTypeError(f"dot: operands are {a.dtype} and {b.dtype}, not one float type")
    if accumulator.dtype.name != "float32":
        raise DTypeError(f"dot: the accumulator is {accumulator.dtype}; its state is float32")
    return accumulator


def gather_type(source: TileType, index: TileType, axis: Axis) -> TileType:
    """Type of a gather: the source's axes without ``axis``, then the index's not among them.

    Raises
    ------
    ShapeError
        If the source lacks the axis, or axes of one name differ in extent.
    DTypeError
        If the index is not an integer tile.
    """
    if axis not in source.axes:
        raise ShapeError(f"gather: the source {source} lacks the axis {axis}")
    if not index.dtype.is_integer:
        raise DTypeError(f"gather: the index is {index.dtype}, not an integer")
    kept = tuple(a for a in source.axes if a != axis)
    for a in index.axes:
        clash = source.axis(a.name)
        if clash is not None and clash != a:
            raise ShapeError(f"axis {a.name!r} has the extents {clash.extent} and {a.extent}")
    return TileType(source.dtype, kept + tuple(a for a in index.axes if a not in kept))

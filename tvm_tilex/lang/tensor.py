"""Tensor views: their annotation, their loads and their stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import CaptureError, DTypeError, ShapeError
from tvm_tilex.ir.bounds import index_bounds, proved_below, proved_from_zero
from tvm_tilex.ir.index import Dimension, Extent, most
from tvm_tilex.ir.program import Load, Operand, Store, View, ViewAccess
from tvm_tilex.ir.types import DTYPES, Axis, BoundsPolicy, DType, TileType, dtype_of
from tvm_tilex.lang.axes import Coord, Shape
from tvm_tilex.lang.capture import current_capture
from tvm_tilex.lang.tile import Tile, as_operand
from tvm_tilex.support.srcloc import caller_location

__all__ = ["In", "InOut", "Out", "TensorView", "ViewSpec", "floating"]

In = ViewAccess.read
Out = ViewAccess.write
InOut = ViewAccess.read_write

floating: tuple[DType, ...] = tuple(dtype for dtype in DTYPES.values() if dtype.is_float)


@dataclass(frozen=True)
class ViewSpec:
    """What an annotation says of a parameter: element types it takes, rank, access, bounds."""

    dtypes: tuple[DType, ...]
    rank: int
    access: ViewAccess
    bounds: BoundsPolicy
    dimensions: tuple[str, ...] | None = None  # names; equal names demand equal extents


class _TensorViewAnnotation:
    """``tx.TensorView[dtype, rank, option...]`` in a kernel's signature.

    ``dtype`` is an element type (``"float32"`` or ``tx.float32``) or ``"floating"`` /
    ``tx.floating`` for any float storage. ``rank`` is 1 to 4, or a tuple of as many dimension
    names: over all parameters one name means one extent, checked at each call. Options: ``"in"``
    (default), ``"out"``, ``"inout"`` or ``tx.In``, ``tx.Out``, ``tx.InOut``; and a bounds policy
    ``"checked"`` (default), ``"zero"``, ``"predicate"``, ``"assume"``. An ``out`` view is written
    whole.
    """

    def __getitem__(self, parameters: Any) -> ViewSpec:
        items = parameters if isinstance(parameters, tuple) else (parameters,)
        where = caller_location()
        # tx.floating is a tuple of types, so it arrives whole as the first item.
        rank, dimensions = _rank(items[1] if len(items) > 1 else None)
        if not 1 <= rank <= 4:
            raise CaptureError(f"TensorView rank {rank} is not 1 to 4", location=where)
        access, bounds = ViewAccess.read, BoundsPolicy.checked
        for option in items[2:]:
            try:
                found = _option(option)
            except ValueError:
                raise CaptureError(
                    f"TensorView option {option!r}: use in, out, inout, checked, zero, "
                    "predicate or assume",
                    location=where,
                ) from None
            if isinstance(found, ViewAccess):
                access = found
            else:
                bounds = found
        return ViewSpec(_dtypes(items[0]), rank, access, bounds, dimensions)


def _rank(item: Any) -> tuple[int, tuple[str, ...] | None]:
    if isinstance(item, int) and not isinstance(item, bool):
        return item, None
    if isinstance(item, tuple) and all(isinstance(name, str) for name in item):
        return len(item), item
    raise CaptureError(
        "TensorView[...] takes a dtype and a rank (or a tuple of dimension names)",
        location=caller_location(),
    )


def _option(option: Any) -> ViewAccess | BoundsPolicy:
    if isinstance(option, (ViewAccess, BoundsPolicy)):
        return option
    if option in ("in", "out", "inout"):
        return ViewAccess(option)
    return BoundsPolicy(option)


def _dtypes(item: Any) -> tuple[DType, ...]:
    if item == "floating":
        return floating
    if item == ():
        raise DTypeError("TensorView[...] takes at least one dtype", location=caller_location())
    try:
        return tuple(map(dtype_of, item)) if isinstance(item, tuple) else (dtype_of(item),)
    except DTypeError as error:
        raise DTypeError(str(error), location=caller_location()) from None


TensorView = _TensorViewAnnotation()


class CapturedView:
    """A parameter while the kernel is captured."""

    def __init__(self, view: View) -> None:
        self.view = view

    @property
    def dtype(self) -> DType:
        """Element type of the storage."""
        return self.view.dtype

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.view.shape)

    def extent(self, dimension: int) -> Extent:
        """Extent of one dimension; a symbolic one where it is dynamic."""
        if not isinstance(dimension, int) or not 0 <= dimension < self.rank:
            raise ShapeError(
                f"{self.view.name}.extent({dimension!r}): the view has dimensions 0 to "
                f"{self.rank - 1}",
                location=caller_location(),
            )
        return self.view.shape[dimension]

    def __call__(self, origin: Coord, extents: Shape) -> Region:
        """Return the region of ``extents`` that begins at ``origin``."""
        return Region(self.view, *_checked_region(self.view, origin, extents))

    def __getitem__(self, key: Any) -> Tile:
        """Load the region ``[origin, shape]`` as a tile."""
        if not (isinstance(key, tuple) and len(key) == 2):
            raise CaptureError(
                f"{self.view.name}[...] takes an origin and a shape: view[tx.coord(...), "
                "tx.shape(...)]",
                location=caller_location(),
            )
        return self(*key).load()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise CaptureError(
            f"{self.view.name}[...] = ... is not a store; write "
            f"{self.view.name}(origin, shape).store(tile)",
            location=caller_location(),
        )


def _checked_region(view: View, origin: Any, extents: Any) -> tuple[Coord, Shape]:
    where = caller_location()
    if not isinstance(origin, Coord) or not isinstance(extents, Shape):
        raise CaptureError(
            f"{view.name}: a region is tx.coord(...) and tx.shape(...)", location=where
        )
    rank = len(view.shape)
    if len(origin.indices) != rank or len(extents.entries) != rank:
        raise ShapeError(
            f"{view.name} has rank {rank}; the origin has {len(origin.indices)} indices and the "
            f"shape {len(extents.entries)} axes",
            location=where,
        )
    capture = current_capture(view.name)
    if not any(view is known for known in capture.views):
        raise CaptureError(f"{view.name} is not a parameter of {capture.kernel}", location=where)
    for axis in extents.axes:
        if capture.know(axis).extent == 0:
            raise ShapeError(
                f"{view.name}: axis {axis.name!r} has extent 0; only a parallel axis may be empty",
                location=where,
            )
        if isinstance(axis.extent, Dimension):
            _require_width(view, axis, axis.extent)
    for index in origin.indices:
        capture.check_in_scope(index, view.name)
    if view.bounds is BoundsPolicy.checked:
        _prove_in_bounds(view, origin, extents)
    return origin, extents


def _require_width(view: View, axis: Axis, extent: Dimension) -> None:
    """A tile runs along a dynamic dimension only if its storage has a bound and an element."""
    if extent.bounded and extent.minimum > 0:
        return
    raise ShapeError(
        f"{view.name}: axis {axis.name!r} runs along the dynamic extent {extent.name} "
        f"({extent.range}); a tile needs a stated bound and an element: "
        f"tx.dynamic({extent.name!r}, max=...)",
        location=caller_location(),
    )


def _prove_in_bounds(view: View, origin: Coord, extents: Shape) -> None:
    known = current_capture(view.name).extents()
    if 0 in known.values():
        return  # no program runs
    for dimension, (index, axis) in enumerate(zip(origin.indices, extents.entries, strict=True)):
        length = axis.extent if axis else 1
        inside = proved_below(index, length, view.shape[dimension], known)
        if not proved_from_zero(index, known) or not inside:
            low, high = index_bounds(index, known)
            high += most(length) - 1
            raise ShapeError(
                f"{view.name}: dimension {dimension} is indexed from {low} to {high}, its extent "
                f"is {view.shape[dimension]}; annotate the view 'zero', 'predicate' or 'assume'",
                location=caller_location(),
            )


class Region:
    """A region of a view, to load or to store."""

    def __init__(self, view: View, origin: Coord, extents: Shape) -> None:
        self._view = view
        self._origin = origin
        self._extents = extents

    def load(self) -> Tile:
        """Return the region's elements as a tile."""
        view = self._view
        capture = current_capture(f"load of {view.name}")
        where = caller_location()
        if view.access is ViewAccess.write:
            raise CaptureError(
                f"{view.name} is an 'out' view and cannot be loaded; annotate it 'inout'",
                location=where,
            )
        result = capture.new_value(TileType(view.dtype, self._extents.axes))
        capture.emit(
            Load(
                result,
                view.name,
                self._origin.indices,
                self._extents.entries,
                view.bounds,
                location=where,
            )
        )
        return Tile(result, capture.innermost())

    def store(self, tile: Tile | float) -> None:
        """Write a tile (or one number everywhere) to the region.

        Raises
        ------
        DTypeError, ShapeError, CaptureError
            If the tile's type or axes differ from the region's, or the view is read-only.
        """
        view = self._view
        capture = current_capture(f"store to {view.name}")
        where = caller_location()
        if view.access is ViewAccess.read:
            raise CaptureError(
                f"{view.name} is an 'in' view and cannot be stored; annotate it 'out'",
                location=where,
            )
        value = self._stored(tile)
        for axis in capture.domain:
            if axis not in self._extents.axes:
                raise ShapeError(
                    f"store to {view.name}: the region lacks {axis.name!r} of the group's domain",
                    location=where,
                )
        capture.note_store(view, self._origin.indices, self._extents.entries)
        capture.emit(
            Store(
                view.name,
                self._origin.indices,
                self._extents.entries,
                value,
                view.bounds,
                location=where,
            )
        )

    def _stored(self, tile: Any) -> Operand:
        what = f"store to {self._view.name}"
        value = as_operand(tile, self._view.dtype, what)
        if not isinstance(tile, Tile):
            return value
        if tile.dtype != self._view.dtype:
            raise DTypeError(
                f"{what}: the tile is {tile.dtype}, the view {self._view.dtype}; cast the tile",
                location=caller_location(),
            )
        if set(tile.axes) != set(self._extents.axes):
            have = ", ".join(map(str, tile.axes)) or "no axis"
            want = ", ".join(map(str, self._extents.axes)) or "no axis"
            raise ShapeError(
                f"{what}: the tile has {have}, the region {want}", location=caller_location()
            )
        return value

"""Reductions of each row of a matrix, over its last axis."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from tvm_tilex import lang as tx
from tvm_tilex.kernels.shapes import COLUMN, MATRIX

__all__ = ["minmax", "row_max", "row_min", "row_sum"]


@tx.tile_kernel
def row_sum(
    x: tx.TensorView[tx.floating, MATRIX], out: tx.TensorView[tx.floating, COLUMN, tx.Out]
) -> None:
    """Sum of each row: ``out[p] = sum(x[p, :])``.

    Parameters
    ----------
    x
        (P, N), any float storage; the sum is kept in FP32, in any order.
    out
        (P,), any float storage; rounded once.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        total = tx.reduce(value, columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(total, out.dtype))


@tx.tile_kernel
def row_max(
    x: tx.TensorView[tx.floating, MATRIX], out: tx.TensorView[tx.floating, COLUMN, tx.Out]
) -> None:
    """Largest element of each row: ``out[p] = max(x[p, :])``, NaN if the row has one.

    Parameters
    ----------
    x
        (P, N), any float storage.
    out
        (P,), any float storage.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        largest = tx.reduce(value, columns, tx.maximum)
        out(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(largest, out.dtype))


@tx.tile_kernel
def row_min(
    x: tx.TensorView[tx.floating, MATRIX], out: tx.TensorView[tx.floating, COLUMN, tx.Out]
) -> None:
    """Smallest element of each row: ``out[p] = min(x[p, :])``, NaN if the row has one.

    Parameters
    ----------
    x
        (P, N), any float storage.
    out
        (P,), any float storage.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        smallest = tx.reduce(value, columns, tx.minimum)
        out(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(smallest, out.dtype))


@tx.tile_kernel
def minmax(
    x: tx.TensorView[tx.floating, MATRIX],
    low: tx.TensorView[tx.floating, COLUMN, tx.Out],
    high: tx.TensorView[tx.floating, COLUMN, tx.Out],
) -> None:
    """Smallest and largest element of each row, together.

    Parameters
    ----------
    x
        (P, N), any float storage.
    low, high
        (P,), any float storage; NaN where the row has one.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        smallest = tx.reduce(value, columns, tx.minimum)
        largest = tx.reduce(value, columns, tx.maximum)
        low(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(smallest, low.dtype))
        high(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(largest, high.dtype))

"""Normalizations over the last axis of a matrix. ``eps`` is a compile-time constant.

The variance is the biased one, taken from the centered row (two passes): the one-pass
``E[x**2] - E[x]**2`` cancels when the mean is far above the spread. An FP32 mean has the same
weakness, more mildly: a sum of N values near 1000 rounds at the scale of 1000 N, whatever their
spread. :func:`layernorm` and :func:`layernorm_no_affine` therefore sum distances from a pivot, the
median of three elements of the row, which is near the mean unless two of the three are outliers,
and subtract pivot and mean distance one after the other.
"""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from typing import Any

from tvm_tilex import lang as tx
from tvm_tilex.kernels.shapes import MATRIX, ROW

__all__ = ["layernorm", "layernorm_no_affine", "residual_layernorm", "rmsnorm"]


def pivot_of(view: Any, row: Any, columns: tx.Axis) -> tx.Tile:
    """Median of the first, middle and last element of a row; NaN if one of them is."""
    last = columns.extent - 1
    first, middle, final = (
        tx.cast(view[tx.coord(row, column), tx.shape(1, 1)], tx.float32)
        for column in (0, last // 2, last)
    )
    low, high = tx.minimum(first, middle), tx.maximum(first, middle)
    return tx.maximum(low, tx.minimum(high, final))


@tx.tile_kernel
def layernorm(
    x: tx.TensorView[tx.floating, MATRIX],
    weight: tx.TensorView[tx.floating, ROW],
    bias: tx.TensorView[tx.floating, ROW],
    out: tx.TensorView[tx.floating, MATRIX, tx.Out],
    *,
    eps: float = 1e-5,
) -> None:
    """``out = (x - mean) / sqrt(variance + eps) * weight + bias``, row by row.

    Parameters
    ----------
    x
        (P, N), any float storage; computed in FP32.
    weight, bias
        (N,), any float storage.
    out
        (P, N), any float storage; rounded once.
    eps
        Added to the variance.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(x[origin, tx.shape(one, columns)], tx.float32)
        pivot = pivot_of(x, nest.index(), columns)
        distance = tx.reduce(value - pivot, columns, tx.add) / columns.extent
        centered = (value - pivot) - distance
        variance = tx.reduce(centered * centered, columns, tx.add) / columns.extent
        scale = tx.cast(weight[tx.coord(0), tx.shape(columns)], tx.float32)
        shift = tx.cast(bias[tx.coord(0), tx.shape(columns)], tx.float32)
        result = centered * tx.rsqrt(variance + eps) * scale + shift
        out(origin, tx.shape(one, columns)).store(tx.cast(result, out.dtype))


@tx.tile_kernel
def layernorm_no_affine(
    x: tx.TensorView[tx.floating, MATRIX],
    out: tx.TensorView[tx.floating, MATRIX, tx.Out],
    *,
    eps: float = 1e-5,
) -> None:
    """``out = (x - mean) / sqrt(variance + eps)``, row by row.

    Parameters
    ----------
    x
        (P, N), any float storage; computed in FP32.
    out
        (P, N), any float storage; rounded once.
    eps
        Added to the variance.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(x[origin, tx.shape(one, columns)], tx.float32)
        pivot = pivot_of(x, nest.index(), columns)
        distance = tx.reduce(value - pivot, columns, tx.add) / columns.extent
        centered = (value - pivot) - distance
        variance = tx.reduce(centered * centered, columns, tx.add) / columns.extent
        result = centered * tx.rsqrt(variance + eps)
        out(origin, tx.shape(one, columns)).store(tx.cast(result, out.dtype))


@tx.tile_kernel
def rmsnorm(
    x: tx.TensorView[tx.floating, MATRIX],
    weight: tx.TensorView[tx.floating, ROW],
    out: tx.TensorView[tx.floating, MATRIX, tx.Out],
    *,
    eps: float = 1e-6,
) -> None:
    """``out = x / sqrt(mean(x**2) + eps) * weight``, row by row.

    Parameters
    ----------
    x
        (P, N), any float storage; computed in FP32.
    weight
        (N,), any float storage.
    out
        (P, N), any float storage; rounded once.
    eps
        Added to the mean square.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(x[origin, tx.shape(one, columns)], tx.float32)
        mean_square = tx.reduce(value * value, columns, tx.add) / columns.extent
        scale = tx.cast(weight[tx.coord(0), tx.shape(columns)], tx.float32)
        result = value * tx.rsqrt(mean_square + eps) * scale
        out(origin, tx.shape(one, columns)).store(tx.cast(result, out.dtype))


@tx.tile_kernel
def residual_layernorm(
    x: tx.TensorView[tx.floating, MATRIX],
    residual: tx.TensorView[tx.floating, MATRIX],
    out: tx.TensorView[tx.floating, MATRIX, tx.Out],
    *,
    eps: float = 1e-5,
) -> None:
    """Fused layer normalization of ``x + residual``: each input element is needed once.

    ``combined`` and ``centered`` have several consumers each; how a target keeps or recomputes
    them is the option ``shared_tile_materialization``. The mean is the plain FP32 one of the
    specification's source, without a pivot: a mean far above the spread costs accuracy.

    Parameters
    ----------
    x, residual
        (P, N), any float storage; added and computed in FP32.
    out
        (P, N), any float storage; rounded once.
    eps
        Added to the variance.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(x[origin, tx.shape(one, columns)], tx.float32)
        added = tx.cast(residual[origin, tx.shape(one, columns)], tx.float32)
        combined = value + added
        mean = tx.reduce(combined, columns, tx.add) / columns.extent
        centered = combined - mean
        variance = tx.reduce(centered * centered, columns, tx.add) / columns.extent
        result = centered / tx.sqrt(variance + eps)
        out(origin, tx.shape(one, columns)).store(tx.cast(result, out.dtype))

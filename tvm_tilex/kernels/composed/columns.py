"""Reductions over the rows of a matrix: the reduced axis is not the contiguous one."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

import math
from typing import Any

from tvm_tilex import lang as tx
from tvm_tilex.ir.types import BoundsPolicy
from tvm_tilex.kernels.shapes import MATRIX, ROW

__all__ = ["column_max", "column_sum", "split_column_max", "split_column_sum"]

PARTIAL = ("slices", *ROW)


@tx.tile_kernel
def column_sum(
    input: tx.TensorView[tx.floating, MATRIX, BoundsPolicy.predicate],
    output: tx.TensorView[tx.floating, ROW, tx.Out, BoundsPolicy.zero],
    *,
    block_rows: int = 4096,
    block_columns: int = 64,
) -> None:
    """``output[c] = sum of input[:, c]``, by blocks of rows and columns.

    Parameters
    ----------
    input
        (P, N), any float storage; FP32 sums.
    output
        (N,), any float storage; rounded once.
    """
    _reduce_columns(input, output, tx.add, 0.0, block_rows, block_columns)


@tx.tile_kernel
def column_max(
    input: tx.TensorView[tx.floating, MATRIX, BoundsPolicy.predicate],
    output: tx.TensorView[tx.floating, ROW, tx.Out, BoundsPolicy.zero],
    *,
    block_rows: int = 4096,
    block_columns: int = 64,
) -> None:
    """``output[c] = maximum of input[:, c]``, by blocks of rows and columns.

    Parameters
    ----------
    input
        (P, N), any float storage. NaN wins, except in a collective on Metal.
    output
        (N,), any float storage.
    """
    _reduce_columns(input, output, tx.maximum, -math.inf, block_rows, block_columns)


def _reduce_columns(
    input: Any, output: Any, op: Any, identity: float, block_rows: int, block_columns: int
) -> None:
    blocks = tx.axis("blocks", -(-input.extent(1) // block_columns))
    block_rows = max(1, min(block_rows, input.extent(0)))
    steps = tx.axis("steps", -(-input.extent(0) // block_rows))
    rows, columns = tx.axis("block_rows", block_rows), tx.axis("block_columns", block_columns)
    for nest in tx.parallel(tx.shape(blocks)):
        for _ in tx.group(tx.shape(columns)):
            left = nest.index() * block_columns
            for step in tx.pipeline(steps, tx.full(tx.shape(columns), identity)):
                (state,) = step.state
                at = tx.coord(step.index() * block_rows, left)
                tile = tx.cast(input[at, tx.shape(rows, columns)], tx.float32)
                step.carry(op(state, tx.reduce(tile, rows, op)))
            (state,) = step.result
            output(tx.coord(left), tx.shape(columns)).store(tx.cast(state, output.dtype))


@tx.tile_kernel
def split_column_sum(
    input: tx.TensorView[tx.floating, MATRIX, BoundsPolicy.predicate],
    partial: tx.TensorView[tx.float32, PARTIAL, tx.InOut, BoundsPolicy.zero],
    output: tx.TensorView[tx.floating, ROW, tx.Out, BoundsPolicy.zero],
    *,
    block_columns: int = 64,
) -> None:
    """``output[c] = sum of input[:, c]``, in two launches, for many rows of few columns.

    Slices of the rows are summed by programs of their own into ``partial``, and those sums in a
    second launch.

    Parameters
    ----------
    input
        (P, N), any float storage; FP32 sums.
    partial
        (slices, N) float32: the slices' sums, overwritten.
    output
        (N,), any float storage; rounded once.
    """
    _reduce_slices(input, partial, output, tx.add, block_columns)


@tx.tile_kernel
def split_column_max(
    input: tx.TensorView[tx.floating, MATRIX, BoundsPolicy.predicate],
    partial: tx.TensorView[tx.float32, PARTIAL, tx.InOut, BoundsPolicy.zero],
    output: tx.TensorView[tx.floating, ROW, tx.Out, BoundsPolicy.zero],
    *,
    block_columns: int = 64,
) -> None:
    """``output[c] = maximum of input[:, c]``, in two launches, for many rows of few columns.

    Parameters
    ----------
    input
        (P, N), any float storage.
    partial
        (slices, N) float32: the slices' maxima, overwritten.
    output
        (N,), any float storage.
    """
    _reduce_slices(input, partial, output, tx.maximum, block_columns)


def _reduce_slices(input: Any, partial: Any, output: Any, op: Any, block_columns: int) -> None:
    depth = -(-input.extent(0) // partial.extent(0))
    blocks = tx.axis("blocks", -(-input.extent(1) // block_columns))
    slices = tx.axis("slices", partial.extent(0))
    rows, columns = tx.axis("rows", depth), tx.axis("block_columns", block_columns)
    for nest in tx.parallel(tx.shape(slices, blocks)):
        for _ in tx.group(tx.shape(columns)):
            number, left = nest.index(0), nest.index(1) * block_columns
            tile = input[tx.coord(number * depth, left), tx.shape(rows, columns)]
            total = tx.reduce(tx.cast(tile, tx.float32), rows, op)
            partial(tx.coord(number, left), tx.shape(1, columns)).store(total)
    for nest in tx.parallel(tx.shape(blocks)):
        for _ in tx.group(tx.shape(columns)):
            left = nest.index() * block_columns
            tile = partial[tx.coord(0, left), tx.shape(slices, columns)]
            total = tx.reduce(tile, slices, op)
            output(tx.coord(left), tx.shape(columns)).store(tx.cast(total, output.dtype))

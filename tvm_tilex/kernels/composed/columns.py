"""Reductions over the rows of a matrix: the reduced axis is not the contiguous one."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

import math
from typing import Any

from tvm_tilex import lang as tx
from tvm_tilex.ir.types import BoundsPolicy
from tvm_tilex.kernels.shapes import MATRIX, ROW

__all__ = ["column_max", "column_sum"]


@tx.tile_kernel
def column_sum(
    input: tx.TensorView[tx.floating, MATRIX, BoundsPolicy.predicate],
    output: tx.TensorView[tx.floating, ROW, tx.Out, BoundsPolicy.zero],
    *,
    block_rows: int = 64,
    block_columns: int = 32,
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
    block_rows: int = 64,
    block_columns: int = 32,
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

"""Losses over the last axis of a matrix."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from tvm_tilex import lang as tx
from tvm_tilex.kernels.shapes import COLUMN, MATRIX, RESCALED

__all__ = ["cross_entropy"]


@tx.tile_kernel
def cross_entropy(
    logits: tx.TensorView[tx.floating, MATRIX],
    labels: tx.TensorView[tx.int64, COLUMN],
    losses: tx.TensorView[tx.floating, COLUMN, tx.Out],
) -> None:
    """``losses[p] = log(sum(exp(logits[p, :]))) - logits[p, labels[p]]``.

    Parameters
    ----------
    logits
        (P, N), any float storage; computed in FP32.
    labels
        (P,) int64. A label outside [0, N) selects 0 (the guarded gather), so its loss is the
        row's logsumexp; nothing outside the row is read. There is no ``ignore_index``.
    losses
        (P,), any float storage; rounded once, not averaged.
    """
    rows, one = tx.axis("rows", logits.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", logits.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = tx.cast(logits[origin, tx.shape(one, columns)], tx.float32)
        label = labels[tx.coord(nest.index()), tx.shape(one)]
        peak = tx.reduce(row, columns, tx.maximum)
        total = tx.reduce(tx.exp(row - peak), columns, tx.add, policy=RESCALED)
        selected = tx.gather(row, label, columns)
        result = tx.log(total) + peak - selected
        losses(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(result, losses.dtype))

"""The softmax family, over the last axis of a matrix."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

import math

from tvm_tilex import lang as tx
from tvm_tilex.kernels.shapes import COLUMN, MATRIX, RESCALED

__all__ = ["log_softmax", "logsumexp", "softmax"]


@tx.tile_kernel
def softmax(
    input: tx.TensorView[tx.floating, MATRIX], output: tx.TensorView[tx.floating, MATRIX, tx.Out]
) -> None:
    """``output[p, :] = exp(input[p, :] - max) / sum``: the row softmax of the specification.

    Parameters
    ----------
    input
        (P, N), any float storage; computed in FP32. A row that is all -inf, or holds +inf or
        NaN, gives what the composition gives: NaN.
    output
        (P, N), any float storage; rounded once.
    """
    rows, one = tx.axis("rows", input.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", input.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(input[origin, tx.shape(one, columns)], tx.float32)
        shifted = tx.exp(value - tx.reduce(value, columns, tx.maximum))
        result = shifted / tx.reduce(shifted, columns, tx.add, policy=RESCALED)
        output(origin, tx.shape(one, columns)).store(tx.cast(result, output.dtype))


@tx.tile_kernel
def log_softmax(
    input: tx.TensorView[tx.floating, MATRIX], output: tx.TensorView[tx.floating, MATRIX, tx.Out]
) -> None:
    """``output[p, :] = input[p, :] - max - log(sum(exp(input[p, :] - max)))``.

    Parameters
    ----------
    input
        (P, N), any float storage; computed in FP32. Non-finite rows as in :func:`softmax`.
    output
        (P, N), any float storage; rounded once.
    """
    rows, one = tx.axis("rows", input.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", input.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = tx.cast(input[origin, tx.shape(one, columns)], tx.float32)
        centered = value - tx.reduce(value, columns, tx.maximum)
        result = centered - tx.log(tx.reduce(tx.exp(centered), columns, tx.add, policy=RESCALED))
        output(origin, tx.shape(one, columns)).store(tx.cast(result, output.dtype))


@tx.tile_kernel
def logsumexp(
    x: tx.TensorView[tx.floating, MATRIX], out: tx.TensorView[tx.floating, COLUMN, tx.Out]
) -> None:
    """``out[p] = log(sum(exp(x[p, :])))`` without overflow.

    Parameters
    ----------
    x
        (P, N), any float storage; computed in FP32. An infinite maximum is not subtracted, so a
        row of all -inf gives -inf and a row that holds +inf gives +inf; NaN gives NaN.
    out
        (P,), any float storage; rounded once.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        peak = tx.reduce(value, columns, tx.maximum)
        shift = tx.where(tx.abs(peak) == math.inf, 0.0, peak)
        total = tx.reduce(tx.exp(value - shift), columns, tx.add, policy=RESCALED)
        result = tx.log(total) + shift
        out(tx.coord(nest.index()), tx.shape(one)).store(tx.cast(result, out.dtype))

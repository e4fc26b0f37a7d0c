"""Gradients of the library: vector-Jacobian products, row by row, and partial sums over rows.

Parameter names are the contract that :mod:`tvm_tilex.torch` matches: a forward kernel's inputs and
outputs keep their names, ``grad_<output>`` is given, ``grad_<input>`` is written. A kernel that
writes ``partial_<input>`` leaves a sum over the first dimension to its caller: the gradient of a
weight sums over rows, which a row program cannot.

Statistics of a row are computed again from its input (two passes, as in the forward kernels)
rather than stored by the forward kernel, which costs one read of the row and no memory.
"""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_tilex import lang as tx
from tvm_tilex.kernels.normalization import pivot_of
from tvm_tilex.kernels.shapes import BLOCKS, COLUMN, MATRIX, PREDICATE, ROW, ROWS_PER_BLOCK

if TYPE_CHECKING:
    from tvm_tilex.kernels.registry import KernelEntry

__all__ = [
    "catalog",
    "cross_entropy_backward",
    "layernorm_backward",
    "layernorm_no_affine_backward",
    "layernorm_parameters_backward",
    "log_softmax_backward",
    "rmsnorm_backward",
    "rmsnorm_parameters_backward",
    "softmax_backward",
]


def catalog() -> Mapping[str, KernelEntry]:
    """Return every gradient kernel by name, with its oracle, inputs and tolerance."""
    from tvm_tilex.kernels.registry import gradient_entries  # needs NumPy, which a kernel does not

    return gradient_entries()


@tx.tile_kernel
def softmax_backward(
    output: tx.TensorView[tx.floating, MATRIX],
    grad_output: tx.TensorView[tx.floating, MATRIX],
    grad_input: tx.TensorView[tx.floating, MATRIX, tx.Out],
) -> None:
    """``grad_input = output * (grad_output - sum(output * grad_output))``, row by row.

    Parameters
    ----------
    output
        (P, N), what :func:`~tvm_tilex.kernels.softmax` stored, as rounded there.
    grad_output, grad_input
        (P, N), any float storage; computed in FP32, rounded once.
    """
    rows, one = tx.axis("rows", output.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", output.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        y = tx.cast(output[origin, region], tx.float32)
        gradient = tx.cast(grad_output[origin, region], tx.float32)
        projection = tx.reduce(y * gradient, columns, tx.add)
        result = y * (gradient - projection)
        grad_input(origin, region).store(tx.cast(result, grad_input.dtype))


@tx.tile_kernel
def log_softmax_backward(
    output: tx.TensorView[tx.floating, MATRIX],
    grad_output: tx.TensorView[tx.floating, MATRIX],
    grad_input: tx.TensorView[tx.floating, MATRIX, tx.Out],
) -> None:
    """``grad_input = grad_output - exp(output) * sum(grad_output)``, row by row.

    Parameters
    ----------
    output
        (P, N), what :func:`~tvm_tilex.kernels.log_softmax` stored, as rounded there.
    grad_output, grad_input
        (P, N), any float storage; computed in FP32, rounded once.
    """
    rows, one = tx.axis("rows", output.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", output.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        y = tx.cast(output[origin, region], tx.float32)
        gradient = tx.cast(grad_output[origin, region], tx.float32)
        result = gradient - tx.exp(y) * tx.reduce(gradient, columns, tx.add)
        grad_input(origin, region).store(tx.cast(result, grad_input.dtype))


@tx.tile_kernel
def layernorm_backward(
    x: tx.TensorView[tx.floating, MATRIX],
    weight: tx.TensorView[tx.floating, ROW],
    grad_out: tx.TensorView[tx.floating, MATRIX],
    grad_x: tx.TensorView[tx.floating, MATRIX, tx.Out],
    pivot: tx.TensorView[tx.float32, COLUMN, tx.Out],
    distance: tx.TensorView[tx.float32, COLUMN, tx.Out],
    inverse_deviation: tx.TensorView[tx.float32, COLUMN, tx.Out],
    *,
    eps: float = 1e-5,
) -> None:
    """Gradient of layer normalization in ``x``, and each row's statistics for the parameters'.

    With ``n = (x - mean) * inverse_deviation`` and ``g = grad_out * weight``::

        grad_x = inverse_deviation * (g - mean(g) - n * mean(g * n))

    Parameters
    ----------
    x, grad_out, grad_x
        (P, N), any float storage; computed in FP32, rounded once.
    weight
        (N,), any float storage.
    pivot, distance, inverse_deviation
        (P,) float32. The mean is ``pivot + distance``, kept in two parts since their sum would
        round at the scale of the mean (see :mod:`tvm_tilex.kernels.normalization`).
    eps
        Added to the variance.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        middle, away, inverse, normalized = _statistics(x, nest.index(), one, columns, eps)
        gradient = tx.cast(grad_out[origin, region], tx.float32)
        scaled = gradient * tx.cast(weight[tx.coord(0), tx.shape(columns)], tx.float32)
        result = _centered_gradient(scaled, normalized, inverse, columns)
        grad_x(origin, region).store(tx.cast(result, grad_x.dtype))
        row, single = tx.coord(nest.index()), tx.shape(one)
        pivot(row, tx.shape(1)).store(middle)
        distance(row, single).store(away)
        inverse_deviation(row, single).store(inverse)


@tx.tile_kernel
def layernorm_no_affine_backward(
    x: tx.TensorView[tx.floating, MATRIX],
    grad_out: tx.TensorView[tx.floating, MATRIX],
    grad_x: tx.TensorView[tx.floating, MATRIX, tx.Out],
    *,
    eps: float = 1e-5,
) -> None:
    """Gradient of :func:`~tvm_tilex.kernels.layernorm_no_affine`, row by row.

    Parameters
    ----------
    x, grad_out, grad_x
        (P, N), any float storage; computed in FP32, rounded once.
    eps
        Added to the variance.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        _, _, inverse, normalized = _statistics(x, nest.index(), one, columns, eps)
        gradient = tx.cast(grad_out[origin, region], tx.float32)
        result = _centered_gradient(gradient, normalized, inverse, columns)
        grad_x(origin, region).store(tx.cast(result, grad_x.dtype))


def _statistics(view: Any, row: Any, one: tx.Axis, columns: tx.Axis, eps: float) -> tuple[Any, ...]:
    """Pivot, mean less pivot, 1 / deviation and the normalized row, as the forward has them."""
    value = tx.cast(view[tx.coord(row, 0), tx.shape(one, columns)], tx.float32)
    pivot = pivot_of(view, row, columns)
    distance = tx.reduce(value - pivot, columns, tx.add) / columns.extent
    centered = (value - pivot) - distance
    variance = tx.reduce(centered * centered, columns, tx.add) / columns.extent
    inverse = tx.rsqrt(variance + eps)
    return pivot, distance, inverse, centered * inverse


def _centered_gradient(gradient: Any, normalized: Any, inverse: Any, columns: tx.Axis) -> tx.Tile:
    mean = tx.reduce(gradient, columns, tx.add) / columns.extent
    along = tx.reduce(gradient * normalized, columns, tx.add) / columns.extent
    return inverse * (gradient - mean - normalized * along)


@tx.tile_kernel
def rmsnorm_backward(
    x: tx.TensorView[tx.floating, MATRIX],
    weight: tx.TensorView[tx.floating, ROW],
    grad_out: tx.TensorView[tx.floating, MATRIX],
    grad_x: tx.TensorView[tx.floating, MATRIX, tx.Out],
    inverse_rms: tx.TensorView[tx.float32, COLUMN, tx.Out],
    *,
    eps: float = 1e-6,
) -> None:
    """Gradient of :func:`~tvm_tilex.kernels.rmsnorm` in ``x``, and each row's scale.

    With ``n = x * inverse_rms`` and ``g = grad_out * weight``::

        grad_x = inverse_rms * (g - n * mean(g * n))

    Parameters
    ----------
    x, grad_out, grad_x
        (P, N), any float storage; computed in FP32, rounded once.
    weight
        (N,), any float storage.
    inverse_rms
        (P,) float32, ``1 / sqrt(mean(x**2) + eps)``.
    eps
        Added to the mean square.
    """
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        value = tx.cast(x[origin, region], tx.float32)
        inverse = tx.rsqrt(tx.reduce(value * value, columns, tx.add) / columns.extent + eps)
        normalized = value * inverse
        gradient = tx.cast(grad_out[origin, region], tx.float32)
        scaled = gradient * tx.cast(weight[tx.coord(0), tx.shape(columns)], tx.float32)
        along = tx.reduce(scaled * normalized, columns, tx.add) / columns.extent
        grad_x(origin, region).store(tx.cast(inverse * (scaled - normalized * along), grad_x.dtype))
        inverse_rms(tx.coord(nest.index()), tx.shape(one)).store(inverse)


@tx.tile_kernel
def cross_entropy_backward(
    logits: tx.TensorView[tx.floating, MATRIX],
    labels: tx.TensorView[tx.int64, COLUMN],
    grad_losses: tx.TensorView[tx.floating, COLUMN],
    grad_logits: tx.TensorView[tx.floating, MATRIX, tx.Out],
) -> None:
    """``grad_logits = (softmax(logits) - onehot(labels)) * grad_losses``, row by row.

    Parameters
    ----------
    logits, grad_logits
        (P, N), any float storage; computed in FP32, rounded once.
    labels
        (P,) int64. A label outside [0, N) selects nothing, as in the forward kernel.
    grad_losses
        (P,), any float storage.
    """
    rows, one = tx.axis("rows", logits.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", logits.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, region = tx.coord(nest.index(), 0), tx.shape(one, columns)
        row, single = tx.coord(nest.index()), tx.shape(one)
        value = tx.cast(logits[origin, region], tx.float32)
        weights = tx.exp(value - tx.reduce(value, columns, tx.maximum))
        share = weights / tx.reduce(weights, columns, tx.add)
        chosen = tx.coordinate(columns, tx.int64) == labels[row, single]
        gradient = tx.cast(grad_losses[row, single], tx.float32)
        result = tx.where(chosen, share - 1.0, share) * gradient
        grad_logits(origin, region).store(tx.cast(result, grad_logits.dtype))


@tx.tile_kernel
def layernorm_parameters_backward(
    x: tx.TensorView[tx.floating, MATRIX, PREDICATE],
    grad_out: tx.TensorView[tx.floating, MATRIX, PREDICATE],
    pivot: tx.TensorView[tx.float32, COLUMN, PREDICATE],
    distance: tx.TensorView[tx.float32, COLUMN, PREDICATE],
    inverse_deviation: tx.TensorView[tx.float32, COLUMN, PREDICATE],
    partial_weight: tx.TensorView[tx.float32, BLOCKS, tx.Out],
    partial_bias: tx.TensorView[tx.float32, BLOCKS, tx.Out],
) -> None:
    """Sums over blocks of 64 rows of ``grad_out * normalized`` and of ``grad_out``.

    One program a block and column, columns innermost: neighbouring programs read neighbouring
    elements. The gradients of weight and bias are the sums over the blocks.

    Parameters
    ----------
    x, grad_out
        (P, N), any float storage; computed in FP32.
    pivot, distance, inverse_deviation
        (P,) float32, of :func:`layernorm_backward`.
    partial_weight, partial_bias
        (ceil(P / 64), N) float32.
    """
    blocks, columns = _blocks(x)
    inside = tx.axis("inside", ROWS_PER_BLOCK)
    for nest in tx.parallel(tx.shape(blocks, columns)):
        first, column = nest.index(0) * ROWS_PER_BLOCK, nest.index(1)
        origin, region = tx.coord(first, column), tx.shape(inside, 1)
        rows, block = (tx.coord(first), tx.shape(inside)), tx.coord(nest.index(0), column)
        gradient = tx.cast(grad_out[origin, region], tx.float32)
        value = tx.cast(x[origin, region], tx.float32)
        normalized = ((value - pivot[rows]) - distance[rows]) * inverse_deviation[rows]
        weight = tx.reduce(gradient * normalized, inside, tx.add)
        partial_weight(block, tx.shape(1, 1)).store(weight)
        partial_bias(block, tx.shape(1, 1)).store(tx.reduce(gradient, inside, tx.add))


@tx.tile_kernel
def rmsnorm_parameters_backward(
    x: tx.TensorView[tx.floating, MATRIX, PREDICATE],
    grad_out: tx.TensorView[tx.floating, MATRIX, PREDICATE],
    inverse_rms: tx.TensorView[tx.float32, COLUMN, PREDICATE],
    partial_weight: tx.TensorView[tx.float32, BLOCKS, tx.Out],
) -> None:
    """Sums over blocks of 64 rows of ``grad_out * x * inverse_rms``.

    Parameters
    ----------
    x, grad_out
        (P, N), any float storage; computed in FP32.
    inverse_rms
        (P,) float32, of :func:`rmsnorm_backward`.
    partial_weight
        (ceil(P / 64), N) float32; its sum over the blocks is the gradient of the weight.
    """
    blocks, columns = _blocks(x)
    inside = tx.axis("inside", ROWS_PER_BLOCK)
    for nest in tx.parallel(tx.shape(blocks, columns)):
        first, column = nest.index(0) * ROWS_PER_BLOCK, nest.index(1)
        origin, region = tx.coord(first, column), tx.shape(inside, 1)
        gradient = tx.cast(grad_out[origin, region], tx.float32)
        value = tx.cast(x[origin, region], tx.float32)
        scale = inverse_rms[tx.coord(first), tx.shape(inside)]
        total = tx.reduce(gradient * (value * scale), inside, tx.add)
        partial_weight(tx.coord(nest.index(0), column), tx.shape(1, 1)).store(total)


def _blocks(view: Any) -> tuple[tx.Axis, tx.Axis]:
    blocks = (view.extent(0) + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK
    return tx.axis("blocks", blocks), tx.axis("columns", view.extent(1))

"""Matrix products, alone and fused with a row softmax, and batched products with a vector."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from tvm_tilex import lang as tx
from tvm_tilex.ir.types import BoundsPolicy

__all__ = ["batched_gemv", "matmul", "matmul_softmax"]

LEFT, RIGHT, RESULT = ("rows", "depth"), ("depth", "columns"), ("rows", "columns")
BATCHED, VECTORS = ("batch", "rows", "depth"), ("batch", "depth")
RESULTS = ("batch", "rows")
ZERO = BoundsPolicy.zero


@tx.tile_kernel
def matmul(
    a: tx.TensorView[tx.floating, LEFT, ZERO],
    b: tx.TensorView[tx.floating, RIGHT, ZERO],
    output: tx.TensorView[tx.floating, RESULT, tx.Out, ZERO],
    *,
    block_rows: int = 32,
    block_columns: int = 32,
    block_depth: int = 32,
) -> None:
    """``output = a @ b``.

    Parameters
    ----------
    a, b
        (M, K) and (K, N), one float storage; FP32 sums.
    output
        (M, N), any float storage; rounded once.
    """
    down = tx.axis("down", -(-output.extent(0) // block_rows))
    across = tx.axis("across", -(-output.extent(1) // block_columns))
    steps = tx.axis("steps", -(-a.extent(1) // block_depth))
    rows, columns = tx.axis("block_rows", block_rows), tx.axis("block_columns", block_columns)
    depth = tx.axis("block_depth", block_depth)
    for nest in tx.parallel(tx.shape(down, across)):
        for _ in tx.group(tx.shape(rows, columns)):
            top, left = nest.index(0) * block_rows, nest.index(1) * block_columns
            for step in tx.pipeline(steps, tx.full(tx.shape(rows, columns), 0.0)):
                at = step.index() * block_depth
                x = a[tx.coord(top, at), tx.shape(rows, depth)]
                y = b[tx.coord(at, left), tx.shape(depth, columns)]
                step.carry(tx.dot(x, y, *step.state))
            (total,) = step.result
            result = tx.cast(total, output.dtype)
            output(tx.coord(top, left), tx.shape(rows, columns)).store(result)


@tx.tile_kernel
def matmul_softmax(
    a: tx.TensorView[tx.floating, LEFT, ZERO],
    b: tx.TensorView[tx.floating, RIGHT, ZERO],
    output: tx.TensorView[tx.floating, RESULT, tx.Out, ZERO],
    *,
    block_rows: int = 16,
    block_depth: int = 32,
) -> None:
    """``output = softmax(a @ b)`` over each row; one group holds whole rows of the product.

    Parameters
    ----------
    a, b
        (M, K) and (K, N), one float storage; FP32 sums.
    output
        (M, N), any float storage; rounded once. N is bounded by a group's memory: a wider product
        is computed by one thread a block of rows.
    """
    blocks = tx.axis("blocks", -(-output.extent(0) // block_rows))
    steps = tx.axis("steps", -(-a.extent(1) // block_depth))
    rows, depth = tx.axis("block_rows", block_rows), tx.axis("block_depth", block_depth)
    columns = tx.axis("columns", output.extent(1))
    for nest in tx.parallel(tx.shape(blocks)):
        for _ in tx.group(tx.shape(rows)):
            top = nest.index() * block_rows
            for step in tx.pipeline(steps, tx.full(tx.shape(rows, columns), 0.0)):
                at = step.index() * block_depth
                x = a[tx.coord(top, at), tx.shape(rows, depth)]
                y = b[tx.coord(at, 0), tx.shape(depth, columns)]
                step.carry(tx.dot(x, y, *step.state))
            (product,) = step.result
            weights = tx.exp(product - tx.reduce(product, columns, tx.maximum))
            result = tx.cast(weights / tx.reduce(weights, columns, tx.add), output.dtype)
            output(tx.coord(top, 0), tx.shape(rows, columns)).store(result)


@tx.tile_kernel
def batched_gemv(
    matrix: tx.TensorView[tx.floating, BATCHED, ZERO],
    vector: tx.TensorView[tx.floating, VECTORS, ZERO],
    output: tx.TensorView[tx.floating, RESULTS, tx.Out, ZERO],
    *,
    block_rows: int = 8,
    block_depth: int = 256,
) -> None:
    """``output[b, m] = sum over k of matrix[b, m, k] * vector[b, k]``.

    Parameters
    ----------
    matrix, vector
        (B, M, K) and (B, K), any float storage; FP32 products and sums.
    output
        (B, M), any float storage; rounded once.
    """
    batch = tx.axis("batch", matrix.extent(0))
    blocks = tx.axis("blocks", -(-matrix.extent(1) // block_rows))
    steps = tx.axis("steps", -(-matrix.extent(2) // block_depth))
    rows, depth = tx.axis("block_rows", block_rows), tx.axis("block_depth", block_depth)
    for nest in tx.parallel(tx.shape(batch, blocks)):
        for _ in tx.group(tx.shape(rows)):
            b, top = nest.index(0), nest.index(1) * block_rows
            for step in tx.pipeline(steps, tx.full(tx.shape(rows), 0.0)):
                (total,) = step.state
                at = step.index() * block_depth
                x = tx.cast(matrix[tx.coord(b, top, at), tx.shape(1, rows, depth)], tx.float32)
                y = tx.cast(vector[tx.coord(b, at), tx.shape(1, depth)], tx.float32)
                step.carry(total + tx.reduce(x * y, depth, tx.add))
            (total,) = step.result
            output(tx.coord(b, top), tx.shape(1, rows)).store(tx.cast(total, output.dtype))

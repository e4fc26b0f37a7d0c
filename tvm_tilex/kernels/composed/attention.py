"""Attention forward with an online softmax."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

import math
from typing import Any

from tvm_tilex import lang as tx
from tvm_tilex.ir.types import BoundsPolicy

__all__ = ["attention"]

QUERIES = ("batch", "heads", "queries", "depth")
KEYS = ("batch", "heads", "keys", "depth")


@tx.tile_kernel
def attention(
    query: tx.TensorView[tx.floating, QUERIES, BoundsPolicy.zero],
    key: tx.TensorView[tx.floating, KEYS, BoundsPolicy.zero],
    value: tx.TensorView[tx.floating, KEYS, BoundsPolicy.zero],
    output: tx.TensorView[tx.floating, QUERIES, tx.Out, BoundsPolicy.zero],
    *,
    causal: bool = False,
    scale: float = 0.0,
    block_queries: int = 32,
    block_keys: int = 32,
) -> None:
    """``output = softmax(scale * query @ key^T) @ value`` for every batch and head.

    Parameters
    ----------
    query, key, value, output
        (batch, heads, sequence, head dimension), one float storage; products of stored elements,
        FP32 sums and state. The weights are rounded to the storage type for the second product.
    causal
        Query i sees keys 0 to i only; both sequences begin at one position. Blocks of keys that
        all queries of a block see are not masked.
    scale
        0 is one over the root of the head dimension.
    block_queries, block_keys
        Tile sizes; any sequence length is right.
    """
    length, depth = key.extent(2), tx.axis("depth", query.extent(3))
    batch, heads = tx.axis("batch", query.extent(0)), tx.axis("heads", query.extent(1))
    blocks = tx.axis("blocks", -(-query.extent(2) // block_queries))
    steps = tx.axis("steps", -(-length // block_keys))
    queries, keys = tx.axis("queries", block_queries), tx.axis("keys", block_keys)
    # exp(x) is exp2(x * log2(e)), one instruction on most targets.
    factor = (scale or 1.0 / math.sqrt(depth.extent)) * math.log2(math.e)
    # A block of queries meets the diagonal in so many blocks of keys, wherever it begins.
    diagonal = tx.axis("diagonal", (block_queries + block_keys - 2) // block_keys + 1)

    def attend(b: Any, h: Any, first: Any, q: Any, step: Any, state: Any, *, masked: bool) -> Any:
        peak, total, mixed = state
        at = step * block_keys
        k = key[tx.coord(b, h, at, 0), tx.shape(1, 1, keys, depth)]
        v = value[tx.coord(b, h, at, 0), tx.shape(1, 1, keys, depth)]
        scores = tx.dot(q, k, tx.full(tx.shape(queries, keys), 0.0))
        if factor < 0:
            scores = -scores
        if masked:  # a value of each query, which stays with the lanes that hold its row
            last = tx.coordinate(queries) + tx.coordinate(first - at)
            scores = tx.where(last >= tx.coordinate(keys), scores, -math.inf)
        beyond = masked and query.extent(2) > length
        if length % block_keys or beyond:  # keys past the end score 0, since they load as zero
            place = tx.coordinate(keys) + tx.coordinate(at)
            scores = scores + tx.where(place < length, 0.0, -math.inf)
        # Scaling keeps the order, so that the largest score alone is scaled before.
        higher = tx.maximum(peak, tx.reduce(scores, keys, tx.maximum) * abs(factor))
        weights = tx.exp2(tx.fma(scores, abs(factor), -higher))
        fade = tx.exp2(peak - higher)
        return (
            higher,
            total * fade + tx.reduce(weights, keys, tx.add),
            tx.dot(tx.cast(weights, value.dtype), v, mixed * fade),
        )

    for nest in tx.parallel(tx.shape(batch, heads, blocks)):
        for _ in tx.group(tx.shape(queries)):
            # Causal blocks that see the most keys begin first, so that short ones end the launch.
            block = blocks.extent - 1 - nest.index(2) if causal else nest.index(2)
            b, h, first = nest.index(0), nest.index(1), block * block_queries
            row = tx.coord(b, h, first, 0)
            q = query[row, tx.shape(1, 1, queries, depth)]
            peak = tx.full(tx.shape(queries), -math.inf)
            total = tx.full(tx.shape(queries), 0.0)
            mixed = tx.full(tx.shape(queries, depth), 0.0)
            state = (peak, total, mixed)
            if causal:
                # Blocks that every query of this one sees whole, then those on the diagonal.
                whole = first // block_keys
                stop = (first + block_queries + block_keys - 1) // block_keys
                for step in tx.pipeline(steps, *state, stop=whole):
                    step.carry(*attend(b, h, first, q, step.index(), step.state, masked=False))
                state = step.result
                for last in tx.pipeline(diagonal, *state, stop=stop - whole):
                    at = whole + last.index()
                    last.carry(*attend(b, h, first, q, at, last.state, masked=True))
                _, total, mixed = last.result
            else:
                for step in tx.pipeline(steps, *state):
                    step.carry(*attend(b, h, first, q, step.index(), step.state, masked=False))
                _, total, mixed = step.result
            result = tx.cast(mixed / total, output.dtype)
            output(row, tx.shape(1, 1, queries, depth)).store(result)

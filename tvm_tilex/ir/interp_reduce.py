"""Reductions of the interpreter: each policy's order, literally, along the last axis of an array.

The arrays hold the state's type already (float32 for float tiles, float64 in that precision, the
integer's own type otherwise), and every step rounds to it. NaN propagates through ``maximum`` and
``minimum``; which zero they give for +0 and -0, and a NaN's payload, are unspecified.
"""

from __future__ import annotations

import numpy as np

from tvm_tilex.ir.interp_elementwise import Array
from tvm_tilex.ir.ops import Combiner, ReductionPolicy

__all__ = ["reduce_last"]

_UFUNCS: dict[Combiner, np.ufunc] = {
    Combiner.add: np.add,
    Combiner.maximum: np.maximum,
    Combiner.minimum: np.minimum,
}
_BLOCK = 1024  # elements folded at a time, to bound the prefix array of a fold


def reduce_last(
    x: Array,
    combiner: Combiner,
    policy: ReductionPolicy,
    identity: float | int,
    seed: tuple[int, int],
) -> Array:
    """Combine ``x`` over its last axis in an order that ``policy`` permits.

    ``seed`` is (the caller's seed, the value's number). An ``unordered_tree`` under the caller's
    seed 0 is a balanced tree, the most accurate order; any other seed picks a pseudo-random one,
    the same for every program. The identity takes part in it once, as it does in a carry.
    """
    op = _UFUNCS[combiner]
    start = np.full((*x.shape[:-1], 1), identity, x.dtype)
    if policy is ReductionPolicy.ordered_tree:
        return _ordered_tree(op, x)
    if policy is ReductionPolicy.fold_left:
        return _fold_left(op, start, x)
    if policy is ReductionPolicy.fold_right:
        # op(x[i], state) is op(state, x[i]) bit for bit, so a right fold is a left fold backward.
        return _fold_left(op, start, x[..., ::-1])
    if seed[0] == 0:
        return np.asarray(op(start[..., 0], _balanced(op, x)))
    return _shuffled(op, start, x, np.random.default_rng(seed))


def _fold_left(op: np.ufunc, state: Array, x: Array) -> Array:
    """``accumulate`` is NumPy's sequential scan: element i is ``op(element i-1, x[i])``."""
    for begin in range(0, x.shape[-1], _BLOCK):
        block = np.concatenate([state, x[..., begin : begin + _BLOCK]], axis=-1)
        state = op.accumulate(block, axis=-1, dtype=x.dtype)[..., -1:]
    return np.asarray(state[..., 0])


def _ordered_tree(op: np.ufunc, x: Array) -> Array:
    """Level l holds t[k * 2**l] at place k: combine neighbours, an odd last one passes."""
    while x.shape[-1] > 1:
        paired = x.shape[-1] // 2 * 2
        level = op(x[..., 0:paired:2], x[..., 1:paired:2])
        x = np.concatenate([level, x[..., paired:]], axis=-1)
    return np.asarray(x[..., 0])


def _balanced(op: np.ufunc, x: Array) -> Array:
    """Combine the first half with the second until one element is left."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        level = op(x[..., :half], x[..., x.shape[-1] - half :])
        x = np.concatenate([level, x[..., half : x.shape[-1] - half]], axis=-1)
    return np.asarray(x[..., 0])


def _shuffled(op: np.ufunc, start: Array, x: Array, rng: np.random.Generator) -> Array:
    """Permute, deal the elements to a random number of workers that fold, then repeat."""
    while x.shape[-1] > 1:
        length = x.shape[-1]
        x = x[..., rng.permutation(length)]
        workers = int(rng.integers(1, length))
        state = x[..., :workers]
        for begin in range(workers, length, workers):
            width = min(workers, length - begin)
            state = np.concatenate(
                [op(state[..., :width], x[..., begin : begin + width]), state[..., width:]], axis=-1
            )
        x = state
    return np.asarray(op(start[..., 0], x[..., 0]))

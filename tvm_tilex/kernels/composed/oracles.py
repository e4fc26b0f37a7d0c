"""FP64 formulas of the composed kernels in NumPy, written from the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tvm_tilex.kernels.float64 import Float64, widened

__all__ = [
    "attention",
    "attention_magnitude",
    "batched_gemv",
    "batched_gemv_magnitude",
    "column_max",
    "column_sum",
    "column_sum_magnitude",
    "group_normalization",
    "matmul",
    "matmul_magnitude",
    "matmul_softmax",
    "matmul_softmax_magnitude",
]


def _softmax(x: Float64) -> Float64:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Float64 = weights / weights.sum(axis=-1, keepdims=True)
    return result


def _attention_weights(q: Float64, k: Float64, causal: bool, scale: float) -> Float64:
    scores = (scale or 1 / math.sqrt(q.shape[-1])) * (q @ k.swapaxes(-1, -2))
    if causal:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) <= np.arange(queries)[:, None], scores, -np.inf)
    return _softmax(scores)


def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, causal: bool = False, scale: float = 0.0, **_: Any
) -> Float64:
    """(B, H, S, D), (B, H, T, D), (B, H, T, D) -> (B, H, S, D)."""
    result: Float64 = _attention_weights(widened(q), widened(k), causal, scale) @ widened(v)
    return result


def attention_magnitude(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, causal: bool = False, scale: float = 0.0, **_: Any
) -> Float64:
    """Sum of |weight * value|, plus the terms that an error of the scores moves."""
    weights = _attention_weights(widened(q), widened(k), causal, scale)
    reach = abs(scale or 1 / math.sqrt(np.asarray(q).shape[-1])) * (
        np.abs(widened(q)) @ np.abs(widened(k)).swapaxes(-1, -2)
    ).max(axis=-1, keepdims=True)
    result: Float64 = (1 + reach) * (weights @ np.abs(widened(v)))
    return result


def matmul(a: ArrayLike, b: ArrayLike, **_: Any) -> Float64:
    """(M, K), (K, N) -> (M, N)."""
    result: Float64 = widened(a) @ widened(b)
    return result


def matmul_magnitude(a: ArrayLike, b: ArrayLike, **_: Any) -> Float64:
    """Sum of |a * b|."""
    result: Float64 = np.abs(widened(a)) @ np.abs(widened(b))
    return result


def matmul_softmax(a: ArrayLike, b: ArrayLike, **_: Any) -> Float64:
    """(M, K), (K, N) -> (M, N)."""
    return _softmax(matmul(a, b))


def matmul_softmax_magnitude(a: ArrayLike, b: ArrayLike, **_: Any) -> Float64:
    """An error e of the logits changes a weight by about itself times e."""
    reach = matmul_magnitude(a, b).max(axis=-1, keepdims=True)
    return matmul_softmax(a, b) * (1 + reach)


def batched_gemv(matrix: ArrayLike, vector: ArrayLike, **_: Any) -> Float64:
    """(B, M, K), (B, K) -> (B, M)."""
    result: Float64 = (widened(matrix) @ widened(vector)[:, :, None])[:, :, 0]
    return result


def batched_gemv_magnitude(matrix: ArrayLike, vector: ArrayLike, **_: Any) -> Float64:
    """Sum of |matrix * vector|."""
    return batched_gemv(np.abs(widened(matrix)), np.abs(widened(vector)))


def column_sum(x: ArrayLike, **_: Any) -> Float64:
    """(P, N) -> (N,)."""
    result: Float64 = widened(x).sum(axis=0)
    return result


def column_sum_magnitude(x: ArrayLike, **_: Any) -> Float64:
    """Sum of |x|."""
    return column_sum(np.abs(widened(x)))


def column_max(x: ArrayLike, **_: Any) -> Float64:
    """(P, N) -> (N,); NaN wins."""
    result: Float64 = widened(x).max(axis=0)
    return result


def group_normalization(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    *,
    groups: int = 2,
    epsilon: float = 1e-5,
    **_: Any,
) -> Float64:
    """(B, C, pixels), (C,), (C,) -> (B, C, pixels)."""
    wide = widened(x)
    batch, channels, pixels = wide.shape
    split = wide.reshape(batch, groups, channels // groups * pixels)
    centered = split - split.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    normal = (centered / np.sqrt(variance + epsilon)).reshape(wide.shape)
    result: Float64 = normal * widened(weight)[:, None] + widened(bias)[:, None]
    return result

"""FP64 formulas of the kernel library in NumPy, written from the definitions.

They share no code with the language, TileIR or any lowering. Each takes the inputs as stored
(already rounded to their storage type), widens them to float64 and returns float64 arrays: one
array, or a tuple for several outputs. Non-finite rows follow each kernel's own documentation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tvm_tilex.kernels.float64 import Float64, widened

__all__ = [
    "cross_entropy",
    "layernorm",
    "layernorm_no_affine",
    "log_softmax",
    "logsumexp",
    "minmax",
    "residual_layernorm",
    "rmsnorm",
    "row_max",
    "row_min",
    "row_sum",
    "softmax",
]


def row_sum(x: ArrayLike) -> Float64:
    """(P, N) -> (P,)."""
    result: Float64 = widened(x).sum(axis=1)
    return result


def row_max(x: ArrayLike) -> Float64:
    """(P, N) -> (P,); NaN wins."""
    result: Float64 = widened(x).max(axis=1)
    return result


def row_min(x: ArrayLike) -> Float64:
    """(P, N) -> (P,); NaN wins."""
    result: Float64 = widened(x).min(axis=1)
    return result


def minmax(x: ArrayLike) -> tuple[Float64, Float64]:
    """(P, N) -> (P,), (P,)."""
    return row_min(x), row_max(x)


@np.errstate(invalid="ignore")
def softmax(x: ArrayLike) -> Float64:
    """(P, N) -> (P, N); rows of all -inf or with +inf are NaN."""
    wide = widened(x)
    weights = np.exp(wide - wide.max(axis=1, keepdims=True))
    result: Float64 = weights / weights.sum(axis=1, keepdims=True)
    return result


@np.errstate(invalid="ignore", divide="ignore")
def log_softmax(x: ArrayLike) -> Float64:
    """(P, N) -> (P, N); rows of all -inf or with +inf are NaN."""
    wide = widened(x)
    shifted = wide - wide.max(axis=1, keepdims=True)
    result: Float64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


@np.errstate(invalid="ignore")
def logsumexp(x: ArrayLike) -> Float64:
    """(P, N) -> (P,), by pairwise ``logaddexp``: -inf of nothing but -inf, +inf with a +inf."""
    result: Float64 = np.logaddexp.reduce(widened(x), axis=1)
    return result


def layernorm_no_affine(x: ArrayLike, eps: float = 1e-5) -> Float64:
    """(P, N) -> (P, N), biased variance."""
    wide = widened(x)
    mean = wide.mean(axis=1, keepdims=True)
    result: Float64 = (wide - mean) / np.sqrt(wide.var(axis=1, keepdims=True) + eps)
    return result


def layernorm(x: ArrayLike, weight: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> Float64:
    """(P, N), (N,), (N,) -> (P, N), biased variance."""
    result: Float64 = layernorm_no_affine(x, eps) * widened(weight) + widened(bias)
    return result


def residual_layernorm(x: ArrayLike, residual: ArrayLike, eps: float = 1e-5) -> Float64:
    """(P, N), (P, N) -> (P, N), biased variance of the sum."""
    result: Float64 = layernorm_no_affine(widened(x) + widened(residual), eps)
    return result


def rmsnorm(x: ArrayLike, weight: ArrayLike, eps: float = 1e-6) -> Float64:
    """(P, N), (N,) -> (P, N)."""
    wide = widened(x)
    mean_square = np.mean(np.square(wide), axis=1, keepdims=True)
    result: Float64 = wide / np.sqrt(mean_square + eps) * widened(weight)
    return result


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Float64:
    """(P, N), integer (P,) -> (P,); a label outside [0, N) has the logit 0."""
    wide = widened(logits)
    rows, columns = wide.shape
    where = np.asarray(labels, dtype=np.int64)
    inside = (where >= 0) & (where < columns)
    chosen = np.where(inside, wide[np.arange(rows), np.where(inside, where, 0)], 0.0)
    peak = wide.max(axis=1)
    result: Float64 = np.log(np.sum(np.exp(wide - peak[:, None]), axis=1)) + peak - chosen
    return result

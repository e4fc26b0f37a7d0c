"""FP64 gradients of the library in NumPy, written from the definitions.

Each takes the inputs of its kernel in :mod:`tvm_tilex.kernels.gradients`, as stored, and returns
float64 arrays. Beside each stands ``<name>_magnitude``: for every element of every output the sum
of the absolute values of the terms whose difference it is, which rounding errors scale with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tvm_tilex.kernels.float64 import Float64, widened
from tvm_tilex.kernels.shapes import ROWS_PER_BLOCK

__all__ = [
    "cross_entropy_backward",
    "cross_entropy_backward_magnitude",
    "layernorm_backward",
    "layernorm_backward_magnitude",
    "layernorm_no_affine_backward",
    "layernorm_no_affine_backward_magnitude",
    "layernorm_parameters_backward",
    "layernorm_parameters_backward_magnitude",
    "log_softmax_backward",
    "log_softmax_backward_magnitude",
    "rmsnorm_backward",
    "rmsnorm_backward_magnitude",
    "rmsnorm_parameters_backward",
    "rmsnorm_parameters_backward_magnitude",
    "softmax_backward",
    "softmax_backward_magnitude",
]


def _sum(x: Float64) -> Float64:
    result: Float64 = x.sum(axis=1, keepdims=True)
    return result


def _mean(x: Float64) -> Float64:
    result: Float64 = x.mean(axis=1, keepdims=True)
    return result


def softmax_backward(output: ArrayLike, grad: ArrayLike) -> Float64:
    """(P, N), (P, N) -> (P, N)."""
    y, g = widened(output), widened(grad)
    return y * (g - _sum(y * g))


def softmax_backward_magnitude(output: ArrayLike, grad: ArrayLike) -> Float64:
    """(P, N), (P, N) -> (P, N)."""
    y, g = np.abs(widened(output)), np.abs(widened(grad))
    return y * (g + _sum(y * g))


def log_softmax_backward(output: ArrayLike, grad: ArrayLike) -> Float64:
    """(P, N), (P, N) -> (P, N)."""
    y, g = widened(output), widened(grad)
    return g - np.exp(y) * _sum(g)


def log_softmax_backward_magnitude(output: ArrayLike, grad: ArrayLike) -> Float64:
    """(P, N), (P, N) -> (P, N); ``exp`` multiplies an error by its argument."""
    y, g = widened(output), np.abs(widened(grad))
    return g + np.exp(y) * _sum(g)


def _normalized(x: ArrayLike, eps: float) -> tuple[Float64, Float64]:
    """The normalized rows and 1 / deviation."""
    wide = widened(x)
    inverse: Float64 = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + eps)
    return (wide - _mean(wide)) * inverse, inverse


def layernorm_no_affine_backward(x: ArrayLike, grad: ArrayLike, eps: float = 1e-5) -> Float64:
    """(P, N), (P, N) -> (P, N)."""
    n, inverse = _normalized(x, eps)
    g = widened(grad)
    return inverse * (g - _mean(g) - n * _mean(g * n))


def layernorm_no_affine_backward_magnitude(
    x: ArrayLike, grad: ArrayLike, eps: float = 1e-5
) -> Float64:
    """(P, N), (P, N) -> (P, N)."""
    n, inverse = _normalized(x, eps)
    g, n = np.abs(widened(grad)), np.abs(n)
    return inverse * (g + _mean(g) + n * _mean(g * n))


def layernorm_backward(
    x: ArrayLike, weight: ArrayLike, grad: ArrayLike, eps: float = 1e-5
) -> tuple[Float64, Float64, Float64, Float64]:
    """(P, N), (N,), (P, N) -> (P, N), (P,), (P,), (P,): the pivot is the kernel's own choice."""
    result = layernorm_no_affine_backward(x, widened(grad) * widened(weight), eps)
    wide = widened(x)
    columns = wide.shape[1]
    pivot: Float64 = np.median(wide[:, [0, (columns - 1) // 2, columns - 1]], axis=1)
    return result, pivot, wide.mean(axis=1) - pivot, _normalized(x, eps)[1][:, 0]


def layernorm_backward_magnitude(
    x: ArrayLike, weight: ArrayLike, grad: ArrayLike, eps: float = 1e-5
) -> tuple[Float64, Float64, Float64, Float64]:
    """As :func:`layernorm_backward`."""
    result = layernorm_no_affine_backward_magnitude(x, widened(grad) * widened(weight), eps)
    _, pivot, _, inverse = layernorm_backward(x, weight, grad, eps)
    away: Float64 = np.abs(widened(x) - pivot[:, None]).mean(axis=1)
    return result, np.abs(pivot), away, inverse


def rmsnorm_backward(
    x: ArrayLike, weight: ArrayLike, grad: ArrayLike, eps: float = 1e-6
) -> tuple[Float64, Float64]:
    """(P, N), (N,), (P, N) -> (P, N), (P,)."""
    wide, g = widened(x), widened(grad) * widened(weight)
    inverse = 1 / np.sqrt(_mean(np.square(wide)) + eps)
    n = wide * inverse
    return inverse * (g - n * _mean(g * n)), inverse[:, 0]


def rmsnorm_backward_magnitude(
    x: ArrayLike, weight: ArrayLike, grad: ArrayLike, eps: float = 1e-6
) -> tuple[Float64, Float64]:
    """As :func:`rmsnorm_backward`."""
    wide, g = np.abs(widened(x)), np.abs(widened(grad) * widened(weight))
    inverse = 1 / np.sqrt(_mean(np.square(wide)) + eps)
    n = wide * inverse
    return inverse * (g + n * _mean(g * n)), inverse[:, 0]


def cross_entropy_backward(logits: ArrayLike, labels: ArrayLike, grad: ArrayLike) -> Float64:
    """(P, N), integer (P,), (P,) -> (P, N); a label outside [0, N) selects nothing."""
    share, chosen = _shares(logits, labels)
    return (share - chosen) * widened(grad)[:, None]


def cross_entropy_backward_magnitude(
    logits: ArrayLike, labels: ArrayLike, grad: ArrayLike
) -> Float64:
    """As :func:`cross_entropy_backward`."""
    share, chosen = _shares(logits, labels)
    return (share + chosen) * np.abs(widened(grad))[:, None]


def _shares(logits: ArrayLike, labels: ArrayLike) -> tuple[Float64, Float64]:
    wide = widened(logits)
    weights = np.exp(wide - wide.max(axis=1, keepdims=True))
    chosen = np.arange(wide.shape[1]) == np.asarray(labels, np.int64)[:, None]
    return weights / _sum(weights), chosen.astype(np.float64)


def _blocks(x: Float64) -> Float64:
    """(P, N) -> (ceil(P / 64), N), summed in blocks of 64 rows."""
    starts = np.arange(0, len(x), ROWS_PER_BLOCK)
    result: Float64 = np.add.reduceat(x, starts) if len(x) else np.zeros((0, x.shape[1]))
    return result


def layernorm_parameters_backward(
    x: ArrayLike, grad: ArrayLike, pivot: ArrayLike, distance: ArrayLike, inverse: ArrayLike
) -> tuple[Float64, Float64]:
    """(P, N), (P, N), three (P,) -> two of (ceil(P / 64), N)."""
    mean = (widened(pivot) + widened(distance))[:, None]
    n = (widened(x) - mean) * widened(inverse)[:, None]
    return _blocks(widened(grad) * n), _blocks(widened(grad))


def layernorm_parameters_backward_magnitude(
    x: ArrayLike, grad: ArrayLike, pivot: ArrayLike, distance: ArrayLike, inverse: ArrayLike
) -> tuple[Float64, Float64]:
    """As :func:`layernorm_parameters_backward`."""
    away = np.abs(widened(x) - widened(pivot)[:, None]) + np.abs(widened(distance))[:, None]
    g = np.abs(widened(grad))
    return _blocks(g * away * np.abs(widened(inverse))[:, None]), _blocks(g)


def rmsnorm_parameters_backward(x: ArrayLike, grad: ArrayLike, inverse: ArrayLike) -> Float64:
    """(P, N), (P, N), (P,) -> (ceil(P / 64), N)."""
    return _blocks(widened(grad) * widened(x) * widened(inverse)[:, None])


def rmsnorm_parameters_backward_magnitude(
    x: ArrayLike, grad: ArrayLike, inverse: ArrayLike
) -> Float64:
    """As :func:`rmsnorm_parameters_backward`."""
    return _blocks(np.abs(widened(grad) * widened(x) * widened(inverse)[:, None]))

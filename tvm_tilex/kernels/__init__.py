"""Ready-made tile kernels: row reductions, softmax, normalization, cross-entropy.

Every kernel works on the last axis of a matrix, takes float32, float16 or bfloat16 storage (each
view its own), computes in FP32 and rounds once at the store. :func:`catalog` lists them with
their FP64 oracles, inputs and tolerances. Their gradients are in
:mod:`tvm_tilex.kernels.gradients`, with a catalog of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm_tilex.kernels.loss import cross_entropy
from tvm_tilex.kernels.normalization import (
    layernorm,
    layernorm_no_affine,
    residual_layernorm,
    rmsnorm,
)
from tvm_tilex.kernels.reductions import minmax, row_max, row_min, row_sum
from tvm_tilex.kernels.softmax_family import log_softmax, logsumexp, softmax

if TYPE_CHECKING:
    from tvm_tilex.kernels.registry import KernelEntry

__all__ = [
    "catalog",
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


def catalog() -> Mapping[str, KernelEntry]:
    """Return every kernel of the library by name, with its oracle, inputs and tolerance."""
    from tvm_tilex.kernels.registry import entries  # needs NumPy, which a kernel does not

    return entries()

"""Kernels with cooperative groups: attention, fused products, reductions over any axis.

Every kernel takes float32, float16 or bfloat16 storage, keeps FP32 state and rounds once at the
store; tile sizes are compile-time constants. :func:`catalog` lists them with FP64 oracles, inputs
and tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm_tilex.kernels.composed.attention import attention
from tvm_tilex.kernels.composed.columns import (
    column_max,
    column_sum,
    split_column_max,
    split_column_sum,
)
from tvm_tilex.kernels.composed.group_normalization import group_normalization
from tvm_tilex.kernels.composed.products import batched_gemv, matmul, matmul_softmax

if TYPE_CHECKING:
    from tvm_tilex.kernels.composed.registry import ComposedEntry

__all__ = [
    "attention",
    "batched_gemv",
    "catalog",
    "column_max",
    "column_sum",
    "group_normalization",
    "matmul",
    "matmul_softmax",
    "split_column_max",
    "split_column_sum",
]


def catalog() -> Mapping[str, ComposedEntry]:
    """Return every kernel of this package by name, with its oracle, inputs and tolerance."""
    from tvm_tilex.kernels.composed.registry import entries  # needs NumPy, which a kernel does not

    return entries()

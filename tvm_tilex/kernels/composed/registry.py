"""The composed kernels with what a test or a benchmark needs to run and judge them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.ir.types import DType, dtype_of, numpy_dtype
from tvm_tilex.kernels import composed
from tvm_tilex.kernels.composed import oracles
from tvm_tilex.kernels.tolerances import Comparison, compare
from tvm_tilex.lang.kernel import TensorSpec, TileKernel

__all__ = ["ComposedEntry", "entries"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ComposedEntry:
    """A kernel with its oracle and its row of the tolerance table.

    ``magnitude`` gives the scale of each output's error (see :mod:`tvm_tilex.kernels.tolerances`),
    ``reduced`` names the dimension that is summed.
    """

    name: str
    kernel: TileKernel
    oracle: Callable[..., NDArray[np.float64]]
    operation: str
    reduced: str
    magnitude: Callable[..., NDArray[np.float64]] | None = None

    def specs(
        self, extents: Mapping[str, int], dtype: str | DType = "float32"
    ) -> tuple[TensorSpec, ...]:
        """Argument types for the extents of the kernel's named dimensions and one storage type.

        A view that takes a single element type keeps it.
        """
        storage = dtype_of(dtype)
        return tuple(
            TensorSpec(
                tuple(extents[name] for name in view.dimensions or ()),
                storage if storage in view.dtypes else view.dtypes[0],
            )
            for view in self.kernel.parameters.values()
        )

    def arguments(
        self, extents: Mapping[str, int], dtype: str | DType = "float32", *, seed: int = 0
    ) -> tuple[Array, ...]:
        """Standard normal inputs, and outputs filled with NaN so that a missing store shows."""
        generator = np.random.default_rng(seed)
        views = self.kernel.parameters.values()
        return tuple(
            np.full(spec.shape, np.nan, numpy_dtype(spec.dtype))
            if view.access is not ViewAccess.read
            else generator.standard_normal(spec.shape, dtype=np.float32).astype(
                numpy_dtype(spec.dtype)
            )
            for view, spec in zip(views, self.specs(extents, dtype), strict=True)
        )

    def check(self, arguments: Sequence[Any], **constants: Any) -> Comparison:
        """Compare the output, the last of ``arguments``, with the oracle."""
        inputs, output = self.inputs(arguments), arguments[-1]
        magnitude = self.magnitude
        return compare(
            self.operation,
            dtype_of(str(output.dtype)),
            output,
            self.oracle(*inputs, **constants),
            columns=max(2, self.depth(arguments)),  # one product is rounded too
            magnitude=None if magnitude is None else magnitude(*inputs, **constants),
        )

    def inputs(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments that are only read, which the oracle takes."""
        views = self.kernel.parameters.values()
        return tuple(
            array
            for view, array in zip(views, arguments, strict=True)
            if view.access is ViewAccess.read
        )

    def depth(self, arguments: Sequence[Any]) -> int:
        """Extent of the dimension that is summed."""
        for view, array in zip(self.kernel.parameters.values(), arguments, strict=True):
            if self.reduced in (view.dimensions or ()):
                return int(array.shape[(view.dimensions or ()).index(self.reduced)])
        raise KeyError(self.reduced)


@functools.cache
def entries() -> Mapping[str, ComposedEntry]:
    """Return the composed kernels by name."""
    table = (
        ComposedEntry(
            "attention",
            composed.attention,
            oracles.attention,
            "attention",
            "keys",
            oracles.attention_magnitude,
        ),
        ComposedEntry(
            "matmul", composed.matmul, oracles.matmul, "product", "depth", oracles.matmul_magnitude
        ),
        ComposedEntry(
            "matmul_softmax",
            composed.matmul_softmax,
            oracles.matmul_softmax,
            "product softmax",
            "depth",
            oracles.matmul_softmax_magnitude,
        ),
        ComposedEntry(
            "batched_gemv",
            composed.batched_gemv,
            oracles.batched_gemv,
            "product",
            "depth",
            oracles.batched_gemv_magnitude,
        ),
        ComposedEntry(
            "column_sum",
            composed.column_sum,
            oracles.column_sum,
            "sum",
            "rows",
            oracles.column_sum_magnitude,
        ),
        ComposedEntry("column_max", composed.column_max, oracles.column_max, "selection", "rows"),
        ComposedEntry(
            "split_column_sum",
            composed.split_column_sum,
            oracles.column_sum,
            "sum",
            "rows",
            oracles.column_sum_magnitude,
        ),
        ComposedEntry(
            "split_column_max", composed.split_column_max, oracles.column_max, "selection", "rows"
        ),
        ComposedEntry(
            "group_normalization",
            composed.group_normalization,
            oracles.group_normalization,
            "normalization",
            "pixels",
        ),
    )
    return types.MappingProxyType({entry.name: entry for entry in table})

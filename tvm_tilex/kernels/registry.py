"""The library's kernels with what a user, a test or a benchmark needs to run and judge them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex import kernels
from tvm_tilex.errors import ShapeError
from tvm_tilex.ir.index import Extent, most
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.ir.types import DType, dtype_of, numpy_dtype
from tvm_tilex.kernels import gradient_oracles, gradients, oracles
from tvm_tilex.kernels.shapes import ROWS_PER_BLOCK
from tvm_tilex.kernels.tolerances import TOLERANCES, Comparison, compare
from tvm_tilex.lang.kernel import TensorSpec, TileKernel

__all__ = ["KernelEntry", "entries", "gradient_entries"]

Array = NDArray[Any]


@dataclass(frozen=True)
class KernelEntry:
    """A kernel over P ``rows`` of N ``columns``, its oracle and its row of the tolerance table.

    Argument types follow from the kernel's annotations: the dimension names give the shape, and
    an argument that cannot be stored in the asked type (labels) has its annotation's first.
    """

    name: str
    kernel: TileKernel
    oracle: Callable[..., Any]
    operation: str
    # The sum of the absolute values of the terms of each output, where they cancel: what rounding
    # errors are proportional to. Takes the inputs, as the oracle does.
    magnitude: Callable[..., Any] | None = None

    @property
    def summary(self) -> str:
        """First line of the kernel's documentation."""
        return (self.kernel.__doc__ or "").partition("\n")[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments in call order."""
        return tuple(self.kernel.parameters)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the arguments that the kernel writes."""
        views = self.kernel.parameters.values()
        return tuple(i for i, view in enumerate(views) if view.access is not ViewAccess.read)

    def specs(
        self, rows: Extent, columns: Extent, dtype: str | DType = "float32"
    ) -> tuple[TensorSpec, ...]:
        """Argument types for P = ``rows``, N = ``columns`` and one storage type.

        Either may be dynamic (:func:`tvm_tilex.dynamic`).

        Raises
        ------
        ShapeError
            If there are fewer than 0 rows or 1 column.
        DTypeError
            If the language has no such element type.
        """
        if most(rows) < 0 or most(columns) < 1:
            raise ShapeError(f"{self.name}: {rows}x{columns} is no shape of P >= 0 by N >= 1")
        storage, blocks = dtype_of(dtype), -(-rows // ROWS_PER_BLOCK)
        extents = {"rows": rows, "columns": columns, "blocks": blocks}
        return tuple(
            TensorSpec(
                tuple(extents[name] for name in view.dimensions or ()),
                storage if storage in view.dtypes else view.dtypes[0],
            )
            for view in self.kernel.parameters.values()
        )

    def arguments(
        self, rows: int, columns: int, dtype: str | DType = "float32", *, seed: int = 0
    ) -> tuple[Array, ...]:
        """Random inputs, and outputs filled with NaN so that a missing store shows.

        Matrices are normal with spread 2 around a mean of row mod 3 - 1; labels lie in [0, N).
        """
        generator = np.random.default_rng(seed)
        specs = self.specs(rows, columns, dtype)
        return tuple(
            np.full(spec.shape, np.nan, numpy_dtype(_typed(spec)))
            if position in self.outputs
            else _random(generator, spec, columns)
            for position, spec in enumerate(specs)
        )

    def expected(self, arguments: Sequence[Any]) -> tuple[NDArray[np.float64], ...]:
        """FP64 value of each output, from the inputs among ``arguments`` (in call order)."""
        result = self.oracle(*self._inputs(arguments))
        return result if isinstance(result, tuple) else (result,)

    def check(
        self, arguments: Sequence[Any], expected: Sequence[Any] | None = None
    ) -> tuple[Comparison, ...]:
        """Compare each output among ``arguments``, NumPy arrays after the call, with its oracle.

        ``expected`` saves evaluating the oracle again where the inputs are the same.
        """
        first = np.asarray(arguments[0])
        magnitudes = self._magnitudes(arguments)
        return tuple(
            compare(
                self.operation,
                dtype_of(str(arguments[position].dtype)),
                arguments[position],
                wanted,
                columns=first.shape[1],
                magnitude=magnitude,
            )
            for position, wanted, magnitude in zip(
                self.outputs, expected or self.expected(arguments), magnitudes, strict=True
            )
        )

    def _magnitudes(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        if not TOLERANCES[self.operation].cancels:
            return (None,) * len(self.outputs)
        if self.magnitude is None:
            total = np.abs(np.asarray(arguments[0]).astype(np.float64)).sum(axis=1)
            return (total,) * len(self.outputs)
        result = self.magnitude(*self._inputs(arguments))
        return result if isinstance(result, tuple) else (result,)

    def useful_bytes(self, rows: int, columns: int, dtype: str | DType = "float32") -> int:
        """Bytes that must move: every input element read once, every output written once."""
        specs = self.specs(rows, columns, dtype)
        return sum(int(np.prod(spec.shape)) * _typed(spec).bytes for spec in specs)

    def _inputs(self, arguments: Sequence[Any]) -> list[Any]:
        return [a for position, a in enumerate(arguments) if position not in self.outputs]


def _typed(spec: TensorSpec) -> DType:
    assert spec.dtype is not None
    return spec.dtype


def _random(generator: np.random.Generator, spec: TensorSpec, columns: int) -> Array:
    if not _typed(spec).is_float:
        return generator.integers(0, columns, spec.shape, dtype=np.int64)
    values = generator.standard_normal(spec.shape, dtype=np.float32)
    if len(spec.shape) == 2:
        values = 2 * values + (np.arange(spec.shape[0], dtype=np.float32) % 3 - 1)[:, None]
    return values.astype(numpy_dtype(_typed(spec)))


@functools.cache
def entries() -> Mapping[str, KernelEntry]:
    """Return the library by kernel name."""
    table: tuple[tuple[TileKernel, Callable[..., Any], str], ...] = (
        (kernels.row_sum, oracles.row_sum, "sum"),
        (kernels.row_max, oracles.row_max, "selection"),
        (kernels.row_min, oracles.row_min, "selection"),
        (kernels.minmax, oracles.minmax, "selection"),
        (kernels.softmax, oracles.softmax, "softmax"),
        (kernels.log_softmax, oracles.log_softmax, "log"),
        (kernels.logsumexp, oracles.logsumexp, "log"),
        (kernels.layernorm, oracles.layernorm, "normalization"),
        (kernels.layernorm_no_affine, oracles.layernorm_no_affine, "normalization"),
        (kernels.rmsnorm, oracles.rmsnorm, "normalization"),
        (kernels.residual_layernorm, oracles.residual_layernorm, "normalization"),
        (kernels.cross_entropy, oracles.cross_entropy, "log"),
    )
    return types.MappingProxyType(
        {
            kernel.name: KernelEntry(kernel.name, kernel, oracle, operation)
            for kernel, oracle, operation in table
        }
    )


@functools.cache
def gradient_entries() -> Mapping[str, KernelEntry]:
    """Return the gradient kernels by name."""
    names = tuple(name for name in gradients.__all__ if name != "catalog")
    return types.MappingProxyType(
        {
            name: KernelEntry(
                name,
                getattr(gradients, name),
                getattr(gradient_oracles, name),
                "gradient",
                getattr(gradient_oracles, f"{name}_magnitude"),
            )
            for name in names
        }
    )

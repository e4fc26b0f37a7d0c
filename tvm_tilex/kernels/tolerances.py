"""The one table of tolerances, by operation and storage type, and the comparison that uses it.

An output ``y`` of storage type ``t`` is right when::

    |y - expected| <= rtol * scale + atol + u(t) * |expected| + s(t)

``expected`` is the FP64 formula on the inputs *as stored*, so only the FP32 computation and one
rounding at the store remain. ``u(t)`` is half the spacing of ``t`` at 1 and ``s(t)`` half its
smallest subnormal: the rounding of one store, nothing more. For float32 both are already in
``rtol`` and ``atol``. ``scale`` is ``|expected|``, except where terms of both signs cancel: there
it is the sum of the terms' absolute values, and for sums ``rtol`` grows with log2 N as the error of
a tree does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_tilex.ir.types import DTYPES, DType

__all__ = ["STORAGE", "TOLERANCES", "Comparison", "Tolerance", "compare"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """FP32 error bound of one operation (see the module for the inequality)."""

    rtol: float
    atol: float
    cancels: bool = False  # scale is the sum of the terms' absolute values
    grows: bool = False  # rtol is multiplied by log2 N
    rounds: bool = False  # factors were rounded to the storage type: u(t) of the scale is added


TOLERANCES: Mapping[str, Tolerance] = {
    # A choice, not arithmetic: bit for bit, the output being stored in the input's type.
    "selection": Tolerance(rtol=0.0, atol=0.0),
    "sum": Tolerance(rtol=1e-6, atol=0.0, cancels=True, grows=True),
    # Differences of products and means: sums of a row over its own scale.
    "gradient": Tolerance(rtol=2e-6, atol=1e-35, cancels=True),
    # Results are positive and as small as 1/N: an absolute slack of 2e-6 would excuse any row
    # wider than 50,000. The slack left is below float32's smallest normal times 2**10.
    "softmax": Tolerance(rtol=2e-5, atol=1e-35),
    "log": Tolerance(rtol=2e-5, atol=2e-6),
    "normalization": Tolerance(rtol=2e-5, atol=2e-6),
    # Sums of products over the sum of the products' absolute values.
    "product": Tolerance(rtol=1e-6, atol=0.0, cancels=True, grows=True),
    "product softmax": Tolerance(rtol=2e-6, atol=1e-35, cancels=True, grows=True),
    # The weights are rounded to the storage type for the second product.
    "attention": Tolerance(rtol=2e-6, atol=0.0, cancels=True, grows=True, rounds=True),
    # A kernel of the user's own, judged by the interpreter in float64.
    "composition": Tolerance(rtol=2e-5, atol=2e-6),
}

# Storage type -> (unit roundoff, half the smallest subnormal) of the one rounding at the store.
STORAGE: Mapping[DType, tuple[float, float]] = {
    DTYPES["float32"]: (0.0, 0.0),
    DTYPES["float16"]: (2.0**-11, 2.0**-25),
    DTYPES["bfloat16"]: (2.0**-8, 2.0**-134),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far an output is from its oracle."""

    within: bool
    max_absolute_error: float  # over the finite elements
    max_relative_error: float  # over the finite elements whose oracle isn't 0
    worst_ratio: float  # largest error / allowed error; inf where a NaN or inf is misplaced
    worst_index: tuple[int, ...]

    def __bool__(self) -> NoReturn:
        raise TypeError("a Comparison has no truth value; ask for .within")


def compare(
    operation: str,
    dtype: DType,
    actual: ArrayLike,
    expected: ArrayLike,
    *,
    columns: int = 1,
    magnitude: ArrayLike | None = None,
) -> Comparison:
    """Compare an output with its oracle.

    Parameters
    ----------
    operation
        A row of :data:`TOLERANCES`.
    dtype
        Storage type of ``actual``.
    actual, expected
        Arrays of one shape; ``expected`` in float64.
    columns
        N, the number of reduced elements.
    magnitude
        Sum of the terms' absolute values for each element of ``expected``; only for operations
        that cancel.

    Raises
    ------
    KeyError
        If the table has no such operation or storage type.
    ValueError
        If the shapes differ, or a magnitude is missing.
    """
    got, want = np.asarray(actual), np.asarray(expected)
    if got.shape != want.shape:
        raise ValueError(f"{operation}: the output has shape {got.shape}, the oracle {want.shape}")
    flat = [got.reshape(-1), want.reshape(-1)]
    if TOLERANCES[operation].cancels and magnitude is not None:
        flat.append(np.broadcast_to(np.asarray(magnitude), want.shape).reshape(-1))

    def part(begin: int) -> _Part:
        block = [_float64(array[begin : begin + _BLOCK]) for array in flat]
        return _compare_block(operation, dtype, columns, *block)

    starts = range(0, max(got.size, 1), _BLOCK)
    if len(starts) < _THREADED_BLOCKS:
        parts = [part(begin) for begin in starts]
    else:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            parts = list(pool.map(part, starts))
    within, absolute, relative, ratios, places = zip(*parts, strict=True)
    worst = int(np.argmax(ratios))  # of equal ones the first, as within a block
    return Comparison(
        within=all(within),
        max_absolute_error=float(np.max(absolute)),
        max_relative_error=float(np.max(relative)),
        worst_ratio=float(ratios[worst]),
        worst_index=_index(starts[worst] + places[worst], got),
    )


# What a core's cache holds with its intermediates; NumPy computes outside Python's lock.
_BLOCK = 1 << 14
_THREADED_BLOCKS = 16

_Part = tuple[bool, float, float, float, int]


def _index(place: int, array: NDArray[Any]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(place, array.shape))) if array.size else ()


def _compare_block(
    operation: str,
    dtype: DType,
    columns: int,
    got: NDArray[np.float64],
    want: NDArray[np.float64],
    magnitude: NDArray[np.float64] | None = None,
) -> _Part:
    """The comparison's fields for consecutive elements; the worst one's place among them."""
    finite = np.isfinite(want)
    same_class = np.where(finite, np.isfinite(got), _same_nonfinite(got, want))
    both = finite & np.isfinite(got)
    error = np.where(both, np.abs(np.where(both, got, 0) - np.where(both, want, 0)), 0.0)
    allowed = _allowed(operation, dtype, np.where(finite, want, 0.0), columns, magnitude)
    ratio = np.where(error == 0, 0.0, error / np.maximum(allowed, np.finfo(np.float64).tiny))
    ratio = np.where(same_class, ratio, math.inf)
    measured = both & (want != 0)
    relative = error[measured] / np.abs(want[measured])
    place = int(ratio.argmax()) if ratio.size else 0
    return (
        bool((ratio <= 1.0).all()),
        float(error.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        float(ratio[place]) if ratio.size else 0.0,
        place,
    )


def _allowed(
    operation: str, dtype: DType, want: NDArray[np.float64], columns: int, magnitude: Any
) -> NDArray[np.float64]:
    tolerance = TOLERANCES[operation]
    unit, subnormal = STORAGE[dtype]
    rtol, scale = tolerance.rtol, np.abs(want)
    if tolerance.cancels:
        if magnitude is None:
            raise ValueError(f"{operation}: needs the sum of the terms' absolute values")
        scale = magnitude
    if tolerance.grows:
        rtol *= math.log2(max(columns, 1))
    if rtol == tolerance.atol == 0.0:
        return np.zeros_like(want)
    if tolerance.rounds:
        rtol += unit
    return rtol * scale + tolerance.atol + unit * np.abs(want) + subnormal


def _same_nonfinite(got: NDArray[np.float64], want: NDArray[np.float64]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (got == want) | (np.isnan(got) & np.isnan(want))
    return same


def _float64(array: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64)

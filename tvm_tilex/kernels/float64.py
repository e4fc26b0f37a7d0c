"""The arrays that the oracles compute with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Float64", "widened"]

# NumPy's own stubs widen reductions to Any.
Float64 = NDArray[np.float64]


def widened(x: Any) -> Float64:
    """Return an array of the stored values in float64, exactly; never the array itself."""
    array: Float64 = np.asarray(x).astype(np.float64)
    return array

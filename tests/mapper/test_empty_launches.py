"""No program runs: nothing is launched, and no request is refused for it."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels


@pytest.mark.parametrize("options", [{}, {"threads_per_group": 64}, {"reduction_lane_elements": 4}])
def test_zero_rows_return(options):
    artifact = tx.compile(
        kernels.softmax,
        (0, 64),
        (0, 64),
        target="metal",
        options=tx.CompileOptions(**options),
    )
    empty = np.empty((0, 64), np.float32)
    artifact(empty, empty.copy())
    assert artifact.device.launches == ()

"""A large comparison goes by blocks, in threads; it says what one over the whole array says."""

import math

import numpy as np
import pytest

from tvm_tilex.ir.types import DTYPES
from tvm_tilex.kernels import tolerances
from tvm_tilex.kernels.tolerances import compare

FLOAT = DTYPES["float32"]
SHAPE = (37, 9001)  # many blocks, the last one ragged


@pytest.fixture
def arrays():
    want = np.random.default_rng(0).standard_normal(SHAPE)
    return want.copy(), want


@pytest.mark.parametrize("place", [(0, 0), (0, 8999), (20, 4321), (36, 9000)])
@pytest.mark.parametrize("wrong", [1e-3, math.nan, math.inf])
def test_one_wrong_element_is_found_wherever_it_is(arrays, place, wrong):
    got, want = arrays
    got[place] = want[place] + wrong
    found = compare("softmax", FLOAT, got, want)
    assert not found.within and found.worst_index == place
    assert math.isinf(found.worst_ratio) == (not math.isfinite(wrong))
    if math.isfinite(wrong):
        assert found.max_absolute_error == pytest.approx(wrong, rel=1e-9)
        assert found.max_relative_error == pytest.approx(wrong / abs(want[place]), rel=1e-9)


def test_the_first_of_equal_errors_is_the_worst(arrays):
    got, want = arrays
    want[:] = got[:] = 1.0
    got[30, 5] = got[12, 7] = got[12, 8] = 1.5
    assert compare("sum", FLOAT, got, want, magnitude=np.ones(SHAPE)).worst_index == (12, 7)


@pytest.mark.parametrize("operation", list(tolerances.TOLERANCES))
def test_blocks_say_what_the_whole_says(arrays, operation, monkeypatch):
    got, want = arrays
    noise = np.random.default_rng(1).standard_normal(SHAPE)
    got *= 1 + 1e-6 * noise
    got[3, 4], want[5, 6], want[7, 8] = math.inf, math.nan, 0.0
    want[9, 1] = got[9, 1] = -math.inf
    magnitude = np.abs(want) + 1
    by_blocks = compare(operation, FLOAT, got, want, columns=9001, magnitude=magnitude)
    monkeypatch.setattr(tolerances, "_BLOCK", got.size)
    whole = compare(operation, FLOAT, got, want, columns=9001, magnitude=magnitude)
    assert repr(by_blocks) == repr(whole)

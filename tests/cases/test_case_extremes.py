"""Public bug cases on infinities, NaN, identities and padding (O01 to O06)."""

import numpy as np
import pytest

from tvm_tilex import kernels
from tvm_tilex.ir.types import dtype_of, numpy_dtype
from tvm_tilex.kernels import oracles

INF = np.float32(np.inf)


def spread(rows, columns, a, m, d, b):
    """Values ((i * a) mod m) / d + b over the flat index i, exact in float32."""
    i = np.arange(rows * columns)
    return ((i * a) % m).astype(np.float32).reshape(rows, columns) / np.float32(d) + np.float32(b)


# O01: a worker sees only -inf although its row isn't masked out


def test_o01_sparse_rows(plan):
    x = np.full((3, 2048), -INF)
    x[0, 1999], x[1, 0] = 3, -5
    x[2, 5] = x[2, 2047] = 1
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    wanted = np.zeros_like(x)
    wanted[0, 1999] = wanted[1, 0] = 1
    wanted[2, [5, 2047]] = 0.5
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("columns", [1, 31, 33, 40, 257, 1024])
def test_o01_one_finite_element_anywhere(plan, columns):
    places = sorted({p for p in (0, 31, 32, 33, columns // 2, columns - 1) if p < columns})
    x = np.full((len(places), columns), -INF)
    x[np.arange(len(places)), places] = np.linspace(-80, 80, len(places))
    one_hot = (x > -INF).astype(np.float32)
    np.testing.assert_array_equal(plan.outputs(kernels.softmax, x, shapes=[x.shape]), one_hot)
    total = plan.outputs(kernels.logsumexp, x, shapes=[len(places)])
    np.testing.assert_array_equal(total, x.max(axis=1))
    logs = plan.outputs(kernels.log_softmax, x, shapes=[x.shape])
    np.testing.assert_array_equal(logs, np.where(one_hot > 0, 0, -INF))


# O02: a fully masked row


@pytest.mark.parametrize("columns", [1, 31, 32, 127, 128, 129, 1024, 4096])
def test_o02_a_fully_masked_row_is_nan_at_every_width(plan, columns):
    x = np.zeros((3, columns), np.float32)
    x[0] = -INF
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1:], 1 / columns, rtol=1e-6)
    z = plan.outputs(kernels.log_softmax, x, shapes=[x.shape])
    assert np.isnan(z[0]).all()
    np.testing.assert_allclose(z[1:], -np.log(columns), rtol=1e-6)
    total = plan.outputs(kernels.logsumexp, x, shapes=[3])
    np.testing.assert_allclose(total, [-INF, np.log(columns), np.log(columns)], rtol=1e-6)


@pytest.mark.parametrize("columns", [1, 33, 129])
def test_o02_a_row_with_plus_infinity_follows_the_composition(plan, columns):
    x = np.zeros((3, columns), np.float32)
    x[1, columns // 2] = INF
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    with np.errstate(invalid="ignore"):
        weights = np.exp(x - x.max(axis=1, keepdims=True))
        composed = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(composed))
    np.testing.assert_allclose(y[[0, 2]], 1 / columns, rtol=1e-6)
    assert plan.outputs(kernels.logsumexp, x, shapes=[3])[1] == INF


# O03: NaN in maximum and minimum


def require_nan(plan):
    if not plan.nan:
        pytest.skip(f"{plan.name}: a NaN maximum is unspecified under fast math")


@pytest.mark.parametrize("columns", [1, 2, 8, 31, 33, 257])
def test_o03_nan_wins_wherever_it_stands(plan, columns):
    require_nan(plan)
    places = sorted({p for p in (0, 1, 3, 7, 31, 32, 33, 128, 256) if p < columns})
    x = np.tile(np.arange(columns, dtype=np.float32), (len(places) + 1, 1))
    x[np.arange(len(places)), places] = np.nan
    for kernel, clean in ((kernels.row_max, columns - 1), (kernels.row_min, 0)):
        result = plan.outputs(kernel, x, shapes=[len(x)])
        assert np.isnan(result[:-1]).all(), (kernel.name, places)
        assert result[-1] == clean
    low, high = plan.outputs(kernels.minmax, x, shapes=[len(x), len(x)])
    assert np.isnan(low[:-1]).all() and np.isnan(high[:-1]).all()
    assert (low[-1], high[-1]) == (0, columns - 1)


@pytest.mark.parametrize("place", [0, 31, 32, 256])
@pytest.mark.parametrize("other", [-np.inf, np.inf])
def test_o03_nan_among_infinities(plan, place, other):
    require_nan(plan)
    x = np.full((2, 257), other, np.float32)
    x[0, place] = np.nan
    for kernel in (kernels.row_max, kernels.row_min):
        result = plan.outputs(kernel, x, shapes=[2])
        assert np.isnan(result[0]) and result[1] == other


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layernorm_no_affine"])
def test_o03_nan_stays_in_its_row(plan, name):
    entry = kernels.catalog()[name]
    x = spread(3, 65, 7, 19, 4, -2.25)
    x[1, 17] = np.nan
    y = plan.outputs(entry.kernel, x, shapes=[x.shape])
    assert np.isnan(y[1]).all()
    assert all(c.within for c in entry.check((x, y)))


# O04: maximum of an all-negative ragged row


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", [1, 31, 33, 1025])
def test_o04_all_negative_and_all_positive(plan, columns, dtype):
    storage = numpy_dtype(dtype_of(dtype))
    x = (-1 - np.arange(columns, dtype=np.float32) % 200)[None].astype(storage)
    out = np.full(1, np.nan, storage)
    plan(kernels.row_max, x, out)
    assert out[0] == -1
    plan(kernels.row_min, -x, out)
    assert out[0] == 1


@pytest.mark.parametrize("columns", [1, 33, 1025])
def test_o04_identities_are_infinite(plan, columns):
    low, high = np.full((1, columns), -INF), np.full((1, columns), INF)
    assert plan.outputs(kernels.row_max, low, shapes=[1])[0] == -INF
    assert plan.outputs(kernels.row_min, high, shapes=[1])[0] == INF
    smallest = np.full((1, columns), np.finfo(np.float32).min)
    assert plan.outputs(kernels.row_max, smallest, shapes=[1])[0] == np.finfo(np.float32).min


# O05: widths that are no multiple of 32


def test_o05_stated_values(plan):
    x = spread(4, 33, 7, 19, 4, -2.25)
    sums = plan.outputs(kernels.row_sum, x, shapes=[4])
    np.testing.assert_array_equal(sums, [-0.5, 0.5, -3.25, 2.5])
    ones = np.ones(33, np.float32)
    rms = plan.outputs(kernels.rmsnorm, x, ones, shapes=[x.shape])
    np.testing.assert_allclose(
        rms[1, [0, 31, 32]], [-1.0824034, 0.3608011, 1.6236050], rtol=2e-5, atol=2e-6
    )
    norm = plan.outputs(kernels.layernorm_no_affine, x, shapes=[x.shape])
    np.testing.assert_allclose(
        norm[1, [0, 31, 32]], [-1.0933995, 0.3498878, 1.6127643], rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("columns", [5, 33, 63, 65, 95, 97])
@pytest.mark.parametrize("name", ["row_sum", "rmsnorm", "layernorm"])
def test_o05_every_width(plan, name, columns):
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(4, columns))
    arguments[0][...] = spread(4, columns, 7, 19, 4, -2.25)
    plan(entry.kernel, *arguments)
    assert all(c.within for c in entry.check(arguments))


# O06: padding enters the sum


@pytest.mark.parametrize("columns", [1, 10, 31, 33, 100])
@pytest.mark.parametrize("constant", [1.0, -50.0, -1e30])
def test_o06_a_constant_row_is_uniform(plan, columns, constant):
    x = np.full((10, columns), constant, np.float32)
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    np.testing.assert_allclose(y, oracles.softmax(x), rtol=1e-6)
    np.testing.assert_allclose(y, 1 / columns, rtol=1e-6)
    losses = np.full(10, np.nan, np.float32)
    plan(kernels.cross_entropy, x, np.zeros(10, np.int64), losses)
    np.testing.assert_allclose(losses, np.log(columns), rtol=1e-6, atol=abs(constant) * 2e-7)

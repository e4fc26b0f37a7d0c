"""Gradient kernels: oracles against torch's autograd in FP64, kernels against the oracles."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tvm_tilex as tx
from tvm_tilex.kernels import gradient_oracles as oracles
from tvm_tilex.kernels import gradients

CATALOG = gradients.catalog()
SHAPES = [(1, 1), (3, 2), (5, 127), (67, 33), (3, 4096), (64, 5), (0, 7)]
STORAGE = ["float32", "float16", "bfloat16"]
RNG = np.random.default_rng(5)
X, GRAD = RNG.standard_normal((70, 33)) * 2 + 1, RNG.standard_normal((70, 33))
WEIGHT, BIAS = RNG.standard_normal(33), RNG.standard_normal(33)
LABELS = RNG.integers(0, 33, 70)


def autograd(function, *inputs, grad=GRAD):
    tensors = [torch.from_numpy(np.array(x)).requires_grad_() for x in inputs]
    out = function(*tensors)
    out.backward(torch.from_numpy(grad))
    return out.detach().numpy(), *(t.grad.numpy() for t in tensors)


def equal(actual, expected):
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-12)


def test_the_catalog_is_complete():
    assert set(CATALOG) == set(gradients.__all__) - {"catalog"}
    for name, entry in CATALOG.items():
        assert entry.kernel is getattr(gradients, name) and entry.summary.endswith(".")
        assert not any(c.within for c in entry.check(entry.arguments(5, 7)))  # poison


def test_softmax_oracles():
    y, grad = autograd(lambda x: x.softmax(1), X)
    equal(oracles.softmax_backward(y, GRAD), grad)
    y, grad = autograd(lambda x: x.log_softmax(1), X)
    equal(oracles.log_softmax_backward(y, GRAD), grad)


def test_normalization_oracles():
    _, grad = autograd(lambda x: F.layer_norm(x, (33,)), X)
    equal(oracles.layernorm_no_affine_backward(X, GRAD), grad)
    _, grad, weight, bias = autograd(lambda x, w, b: F.layer_norm(x, (33,), w, b), X, WEIGHT, BIAS)
    ours, *statistics = oracles.layernorm_backward(X, WEIGHT, GRAD)
    equal(ours, grad)
    partial = oracles.layernorm_parameters_backward(X, GRAD, *statistics)
    assert [p.shape for p in partial] == [(2, 33)] * 2
    equal(partial[0].sum(0), weight)
    equal(partial[1].sum(0), bias)
    _, grad, weight = autograd(lambda x, w: F.rms_norm(x, (33,), w, 1e-6), X, WEIGHT)
    ours, inverse = oracles.rmsnorm_backward(X, WEIGHT, GRAD)
    equal(ours, grad)
    equal(oracles.rmsnorm_parameters_backward(X, GRAD, inverse).sum(0), weight)


def test_cross_entropy_oracle():
    labels = torch.from_numpy(LABELS)
    loss = GRAD[:, 0]
    _, grad = autograd(lambda x: F.cross_entropy(x, labels, reduction="none"), X, grad=loss)
    equal(oracles.cross_entropy_backward(X, LABELS, loss), grad)


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("name", CATALOG)
def test_against_the_oracle(name, dtype):
    entry = CATALOG[name]
    for shape in SHAPES:
        arguments = entry.arguments(*shape, dtype)
        if name == "log_softmax_backward":  # its output is a logarithm of a probability
            arguments[0][...] = -np.abs(arguments[0])
        entry.kernel(*arguments)
        for comparison in entry.check(arguments):
            assert comparison.within, (shape, comparison)


@pytest.mark.parametrize("name", CATALOG)
def test_metal_in_the_simulator(name):
    entry = CATALOG[name]
    artifact = tx.compile(entry.kernel, *entry.specs(5, 127), target="metal")
    assert artifact.plan is not None, artifact.fallback
    arguments = entry.arguments(5, 127)
    artifact.simulate(*arguments)
    assert all(comparison.within for comparison in entry.check(arguments))


def test_a_mean_far_above_the_spread_does_not_cancel():
    """The row's statistics reach the parameters' gradient in parts, not as one rounded mean."""
    rows, columns = 64, 257
    x = (RNG.standard_normal((rows, columns)) + 1e4).astype(np.float32)
    grad = RNG.standard_normal((rows, columns)).astype(np.float32)
    weight = np.ones(columns, np.float32)
    out, statistics = np.empty_like(x), [np.empty(rows, np.float32) for _ in range(3)]
    gradients.layernorm_backward(x, weight, grad, out, *statistics)
    partial = [np.empty((1, columns), np.float32) for _ in range(2)]
    gradients.layernorm_parameters_backward(x, grad, *statistics, *partial)
    normalized, _ = oracles._normalized(x, 1e-5)
    exact = (grad * normalized).sum(0)
    assert np.abs(partial[0][0] - exact).max() < 2e-5
    rounded = (x - (statistics[0] + statistics[1])[:, None]) * statistics[2][:, None]
    assert np.abs((grad * rounded).sum(0) - exact).max() > 2e-4  # what one FP32 mean would cost


def test_a_label_outside_the_row_selects_nothing():
    entry = CATALOG["cross_entropy_backward"]
    arguments = entry.arguments(6, 37)
    arguments[1][:] = [0, 36, 37, -1, 2**40, -(2**63)]
    entry.kernel(*arguments)
    assert all(comparison.within for comparison in entry.check(arguments))

"""Every library kernel, compiled for LLVM, against its FP64 oracle: shapes x storage types."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.kernels import oracles

SHAPES = [(1, 1), (3, 4096), (7, 1024), (17, 257), (5, 127), (64, 1), (2, 50257)]
STORAGE = ["float32", "float16", "bfloat16"]


def run(name, rows, columns, dtype, seed=0):
    entry = kernels.catalog()[name]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns, dtype), target="llvm")
    arguments = entry.arguments(rows, columns, dtype, seed=seed)
    inputs = [np.array(a) for a in arguments]
    artifact(*arguments)
    for position, (before, after) in enumerate(zip(inputs, arguments, strict=True)):
        if position not in entry.outputs:
            assert before.tobytes() == after.tobytes(), "an input was written"
    return entry, arguments


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", kernels.catalog())
def test_against_the_oracle(name, shape, dtype):
    entry, arguments = run(name, *shape, dtype)
    for comparison in entry.check(arguments):
        assert comparison.within, comparison


@pytest.mark.parametrize("name", kernels.catalog())
def test_storage_types_mix(name):
    """Each view has its own type: half inputs, float32 outputs, and the reverse."""
    entry = kernels.catalog()[name]
    for inputs, outputs in (("float16", "float32"), ("float32", "bfloat16")):
        narrow = entry.arguments(5, 127, inputs)
        arguments = [
            np.full(a.shape, np.nan, b.dtype) if position in entry.outputs else a
            for position, (a, b) in enumerate(
                zip(narrow, entry.arguments(5, 127, outputs), strict=True)
            )
        ]
        entry.kernel(*arguments)
        if entry.operation == "selection" and outputs == "bfloat16":
            for position, wanted in zip(entry.outputs, entry.expected(arguments), strict=True):
                rounded = wanted.astype(np.float32).astype(arguments[position].dtype)
                assert (arguments[position] == rounded).all()
            continue
        for comparison in entry.check(arguments):
            assert comparison.within, comparison


def test_epsilon_is_a_compile_time_constant():
    x, out = np.array([[1.0, -1.0]], np.float32), np.zeros((1, 2), np.float32)
    for eps in (1e-5, 3.0):
        kernels.layernorm_no_affine(x, out, eps=eps)
        np.testing.assert_allclose(out, oracles.layernorm_no_affine(x, eps), rtol=1e-6)
    weight = np.ones(2, np.float32)
    kernels.rmsnorm(x, weight, out, eps=8.0)
    np.testing.assert_allclose(out, oracles.rmsnorm(x, weight, 8.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", STORAGE)
def test_a_label_outside_the_row_selects_zero(dtype):
    entry = kernels.catalog()["cross_entropy"]
    logits, labels, losses = entry.arguments(8, 37, dtype)
    labels[:] = [0, 36, 37, -1, -100, 2**40, -(2**63), 2**63 - 1]
    entry.kernel(logits, labels, losses)
    (comparison,) = entry.check((logits, labels, losses))
    assert comparison.within, comparison
    logsumexp = np.full(8, np.nan, logits.dtype)
    kernels.logsumexp(logits, logsumexp)
    np.testing.assert_array_equal(losses[2:], logsumexp[2:])


@pytest.mark.parametrize("name", kernels.catalog())
def test_rows_do_not_depend_on_their_neighbours(name):
    """Row 2 of five is bit for bit what it is alone."""
    entry, arguments = run(name, 5, 127, "float32")
    views = tuple(entry.kernel.parameters.values())
    alone = [
        np.ascontiguousarray(a[2:3]) if view.dimensions[0] == "rows" else a
        for view, a in zip(views, arguments, strict=True)
    ]
    whole = [arguments[position][2] for position in entry.outputs]
    for position in entry.outputs:
        alone[position][...] = np.nan
    entry.kernel(*alone)
    for position, row in zip(entry.outputs, whole, strict=True):
        np.testing.assert_array_equal(alone[position][0], row)


@pytest.mark.parametrize("seed", range(4))
def test_layernorm_where_the_pivot_is_an_outlier(seed):
    """Two of the three pivot candidates far below the mean: every distance has the same sign."""
    entry = kernels.catalog()["layernorm"]
    x, weight, bias, out = entry.arguments(1, 4095, seed=seed)
    x[0, 0], x[0, 2047] = x.mean() - 6, x.mean() - 5
    tx.compile(entry.kernel, *entry.specs(1, 4095))(x, weight, bias, out)
    (comparison,) = entry.check((x, weight, bias, out))
    assert comparison.worst_ratio < 0.5, comparison


@pytest.mark.parametrize("columns", [4095, 32000, 262144])
def test_a_sum_of_equal_terms_does_not_drift(columns):
    """0.1 rounds the same way at every addition to a running total; a tree keeps totals short."""
    x, out = np.full((1, columns), 0.1, np.float32), np.empty(1, np.float32)
    tx.compile(kernels.row_sum, x, out)(x, out)
    exact = x.sum(dtype=np.float64)
    assert abs(out[0] - exact) <= 2e-6 * exact

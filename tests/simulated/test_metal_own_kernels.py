"""Kernels of a user's own: other axes, ranks, several reductions, order policies, collectives."""

import numpy as np
import pytest
from simulated_runs import assert_mapped, collectives_in, options_of

import tvm_tilex as tx
from tvm_tilex.errors import TilexError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.kernels.tolerances import compare

WIDTHS = (1, 31, 33, 257)
SUBGROUPS = (0, 1, 2, 5, 8, 32)


@tx.tile_kernel
def column_softmax(x: tx.TensorView[tx.float32, 2], y: tx.TensorView[tx.float32, 2, tx.Out]):
    """Softmax over axis 0: the reduced axis is not the last one in memory."""
    columns, rows = tx.axis("columns", x.extent(1)), tx.axis("rows", x.extent(0))
    for nest in tx.parallel(tx.shape(columns)):
        origin = tx.coord(0, nest.index())
        value = x[origin, tx.shape(rows, 1)]
        weight = tx.exp(value - tx.reduce(value, rows, tx.maximum))
        y(origin, tx.shape(rows, 1)).store(weight / tx.reduce(weight, rows, tx.add))


@tx.tile_kernel
def middle_norm(x: tx.TensorView[tx.float32, 3], y: tx.TensorView[tx.float32, 3, tx.Out]):
    """Root mean square over the middle axis of a rank-3 view; programs are (outer, inner)."""
    outer, inner = tx.axis("outer", x.extent(0)), tx.axis("inner", x.extent(2))
    middle = tx.axis("middle", x.extent(1))
    for nest in tx.parallel(tx.shape(outer, inner)):
        origin = tx.coord(nest.index(0), 0, nest.index(1))
        value = x[origin, tx.shape(1, middle, 1)]
        square = tx.reduce(value * value, middle, tx.add) / middle.extent
        y(origin, tx.shape(1, middle, 1)).store(value * tx.rsqrt(square + 1e-6))


@tx.tile_kernel
def statistics(
    x: tx.TensorView[tx.float32, 2],
    low: tx.TensorView[tx.float32, 1, tx.Out],
    high: tx.TensorView[tx.float32, 1, tx.Out],
    total: tx.TensorView[tx.float32, 1, tx.Out],
    scaled: tx.TensorView[tx.float32, 2, tx.Out],
):
    """Minimum, maximum, sum, and a sum of what those give: four reductions of three kinds."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, one = tx.coord(nest.index(), 0), tx.coord(nest.index())
        value = x[origin, tx.shape(1, columns)]
        smallest = tx.reduce(value, columns, tx.minimum)
        largest = tx.reduce(value, columns, tx.maximum)
        scale = (value - smallest) / (largest - smallest + 1.0)
        low(one, tx.shape(1)).store(smallest)
        high(one, tx.shape(1)).store(largest)
        total(one, tx.shape(1)).store(tx.reduce(value, columns, tx.add))
        scaled(origin, tx.shape(1, columns)).store(
            scale / (1.0 + tx.reduce(scale, columns, tx.add))
        )


def _random(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def _simulate(kernel, *arrays, subgroups=0, packed=0, elements=0, seed=0):
    options = options_of(subgroups, packed, elements)
    artifact = tx.compile(kernel, *arrays, target="metal", options=options)
    assert_mapped(artifact, subgroups, packed, elements)
    (counters,) = artifact.simulate(*arrays, seed=seed)
    return artifact, counters


def _within(actual, expected, operation="composition"):
    found = compare(operation, dtype_of("float32"), actual, expected)
    assert found.within, found


@pytest.mark.parametrize("subgroups", SUBGROUPS)
@pytest.mark.parametrize("rows", WIDTHS)
def test_the_reduced_axis_need_not_be_the_last(rows, subgroups):
    x = _random(rows, 9)
    y = np.full_like(x, np.nan)
    _simulate(column_softmax, x, y, subgroups=subgroups)
    wide = np.exp(x.astype(np.float64) - x.max(axis=0))
    _within(y, wide / wide.sum(axis=0), "softmax")


@pytest.mark.parametrize("subgroups", SUBGROUPS)
@pytest.mark.parametrize("middle", WIDTHS)
def test_rank_three_views_with_two_program_axes(middle, subgroups):
    x = _random(3, middle, 5)
    y = np.full_like(x, np.nan)
    artifact, _ = _simulate(middle_norm, x, y, subgroups=subgroups)
    assert artifact.plan.programs == 15
    wide = x.astype(np.float64)
    _within(y, wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6))


@pytest.mark.parametrize("subgroups", SUBGROUPS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_several_reductions_of_different_kinds(columns, subgroups):
    x = _random(7, columns)
    low, high, total = (np.full(7, np.nan, np.float32) for _ in range(3))
    scaled = np.full_like(x, np.nan)
    _, counters = _simulate(statistics, x, low, high, total, scaled, subgroups=subgroups)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(low, x.min(axis=1))
    np.testing.assert_array_equal(high, x.max(axis=1))
    np.testing.assert_allclose(total, wide.sum(axis=1), atol=1e-5 * columns)
    smallest, largest = wide.min(axis=1, keepdims=True), wide.max(axis=1, keepdims=True)
    scale = (wide - smallest) / (largest - smallest + 1)
    _within(scaled, scale / (1 + scale.sum(axis=1, keepdims=True)))
    kinds = counters.collectives
    assert 2 * kinds["simd_min"] == 2 * kinds["simd_max"] == kinds["simd_sum"] > 0


# The order of collectives


@pytest.mark.parametrize(("subgroups", "packed"), [(1, 8), (3, 1), (8, 1), (32, 1), (2, 8)])
def test_other_seeds_change_the_order_but_not_the_result(subgroups, packed):
    x = _random(9, 1000)
    results = []
    for seed in (0, 0, 1, 2, 3):
        low, high, total = (np.full(9, np.nan, np.float32) for _ in range(3))
        scaled = np.full_like(x, np.nan)
        arrays = (x, low, high, total, scaled)
        _simulate(statistics, *arrays, subgroups=subgroups, packed=packed, seed=seed)
        results.append((total, scaled))
    first = results[0]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, results[1], strict=True))
    exact = x.astype(np.float64).sum(axis=1)
    slack = 1e-6 * np.log2(1000) * np.abs(x).sum(axis=1)
    for total, scaled in results:
        assert (np.abs(total - exact) <= slack).all()
        np.testing.assert_allclose(scaled, first[1], rtol=2e-5)
    assert any(total.tobytes() != first[0].tobytes() for total, _ in results[2:])


# Order policies


@tx.tile_kernel
def sum_of_squares(
    x: tx.TensorView[tx.float32, 2],
    out: tx.TensorView[tx.float32, 1, tx.Out],
    *,
    policy: str = "unordered_tree",
):
    """Sum of squares in the order that ``policy`` names."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
        total = tx.reduce(value * value, columns, tx.add, policy=policy)
        out(tx.coord(nest.index()), tx.shape(1)).store(total)


@pytest.mark.parametrize("columns", [1, 33, 257, 1000])
@pytest.mark.parametrize("policy", ["ordered_tree", "fold_left", "fold_right"])
def test_an_ordered_policy_keeps_the_reference_path_bit_for_bit(policy, columns):
    x, out = _random(5, columns), np.full(5, np.nan, np.float32)
    artifact = tx.compile(sum_of_squares, x, out, target="metal", policy=policy)
    assert artifact.plan is None and collectives_in(artifact.source) == 0
    assert artifact.requires_precise_math and artifact.device.requires_precise_math
    (counters,) = artifact.simulate(x, out, seed=3)
    assert not counters.collectives and counters.barriers == 0
    (expected,) = interpret(artifact.tile_ir, (x, np.zeros_like(out)))
    assert out.tobytes() == expected.tobytes()


REQUESTS = (
    {"threads_per_group": 64},
    {"reduction_programs_per_group": 2},
    {"reduction_lane_elements": 4},
)


@pytest.mark.parametrize("asked", REQUESTS)
@pytest.mark.parametrize("policy", ["ordered_tree", "fold_left", "fold_right"])
def test_an_explicit_map_of_an_ordered_reduction_is_refused(policy, asked):
    options = tx.CompileOptions(**asked)
    with pytest.raises(TilexError, match=policy):
        tx.compile(sum_of_squares, (5, 33), (5,), target="metal", options=options, policy=policy)


def test_the_order_is_the_one_that_was_asked_for():
    x = np.ones((1, 4096), np.float32)
    x[0, 0] = 2.0**12  # its square is 2**24
    results = {}
    for policy in ("fold_left", "fold_right", "unordered_tree"):
        out = np.full(1, np.nan, np.float32)
        tx.compile(sum_of_squares, x, out, target="metal", policy=policy).simulate(x, out)
        results[policy] = float(out[0])
    assert results["fold_left"] == 16777216
    assert results["fold_right"] == 16781312  # 2**24 + 4095 rounds up to the even neighbour
    assert abs(results["unordered_tree"] - 16781311) <= 128

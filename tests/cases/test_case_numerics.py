"""Public bug cases on width 1, cancellation, zero variance and order (O07, O14 to O16)."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.ir.interp import interpret
from tvm_tilex.kernels import oracles

VIEW = tx.TensorView

# O07: width 1


def test_o07_width_one(plan):
    x = np.array([[1e6], [-3]], np.float32)
    weight, bias = np.array([2], np.float32), np.array([3], np.float32)
    affine = plan.outputs(kernels.layernorm, x, weight, bias, shapes=[(2, 1)])
    np.testing.assert_array_equal(affine, [[3], [3]])
    plain = plan.outputs(kernels.layernorm_no_affine, x, shapes=[(2, 1)])
    np.testing.assert_array_equal(plain, [[0], [0]])
    residual = np.ones((2, 1), np.float32)
    fused = plan.outputs(kernels.residual_layernorm, x, residual, shapes=[(2, 1)])
    np.testing.assert_array_equal(fused, [[0], [0]])


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("name", kernels.catalog())
def test_o07_every_kernel_at_width_one(plan, name, rows):
    entry = kernels.catalog()[name]
    arguments = entry.arguments(rows, 1)
    plan(entry.kernel, *arguments)
    assert all(c.within for c in entry.check(arguments))


# O14: the mean is far above the spread


@pytest.mark.parametrize("columns", [16, 4096])
@pytest.mark.parametrize(
    ("mean", "first", "allowed"),
    [
        (0, -1.3416408, 1e-5),
        (100, -1.3415277, 1e-3),
        (1000, -1.3415078, 5e-3),
        (10000, -1.3313334, 0.15),
    ],
)
@pytest.mark.parametrize("name", ["layernorm_no_affine", "layernorm"])
def test_o14_variance_does_not_cancel(plan, name, mean, first, allowed, columns):
    i = np.arange(columns) % 16
    x = (np.float32(mean) + i.astype(np.float32) * np.float32(1e-3))[None]
    one, zero = np.ones(columns, np.float32), np.zeros(columns, np.float32)
    more = (one, zero) if name == "layernorm" else ()
    y = plan.outputs(getattr(kernels, name), x, *more, shapes=[x.shape])
    assert abs(y[0, 0] - first) <= allowed
    # With the pivot nothing is rounded at the mean's scale: one bound for every mean and element,
    # though a serial fold of 4096 distances is the least accurate order there is.
    assert np.abs(y - oracles.layernorm_no_affine(x)).max() <= 2e-5


@pytest.mark.parametrize("columns", [5, 257])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_o14_an_outlier_is_no_pivot(plan, place, columns):
    """A pivot far from the mean would move the cancellation to the rows that have none."""
    x = np.random.default_rng(5).standard_normal((3, columns)).astype(np.float32)
    x[:, {"first": 0, "middle": (columns - 1) // 2, "last": -1}[place]] = [1e4, -1e4, 3e3]
    y = plan.outputs(kernels.layernorm_no_affine, x, shapes=[x.shape])
    assert all(c.within for c in kernels.catalog()["layernorm_no_affine"].check((x, y)))


def test_o14_residual_layernorm_is_the_plain_two_pass(plan):
    """Its FP32 mean is the specification's: within bounds while the mean is near the spread."""
    x = (np.arange(16, dtype=np.float32) * np.float32(1e-3))[None]
    y = plan.outputs(kernels.residual_layernorm, x, np.zeros_like(x), shapes=[x.shape])
    assert abs(y[0, 0] - -1.3416408) <= 1e-5


# O15: a constant row


@pytest.mark.parametrize("columns", [1, 31, 256, 1024])
@pytest.mark.parametrize("value", [0.0, 1234.0, -0.5])
def test_o15_a_constant_row_is_exactly_zero(plan, columns, value):
    x = np.full((2, columns), value, np.float32)
    np.testing.assert_array_equal(
        plan.outputs(kernels.layernorm_no_affine, x, shapes=[x.shape]), np.zeros_like(x)
    )


def test_o15_rmsnorm_of_zeros(plan):
    x, weight = np.zeros((2, 256), np.float32), np.full(256, 7, np.float32)
    y = plan.outputs(kernels.rmsnorm, x, weight, shapes=[x.shape])
    np.testing.assert_array_equal(y, x)


# O16: the order is honoured


def summed(policy):
    @tx.tile_kernel
    def total(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            value = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            total = tx.reduce(value, columns, tx.add, policy=policy)
            out(tx.coord(nest.index()), tx.shape(1)).store(total)

    return total


LARGE_FIRST = np.ones((1, 4096), np.float32)
LARGE_FIRST[0, 0] = 2.0**24


@pytest.mark.parametrize(("policy", "wanted"), [("fold_left", 2**24), ("fold_right", 16781312)])
def test_o16_folds_are_exact(plan, policy, wanted):
    assert plan.outputs(summed(policy), LARGE_FIRST, shapes=[1])[0] == wanted


def test_o16_a_tree_is_near_the_sum(plan):
    if not plan.tree:
        pytest.skip("a serial reference is legal under unordered_tree and gives 2**24")
    (total,) = plan.outputs(summed("unordered_tree"), LARGE_FIRST, shapes=[1])
    assert abs(float(total) - 16781311) <= 128


@pytest.mark.parametrize("columns", [1, 2, 3, 31, 33, 257, 4096])
@pytest.mark.parametrize("policy", ["ordered_tree", "fold_left", "fold_right"])
def test_o16_ordered_policies_bit_for_bit(plan, policy, columns):
    generator = np.random.default_rng(columns)
    x = generator.standard_normal((4, columns)) * 10.0 ** generator.integers(-4, 5, (4, columns))
    x = x.astype(np.float32)
    kernel = summed(policy)
    (wanted,) = interpret(kernel.capture([tx.spec(x.shape), tx.spec((4,))]), [x])
    np.testing.assert_array_equal(plan.outputs(kernel, x, shapes=[4]), wanted)


def test_o16_the_orders_differ_on_these_inputs():
    x = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)
    results = {
        policy: interpret(summed(policy).capture([tx.spec(x.shape), tx.spec((64,))]), [x])[0]
        for policy in ("ordered_tree", "fold_left", "fold_right")
    }
    assert len({r.tobytes() for r in results.values()}) == 3

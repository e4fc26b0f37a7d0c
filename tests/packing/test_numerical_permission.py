"""The policy of each reduction permits a collective; enabling candidates does not."""

import numpy as np
import pytest
from packing_runs import collectives_in

import tvm_tilex as tx
from tvm_tilex.errors import MappingError
from tvm_tilex.ir.interp import interpret

POLICIES = ("fold_left", "fold_right", "ordered_tree")


@tx.tile_kernel
def two_sums(
    x: tx.TensorView["float32", 2],  # noqa: F821
    ordered: tx.TensorView["float32", 1, "out"],  # noqa: F821
    free: tx.TensorView["float32", 1, "out"],  # noqa: F821
    *,
    policy: str = "fold_left",
):
    """The same row summed in a stated order and in any order."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        at = tx.coord(nest.index())
        ordered(at, tx.shape(one)).store(tx.reduce(value, columns, tx.add, policy=policy))
        free(at, tx.shape(one)).store(tx.reduce(value, columns, tx.add))


def compile_two(policy, rows=4, columns=4096, **options):
    return tx.compile(
        two_sums, (rows, columns), (rows,), (rows,), target="metal", policy=policy,
        options=tx.CompileOptions(**options),
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metal_subgroup_reductions": True},
        {"threads_per_group": 256},
        {"threads_per_group": 192, "reduction_programs_per_group": 3},
        {"threads_per_group": 64, "reduction_lane_elements": 4, "reduction_unroll": 4},
    ],
    ids=lambda o: "-".join(map(str, o.values())) or "automatic",
)
@pytest.mark.parametrize("policy", POLICIES)
def test_only_the_unordered_reduction_becomes_a_collective(policy, options):
    artifact = compile_two(policy, columns=300, **options)
    plan = artifact.plan
    assert plan.collectives == ("add",)
    stages = 2 if plan.reduction_subgroups_per_program > 1 else 1
    assert collectives_in(artifact.source) == stages
    assert plan.shared_bytes == (
        plan.programs_per_group * plan.reduction_subgroups_per_program * 4 if stages == 2 else 0
    )  # |R| counts collectives
    assert artifact.requires_precise_math and artifact.device.requires_precise_math

    # A sum that depends on its order: one huge element, then values near its rounding unit.
    x = (1 + np.random.default_rng(0).random((4, 300), dtype=np.float32)) * np.float32(1)
    x[:, 0] = 2.0**24
    ordered, free = (np.full(4, np.nan, np.float32) for _ in range(2))
    artifact.simulate(x, ordered, free)
    wanted, _ = interpret(artifact.tile_ir, (x, None, None))
    assert ordered.tobytes() == wanted.tobytes()
    np.testing.assert_allclose(free, x.sum(1, dtype=np.float64), rtol=1e-5)
    assert (ordered != free).any()  # so that the comparison above can fail


def test_the_orders_differ_from_each_other():
    x = np.ones((1, 4096), np.float32)
    x[0, 0] = 2.0**24
    results = {}
    for policy in ("fold_left", "fold_right"):
        ordered, free = (np.full(1, np.nan, np.float32) for _ in range(2))
        compile_two(policy, rows=1).simulate(x, ordered, free)
        results[policy] = float(ordered[0])
        assert abs(float(free[0]) - 16781311) <= 128
    assert results == {"fold_left": 16777216.0, "fold_right": 16781312.0}


@tx.tile_kernel
def ordered_minmax(
    x: tx.TensorView["float32", 2],  # noqa: F821
    out: tx.TensorView["float32", 1, "out"],  # noqa: F821
    *,
    policy: str = "fold_left",
):
    """Two reductions, both with a stated order."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        low = tx.reduce(value, columns, tx.minimum, policy=policy)
        total = tx.reduce(value, columns, tx.add, policy=policy)
        out(tx.coord(nest.index()), tx.shape(one)).store(total - low)


@pytest.mark.parametrize("enabled", [None, True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_option_is_not_permission(policy, enabled):
    artifact = tx.compile(
        ordered_minmax, (3, 300), (3,), target="metal", policy=policy,
        options=tx.CompileOptions(metal_subgroup_reductions=enabled),
    )  # fmt: skip
    assert artifact.plan is None and collectives_in(artifact.source) == 0
    assert artifact.requires_precise_math
    if enabled is not False:
        assert artifact.fallback.startswith("numerical permission")
        assert policy in artifact.fallback
    x = np.random.default_rng(5).standard_normal((3, 300), dtype=np.float32)
    out = np.full(3, np.nan, np.float32)
    artifact.simulate(x, out)
    (wanted,) = interpret(artifact.tile_ir, (x, None))
    assert out.tobytes() == wanted.tobytes()


def test_the_option_off_keeps_the_reference_even_with_permission():
    artifact = compile_two("fold_left", metal_subgroup_reductions=False)
    assert artifact.plan is None and artifact.proof is None


@pytest.mark.parametrize("policy", POLICIES)
def test_an_explicit_request_is_no_permission_either(policy):
    with pytest.raises(MappingError, match=f"numerical permission.*{policy}"):
        tx.compile(
            ordered_minmax, (3, 300), (3,), target="metal", policy=policy,
            options=tx.CompileOptions(threads_per_group=64, metal_subgroup_reductions=True),
        )  # fmt: skip


def test_a_kernel_that_permits_any_order_needs_no_precise_math():
    from tvm_tilex import kernels

    for name, found in kernels.catalog().items():
        artifact = tx.compile(found.kernel, *found.specs(2, 64), target="metal")
        assert not artifact.requires_precise_math, name


@tx.tile_kernel
def propagating_max(
    x: tx.TensorView["float32", 2],  # noqa: F821
    out: tx.TensorView["float32", 1, "out"],  # noqa: F821
):
    """The largest element, NaN wherever one stands."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        out(tx.coord(nest.index()), tx.shape(one)).store(
            tx.reduce(value, columns, tx.maximum, nan="propagate")
        )


def test_propagating_nan_on_metal_needs_precise_math_and_keeps_the_reference():
    artifact = tx.compile(propagating_max, (4, 257), (4,), target="metal")
    assert artifact.requires_precise_math and collectives_in(artifact.source) == 0
    assert artifact.fallback.startswith("numerical permission")
    x = np.random.default_rng(2).standard_normal((4, 257), dtype=np.float32)
    for row, column in enumerate((0, 31, 256)):
        x[row, column] = np.nan
    out = np.zeros(4, np.float32)
    artifact.simulate(x, out)
    assert np.isnan(out[:3]).all() and out[3] == x[3].max()

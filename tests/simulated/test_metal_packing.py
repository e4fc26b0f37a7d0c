"""Explicit packing: Q programs of S SIMD groups share a threadgroup; V elements a worker."""

import numpy as np
import pytest
from simulated_runs import options_of, run

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import OptionError, TilexError

OPERATORS = ("row_sum", "softmax", "layernorm_no_affine", "minmax")
# (S, Q, P, N, V); P mod Q in the comment
LAYOUTS = [
    (2, 2, 8, 128, 1),  # 0
    (2, 2, 7, 257, 1),  # 1
    (3, 2, 5, 1000, 1),  # 1
    (3, 8, 17, 97, 2),  # 1
    (5, 3, 8, 1025, 1),  # 2
    (4, 8, 16, 1000, 4),  # 0
    (16, 2, 3, 4095, 1),  # 1
    (7, 3, 3, 257, 8),  # 0
    (1, 8, 9, 257, 4),  # 1
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_packed_cooperating_programs(name, layout):
    subgroups, packed, rows, columns, elements = layout
    found = run(name, rows, columns, "float32", subgroups, packed, elements)
    found.assert_right()
    plan = found.plan
    assert plan.threads == 32 * subgroups * packed and plan.blocks == -(-rows // packed)
    shared = found.reductions * packed * subgroups * 4 if subgroups > 1 else 0
    assert plan.shared_bytes == shared
    replayed = plan.blocks * packed if subgroups > 1 else rows
    if name == "row_sum":  # a packed tail replays its last row, and stores nothing for it
        assert found.counters.device["x_ptr"].load_elements == replayed * columns
        assert found.counters.device["out_ptr"].store_elements == rows


@pytest.mark.parametrize("elements", [1, 2, 4, 8])
@pytest.mark.parametrize("columns", [1, 5, 7, 33, 257, 1000, 1024])
@pytest.mark.parametrize("subgroups", [1, 3])
def test_lane_elements(subgroups, columns, elements):
    """Row starts of odd widths are not aligned to a vector."""
    for name in ("softmax", "cross_entropy"):
        run(name, 3, columns, "float32", subgroups, 0, elements).assert_right()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("elements", [2, 8])
def test_lane_elements_of_half_storage(elements, dtype):
    for columns in (257, 1024):
        run("softmax", 5, columns, dtype, 2, 2, elements).assert_right()


def test_the_stripe_of_consecutive_elements_is_exact():
    for columns, subgroups, elements in ((1000, 2, 4), (1025, 3, 8), (257, 1, 2), (4096, 4, 8)):
        plan = run("softmax", 3, columns, "float32", subgroups, 0, elements).plan
        pack = 32 * subgroups * elements
        wanted = columns // pack * elements + min(columns % pack, elements)
        assert plan.stripes == (wanted,)


@pytest.mark.parametrize(("subgroups", "packed", "width"), [(1, 16, 65), (2, 16, 64), (1, 32, 33)])
def test_an_explicit_q_may_exceed_8_and_the_number_of_programs(subgroups, packed, width):
    found = run("softmax", 3, width, "float32", subgroups, packed)
    found.assert_right()
    assert found.plan.blocks == 1


@pytest.mark.parametrize(("subgroups", "packed"), [(2, 2), (1, 4)])
def test_packed_programs_do_not_share_slots(subgroups, packed):
    """Rows of 10**p: a slot without the program in it would mix two rows."""
    x = np.repeat(np.float32(10) ** np.arange(4, dtype=np.float32), 128).reshape(4, 128)
    found = run("row_sum", 4, 128, "float32", subgroups, packed, inputs=(x,))
    assert found.arguments[1].tolist() == [128, 1280, 12800, 128000]


def test_q_alone_lets_the_planner_choose_s():
    options = tx.CompileOptions(reduction_programs_per_group=2)
    artifact = tx.compile(kernels.softmax, (7, 4096), (7, 4096), target="metal", options=options)
    plan = artifact.plan
    assert plan.programs_per_group == 2 and 1 < plan.reduction_subgroups_per_program <= 16
    x, y = kernels.catalog()["softmax"].arguments(7, 4096)
    artifact(x, y)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))


def test_labels_outside_stay_unread_in_a_replayed_tail():
    logits = kernels.catalog()["cross_entropy"].arguments(5, 257)[0]
    labels = np.array([0, 256, 257, -1, 2**33], np.int64)
    run("cross_entropy", 5, 257, "float32", 2, 4, inputs=(logits, labels)).assert_right()


# Refusals: nothing explicit is clamped

TARGET = {"kind": "metal", "thread_warp_size": 32, "max_shared_memory_per_block": 32768}


def _limited(threads):
    return {**TARGET, "max_num_threads": threads, "max_threads_per_block": threads}


@pytest.mark.parametrize(("limit", "asked"), [(256, 512), (896, 1024), (1024, 2048)])
def test_more_threads_than_the_target_has_are_refused(limit, asked):
    options = tx.CompileOptions(threads_per_group=asked)
    with pytest.raises(TilexError, match=f"{asked} threads exceed the target's {limit}"):
        tx.compile(kernels.softmax, (3, 4096), (3, 4096), target=_limited(limit), options=options)


@pytest.mark.parametrize(("limit", "subgroups"), [(896, 10), (256, 8), (64, 2)])
def test_automatic_plans_stay_within_the_target(limit, subgroups):
    artifact = tx.compile(kernels.softmax, (3, 4096), (3, 4096), target=_limited(limit))
    assert artifact.plan.threads <= limit
    assert artifact.plan.reduction_subgroups_per_program == subgroups
    x, y = kernels.catalog()["softmax"].arguments(3, 4096)
    artifact(x, y)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))


def test_a_thread_count_that_is_not_32_s_q_is_refused():
    with pytest.raises(OptionError, match="a multiple of 32"):
        tx.CompileOptions(threads_per_group=48)
    options = tx.CompileOptions(threads_per_group=160, reduction_programs_per_group=2)
    with pytest.raises(TilexError, match=r"threads_per_group=160 is not 32\*S\*Q for Q=2"):
        tx.compile(kernels.softmax, (4, 257), (4, 257), target="metal", options=options)


def test_packing_beyond_the_group_is_refused():
    options = options_of(8, 8)
    with pytest.raises(TilexError, match="2048 threads exceed the target's 1024"):
        tx.compile(kernels.softmax, (16, 257), (16, 257), target="metal", options=options)


def test_a_target_that_does_not_assert_32_lanes_declines():
    """A bare Metal target says 16 lanes: the reference path, or an error that says what to set."""
    artifact = tx.compile(kernels.softmax, (3, 257), (3, 257), target={"kind": "metal"})
    assert artifact.plan is None and "simd_" not in artifact.source
    x, y = kernels.catalog()["softmax"].arguments(3, 257)
    artifact(x, y)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))
    options = tx.CompileOptions(threads_per_group=64)
    with pytest.raises(TilexError, match="thread_warp_size"):
        tx.compile(kernels.softmax, (3, 257), (3, 257), target={"kind": "metal"}, options=options)


# Budgets of private storage


@pytest.mark.parametrize(("threads", "scalars"), [(32, 256), (64, 128)])
def test_residual_layernorm_of_4096_columns_needs_128_threads(threads, scalars):
    shapes = [(3, 4096)] * 3
    options = tx.CompileOptions(threads_per_group=threads, shared_tile_materialization="preserve")
    with pytest.raises(TilexError, match=rf"{scalars} striped scalars"):
        tx.compile(kernels.residual_layernorm, *shapes, target="metal", options=options)
    found = run("residual_layernorm", 3, 4096, subgroups=4)
    found.assert_right()


def test_a_row_beyond_every_stripe_is_refused_when_it_must_be_kept():
    shapes = [(3, 65537)] * 2
    options = tx.CompileOptions(threads_per_group=1024, shared_tile_materialization="preserve")
    with pytest.raises(TilexError, match=r"65 striped scalars .*_per_worker=64"):
        tx.compile(kernels.softmax, *shapes, target="metal", options=options)


def test_a_row_beyond_every_stripe_runs_all_the_same():
    columns = 65537
    i = np.arange(3 * columns)
    x = ((i * 31) % 29).astype(np.float32).reshape(3, columns) / np.float32(8)
    y = np.full_like(x, np.nan)
    artifact = tx.compile(kernels.softmax, x, y, target="metal")
    artifact(x, y)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))
    assert y[2, :3] == pytest.approx([1.3506021e-05, 1.7342074e-05, 2.2267664e-05], rel=2e-5)


# Many rows


def test_more_programs_than_65535():
    rows = 70001
    x = ((3 * np.arange(rows)[:, None] + np.arange(3)) % 11).astype(np.float32)
    y, peaks = np.full_like(x, np.nan), np.full(rows, np.nan, np.float32)
    artifact = tx.compile(kernels.row_max, x, peaks, target="metal")
    assert artifact.plan.programs_per_group == 8 and artifact.plan.blocks == 8751
    artifact(x, peaks)
    np.testing.assert_array_equal(peaks, x.max(axis=1))
    tx.compile(kernels.softmax, x, y, target="metal")(x, y)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))

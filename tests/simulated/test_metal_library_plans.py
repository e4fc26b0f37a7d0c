"""The library's automatic plans on Metal: right against FP64, and counted while they run.

Device loads of an element of each input, by kernel (a Tile that is kept as a stripe is loaded
once; a view that is forwarded is loaded once by each consumer that reads it):
"""

import numpy as np
import pytest
from simulated_runs import barriers_in, collectives_in, compiled, run

from tvm_tilex import kernels

# kernel -> {view: loads per element}, at P x N = 3 x 4096
LOADS = {
    "row_sum": {"x": 1},
    "row_max": {"x": 1},
    "row_min": {"x": 1},
    "minmax": {"x": 2},  # one consumer for each of the two reductions
    "softmax": {"input": 2},  # the maximum and the exponentials, which are a stripe
    "log_softmax": {"input": 2},  # the maximum and the centred row, which is a stripe
    "logsumexp": {"x": 2},
    # The mean, and the centred row (a stripe); each worker reads the three pivots of the row.
    "layernorm": {"x": 2, "weight": 3, "bias": 3},
    "layernorm_no_affine": {"x": 2},
    "rmsnorm": {"x": 3, "weight": 3},  # both factors of the square, and the result
    "residual_layernorm": {"x": 1, "residual": 1},  # their sum is a stripe
    "cross_entropy": {"logits": 2},  # and the label's own logit, once a row
}
ROWS, COLUMNS = 3, 4096
EXTRA = {  # loads of a row that do not grow with N, from W workers
    "layernorm": {"x": lambda workers: 3 * workers},
    "layernorm_no_affine": {"x": lambda workers: 3 * workers},
    "cross_entropy": {"logits": lambda workers: 1},
}


def test_the_table_names_the_whole_library():
    assert set(LOADS) == set(kernels.catalog())


@pytest.mark.parametrize("name", LOADS)
def test_device_loads_per_input_element(name):
    found = run(name, ROWS, COLUMNS)
    found.assert_right()
    workers = found.plan.workers
    for view, loads in LOADS[name].items():
        extra = EXTRA[name][view](workers) if view in EXTRA.get(name, {}) else 0
        assert found.loads(view) == loads + extra / COLUMNS, view
    for position in found.entry.outputs:
        view = found.entry.parameters[position]
        traffic = found.counters.device[f"{view}_ptr"]
        assert traffic.load_elements == 0
        assert traffic.store_elements == found.arguments[position].size  # each exactly once


# Row sums


@pytest.mark.parametrize(("columns", "subgroups"), [(127, 1), (257, 1), (1024, 4), (4096, 8)])
def test_row_sums_choose_the_width(columns, subgroups):
    found = run("row_sum", 8, columns)
    found.assert_right()
    assert found.plan.reduction_subgroups_per_program == subgroups
    assert found.plan.stripe_scalars == 0
    assert found.counters.barriers_per_threadgroup == (subgroups > 1)


def test_eight_programs_are_packed_into_256_threads():
    found = run("row_sum", 17, 257)
    found.assert_right()
    plan = found.plan
    assert (plan.threads, plan.programs_per_group, plan.blocks) == (256, 8, 3)
    assert plan.reduction_subgroups_per_program == 1 and plan.independent_subgroups
    assert plan.shared_bytes == 0 and found.counters.threadgroup_bytes == 0
    # The last threadgroup has one live program; seven SIMD groups do nothing at all.
    assert found.counters.collectives == {"simd_sum": 17}
    assert found.counters.device["x_ptr"].load_elements == 17 * 257


def test_a_sum_of_ones_counts_every_lane_of_every_simd_group():
    ones = np.ones((3, 4096), np.float32)
    found = run("row_sum", 3, 4096, subgroups=8, inputs=(ones,))
    assert found.arguments[1].tolist() == [4096.0] * 3


# The kernels of the specification's list


def test_softmax_3x4096():
    found = run("softmax", 3, 4096)
    found.assert_right()
    plan, counters = found.plan, found.counters
    assert plan.reduction_subgroups_per_program == _cheapest(4096, domains=2, reductions=2) == 10
    assert plan.stripes == (13,) == (-(-4096 // 320),)
    assert (plan.barrier_sites, plan.shared_bytes) == (2, 2 * 10 * 4)
    assert counters.barriers_per_threadgroup == 2
    assert counters.collectives == {"simd_max": 3 * 20, "simd_sum": 3 * 20}
    assert found.artifact.source.count("[10];") == 2  # two scratch arrays, not merged
    np.testing.assert_allclose(found.arguments[1].sum(axis=1, dtype=np.float64), 1, rtol=2e-5)


def _cheapest(columns: int, domains: int, reductions: int) -> int:
    """S of the minimum of the specification's score, for fewer programs than pay for packing."""
    passes = domains + reductions

    def score(subgroups: int) -> tuple[float, int]:
        rounds = passes * -(-columns // (32 * subgroups))
        return rounds + 2 * reductions * subgroups + 16, subgroups

    return min(map(score, range(1, 33)))[1]


def test_layernorm_3x4096():
    found = run("layernorm", 3, 4096)
    found.assert_right()
    assert found.arguments[3].size == 12_288
    workers = found.plan.workers
    assert found.plan.stripes == (-(-4096 // workers),)
    assert found.counters.collectives == {"simd_sum": 3 * 2 * 2 * workers // 32}


def test_residual_layernorm_loads_each_input_element_exactly_once():
    for subgroups in (0, 4, 8, 32):
        found = run("residual_layernorm", 3, 4096, subgroups=subgroups)
        found.assert_right()
        for view in ("x_ptr", "residual_ptr"):
            assert found.counters.device[view].load_elements == 3 * 4096


def test_cross_entropy_7x4096_with_labels_in_and_out_of_range():
    logits = kernels.catalog()["cross_entropy"].arguments(7, 4096)[0]
    labels = np.array([0, 4095, 4096, -1, 2047, 2**40, -100], np.int64)
    found = run("cross_entropy", 7, 4096, inputs=(logits, labels))
    found.assert_right()
    assert found.reductions == 2
    assert found.plan.stripes == ()  # the logits are read from the tensor itself
    gathers = found.counters.device["logits_ptr"].load_elements - 2 * 7 * 4096
    assert gathers == 3  # once for each label inside, never for one outside


@pytest.mark.parametrize("name", ["minmax", "logsumexp"])
def test_two_reductions_of_7x1024(name):
    found = run(name, 7, 1024)
    found.assert_right()
    assert found.reductions == 2
    assert len(found.counters.collectives) == 2


@pytest.mark.parametrize("name", ["rmsnorm", "log_softmax", "layernorm_no_affine"])
def test_elementwise_results_of_5x1000(name):
    run(name, 5, 1000).assert_right()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(kernels.catalog()))
def test_half_storage_is_computed_in_float32_collectives(name, dtype):
    found = run(name, 9, 257, dtype)
    found.assert_right()
    run(name, 3, 1000, dtype, subgroups=5).assert_right()


def test_one_program_per_threadgroup_needs_no_guard_and_no_scratch():
    source = compiled("softmax", 8, 257, subgroups=1).source
    assert barriers_in(source) == 0 and collectives_in(source) == 2
    assert "threadgroup float" not in source

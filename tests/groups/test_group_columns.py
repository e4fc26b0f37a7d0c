"""Reductions whose outputs lie side by side: the plan, CUDA text on the processor, Metal's text."""

# ruff: noqa: F821

import cuda_on_cpu
import numpy as np
import pytest
from group_samples import both_axes, nest_of_outputs, random

import tvm_tilex as tx
from tvm_tilex.analysis.group_columns import read_columns
from tvm_tilex.analysis.group_facts import read_group
from tvm_tilex.analysis.group_structure import Outputs
from tvm_tilex.kernels import composed
from tvm_tilex.plan.cooperative import CooperativePlan, plan_cooperative
from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_columns import column_share
from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseFacts, PhaseKind

TARGET = TargetFacts(max_threads=1024, shared_bytes=49152, lanes=32)
on_the_processor = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
COLUMNS = "columns"


def reduction(**facts):
    known = {"count": 64, "depth": 512, "collective": True, "any_order": True, "adjacent": 4}
    return PhaseFacts(PhaseKind.reduction, **{**known, "stride": 64, "global_loads": 1, **facts})


def planned(phase, **request):
    facts = GroupFacts(4, 1, (phase,), (), ())
    return plan_cooperative(facts, TARGET, GroupRequest(**request))


# The plan


def test_threads_are_shared_out_over_vectors_of_outputs_and_slices_of_rows():
    share = column_share(0, reduction(), 256)
    assert (share.vector, share.lanes, share.slices) == (4, 16, 16)
    assert column_share(0, reduction(), 1024).slices == 64
    assert column_share(0, reduction(depth=3), 1024).slices == 3  # no slice without a row
    many = column_share(0, reduction(count=4096), 256)
    assert many.slices == 1 and not many.fenced
    assert column_share(0, reduction(adjacent=0), 256) is None
    assert column_share(0, reduction(any_order=False), 256) is None


def test_the_price_chooses_columns_and_the_record_says_why():
    plan = planned(reduction(), threads=256)
    assert plan.realizations == (COLUMNS,)
    (note,) = plan.notes
    assert "columns is the cheapest, 4 outputs a thread in 16 slices (collective" in note
    assert plan.barrier_sites == len(plan.fences) + 1
    assert plan.shared_bytes == 16 * 64 * 4
    assert CooperativePlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"collectives": False}, "the option is off"),
        ({"threads": 48}, "not whole SIMD groups"),
        ({"reductions": "serial"}, "the serial realization is asked for"),
    ],
)
def test_the_ordered_realization_stays_where_it_is_due(request_, reason):
    plan = planned(reduction(), **{"threads": 64, **request_})
    assert plan.realizations == ("serial",) and reason in plan.notes[0]


def test_a_demand_that_the_layout_does_not_permit_is_serial_and_says_so():
    plan = planned(reduction(adjacent=0), threads=64, reductions=COLUMNS)
    assert plan.realizations == ("serial",)
    assert "do not lie side by side" in plan.notes[0]


def test_partial_results_may_exceed_the_memory():
    wide = reduction(count=64, depth=4096)
    small = TargetFacts(max_threads=1024, shared_bytes=4096, lanes=32)
    plan = plan_cooperative(GroupFacts(4, 1, (wide,), (), ()), small, GroupRequest())
    assert plan.shared_bytes <= 4096
    assert any(c.rejection and "shared bytes" in c.rejection for c in plan.candidates)


# What is read side by side


def lowered(kernel, *shapes, dtype="float16", **constants):
    specs = [tx.spec(shape, dtype) for shape in shapes]
    module = tx.lower(kernel, *specs, **constants)
    subject = read_group(module[kernel.name].body, "cuda")
    return [p for p in subject.phases if isinstance(p, Outputs)], subject


@pytest.mark.parametrize(
    ("columns", "dtype", "width"),
    [(64, "float16", 8), (64, "float32", 4), (70, "float16", 2), (33, "bfloat16", 1)],
)
def test_vectors_are_what_the_rows_begin_at(columns, dtype, width):
    shapes = ((40, columns), (columns,))
    (phase,), subject = lowered(composed.column_sum, *shapes, dtype=dtype, block_columns=32)
    assert read_columns(phase).width == width
    (facts,) = (f for f in subject.facts.phases if f.kind is PhaseKind.reduction)
    assert facts.adjacent == width and facts.any_order


def test_rows_do_not_lie_side_by_side():
    phases, _ = lowered(both_axes, (2, 9, 70), (2, 9), (2, 70), dtype="float32")
    assert [read_columns(p) is not None for p in phases] == [False, True]


@tx.tile_kernel
def chosen_by_data(
    x: tx.TensorView["float32", ("p", "r", "c")],
    out: tx.TensorView["float32", ("p", "c"), "out"],
):
    """Sum of the positive elements that lie on one side of the middle row."""
    p, r, c = tx.axis("p", x.extent(0)), tx.axis("r", x.extent(1)), tx.axis("c", x.extent(2))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group(tx.shape(c)):
            value = x[tx.coord(nest.index(), 0, 0), tx.shape(1, r, c)]
            kept = tx.where(value > 0.0, value, 0.0)
            kept = tx.where(tx.coordinate(r) < 3, kept, 2.0 * kept)
            out(tx.coord(nest.index(), 0), tx.shape(1, c)).store(tx.reduce(kept, r, tx.add))


# The CUDA text


def run_on_processor(kernel, arrays, folder, threads, **constants):
    specs = [tx.spec(array.shape, str(array.dtype)) for array in arrays]
    options = tx.CompileOptions(group_threads=threads, group_reductions=COLUMNS)
    artifact = tx.compile(kernel, *specs, target="cuda", options=options, **constants)
    (plan,) = artifact.group_plans
    assert artifact.source.count("__syncthreads();") == plan.barrier_sites
    cuda_on_cpu.run(artifact, arrays, folder)
    return plan, artifact


SHAPES = {
    "whole": ((256, 64), {}),
    "ragged": ((150, 70), {"block_rows": 64}),
    "ragged in one block": ((150, 70), {"block_rows": 256, "block_columns": 70}),
    "one row": ((1, 640), {}),
    "one column": ((37, 1), {}),
    "more outputs than threads": ((33, 640), {"block_columns": 640}),
    "fewer rows than slices": ((5, 32), {"block_columns": 32}),
}


@on_the_processor
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_cuda_text_sums_columns(shape, dtype, tmp_path):
    (rows, columns), constants = SHAPES[shape]
    entry = composed.catalog()["column_sum"]
    arrays = entry.arguments({"rows": rows, "columns": columns}, dtype)
    plan, artifact = run_on_processor(entry.kernel, arrays, tmp_path, 128, **constants)
    assert entry.check(arrays, **constants).within
    assert COLUMNS in plan.realizations
    if shape == "whole":
        assert {"float32": "float4", "float16": "uint4", "bfloat16": "uint4"}[
            dtype
        ] in artifact.source


@on_the_processor
def test_the_cuda_text_takes_both_axes_a_nest_and_a_choice(tmp_path):
    x = random(2, 9, 64)
    rows, columns = np.full((2, 9), np.nan, np.float32), np.full((2, 64), np.nan, np.float32)
    (tmp_path / "a").mkdir()
    plan, _ = run_on_processor(both_axes, (x, rows, columns), tmp_path / "a", 64)
    assert plan.realizations.count(COLUMNS) == 1 and "serial" in plan.realizations
    np.testing.assert_allclose(rows, x.sum(2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(columns, x.sum(1), rtol=1e-5, atol=1e-5)

    x4 = random(2, 3, 40, 8)
    out = np.full((2, 3, 8), np.nan, np.float32)
    (tmp_path / "b").mkdir()
    plan, _ = run_on_processor(nest_of_outputs, (x4, out), tmp_path / "b", 96)
    assert plan.realizations.count(COLUMNS) == 2
    np.testing.assert_allclose(out, np.exp(x4 - x4.max(2, keepdims=True)).sum(2), rtol=1e-5)

    out = np.full((2, 64), np.nan, np.float32)
    (tmp_path / "c").mkdir()
    plan, _ = run_on_processor(chosen_by_data, (x, out), tmp_path / "c", 64)
    assert COLUMNS in plan.realizations
    kept = np.maximum(x, 0) * np.where(np.arange(9) < 3, 1, 2)[:, None]
    np.testing.assert_allclose(out, kept.sum(1), rtol=1e-5, atol=1e-5)


# Metal's text, with the simulator's races and barriers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_metal_text_sums_columns(shape, dtype):
    (rows, columns), constants = SHAPES[shape]
    entry = composed.catalog()["column_sum"]
    extents = {"rows": rows, "columns": columns}
    arrays = entry.arguments(extents, dtype)
    options = tx.CompileOptions(group_threads=64, group_reductions=COLUMNS)
    specs = entry.specs(extents, dtype)
    artifact = tx.compile(entry.kernel, *specs, target="metal", options=options, **constants)
    artifact(*arrays)
    assert entry.check(arrays, **constants).within
    assert artifact.source.count("threadgroup_barrier") == artifact.group_plans[0].barrier_sites


def test_a_propagated_nan_is_kept_where_metals_collectives_may_not_run():
    @tx.tile_kernel
    def peaks(
        x: tx.TensorView["float32", ("p", "r", "c")],
        out: tx.TensorView["float32", ("p", "c"), "out"],
    ):
        p, r, c = tx.axis("p", x.extent(0)), tx.axis("r", x.extent(1)), tx.axis("c", x.extent(2))
        for nest in tx.parallel(tx.shape(p)):
            for _ in tx.group(tx.shape(c)):
                value = x[tx.coord(nest.index(), 0, 0), tx.shape(1, r, c)]
                peak = tx.reduce(value, r, tx.maximum, nan="propagate")
                out(tx.coord(nest.index(), 0), tx.shape(1, c)).store(peak)

    x, out = random(2, 100, 64), np.full((2, 64), np.nan, np.float32)
    x[1, 17, 3] = np.nan
    specs = [tx.spec(array.shape) for array in (x, out)]
    options = tx.CompileOptions(group_threads=64)
    artifact = tx.compile(peaks, *specs, target="metal", options=options)
    artifact(x, out)
    assert COLUMNS in artifact.group_plans[0].realizations
    np.testing.assert_array_equal(out, x.max(1))


def test_what_an_earlier_nest_wrote_is_read_where_it_stands():
    entry = composed.catalog()["split_column_sum"]
    extents = {"rows": 300, "columns": 64, "slices": 8}
    artifact = tx.compile(entry.kernel, *entry.specs(extents, "float16"), target="cuda")
    first, second = artifact.group_plans
    assert COLUMNS in first.realizations
    assert len(artifact.device.launches) == 2
    reduced, stored = second.realizations  # no phase copies the slices' sums
    assert reduced in (COLUMNS, "serial") and stored == "elements"

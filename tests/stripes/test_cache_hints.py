"""Loads that say how the caches should treat them: which kernels have them, and their values."""

import re

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import VIEW, compiled, kernel_of, launched

import tvm_tilex as tx

CALL = re.compile(r"tilex_load_streamed(?:_coherently)?_16\(\(&\((\w+)\[.*?\]\)\), \(&\((\w+)\[")


def streamed(artifact):
    """The views that the text streams."""
    return {source.removesuffix("_ptr") for _, source in CALL.findall(kernel_of(artifact))}


READERS = ["row_sum", "row_max", "minmax", "logsumexp"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", READERS)
def test_a_kernel_that_only_reads_streams_its_rows(name, dtype):
    artifact = compiled(name, 64, 1024, dtype)
    assert streamed(artifact) == {"x"}
    load = "ld.global" if artifact.plan.dependent else "ld.global.nc"
    assert artifact.source.count(f"{load}.L1::no_allocate.v4.u32") == 1
    assert not re.search(r"= \*\((?:float4|uint4)\*\)\(x_ptr", kernel_of(artifact))
    assert artifact.alignment["x"] == 16


def test_an_element_read_beside_the_row_is_no_second_pass():
    artifact = compiled("cross_entropy", 64, 1024)
    assert streamed(artifact) == {"logits"}
    assert re.search(r"= logits_ptr\[", kernel_of(artifact))  # the label's


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "layernorm", "residual_layernorm"])
def test_a_kernel_that_writes_what_it_reads_does_not(name):
    for early in (False, True):
        artifact = compiled(name, 64, 1024, reduction_early_views=early)
        assert "streamed" not in artifact.source and "float4" in artifact.source


@pytest.mark.parametrize(
    "options",
    [{"reduction_lane_elements": 1}, {"reduction_lane_elements": 2}, {"vector_access": False}],
    ids=str,
)
def test_narrower_loads_stay(options):
    assert "streamed" not in compiled("row_sum", 64, 1024, **options).source


def test_wider_packs_are_several_vectors():
    text = kernel_of(compiled("row_sum", 64, 512, threads_per_group=64, reduction_lane_elements=8))
    assert len(CALL.findall(text)) == 2


# elements a worker has in the loop -> 64 numbers of FP32 are unrolled, 128 of 16 bits
@pytest.mark.parametrize(
    ("dtype", "columns", "whole"),
    [
        ("float32", 32 * 64, True),
        ("float32", 32 * 68, False),
        ("bfloat16", 32 * 128, True),
        ("bfloat16", 32 * 136, False),
    ],
)
def test_a_loop_at_run_time_keeps_plain_loads(dtype, columns, whole):
    elements = 4 if dtype == "float32" else 8
    artifact = compiled(
        "row_sum", 8, columns, dtype, threads_per_group=32, reduction_lane_elements=elements
    )
    assert bool(streamed(artifact)) == whole
    (loop,) = re.findall(r"(#pragma unroll\n\s*)?for \(int chunk = 0", kernel_of(artifact))
    assert bool(loop) == whole


def test_a_part_of_a_loop_that_is_unrolled_by_an_option_is_still_a_loop():
    options = {"threads_per_group": 32, "reduction_lane_elements": 4}
    long = compiled("row_sum", 8, 32 * 128, reduction_unroll=2, **options)
    assert streamed(long) == set()


def test_staged_rows_are_copied():
    artifact = compiled("logsumexp", 64, 1024, reduction_stripe_storage="shared")
    assert "tilex_copy_async_16(" in artifact.source and streamed(artifact) == set()


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", None])
def test_the_device_must_have_the_instruction(arch):
    target = {"kind": "cuda", "max_num_threads": 1024, "thread_warp_size": 32}
    target |= {} if arch is None else {"arch": arch}
    for name, hint in (("row_sum", "streamed"), ("rmsnorm", "kept")):
        entry = tx.kernels.catalog()[name]
        artifact = tx.compile(entry.kernel, *entry.specs(64, 1024), target=target)
        stated = str(artifact.target.attrs.get("arch", ""))
        assert (hint in artifact.source) == (int(stated.removeprefix("sm_") or 0) >= 80)
        assert stated == arch or arch is None


@pytest.mark.parametrize("target", ["metal", "llvm"])
def test_other_targets_have_no_such_load(target):
    for name in ("row_sum", "rmsnorm"):
        artifact = compiled(name, 64, 1024, target=target)
        text = artifact.source + artifact.scheduled.script()
        assert "streamed" not in text and "kept" not in text


@tx.tile_kernel
def weighted(
    x: VIEW[tx.float32, 2],
    w: VIEW[tx.float32, 1],
    out: VIEW[tx.float32, 1, tx.Out],
):
    """A product with a vector that every program reads."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        total = tx.reduce(row * w[tx.coord(0), tx.shape(columns)], columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(total)


@tx.tile_kernel
def shared(
    x: VIEW[tx.float32, 2],
    y: VIEW[tx.float32, 2],
    out: VIEW[tx.float32, 1, tx.Out],
):
    """Each row of ``x`` belongs to four programs."""
    rows, columns = tx.axis("rows", y.extent(0)), tx.axis("columns", y.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index() // 4, 0), tx.shape(one, columns)]
        total = tx.reduce(
            row * y[tx.coord(nest.index(), 0), tx.shape(one, columns)], columns, tx.add
        )
        out(tx.coord(nest.index()), tx.shape(one)).store(total)


@tx.tile_kernel
def twice(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
    """The sum of squares of what is left of the mean: two passes, unless the row is kept."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        again = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        peak = tx.reduce(row, columns, tx.maximum)
        total = tx.reduce(again * again, columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(total - peak)


@tx.tile_kernel
def grown(
    x: VIEW[tx.float32, 2],
    y: VIEW[tx.float32, 2, tx.InOut],
    out: VIEW[tx.float32, 1, tx.Out],
):
    """Sums of long rows, added to each element of short ones."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one, short = tx.axis("one", 1), tx.axis("short", y.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        total = tx.reduce(x[origin, tx.shape(one, columns)], columns, tx.add)
        y(origin, tx.shape(one, short)).store(y[origin, tx.shape(one, short)] + total)
        out(tx.coord(nest.index()), tx.shape(one)).store(total)


def data(*shapes):
    rng = np.random.default_rng(4)
    return [rng.integers(-8, 9, shape).astype("f") for shape in shapes]


CASES = {
    "a vector of every program": (weighted, [(8, 512), (512,)], {"x"}),
    "rows of four programs": (shared, [(2, 512), (8, 512)], {"y"}),
    "two passes": (twice, [(8, 512)], set()),
    "a row that is written": (grown, [(8, 4096), (8, 128)], {"x"}),
}


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("case", CASES)
def test_only_rows_that_one_program_reads_once_are_streamed(case, tmp_path):
    kernel, shapes, views = CASES[case]
    options = tx.CompileOptions(
        threads_per_group=64,
        reduction_lane_elements=4,
        shared_tile_materialization="recompute" if kernel is twice else "preserve",
    )
    specs = [*shapes, (8,)]
    artifact = tx.compile(kernel, *specs, target="cuda", options=options)
    assert streamed(artifact) == views
    arrays = [*data(*shapes), np.empty(8, np.float32)]
    x, other = arrays[0].copy(), arrays[1].copy()
    cuda_on_cpu.run(artifact, arrays, tmp_path)
    if kernel is grown:
        assert np.array_equal(arrays[1], other + x.sum(1)[:, None])
    want = {
        weighted: lambda: x @ other,
        shared: lambda: (np.repeat(x, 4, axis=0) * other).sum(1),
        twice: lambda: (x * x).sum(1) - x.max(1),
        grown: lambda: x.sum(1),
    }[kernel]()
    assert np.array_equal(arrays[-1], want)  # integers: every order gives the same sum


# kernel, type, rows, columns, threads, Q, V
RUNS = [
    ("row_sum", "float32", 3, 1024, 64, 1, 4),
    ("row_sum", "bfloat16", 5, 520, 64, 2, 8),  # a bounded tail, a guarded last group
    ("row_max", "float16", 5, 1000, 128, 2, 8),  # a replayed one
    ("row_sum", "float32", 3, 520, 32, 1, 8),  # two vectors a pack
    ("minmax", "bfloat16", 3, 1024, 64, 1, 8),
    ("logsumexp", "float32", 3, 516, 64, 1, 4),
    ("cross_entropy", "bfloat16", 3, 1024, 64, 1, 8),
]


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_streaming_changes_no_bit(run, tmp_path):
    name, dtype, rows, columns, threads, packed, elements = run
    found = []
    for access in (True, False):
        options = {
            "threads_per_group": threads,
            "reduction_programs_per_group": packed,
            "reduction_lane_elements": elements,
            "vector_access": access,
        }
        folder = tmp_path / str(access)
        folder.mkdir()
        assert bool(streamed(compiled(name, rows, columns, dtype, **options))) == access
        found.append(launched(name, rows, columns, dtype, folder, **options))
    assert found[0] == found[1]


# What every program reads


def kept(artifact):
    """The views that the text asks the caches to keep, and the bytes of such a load."""
    calls = re.findall(r"tilex_load_kept_(16|4)\(([^;]*);", kernel_of(artifact))
    views = (re.findall(r"(\w+)_ptr\[", arguments) for _, arguments in calls)
    names = {name for found in views for name in found if name in ("w", "weight", "bias", "x", "y")}
    return names, {int(size) for size, _ in calls}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "views"), [("rmsnorm", {"weight"}), ("layernorm", {"weight", "bias"})]
)
def test_weights_are_kept_and_rows_are_not(name, views, dtype, early):
    options = {"shared_tile_materialization": "preserve", "reduction_early_views": early}
    artifact = compiled(name, 64, 1024, dtype, **options)
    assert kept(artifact) == (views, {16})
    assert "L1::evict_last.L2::cache_hint" in artifact.source
    assert "createpolicy.fractional.L2::evict_last" in artifact.source
    for view in views:
        assert artifact.alignment[view] == 16
        assert not re.search(rf"= \*\((?:float4|uint4)\*\)\({view}_ptr", kernel_of(artifact))


def test_single_numbers_of_four_bytes_are_kept():
    unpeeled = compiled("rmsnorm", 64, 1023, reduction_peeled_rows=False)
    assert kept(unpeeled) == ({"weight"}, {4})
    narrow = compiled("rmsnorm", 64, 1023, "bfloat16", reduction_peeled_rows=False)
    assert kept(narrow) == (set(), set())


def test_a_kernel_without_weights_keeps_nothing():
    assert kept(compiled("softmax", 64, 1024)) == (set(), set())


# 64 KiB and more: float32 of 16384 columns, twice 8192
@pytest.mark.parametrize(
    ("name", "columns", "asked"),
    [
        ("rmsnorm", 16380, True),
        ("rmsnorm", 16384, False),
        ("layernorm", 8188, True),
        ("layernorm", 8192, False),
    ],
)
def test_large_weights_come_as_they_come(name, columns, asked):
    options = {"max_reduction_striped_scalars_per_worker": 1000, "threads_per_group": 256}
    assert bool(kept(compiled(name, 4, columns, **options))[0]) == asked


def test_a_cluster_keeps_nothing():
    options = {"threads_per_group": 256, "reduction_blocks_per_program": 4}
    artifact = compiled("rmsnorm", 8, 32768, "bfloat16", target="h200", **options)
    assert kept(artifact) == (set(), set())


@tx.tile_kernel
def accumulated(
    x: VIEW[tx.float32, 2],
    w: VIEW[tx.float32, 1, tx.InOut],
    out: VIEW[tx.float32, 1, tx.Out],
):
    """A vector that the kernel's second nest writes is read by all programs of its first."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        total = tx.reduce(row * w[tx.coord(0), tx.shape(columns)], columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(total)
        w(tx.coord(nest.index()), tx.shape(one)).store(total)


def test_what_the_kernel_writes_is_not_kept():
    specs = (tx.spec((4, 512)), tx.spec((512,)), tx.spec((4,)))
    artifact = tx.compile(accumulated, *specs, target="cuda")
    assert "tilex_load_kept" not in artifact.source


KEPT_RUNS = [
    ("rmsnorm", "float32", 3, 1024, 64, 1, 4, False),
    ("rmsnorm", "float32", 3, 1023, 64, 1, 1, False),
    ("layernorm", "float32", 3, 33, 32, 1, 1, True),
    ("layernorm", "bfloat16", 5, 520, 64, 2, 8, True),
    ("layernorm", "float16", 5, 1000, 128, 2, 8, False),
    ("layernorm", "float32", 3, 520, 64, 1, 8, True),
]


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("run", KEPT_RUNS, ids=str)
def test_kept_weights_against_fp64(run, tmp_path):
    name, dtype, rows, columns, threads, packed, elements, early = run
    options = {
        "threads_per_group": threads,
        "reduction_programs_per_group": packed,
        "reduction_lane_elements": elements,
        "reduction_early_views": early,
    }
    assert kept(compiled(name, rows, columns, dtype, **options))[0]
    launched(name, rows, columns, dtype, tmp_path, **options)


# Rows that are read again

AGAIN = {"shared_tile_materialization": "recompute", "reduction_lane_elements": 4}


def readings(artifact, view):
    """What each load of ``view`` asks of the caches, in the order of the text."""
    pattern = rf"tilex_load_(\w+)_16\([^;]*?{view}_ptr\["
    found = re.findall(pattern, kernel_of(artifact))
    # A division by a row's number has a path for what is rare: the last reading stands twice.
    return found[:-1] if found[-2:] == ["last", "last"] else found


@pytest.mark.parametrize(("name", "view", "count"), [("softmax", "input", 3), ("rmsnorm", "x", 2)])
def test_a_row_is_kept_until_it_is_read_for_the_result(name, view, count):
    artifact = compiled(name, 64, 1024, threads_per_group=64, **AGAIN)
    assert readings(artifact, view) == ["kept"] * (count - 1) + ["last"]
    assert "createpolicy.fractional.L2::evict_first" in artifact.source


def test_both_rows_of_a_residual_are():
    artifact = compiled("residual_layernorm", 64, 1024, threads_per_group=64, **AGAIN)
    for view in ("x", "residual"):
        assert readings(artifact, view) == ["kept", "kept", "last"]


@pytest.mark.parametrize(("threads", "hinted"), [(64, True), (32, False)])
def test_more_than_64_bytes_a_worker_come_as_they_come(threads, hinted):
    artifact = compiled("rmsnorm", 64, 1024, threads_per_group=threads, **AGAIN)
    assert bool(readings(artifact, "x")) == hinted
    assert readings(artifact, "weight") == ["kept"]


def test_three_readings_beside_weights_come_as_they_come():
    artifact = compiled("layernorm", 64, 1024, threads_per_group=64, **AGAIN)
    assert readings(artifact, "x") == [] and readings(artifact, "bias") == ["kept"]


def test_rows_that_stay_in_registers_are_read_once():
    kept = {"shared_tile_materialization": "preserve"}
    artifact = compiled("softmax", 64, 1024, threads_per_group=64, **kept)
    assert "tilex_load" not in artifact.source


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "residual_layernorm"])
def test_rows_read_again_against_fp64(name, dtype, tmp_path):
    options = {**AGAIN, "threads_per_group": 64}
    options["reduction_lane_elements"] = 4 if dtype == "float32" else 8
    assert "tilex_load_last_16" in compiled(name, 3, 1000, dtype, **options).source
    launched(name, 3, 1000, dtype, tmp_path, **options)

"""Rows whose packs begin at the first aligned element: the CUDA text, run on the processor."""

import itertools
import re

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import compiled, kernel_of, launched

import tvm_tilex as tx
from tvm_tilex import kernels

on_cpu = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
LIBRARY = ("row_sum", "softmax", "rmsnorm", "layernorm", "residual_layernorm", "cross_entropy")
MORE = ("log_softmax", "minmax", "logsumexp", "row_min")
WIDEST = {"float32": 4, "bfloat16": 8, "float16": 8}


def peeled(threads=0, **more):
    """The options of peeled rows, whatever registers they take."""
    scalars = {"max_reduction_striped_scalars_per_worker": 1000}
    return {"reduction_peeled_rows": True, "threads_per_group": threads, **scalars, **more}


# Rows, columns, threads, Q and V (0: as many as a vector holds): every head, whole and no whole
# chunks, one pack more or less than the workers, replayed and guarded tails, elements beside only.
PLACES = (
    (9, 4095, 256, 1, 0),
    (9, 1021, 64, 1, 0),
    (5, 257, 32, 1, 4),
    (8, 255, 64, 2, 0),
    (3, 1023, 128, 1, 2),
    (7, 514, 128, 2, 0),
    (2, 17, 32, 1, 0),
    (5, 2047, 64, 1, 0),
    (9, 262, 32, 1, 0),
)
CASES = [
    (name, dtype, *PLACES[number % len(PLACES)])
    for number, (name, dtype) in enumerate(
        itertools.product((*LIBRARY, *MORE), ("float32", "bfloat16", "float16"))
    )
]


@on_cpu
@pytest.mark.parametrize(
    ("name", "dtype", "rows", "columns", "threads", "packed", "elements"), CASES
)
def test_against_fp64(name, dtype, rows, columns, threads, packed, elements, tmp_path):
    options = peeled(threads, reduction_programs_per_group=packed, reduction_lane_elements=elements)
    launched(name, rows, columns, dtype, tmp_path, **options)
    plan = compiled(name, rows, columns, dtype, **options).plan
    assert plan.peeled and plan.lane_elements == (elements or WIDEST[dtype])


@on_cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_weights_read_early(name, dtype, tmp_path):
    launched(name, 9, 1021, dtype, tmp_path, **peeled(64, reduction_early_views=True))


@on_cpu
@pytest.mark.parametrize("columns", range(16, 48))
def test_every_width_and_head(columns, tmp_path):
    """Both mappings of a row store the same bits: each element once, from the same numbers."""
    if columns % 8 == 0:
        pytest.skip("every row is aligned")
    x = np.arange(9 * columns, dtype=np.float32).reshape(9, columns) % 251
    x = x.astype(np.float16)
    scale, out = np.arange(columns, dtype=np.float16), np.full(x.shape, np.nan, np.float16)
    total = np.empty(9, np.float32)
    specs = (tx.spec(x.shape, "float16"), tx.spec((columns,), "float16"))
    specs = (*specs, tx.spec(x.shape, "float16"), tx.spec((9,)))
    artifact = tx.compile(scaled, *specs, target="cuda", options=tx.CompileOptions(**peeled(32)))
    assert artifact.plan.peeled
    cuda_on_cpu.run(artifact, [x, scale, out, total], tmp_path)
    wide = x.astype(np.float32)
    assert np.array_equal(out, (wide - scale.astype(np.float32)).astype(np.float16))
    assert np.array_equal(total, wide.sum(axis=1))  # whole numbers: exact in any order


@tx.tile_kernel
def scaled(
    x: tx.TensorView[tx.floating, 2],
    scale: tx.TensorView[tx.floating, 1],
    out: tx.TensorView[tx.floating, 2, tx.Out],
    total: tx.TensorView[tx.float32, 1, tx.Out],
):
    """Rows less a common row, and their sums."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        common = tx.cast(scale[tx.coord(0), tx.shape(columns)], tx.float32)
        total(tx.coord(nest.index()), tx.shape(one)).store(tx.reduce(row, columns, tx.add))
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(tx.cast(row - common, x.dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LIBRARY)
def test_rows_and_weights_move_as_vectors(name, dtype):
    text = kernel_of(compiled(name, 64, 4095, dtype, **peeled(256)))
    views = re.findall(r"\* __restrict__ (\w+)_ptr", text[: text.index("{")])
    rows = [view for view in views if view in ("x", "out", "input", "output", "residual")]
    rows += ["logits"] if name == "cross_entropy" else []
    for view in rows:
        if name in ("row_sum", "cross_entropy") and view in ("out", "output"):
            continue
        vector = rf"(?:float|uint)4\*\)\({view}_ptr \+|tilex_load_\w+_16\([^;]*?&\({view}_ptr\["
        assert re.search(vector, text), (view, text)
    weights = [view for view in views if view in ("weight", "bias")]
    assert text.count("tilex_shifted_16(") >= len(weights)


# 8 * 511 + 7, + 1 and + 4: weights that end inside a block, or with one
@on_cpu
@pytest.mark.parametrize("columns", [4095, 4089, 4092])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_block_of_a_shifted_vector_ends_behind_the_memory(columns, dtype, tmp_path):
    if (columns, dtype) == (4092, "float32"):
        pytest.skip("every row is aligned")
    launched("layernorm", 9, columns, dtype, tmp_path, **peeled(128))  # fails for bytes outside


@on_cpu
def test_a_block_behind_the_memory_is_noticed(tmp_path):
    """So that the runs above prove what they say."""
    artifact = compiled("rmsnorm", 9, 4095, "bfloat16", **peeled(256))

    class Unguarded:
        device, tile_ir = artifact.device, artifact.tile_ir
        source = artifact.source.replace("(int)threadIdx.x) < 254", "(int)threadIdx.x) < 256")

    assert Unguarded.source != artifact.source  # 510 packs of 8
    arguments = list(kernels.catalog()["rmsnorm"].arguments(9, 4095, "bfloat16"))
    with pytest.raises(AssertionError, match="bytes outside"):
        cuda_on_cpu.run(Unguarded, arguments, tmp_path)


@on_cpu
def test_any_number_of_rows(tmp_path):
    """Whose count is known at launch: a head is a row's own."""
    entry, options = kernels.catalog()["softmax"], peeled(64)
    dynamic = compiled("softmax", tx.dynamic("P"), 1021, "bfloat16", **options)
    assert dynamic.plan.peeled
    for rows in (1, 8, 13):
        arguments = list(entry.arguments(rows, 1021, "bfloat16"))
        arguments[-1][...] = np.nan
        folder = tmp_path / str(rows)  # a library is loaded once by its path
        folder.mkdir()
        cuda_on_cpu.run(dynamic, arguments, folder, P=rows)
        assert all(comparison.within for comparison in entry.check(arguments))


def refused(name, columns, dtype="bfloat16", **options):
    with pytest.raises(tx.errors.MappingError) as found:
        compiled(name, 64, columns, dtype, **options)
    return str(found.value)


def test_refusals_say_what_is_missing():
    none = "every row begins aligned, is shorter than two vectors, or is not known to begin like"
    assert none in refused("softmax", 4096, **peeled())
    assert none in refused("softmax", 15, **peeled(reduction_lane_elements=8))
    wide = refused("softmax", 4095, "float32", **peeled(reduction_lane_elements=8))
    assert "V=8 from a row's first aligned element: it is 2 to 4 here" in wide
    alone = refused("softmax", 4095, **peeled(reduction_lane_elements=1))
    assert "V=1 from a row's first aligned element: it is 2 to 8 here" in alone
    staged = refused("softmax", 4095, **peeled(reduction_stripe_storage="shared"))
    assert "are not kept in shared memory" in staged
    few = refused("softmax", 255, **peeled(reduction_programs_per_subgroup=4))
    assert "8 workers do not own 15 elements beside a row's packs one by one" in few


@tx.tile_kernel
def shifted_out(
    x: tx.TensorView[tx.float32, 2],
    out: tx.TensorView[tx.float32, 2, tx.Out],
    total: tx.TensorView[tx.float32, 1, tx.Out],
):
    """Rows of another pitch than what is stored."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1) - 1)
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        total(tx.coord(nest.index()), tx.shape(one)).store(tx.reduce(row, columns, tx.add))
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(row + row)


def test_rows_that_begin_differently_have_no_common_head():
    specs = (tx.spec((9, 1022)), tx.spec((9, 1021)), tx.spec((9,)))
    options = tx.CompileOptions(**peeled(64))
    with pytest.raises(tx.errors.MappingError, match="not known to begin like the others"):
        tx.compile(shifted_out, *specs, target="cuda", options=options)
    assert not tx.compile(shifted_out, *specs, target="cuda").plan.peeled


@tx.tile_kernel
def scaled_part(
    x: tx.TensorView[tx.floating, 2],
    scale: tx.TensorView[tx.floating, 1],
    out: tx.TensorView[tx.float32, 2, tx.InOut],
    total: tx.TensorView[tx.float32, 1, tx.Out],
):
    """All but the last element of each row: rows of an odd width that begin aligned, or not."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1) - 1)
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        common = tx.cast(scale[tx.coord(0), tx.shape(columns)], tx.float32)
        total(tx.coord(nest.index()), tx.shape(one)).store(tx.reduce(row, columns, tx.add))
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(row - common)


@on_cpu
@pytest.mark.parametrize("pitch", [512, 508])
def test_odd_rows_of_padded_views(pitch, tmp_path):
    """A pitch that V divides: every head is 0; weights are aligned then, and not put together."""
    x = (np.arange(9 * pitch, dtype=np.float32).reshape(9, pitch) % 251).astype(np.float16)
    scale = np.arange(pitch, dtype=np.float16)
    out, total = np.full((9, pitch), np.nan, np.float32), np.empty(9, np.float32)
    specs = (tx.spec(x.shape, "float16"), tx.spec((pitch,), "float16"))
    specs = (*specs, tx.spec(out.shape), tx.spec((9,)))
    options = tx.CompileOptions(**peeled(32))
    artifact = tx.compile(scaled_part, *specs, target="cuda", options=options)
    assert artifact.plan.peeled and artifact.plan.lane_elements == 8
    assert ("tilex_shifted_16(" in kernel_of(artifact)) == (pitch % 8 != 0)
    cuda_on_cpu.run(artifact, [x, scale, out, total], tmp_path)
    wide = x[:, :-1].astype(np.float32)
    assert np.array_equal(out[:, :-1], wide - scale[:-1].astype(np.float32))
    assert np.isnan(out[:, -1]).all() and np.array_equal(total, wide.sum(axis=1))


@tx.tile_kernel
def reversed_windows(x: tx.TensorView[tx.float32, 1], total: tx.TensorView[tx.float32, 1, tx.Out]):
    """Sums of windows of 261 elements, the last one first."""
    programs, columns = tx.axis("programs", total.extent(0)), tx.axis("columns", 261)
    for nest in tx.parallel(tx.shape(programs)):
        window = x[tx.coord(total.extent(0) - 1 - nest.index()), tx.shape(columns)]
        total(tx.coord(nest.index()), tx.shape(1)).store(tx.reduce(window, columns, tx.add))


@on_cpu
def test_rows_that_begin_one_before_the_other(tmp_path):
    x, total = np.arange(273, dtype=np.float32), np.empty(13, np.float32)
    options = tx.CompileOptions(**peeled(32))
    artifact = tx.compile(reversed_windows, x, total, target="cuda", options=options)
    assert artifact.plan.peeled
    cuda_on_cpu.run(artifact, [x, total], tmp_path)
    assert np.array_equal(total, [x[12 - p : 12 - p + 261].sum() for p in range(13)])


def test_more_rows_than_places_of_the_index_type_are_not_peeled():
    programs = 300_000_000  # times 8 is past int32
    specs = (tx.spec((programs + 260,)), tx.spec((programs,)))
    options = tx.CompileOptions(**peeled(32))
    with pytest.raises(tx.errors.MappingError, match="rows begins does not fit the index type"):
        tx.compile(reversed_windows, *specs, target="cuda", options=options)
    assert not tx.compile(reversed_windows, *specs, target="cuda").plan.peeled


@pytest.mark.parametrize("columns", [4096, 255, 31])
def test_the_planner_peels_only_wide_rows_that_need_it(columns):
    plan = compiled("softmax", 64, columns, "bfloat16").plan
    assert not plan.peeled and not any(c.peeled for c in plan.candidates)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LIBRARY)
def test_wide_rows_are_peeled_by_cost(name, dtype):
    plan = compiled(name, 8191, 4095, dtype).plan
    assert plan.peeled and plan.lane_elements == WIDEST[dtype]
    kept = compiled(name, 8191, 4095, dtype, reduction_peeled_rows=False).plan
    assert not kept.peeled and not any(c.peeled for c in kept.candidates)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", LIBRARY)
def test_metal_in_the_simulator(name, dtype):
    """Rows as vectors of four, weights one by one."""
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(5, 261, dtype))
    for position in entry.outputs:
        arguments[position][...] = np.nan
    options = tx.CompileOptions(**peeled(64))
    artifact = tx.compile(entry.kernel, *arguments, target="metal", options=options)
    assert artifact.plan.peeled and "tilex_shifted" not in artifact.source
    assert re.search(r"(?:float|half|ushort)4\*\)\(\w+_ptr \+", artifact.source)
    artifact.simulate(*arguments)
    assert all(comparison.within for comparison in entry.check(arguments))
    assert not compiled(name, 64, 4095, dtype, target="metal").plan.peeled  # unless it is asked for


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_a_cluster_s_rows(name):
    """Their text compiles and their elements are proved; a cluster runs on the device only."""
    options = peeled(256, reduction_blocks_per_program=4)
    artifact = compiled(name, 8, 50257, "bfloat16", "h200", **options)
    assert artifact.plan.peeled and artifact.plan.blocks_per_program == 4
    assert artifact.plan.workers == 1024

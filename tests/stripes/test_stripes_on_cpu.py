"""The CUDA text of rows in stripes, run on the processor: bits, widths, packing, copies."""

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import NUMPY, VIEW, compiled, keeps, kernel_of, launched, private

import tvm_tilex as tx
from tvm_tilex import kernels

pytestmark = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")


@pytest.mark.parametrize("storage", ["register", "shared"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_is_widened_exactly(dtype, storage, tmp_path):
    bits = np.arange(2**16, dtype=np.uint16).reshape(2, -1)
    x = bits.view(NUMPY[dtype])
    out, total = np.empty(x.shape, np.float32), np.empty(2, np.float32)
    options = tx.CompileOptions(
        threads_per_group=1024, reduction_lane_elements=8, reduction_stripe_storage=storage
    )
    specs = (tx.spec(x.shape, dtype), tx.spec(x.shape), tx.spec((2,)))
    artifact = tx.compile(keeps, *specs, target="cuda", options=options)
    assert f"tilex_widen_{dtype}(" in kernel_of(artifact)
    assert (artifact.plan.staged_bytes > 0) == (storage == "shared")
    cuda_on_cpu.run(artifact, [x, out, total], tmp_path)
    wide = x.astype(np.float32)
    number = ~np.isnan(wide)
    assert np.array_equal(np.isnan(out), ~number)
    assert np.array_equal(out[number].view(np.uint32), wide[number].view(np.uint32))


EARLY = {"reduction_early_views": True}
LOADED = {"shared_tile_materialization": "loaded"}
# kernel, storage type, rows, columns, threads, Q, V, more options
CASES = {
    "V=1, all but one of the width": ("softmax", "float32", 2, 4095, 128, 1, 1, {}),
    "V=2, one more than the width": ("softmax", "bfloat16", 2, 4097, 256, 1, 2, {}),
    "V=4, ragged": ("softmax", "float16", 3, 257, 64, 1, 4, {}),
    "V=8, less than a pack": ("softmax", "float32", 3, 3, 32, 1, 8, {}),
    "V=8, vectors": ("softmax", "bfloat16", 3, 1024, 64, 1, 8, {}),
    "V=8 of 32 bytes": ("softmax", "float32", 2, 1024, 64, 1, 8, {}),
    "V=4 of 16 bytes, last chunk partly owned": ("softmax", "float32", 2, 1000, 64, 1, 4, {}),
    "a guarded tail": ("softmax", "bfloat16", 5, 512, 64, 2, 2, {}),
    "a replayed tail": ("softmax", "bfloat16", 5, 512, 128, 2, 8, {}),
    "a replayed ragged tail": ("rmsnorm", "float16", 7, 257, 256, 4, 4, {}),
    "computed again": ("softmax", "float32", 3, 2048, 128, 1, 4, LOADED),
    "two views": ("residual_layernorm", "float16", 3, 4095, 256, 1, 8, LOADED),
    "two views packed": ("residual_layernorm", "float32", 3, 260, 128, 2, 4, LOADED),
    "a label read early": ("cross_entropy", "float16", 3, 512, 64, 1, 8, {}),
    "a weight beside": ("layernorm", "bfloat16", 3, 520, 64, 1, 8, {}),
    "weights read early": ("layernorm", "bfloat16", 3, 520, 64, 1, 8, EARLY),
    "weights read early, packed": ("rmsnorm", "float32", 5, 512, 128, 2, 4, EARLY),
}


@pytest.mark.parametrize("case", CASES)
def test_where_a_stripe_stands_changes_no_bit(case, tmp_path):
    name, dtype, rows, columns, threads, packed, elements, more = CASES[case]
    plan = {
        "threads_per_group": threads,
        "reduction_programs_per_group": packed,
        "reduction_lane_elements": elements,
        "max_reduction_striped_scalars_per_worker": 1000,
        "shared_tile_materialization": "preserve",
        **more,
    }
    found = []
    for storage in ("register", "shared"):
        folder = tmp_path / storage
        folder.mkdir()
        asked = {**plan, "reduction_stripe_storage": storage}
        artifact = compiled(name, rows, columns, dtype, **asked)
        staged = storage == "shared"
        subgroups = threads // 32 // packed
        assert artifact.plan.shape == (subgroups, packed, elements, 1, staged, 1, False)
        (launch,) = artifact.device.launches
        assert launch.dynamic_shared_bytes == artifact.plan.staged_bytes
        found.append(launched(name, rows, columns, dtype, folder, **asked))
    assert found[0] == found[1]


def test_a_base_that_vectors_do_not_fit_gives_the_same_bits(tmp_path):
    options = {
        "threads_per_group": 64,
        "reduction_lane_elements": 4,
        "reduction_stripe_storage": "shared",
    }
    vectors = compiled("softmax", 3, 512, "float16", **options)
    scalars = compiled("softmax", 3, 512, "float16", vector_access=False, **options)
    assert "tilex_copy_async_8(" in kernel_of(vectors)
    assert "copy_async" not in kernel_of(scalars) and "uint2" not in kernel_of(scalars)
    assert scalars.plan.shape == vectors.plan.shape and scalars.alignment == {}
    found = []
    for access in (True, False):
        folder = tmp_path / str(access)
        folder.mkdir()
        asked = {**options, "vector_access": access}
        found.append(launched("softmax", 3, 512, "float16", folder, **asked))
    assert found[0] == found[1]


def test_a_copy_that_is_not_waited_for_is_noticed(tmp_path):
    """The stand-in for a device copies when a thread waits, so that these runs prove the wait."""
    options = {
        "threads_per_group": 64,
        "reduction_lane_elements": 4,
        "reduction_stripe_storage": "shared",
    }
    artifact = compiled("softmax", 2, 512, "float32", **options)

    class Without:
        device, tile_ir = artifact.device, artifact.tile_ir
        source = artifact.source.replace("tilex_wait_copies();", "")

    x = np.ones((2, 512), np.float32)
    with pytest.raises(AssertionError, match="not waited for"):
        cuda_on_cpu.run(Without, [x, np.empty_like(x)], tmp_path)


@pytest.mark.parametrize("rows", [1, 5])
def test_any_number_of_rows(rows, tmp_path):
    """The last threadgroup of two programs replays the last row."""
    entry = kernels.catalog()["softmax"]
    options = {
        "threads_per_group": 128,
        "reduction_programs_per_group": 2,
        "reduction_lane_elements": 8,
        "reduction_stripe_storage": "shared",
    }
    artifact = compiled("softmax", tx.dynamic("P"), 640, "bfloat16", **options)
    arguments = entry.arguments(rows, 640, "bfloat16")
    cuda_on_cpu.run(artifact, arguments, tmp_path, P=rows)
    assert all(comparison.within for comparison in entry.check(arguments))


@tx.tile_kernel
def doubled(x: VIEW[tx.float32, 2, tx.InOut], out: VIEW[tx.float32, 2, tx.Out]):
    """A row that is stored and read again, by two consumers."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        x(origin, tx.shape(one, columns)).store(x[origin, tx.shape(one, columns)] * 2.0)
        again = x[origin, tx.shape(one, columns)]
        peak = tx.reduce(again, columns, tx.maximum)
        out(origin, tx.shape(one, columns)).store(again - peak)


def test_what_the_kernel_stores_itself_is_not_copied_asynchronously(tmp_path):
    """PTX does not order such a copy after the thread's own store."""
    options = tx.CompileOptions(
        threads_per_group=64, reduction_lane_elements=4, reduction_stripe_storage="shared"
    )
    x = np.random.default_rng(2).standard_normal((3, 512)).astype("f")
    given, out = x.copy(), np.empty_like(x)
    artifact = tx.compile(doubled, x.shape, x.shape, target="cuda", options=options)
    assert artifact.plan.staged_bytes == 2 * 512 * 4  # as it was, and as it is
    assert "copy_async" not in artifact.source and "float4" in kernel_of(artifact)
    cuda_on_cpu.run(artifact, [given, out], tmp_path)
    assert np.array_equal(given, 2 * x)
    assert np.array_equal(out, 2 * x - (2 * x).max(axis=1, keepdims=True))


def test_a_narrow_stripe_holds_the_view_s_own_type():
    artifact = compiled("softmax", 3, 1024, "bfloat16", threads_per_group=32)
    kinds = [kind for kind, _ in private(artifact).values()]
    assert kinds == ["nv_bfloat16", "float"]  # the row, its exponentials

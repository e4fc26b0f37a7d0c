"""What the text of kernels with stripes says: copies, vectors, types, clusters, dynamic rows."""

import re

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import NUMPY, VIEW, compiled, facts_of, kernel_of, pair, private

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.runtime.arguments import Argument

SHARED = {"threads_per_group": 64, "reduction_stripe_storage": "shared"}

# storage type, V -> bytes of an asynchronous copy (0: the pack moves through registers)
COPIES = {
    ("float32", 1): 0,
    ("float32", 2): 8,
    ("float32", 4): 16,
    ("float32", 8): 0,
    ("bfloat16", 1): 0,
    ("bfloat16", 2): 4,
    ("bfloat16", 4): 8,
    ("bfloat16", 8): 16,
    ("float16", 8): 16,
}


@pytest.mark.parametrize(("dtype", "elements"), COPIES, ids=str)
def test_a_pack_is_copied_by_one_instruction_of_its_width(dtype, elements):
    size = COPIES[dtype, elements]
    artifact = compiled("softmax", 3, 1024, dtype, reduction_lane_elements=elements, **SHARED)
    found = re.findall(r"tilex_copy_async_(\d+)\(", kernel_of(artifact))
    assert set(found) == ({str(size)} if size else set())
    assert kernel_of(artifact).count("tilex_wait_copies();") == bool(size)
    instructions = re.findall(
        r"cp\.async\.(\w+)\.shared\.global \[%0\], \[%1\], (\d+);", artifact.source
    )
    # PTX: .ca copies 4, 8 or 16 bytes, .cg 16 only.
    assert instructions == ([("cg" if size == 16 else "ca", str(size))] if size else [])
    width = 4 if dtype == "float32" else 2
    vector = min(16, elements * width) if elements > 1 else None
    assert artifact.alignment.get("input") == vector
    assert "__syncthreads" in kernel_of(artifact)  # of the reductions alone:
    assert kernel_of(artifact).count("__syncthreads") == artifact.plan.barrier_sites


def test_the_copies_of_two_views_overlap():
    artifact = compiled(
        "residual_layernorm", 3, 1024, "float16", reduction_lane_elements=8, **SHARED
    )
    text = kernel_of(artifact)
    starts = [found.start() for found in re.finditer(r"tilex_copy_async_16\(", text)]
    (waits,) = (found.start() for found in re.finditer(r"tilex_wait_copies\(\);", text))
    read = text.index("tilex_widen_float16(")
    assert len(starts) == 2 and max(starts) < waits < read


def test_a_label_is_loaded_while_copies_are_on_their_way():
    artifact = compiled("cross_entropy", 3, 1024, "float16", reduction_lane_elements=8, **SHARED)
    text = kernel_of(artifact)
    places = [text.index(word) for word in ("copy_async", "labels_ptr[", "tilex_wait_copies")]
    assert places == sorted(places)


@pytest.mark.parametrize(("name", "views"), [("rmsnorm", 1), ("layernorm", 2)])
def test_early_views_are_loaded_while_copies_are_on_their_way(name, views):
    options = {"reduction_lane_elements": 4, "reduction_early_views": True, **SHARED}
    text = kernel_of(compiled(name, 3, 1024, **options))
    body = text[text.index("{") :]
    loads = [found.start() for found in re.finditer(r"tilex_load_kept_16\(", body)]
    (wait,) = (found.start() for found in re.finditer(r"tilex_wait_copies\(\);", body))
    read = re.search(r"= \*\(float4\*\)\(staged_ptr", body).start()
    assert len(loads) == views
    assert body.index("tilex_copy_async_16(") < min(loads)
    assert max(loads) < wait < read


@pytest.mark.parametrize("offset", [0, 8, 2])
def test_a_base_that_is_not_aligned_gets_scalar_accesses(offset):
    """Copies of 16 bytes begin at multiples of 16, which an argument's address may not be."""
    artifact = compiled("softmax", 3, 1024, "bfloat16", reduction_lane_elements=8, **SHARED)
    assert artifact.alignment == {"input": 16, "output": 16}
    shape, strides = (3, 1024), (1024, 1)
    addresses = (2**20 + offset, 2**30)
    arguments = [
        Argument(shape, "bfloat16", strides, ("cuda", 0), address, 2, True, None)
        for address in addresses
    ]
    chosen = artifact.variant(arguments)
    assert (chosen is artifact) == (offset == 0)
    assert ("copy_async" in chosen.source) == (offset == 0)
    assert chosen.plan.staged_bytes == artifact.plan.staged_bytes


def test_the_last_pack_that_is_partly_owned_is_copied_by_element():
    artifact = compiled("softmax", 3, 1026, "float32", reduction_lane_elements=2, **SHARED)
    text = kernel_of(artifact)
    assert "tilex_copy_async_8(" in text
    ragged = compiled("softmax", 3, 1025, "float32", reduction_lane_elements=2, **SHARED)
    assert "copy_async" not in kernel_of(ragged)  # rows of an odd width are aligned to nothing
    assert ragged.alignment == {}


def test_a_cluster_stages_a_part_of_the_row_in_each_threadgroup():
    options = {"reduction_lane_elements": 4, "reduction_blocks_per_program": 2, **SHARED}
    options["max_reduction_striped_scalars_per_worker"] = 1000
    artifact = compiled("softmax", 3, 8192, **options)
    (launch,) = artifact.device.launches
    assert launch.cluster == (2, 1, 1)
    assert artifact.plan.staged_bytes == launch.dynamic_shared_bytes == 8192 * 4 // 2
    text = kernel_of(artifact)
    assert "extern __shared__ __align__(64) float staged_ptr[];" in text
    assert "tilex_copy_async_16(" in text and "tilex_cluster_send(" in text
    # A thread's place is that of its threadgroup, not of the cluster.
    stored = re.search(r"tilex_copy_async_16\(\(&\(staged_ptr\[(.*?)\]\)\)", text)[1]
    assert "blockIdx" not in stored and "clusterCtaIdx" not in stored


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_any_number_are_staged(dtype):
    artifact = compiled(
        "softmax", tx.dynamic("P"), 1024, dtype, reduction_lane_elements=8, **SHARED
    )
    assert artifact.plan.staged_bytes == 1024 * 2
    assert "tilex_copy_async_16(" in artifact.source
    packed = compiled(
        "softmax",
        tx.dynamic("P"),
        1024,
        dtype,
        reduction_lane_elements=8,
        reduction_programs_per_group=2,
        **{**SHARED, "threads_per_group": 128},
    )
    assert packed.plan.staged_bytes == 2 * 1024 * 2 and packed.plan.ragged


def test_a_masked_row_is_neither_narrowed_nor_staged():
    """Elements beyond a dynamic width are no view's."""
    columns = tx.dynamic("N", max=1000)
    artifact = compiled("softmax", 64, columns, "bfloat16", threads_per_group=64)
    assert artifact.plan.staged_bytes == 0
    assert {kind for kind, _ in private(artifact).values()} == {"float"}
    with pytest.raises(tx.errors.MappingError, match="no stripe holds a view's own elements"):
        compiled("softmax", 64, columns, "bfloat16", **SHARED)


@tx.tile_kernel
def variants(
    x: VIEW[tx.floating, 2],
    y: VIEW[tx.float32, 2],
    z: VIEW[tx.floating, 2],
    index: VIEW[tx.int32, 2],
    out: VIEW[tx.float32, 2, tx.Out],
):
    """A computed, a wide, a rounded and a gathered row, each with two consumers."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one, picks = tx.axis("one", 1), tx.axis("picks", index.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        computed = tx.cast(x[origin, tx.shape(one, columns)], tx.float32) * 3.0
        wide = y[origin, tx.shape(one, columns)]
        rounded = tx.cast(tx.cast(wide * 0.5, x.dtype), tx.float32)
        at = index[origin, tx.shape(one, picks)]
        gathered = tx.cast(tx.gather(z[origin, tx.shape(one, columns)], at, columns), tx.float32)
        total = tx.reduce(computed, columns, tx.maximum) + tx.reduce(wide, columns, tx.maximum)
        total = total + tx.reduce(rounded, columns, tx.minimum)
        total = total + tx.reduce(gathered, picks, tx.minimum)
        total = total + tx.reduce(gathered, picks, tx.maximum)
        out(origin, tx.shape(one, columns)).store(computed + wide + rounded + total)


# A float16 is one until it is widened; a bfloat16 that is rounded or masked is FP32 already.
@pytest.mark.parametrize(("dtype", "narrow"), [("float16", 2), ("bfloat16", 0)])
def test_only_what_was_16_bits_before_is_kept_in_16_bits(dtype, narrow, tmp_path):
    shape, options = (3, 256), tx.CompileOptions(threads_per_group=64)
    types = (dtype, "float32", dtype, "int32", "float32")
    specs = [tx.spec(shape, name) for name in types]
    artifact = tx.compile(variants, *specs, target="cuda", options=options)
    kinds = sorted(kind for kind, _ in private(artifact).values())
    assert kinds == ["float"] * (4 - narrow) + ["half"] * narrow
    assert [view for view in facts_of(artifact).views if view.bytes == 2] == []
    rng = np.random.default_rng(1)
    x, z = (rng.standard_normal(shape).astype(NUMPY[dtype]) for _ in range(2))
    y, at = rng.standard_normal(shape).astype("f"), rng.integers(-2, 258, shape).astype("i")
    out = np.empty(shape, np.float32)
    cuda_on_cpu.run(artifact, [x, y, z, at, out], tmp_path)
    computed = x.astype("f") * np.float32(3)
    rounded = (y * np.float32(0.5)).astype(NUMPY[dtype]).astype("f")
    inside = (at >= 0) & (at < 256)
    gathered = np.where(inside, np.take_along_axis(z.astype("f"), at.clip(0, 255), 1), 0)
    extrema = (computed.max(1), y.max(1), rounded.min(1), gathered.min(1), gathered.max(1))
    total = sum(extrema[1:], start=extrema[0])
    want = computed + y + rounded + total[:, None]
    assert np.array_equal(out, want.astype("f"))


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ("float16", "float32", "views of float16 and float32 cannot share one allocation"),
        ("float16", "bfloat16", "views of bfloat16 and float16 cannot share one allocation"),
    ],
)
def test_views_of_different_types_are_not_staged(x, y, reason):
    specs = (tx.spec((8, 1024), x), tx.spec((8, 1024), y), tx.spec((8, 1024)))
    asked = tx.CompileOptions(**SHARED)
    with pytest.raises(tx.errors.MappingError, match=reason):
        tx.compile(pair, *specs, target="cuda", options=asked)
    automatic = tx.compile(pair, *specs, target="cuda")
    assert automatic.plan.staged_bytes == 0
    assert not any(c.staged and c.rejection is None for c in automatic.plan.candidates)


def test_views_of_one_type_are_staged_together():
    specs = (tx.spec((8, 1024), "float16"),) * 2 + (tx.spec((8, 1024)),)
    options = tx.CompileOptions(reduction_lane_elements=8, **SHARED)
    artifact = tx.compile(pair, *specs, target="cuda", options=options)
    assert artifact.plan.staged_bytes == 2 * 1024 * 2
    assert artifact.plan.stripe_scalars == 0 and private(artifact) == {}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("metal", 'reduction_stripe_storage="shared"'),
        (
            {"kind": "cuda", "arch": "sm_70", "max_num_threads": 1024, "thread_warp_size": 32},
            'reduction_stripe_storage="shared"',
        ),
    ],
    ids=["metal", "sm_70"],
)
def test_a_target_without_memory_to_ask_for_refuses_by_name(target, reason):
    entry = kernels.catalog()["softmax"]
    options = tx.CompileOptions(reduction_stripe_storage="shared")
    with pytest.raises(tx.errors.MappingError, match=reason):
        tx.compile(entry.kernel, *entry.specs(8, 1024), target=target, options=options)


def test_a_processor_refuses_as_it_refuses_other_requests():
    entry = kernels.catalog()["softmax"]
    messages = []
    for request in ({"threads_per_group": 64}, {"reduction_stripe_storage": "shared"}):
        options = tx.CompileOptions(**request)
        with pytest.raises(tx.errors.TilexError) as caught:
            tx.compile(entry.kernel, *entry.specs(8, 1024), target="llvm", options=options)
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]


def test_register_is_no_request_for_a_map():
    options = tx.CompileOptions(reduction_stripe_storage="register")
    assert not options.explicit_request
    assert tx.CompileOptions(reduction_stripe_storage="shared").explicit_request
    with pytest.raises(tx.errors.OptionError, match="reduction_stripe_storage='texture'"):
        tx.CompileOptions(reduction_stripe_storage="texture")


def test_too_many_bytes_are_refused_with_both_numbers():
    options = {"threads_per_group": 1024, "reduction_stripe_storage": "shared"}
    options["max_reduction_striped_scalars_per_worker"] = 1000
    with pytest.raises(
        tx.errors.MappingError, match=r"262400 staged bytes exceed the target's 232448"
    ):
        compiled("softmax", 8, 65536, **options, target="h200")

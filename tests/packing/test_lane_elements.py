"""Consecutive elements per worker: 14 softmax layouts, ragged widths, vectors where proved."""

import re

import numpy as np
import pytest
from packing_runs import assert_right, collectives_in, compiled, entry, launch, shape_of

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import MappingError, OptionError

THREADS = (0, 96, 160, 224, 288, 512, 1024)  # 0: automatic


@pytest.mark.parametrize("elements", [1, 4])
@pytest.mark.parametrize("threads", THREADS)
def test_softmax_layouts(threads, elements):
    """2 x 3077: ragged for every width, for V = 4 a pack is cut (3077 mod 4 = 1)."""
    artifact = compiled(
        "softmax", 2, 3077, threads_per_group=threads, reduction_lane_elements=elements
    )
    plan = artifact.plan
    assert plan.lane_elements == elements and plan.programs_per_group == 1
    if threads:
        assert plan.threads == plan.workers == threads
        assert [c.score is None for c in plan.candidates] == [False]
    else:
        assert len(plan.candidates) == 2 + 31  # Q = 1, 2 and every wider S
        assert plan.score == min(c.score for c in plan.candidates if c.score is not None)
    stages = 2 if plan.reduction_subgroups_per_program > 1 else 1
    assert collectives_in(artifact.source) == 2 * stages
    pack = plan.workers * elements
    assert plan.stripes == (3077 // pack * elements + min(3077 % pack, elements),)
    arguments, counters = launch(artifact, "softmax", 2, 3077)
    assert_right("softmax", arguments)
    assert counters.device["output_ptr"].store_elements == 2 * 3077
    assert counters.device["input_ptr"].load_elements == 2 * 2 * 3077  # nothing speculated


RAGGED = ((1, 33), (2, 65), (4, 257), (8, 1003), (2, 1), (4, 3), (8, 7))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("elements", "columns"), RAGGED)
@pytest.mark.parametrize("name", ["softmax", "residual_layernorm"])
def test_ragged_widths_and_storage_types(name, elements, columns, dtype):
    artifact = compiled(
        name, 3, columns, dtype, threads_per_group=64, reduction_lane_elements=elements
    )
    assert shape_of(artifact.plan) == (2, 1, elements)
    arguments, counters = launch(artifact, name, 3, columns, dtype)
    assert_right(name, arguments)
    output = entry(name).parameters[entry(name).outputs[0]]
    assert counters.device[f"{output}_ptr"].store_elements == 3 * columns
    for view in entry(name).parameters[:-1]:
        assert counters.device[f"{view}_ptr"].load_elements % (3 * columns) == 0


@pytest.mark.parametrize("name", sorted(kernels.catalog()))
def test_the_whole_library_with_four_elements(name):
    for columns in (260, 1000):
        artifact = compiled(name, 3, columns, threads_per_group=96, reduction_lane_elements=4)
        arguments, _ = launch_unguarded(artifact, name, 3, columns)
        assert_right(name, arguments)


def launch_unguarded(artifact, name, rows, columns):
    arguments = entry(name).arguments(rows, columns)
    (counters,) = artifact.simulate(*arguments)
    return arguments, counters


# Vectors: exactly where contiguity and alignment are proved


def vectors_in(source: str, view: str) -> list[str]:
    """Vector types through which the text accesses a parameter."""
    return re.findall(rf"\*\(device (\w+[248])\*\)\({view}_ptr \+", source)


@pytest.mark.parametrize(
    ("columns", "elements", "dtype", "vector"),
    [
        (1024, 4, "float32", "float4"),
        (1024, 2, "float32", "float2"),
        (1024, 8, "float32", "float4"),
        (1024, 4, "float16", "half4"),
        (1000, 4, "float32", "float4"),  # a last chunk of whole packs
        (1000, 8, "float16", "half4"),
        (1024, 1, "float32", None),
        (1022, 4, "float32", None),  # row 1 would begin at 8 bytes
        (1023, 2, "float32", None),
        (1020, 8, "float32", None),  # the last pack is cut
    ],
)
def test_vectors_stand_exactly_where_they_are_proved(columns, elements, dtype, vector):
    artifact = compiled(
        "softmax", 2, columns, dtype, threads_per_group=64, reduction_lane_elements=elements
    )
    loads = vectors_in(artifact.source, "input")
    stores = vectors_in(artifact.source, "output")
    assert set(loads) == set(stores) == ({vector} if vector else set())
    arguments, counters = launch(artifact, "softmax", 2, columns, dtype)
    assert_right("softmax", arguments)
    traffic = counters.device["input_ptr"]
    scalar = _scalar(columns, elements, dtype)
    assert traffic.load_elements == scalar[1].device["input_ptr"].load_elements
    assert arguments[1].tobytes() == scalar[0][1].tobytes()  # the vectors change no bit
    if vector is not None:
        accesses = scalar[1].device["input_ptr"].load_accesses
        assert traffic.load_accesses * int(vector[-1]) == accesses


def _scalar(columns, elements, dtype):
    artifact = compiled(
        "softmax", 2, columns, dtype, threads_per_group=64, reduction_lane_elements=elements,
        vector_access=False,
    )  # fmt: skip
    assert not vectors_in(artifact.source, r"\w+")
    return launch(artifact, "softmax", 2, columns, dtype)


def test_a_row_vector_and_a_matrix_move_as_vectors_together():
    source = compiled("layernorm", 2, 512, threads_per_group=64, reduction_lane_elements=4).source
    for view in ("x", "weight", "bias", "out"):
        assert set(vectors_in(source, view)) == {"float4"}


def test_a_load_under_a_guard_stays_scalar():
    """The label's own logit is read under its bounds; no vector may touch what it excludes."""
    artifact = compiled("cross_entropy", 3, 256, threads_per_group=64, reduction_lane_elements=4)
    logits, labels, losses = entry("cross_entropy").arguments(3, 256)
    labels[:] = [0, -1, 2**40]
    artifact.simulate(logits, labels, losses)
    assert_right("cross_entropy", (logits, labels, losses))
    assert set(vectors_in(artifact.source, "logits")) == {"float4"}  # the two reductions
    assert not vectors_in(artifact.source, "labels")


@tx.tile_kernel
def shifted(
    x: tx.TensorView["float32", 2],  # noqa: F821
    out: tx.TensorView["float32", 2, "out"],  # noqa: F821
    *,
    first: int = 0,
):
    """Centre the columns from ``first`` on: the tile begins behind the row."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", out.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), first), tx.shape(one, columns)]
        total = tx.reduce(value, columns, tx.add)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(value - total)


@pytest.mark.parametrize(("first", "aligned"), [(0, True), (1, False), (2, False), (4, True)])
def test_an_offset_inside_the_row_counts_for_alignment(first, aligned):
    options = tx.CompileOptions(threads_per_group=64, reduction_lane_elements=4)
    artifact = tx.compile(shifted, (3, 260), (3, 256), target="metal", options=options, first=first)
    assert set(vectors_in(artifact.source, "x")) == ({"float4"} if aligned else set())
    assert set(vectors_in(artifact.source, "out")) == {"float4"}
    x = np.random.default_rng(0).standard_normal((3, 260), dtype=np.float32)
    out = np.full((3, 256), np.nan, np.float32)
    artifact.simulate(x, out)
    wide = x[:, first : first + 256].astype(np.float64)
    np.testing.assert_allclose(out, wide - wide.sum(1, keepdims=True), rtol=2e-5, atol=2e-5)


# Bases that vectors do not fit


def placed(array, offset: int):
    """A copy whose base is ``offset`` elements past a multiple of 64 bytes."""
    memory = np.empty(array.size + 32, array.dtype)
    first = -memory.ctypes.data % 64 // array.itemsize + offset
    copy = memory[first : first + array.size].reshape(array.shape)
    copy[...] = array
    assert copy.ctypes.data % 64 == offset * array.itemsize
    return copy


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (3, 2)], ids=str)
def test_an_unaligned_base_takes_scalars_with_the_same_map(offsets, dtype):
    from tvm_tilex.runtime.arguments import describe

    artifact = compiled(
        "softmax", 3, 512, dtype, threads_per_group=128, reduction_programs_per_group=2,
        reduction_lane_elements=4,
    )  # fmt: skip
    x, out = entry("softmax").arguments(3, 512, dtype)
    aligned = placed(x, 0), placed(out, 0)
    moved = tuple(placed(a, n) for a, n in zip((x, out), offsets, strict=True))
    names = ("input", "output")
    assert artifact.variant([describe(*pair) for pair in zip(names, aligned, strict=True)]) is (
        artifact
    )
    other = artifact.variant([describe(*pair) for pair in zip(names, moved, strict=True)])
    assert other is not artifact and not vectors_in(other.source, r"\w+")
    assert shape_of(other.plan) == shape_of(artifact.plan) == (2, 2, 4)
    artifact(*aligned)
    artifact(*moved)
    assert aligned[1].tobytes() == moved[1].tobytes()
    assert_right("softmax", moved)


# Permission


def ordered(policy):
    @tx.tile_kernel
    def total(x: tx.TensorView["float32", 2], out: tx.TensorView["float32", 1, "out"]):  # noqa: F821
        rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
        columns = tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            value = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            result = tx.reduce(value, columns, tx.add, policy=policy)
            out(tx.coord(nest.index()), tx.shape(one)).store(result)

    return total


@pytest.mark.parametrize("policy", ["fold_left", "fold_right", "ordered_tree"])
@pytest.mark.parametrize("elements", [1, 2, 4, 8])
def test_lane_elements_without_an_unordered_reduction_are_refused(policy, elements):
    options = tx.CompileOptions(reduction_lane_elements=elements)
    kernel = ordered(tx.ReductionPolicy(policy))
    with pytest.raises(MappingError, match=f"numerical permission.*{policy}"):
        tx.compile(kernel, (4, 64), (4,), target="metal", options=options)


@pytest.mark.parametrize("elements", [3, 16, -1])
def test_other_lane_elements_are_no_option(elements):
    with pytest.raises(OptionError, match="reduction_lane_elements"):
        tx.CompileOptions(reduction_lane_elements=elements)

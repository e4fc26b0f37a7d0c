"""One Metal artifact serves any number of rows and every width in its range, in the simulator."""

import re

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.target import system_has
from tvm_tilex.errors import LoweringError, MappingError
from tvm_tilex.plan.classes import program_ranges, width_ranges

pytestmark = [
    pytest.mark.skipif(system_has("metal"), reason="kernels would run on the GPU"),
    pytest.mark.filterwarnings("ignore:no Apple GPU"),
]

ROWS = (0, 1, 2, 7, 8, 9, 33)


@pytest.mark.parametrize("name", kernels.catalog())
def test_any_number_of_rows(dynamic_kernel, name):
    kernel = dynamic_kernel(name, 100, "metal")
    assert kernel.artifact.plan is not None
    for rows in ROWS:
        kernel.check(rows, 100, seed=rows)


@pytest.mark.parametrize("name", kernels.catalog())
def test_widths_of_a_range(dynamic_kernel, name):
    kernel = dynamic_kernel(name, tx.dynamic("N", max=300), "metal")
    assert all(variant.plan is not None for variant in kernel.artifact.variants)
    for columns in (1, 2, 31, 32, 33, 100, 255, 256, 257, 300):
        kernel.check(3, columns)
    for rows in (0, 1, 9):
        kernel.check(rows, 65, seed=rows)


@pytest.mark.parametrize("name", ["softmax", "cross_entropy"])
def test_every_width_of_a_range(dynamic_kernel, name):
    kernel = dynamic_kernel(name, tx.dynamic("N", max=70), "metal")
    for columns in range(1, 71):
        kernel.check(2, columns)


# Each family of plans: one SIMD group a row alone and packed, several, several packed, V > 1.
FAMILIES = {
    "S=1": {"threads_per_group": 32, "reduction_programs_per_group": 1},
    "S=1 Q=8": {"threads_per_group": 256, "reduction_programs_per_group": 8},
    "S=3": {"threads_per_group": 96},
    "S=2 Q=3": {"threads_per_group": 192, "reduction_programs_per_group": 3},
    "V=4": {"threads_per_group": 64, "reduction_lane_elements": 4},
    "S=2 Q=5 V=2": {
        "threads_per_group": 320,
        "reduction_programs_per_group": 5,
        "reduction_lane_elements": 2,
    },
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy", "minmax"])
def test_every_family_of_plans(dynamic_kernel, name, family):
    rows = (0, 1, 2, 4, 5, 6, 9)  # below, at and beyond Q, with and without a remainder
    fixed = dynamic_kernel(name, 128, "metal", **FAMILIES[family])
    ragged = dynamic_kernel(name, 101, "metal", **FAMILIES[family])
    wide = dynamic_kernel(name, tx.dynamic("N", max=140), "metal", **FAMILIES[family])
    plan = fixed.artifact.plan
    assert plan.dynamic
    assert plan.threads == FAMILIES[family]["threads_per_group"]
    for count in rows:
        fixed.check(count, 128, seed=count)
        ragged.check(count, 101, seed=count)
        wide.check(count, (1, 129, 140)[count % 3], seed=count)


def test_few_and_many_rows_have_their_plans(dynamic_kernel):
    kernel = dynamic_kernel("softmax", 2048, "metal")
    few, many = kernel.artifact.variants
    assert few.ranges == "P in 1..32" and many.ranges == "P in 33..2147483647"
    assert few.plan.reduction_subgroups_per_program > many.plan.reduction_subgroups_per_program
    static = tx.compile(kernels.softmax, (64, 2048), (64, 2048), target="metal").plan
    shape = lambda p: (p.reduction_subgroups_per_program, p.programs_per_group, p.lane_elements)  # noqa: E731
    assert shape(many.plan) == shape(static)
    for rows, plan in ((1, few.plan), (32, few.plan), (33, many.plan)):
        (counters,) = kernel.check(rows, 2048)
        assert counters.threads == rows * plan.threads
    (launch,) = kernel.artifact.device.launches_at({"P": 33})
    assert launch.grid == (33, 1, 1) and launch.group == (many.plan.threads, 1, 1)
    assert kernel.artifact.device.launches_at({"P": 0}) == ()
    with pytest.raises(LoweringError, match=r"the extent P is outside 0\.\.2147483647"):
        kernel.artifact.device.launches_at({"P": 2**31})


def test_one_plan_where_both_policies_agree(dynamic_kernel):
    for options in ({"threads_per_group": 64}, {"cost_policy": "analytic"}):
        (variant,) = dynamic_kernel("softmax", 2048, "metal", **options).artifact.variants
        assert variant.ranges == "P in 1..2147483647"


def test_width_classes_are_planned_for_their_bounds(dynamic_kernel):
    kernel = dynamic_kernel("softmax", tx.dynamic("N", max=2000), "metal")
    variants = kernel.artifact.variants
    ends = [(v.dimensions[1].minimum, v.dimensions[1].maximum) for v in variants]
    assert ends == [(1, 256), (257, 512), (513, 1024), (1025, 2000)]
    for variant, (_, widest) in zip(variants, ends, strict=True):
        static = tx.compile(kernels.softmax, (64, widest), (64, widest), target="metal").plan
        assert variant.plan.stripes == static.stripes
        assert variant.plan.threads == static.threads
    (narrow,) = kernel.check(40, 200)
    assert narrow.threads == -(-40 // 8) * 256


def test_masked_lanes_move_no_memory(dynamic_kernel):
    kernel = dynamic_kernel("row_sum", tx.dynamic("N", max=256), "metal")
    (counters,) = kernel.check(8, 3)
    assert counters.loads_per_element("x_ptr", 24) == 1


@pytest.mark.parametrize(
    ("least", "greatest", "ranges"),
    [
        (1, 1, ((1, 1),)),
        (1, 256, ((1, 256),)),
        (1, 257, ((1, 256), (257, 257))),
        (300, 1000, ((300, 512), (513, 1000))),
        (512, 512, ((512, 512),)),
        (1, 4096, ((1, 256), (257, 512), (513, 1024), (1025, 2048), (2049, 4096))),
    ],
)
def test_width_ranges_cover_once(least, greatest, ranges):
    assert width_ranges(least, greatest) == ranges
    covered = [n for low, high in ranges for n in range(low, high + 1)]
    assert covered == list(range(least, greatest + 1))


def test_program_ranges():
    assert program_ranges(0, 100, "metal") == ((1, 32), (33, 100))
    assert program_ranges(0, 32, "metal") == ((1, 32),)
    assert program_ranges(40, 100, "metal") == ((40, 100),)
    assert program_ranges(0, 100, "metal", per=12) == ((1, 2), (3, 100))
    assert program_ranges(0, 100, "metal", per=64) == ((1, 100),)
    assert program_ranges(0, 100, "llvm") == ((1, 100),)
    assert program_ranges(0, 0, "metal") == ()


@tx.tile_kernel
def centered_in_place(x: tx.TensorView[tx.float32, 2, tx.InOut]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at = tx.coord(nest.index(), 0)
        row = x[at, tx.shape(1, columns)]
        x(at, tx.shape(1, columns)).store(row - tx.reduce(row, columns, tx.maximum))


def test_a_row_that_is_overwritten_is_never_replayed():
    """A packed tail of any count may replay; a kernel that reads what it writes cannot."""
    packed = tx.CompileOptions(threads_per_group=128, reduction_programs_per_group=2)
    with pytest.raises(MappingError, match="a packed tail replays the last row"):
        tx.compile(centered_in_place, ("P", 40), target="metal", options=packed)
    static = tx.compile(centered_in_place, (4, 40), target="metal", options=packed)
    assert static.plan.programs_per_group == 2
    automatic = tx.compile(centered_in_place, ("P", 40), target="metal")
    x = np.arange(120, dtype=np.float32).reshape(3, 40)
    automatic(x)
    assert (x[:, -1] == 0).all() and (x[:, 0] == -39).all()


def test_the_reference_map_serves_any_number_of_rows():
    options = tx.CompileOptions(metal_subgroup_reductions=False)
    entry = kernels.catalog()["softmax"]
    for columns in (33, tx.dynamic("N", max=33)):
        specs = entry.specs(tx.dynamic("P"), columns)
        artifact = tx.compile(entry.kernel, *specs, target="metal", options=options)
        assert artifact.plan is None
        for rows in (0, 1, 255, 256, 257):
            arguments = entry.arguments(rows, 33)
            artifact(*arguments)
            assert rows == 0 or all(c.within for c in entry.check(arguments))


def test_text_has_one_64_bit_extent_and_64_bit_row_offsets(dynamic_kernel):
    source = dynamic_kernel("softmax", 100, "metal").artifact.source
    assert "long P;" in source
    assert "(long)100" in source  # the row's offset is computed in 64 bits


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy"])
@pytest.mark.parametrize("columns", [4096, tx.dynamic("N", max=1024)], ids=str)
def test_cuda_text_is_compiled_for_any_number_of_rows(dynamic_kernel, name, columns):
    artifact = dynamic_kernel(name, columns, "cuda").artifact
    assert all(variant.plan is not None for variant in artifact.variants)
    assert artifact.source.count("__global__") >= len(artifact.variants)
    assert "int64_t P" in artifact.source or "int64_t N" in artifact.source
    extents = {"P": 1000} if isinstance(columns, int) else {"P": 1000, "N": 1000}
    (launch,) = artifact.device.launches_at(extents)
    plan = artifact.plan
    assert launch.group == (plan.threads, 1, 1)
    assert launch.grid == (-(-1000 // plan.programs_per_group), 1, 1)

    if isinstance(columns, int):  # a dynamic row count costs no vectors
        packed = dynamic_kernel(name, columns, "cuda", reduction_lane_elements=4).artifact
        assert re.search("float4|tilex_load_streamed", packed.source)
        assert packed.plan.lane_elements == 4


def test_many_rows_are_planned_as_4096_of_them(dynamic_kernel):
    few, many = dynamic_kernel("softmax", 4096, "cuda").artifact.variants
    for rows, variant in ((128, few), (4096, many)):
        static = tx.compile(kernels.softmax, (rows, 4096), (rows, 4096), target="cuda")
        assert variant.plan.shape == static.plan.shape


def test_clusters_serve_any_number_of_rows_on_cuda():
    options = tx.CompileOptions(reduction_blocks_per_program=4)
    with pytest.raises(MappingError, match="threadgroups exceed a 32-bit grid"):
        tx.compile(kernels.softmax, ("P", 32000), ("P", 32000), target="cuda", options=options)
    shape = (tx.dynamic("P", min=0, max=2**27), 32000)
    artifact = tx.compile(kernels.softmax, shape, shape, target="cuda", options=options)
    (launch,) = artifact.device.launches_at({"P": 1000})
    assert launch.grid[0] * launch.grid[1] * launch.grid[2] == 4000
    assert launch.cluster != (1, 1, 1)

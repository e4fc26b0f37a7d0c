"""Kernels that may be launched before those they follow have ended: they wait before all else."""

import re
import subprocess
from dataclasses import replace

import cuda_on_cpu
import pytest
from tvm import te, topi

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build import cuda_toolchain
from tvm_tilex.build.metal_compile import source_only
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import OptionError
from tvm_tilex.kernels import composed
from tvm_tilex.tirx.compat import tvm

CATALOG = kernels.catalog()
VIEW = tx.TensorView
DEPENDENT = tx.CompileOptions(dependent_launch=True)
SHAPES = [(64, 256), (4, 4095), (64, 131072), (8192, 4096)]


def compiled(name, rows, columns, dtype="float32", target="cuda", **options):
    entry = CATALOG[name]
    chosen = tx.CompileOptions(**{"dependent_launch": True, **options})
    return tx.compile(
        entry.kernel, *entry.specs(rows, columns, dtype), target=target, options=chosen
    )


def kernels_of(source):
    """The definitions of a text's kernels."""
    parts = re.split(r'(?=extern "C" __global__)', source)[1:]
    return [part for part in parts if "{" in part and ";" not in part[: part.index("{")]]


def waits_first(artifact):
    """Each kernel waits once, as its first statement, and loads nothing as constant."""
    found = kernels_of(artifact.source)
    for text in found:
        head, body = text.split("{", 1)
        assert body.split(";")[0].strip() == "tilex_grid_dependency()", body[:200]
        assert text.count("tilex_grid_dependency()") == 1
        assert "__restrict__" not in head and "* " in head
    assert "ld.global.nc" not in artifact.source
    assert "griddepcontrol.launch_dependents" in artifact.source
    assert "griddepcontrol.wait" in artifact.source
    return len(found)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["row_sum", "softmax", "rmsnorm", "layernorm", "cross_entropy"])
def test_the_kernel_waits_before_all_else(name, shape):
    artifact = compiled(name, *shape)
    assert waits_first(artifact) == len(artifact.device.launches)
    assert all(launch.dependent for launch in artifact.device.launches)


@pytest.mark.parametrize("name", CATALOG)
def test_the_whole_library(name):
    artifact = compiled(name, 7, 130)
    assert waits_first(artifact) == len(artifact.device.launches)


def test_without_the_option_nothing_waits():
    artifact = compiled("row_sum", 64, 256, dependent_launch=False)
    assert "griddep" not in artifact.source and "__restrict__" in artifact.source
    assert not any(launch.dependent for launch in artifact.device.launches)
    assert "ld.global.nc.L1::no_allocate" in artifact.source


def test_the_launch_has_the_attribute():
    """What TVM's runtime reads of the kernel; the extents keep their places beside the flag."""
    with_cluster = compiled("softmax", 64, 131072)
    (launch,) = with_cluster.device.launches
    assert launch.cluster == (8, 1, 1) and launch.grid == (512, 1, 1)
    (plain,) = compiled("softmax", 64, 131072, dependent_launch=False).device.launches
    assert (launch.grid, launch.group, launch.buffers) == (plain.grid, plain.group, plain.buffers)
    assert launch.shared_bytes == plain.shared_bytes and launch != plain


def test_plan_and_launch_bounds_are_those_without_it():
    for name in ("softmax", "layernorm"):
        one, other = compiled(name, 512, 4096), compiled(name, 512, 4096, dependent_launch=False)
        assert one.plan.dependent and not other.plan.dependent
        apart = {"dependent": False, "score": 0.0, "candidates": ()}  # each launch has its policy
        assert replace(one.plan, **apart) == replace(other.plan, **apart)
        bounds = [re.findall(r"__launch_bounds__\(\d+\)", a.source) for a in (one, other)]
        assert bounds[0] == bounds[1] != []


@tx.tile_kernel
def two_nests(
    x: VIEW[tx.float32, 2],
    total: VIEW[tx.float32, 1, tx.Out],
    peak: VIEW[tx.float32, 1, tx.Out],
):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        tile = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        total(tx.coord(nest.index()), tx.shape(one)).store(tx.reduce(tile, columns, tx.add))
    for nest in tx.parallel(tx.shape(rows)):
        tile = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        peak(tx.coord(nest.index()), tx.shape(one)).store(tx.reduce(tile, columns, tx.maximum))


def test_each_kernel_of_a_function_waits():
    artifact = tx.compile(two_nests, (8, 512), (8,), (8,), target="cuda", options=DEPENDENT)
    assert waits_first(artifact) == len(artifact.device.launches) == 2


def test_reference_maps_wait_too():
    artifact = compiled("softmax", 8, 512, subgroup_reductions=False)
    assert artifact.plan is None and waits_first(artifact) == 1


@pytest.mark.parametrize("rows", [0, 5])
def test_dynamic_rows_and_no_rows(rows):
    entry = CATALOG["softmax"]
    specs = entry.specs(tx.dynamic("P"), 512)
    artifact = tx.compile(entry.kernel, *specs, target="cuda", options=DEPENDENT)
    assert waits_first(artifact) >= 1
    launches = artifact.device.launches_at({"P": rows})
    assert len(launches) == (1 if rows else 0) and all(each.dependent for each in launches)
    empty = compiled("softmax", 0, 512)
    assert empty.empty and not empty.device.launches


@pytest.mark.parametrize(("columns", "overlaps"), [(4096, True), (32, False)])
def test_classes_of_extents_are_launched_alike(columns, overlaps):
    """Few programs would gain at 32 columns, many would lose, and a function has one attribute."""
    entry = CATALOG["row_sum"]
    specs = entry.specs(tx.dynamic("P"), columns)
    artifact = tx.compile(entry.kernel, *specs, target="cuda")
    assert len(artifact.variants) == 2
    assert {variant.plan.dependent for variant in artifact.variants} == {overlaps}
    for rows in (5, 5000):
        (launch,) = artifact.device.launches_at({"P": rows})
        assert launch.dependent == overlaps
    if overlaps:
        assert waits_first(artifact) == 2
    else:
        assert "griddep" not in artifact.source and "ld.global.nc" in artifact.source


HEADS = {"batch": 1, "heads": 1, "queries": 64, "keys": 64, "depth": 64}
GROUPS = {
    "attention": (HEADS, {"block_queries": 64, "block_keys": 32}),
    "matmul": ({"rows": 64, "depth": 96, "columns": 64}, {}),
    "column_sum": ({"rows": 150, "columns": 70}, {}),
}


@pytest.mark.parametrize("name", GROUPS)
def test_composed_groups_wait(name):
    entry, (extents, constants) = composed.catalog()[name], GROUPS[name]
    specs = entry.specs(extents, "float16")
    artifact = tx.compile(entry.kernel, *specs, target="cuda", options=DEPENDENT, **constants)
    assert artifact.group_plans and waits_first(artifact) == 1


@pytest.mark.parametrize("options", [DEPENDENT, tx.CompileOptions()], ids=["asked", "planned"])
def test_reductions_of_existing_programs_wait(options):
    x = te.placeholder((64, 1024), "float32", name="x")
    function = te.create_prim_func([x, topi.nn.softmax(x)]).with_attr("global_symbol", "rows")
    target = resolve_target("cuda")
    schedule = tx.transform.ScheduleReductions("unordered_tree", target=target, options=options)
    module = schedule(tvm.IRModule({"rows": function}))
    assert [outcome.reason for outcome in schedule.report] == [None]
    with source_only():
        built = tvm.compile(module, target=target, tir_pipeline="tilex")
    (text,) = kernels_of(built.mod.imports[0].inspect_source())
    assert text.split("{", 1)[1].lstrip().startswith("tilex_grid_dependency();")


# Measured (docs/performance.md): the lower rate of starts costs more than what is saved between
# two kernels where many threadgroups read little.
RULE = [  # P, N, Q, R
    (262144, 64, 32, 4, True),
    (16384, 1024, 1, 1, False),
    (16384, 1024, 2, 1, True),
    (2048, 1024, 1, 1, False),
    (64, 1024, 1, 1, True),
    (1 << 20, 8, 32, 4, False),
    (16, 131072, 1, 1, True),
]


@pytest.mark.parametrize(("rows", "columns", "packed", "sharing", "overlaps"), RULE)
def test_the_planner_overlaps_where_it_pays(rows, columns, packed, sharing, overlaps):
    artifact = compiled(
        "row_sum",
        rows,
        columns,
        dependent_launch=None,
        reduction_programs_per_group=packed,
        reduction_programs_per_subgroup=sharing,
    )
    (launch,) = artifact.device.launches
    assert artifact.plan.dependent == launch.dependent == overlaps
    assert ("griddep" in artifact.source) == overlaps


@pytest.mark.parametrize("target", ["a100", "metal", "llvm"])
def test_targets_without_them_launch_in_turn(target):
    artifact = compiled("softmax", 64, 1024, target=target, dependent_launch=None)
    launches = artifact.device.launches if artifact.device else ()
    assert not any(launch.dependent for launch in launches)
    assert artifact.plan is None or not artifact.plan.dependent
    assert "griddep" not in artifact.source


@pytest.mark.parametrize("options", [{"subgroup_reductions": False}, {}], ids=["serial", "group"])
def test_others_are_launched_in_turn_by_default(options):
    if options:
        artifact = compiled("softmax", 8, 512, dependent_launch=None, **options)
    else:
        entry, (extents, constants) = composed.catalog()["matmul"], GROUPS["matmul"]
        artifact = tx.compile(entry.kernel, *entry.specs(extents), target="cuda", **constants)
    assert artifact.plan is None and not any(each.dependent for each in artifact.device.launches)
    assert "griddep" not in artifact.source


@pytest.mark.parametrize(
    ("target", "given"), [("metal", "metal"), ("llvm", "llvm"), ("a100", r"cuda of 8\.0")]
)
def test_other_targets_refuse(target, given):
    with pytest.raises(OptionError, match=rf"capability 9\.0 or later, not {given}$"):
        compiled("softmax", 8, 512, target=target)


def test_the_option_is_a_truth_value():
    with pytest.raises(OptionError, match="dependent_launch='yes': must be True, False or None"):
        tx.CompileOptions(dependent_launch="yes")


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("name", ["row_sum", "layernorm", "cross_entropy"])
def test_results_keep_their_bits(name, tmp_path):
    entry, outputs = CATALOG[name], []
    for dependent in (False, True):
        arguments = list(entry.arguments(5, 1024, "bfloat16"))
        plan = {"threads_per_group": 128, "reduction_programs_per_group": 1}
        artifact = compiled(name, 5, 1024, "bfloat16", dependent_launch=dependent, **plan)
        folder = tmp_path / str(dependent)
        folder.mkdir()
        cuda_on_cpu.run(artifact, arguments, folder)
        assert all(comparison.within for comparison in entry.check(arguments))
        outputs.append([arguments[position].tobytes() for position in entry.outputs])
    assert outputs[0] == outputs[1]


@pytest.mark.skipif(cuda_toolchain.find_nvcc() is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "row_sum"])
def test_nvcc_puts_no_access_before_the_wait(name, tmp_path):
    """Of pointers with ``__restrict__`` nvcc makes constant loads, which ptxas moves forward."""
    text = tmp_path / "kernel.cu"
    text.write_text(compiled(name, 16384, 1024).source)
    nvcc = [str(cuda_toolchain.find_nvcc()), "-ptx", "-arch=sm_90", "-o", "-", str(text)]
    done = subprocess.run(nvcc, capture_output=True, text=True, check=True)
    body = done.stdout[done.stdout.index(f".entry {name}_kernel") :]
    accesses = [match.start() for match in re.finditer(r"\b(ld|st)\.global|cp\.async", body)]
    assert ".nc." not in body and accesses
    assert body.index("griddepcontrol.launch_dependents") < body.index("griddepcontrol.wait")
    assert body.index("griddepcontrol.wait") < accesses[0]


def test_the_pass_is_read_back():
    artifact = compiled("softmax", 8, 512, dependent_launch=False)
    (name,) = (var.name_hint for var in artifact.scheduled.functions)
    function = artifact.scheduled[name].with_attr("tilex.options", DEPENDENT.to_json())
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    marked = tx.transform.DependentLaunches(target)(tvm.IRModule({name: function}))
    text = marked.script()
    assert "tilex.grid_dependency()" in text and "use_programtic_dependent_launch" in text
    tvm.ir.assert_structural_equal(tvm.script.from_source(text), marked)

"""The passes that dynamic extents need, on TIRx alone; and programs in a pipeline of the user's."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T

import tvm_tilex as tx
from tvm_tilex import kernels, transform
from tvm_tilex.analysis.dimensions import dimension_ranges, extent_range
from tvm_tilex.analysis.guards import index_in_bounds
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.tools.report import describe_plan


def lowered(name, columns):
    entry = kernels.catalog()[name]
    return tx.lower(entry.kernel, *entry.specs(tx.dynamic("P"), columns))


def test_loops_over_a_width_run_to_its_bound_under_a_mask():
    before = lowered("softmax", tx.dynamic("N", max=40))
    text = transform.PadDimensions()(before)["softmax"].script()
    assert "T.serial(N" not in text
    assert text.count("T.serial(T.int64(40)") == 5
    # One mask for each loop: two kept tiles, two contributions, the store.
    assert text.count("columns < N") == 5
    assert "= T.if_then_else(columns < N, input[program, columns], T.float32(0.0))" in text
    assert 'T.if_then_else(columns < N, tile0[columns], T.float32("-inf"))' in text
    assert "if columns < N:" in text


def test_static_functions_pass_through_untouched():
    for name in ("PadDimensions", "GuardDimensions"):
        for module in (lowered("softmax", 40), tx.lower(kernels.softmax, (3, 40), (3, 40))):
            after = getattr(transform, name)()(module)
            tvm.ir.assert_structural_equal(after, module)


def test_ranges_of_products():
    function = lowered("softmax", tx.dynamic("N", max=40))["softmax"]
    ranges = dimension_ranges(function)
    named = {var.name: var for var in ranges}
    assert {name: ranges[var] for name, var in named.items()} == {
        "P": (0, 2**31 - 1),
        "N": (1, 40),
    }
    rows, width = named["P"], named["N"]
    assert extent_range(width * 3, ranges) == (3, 120)
    assert extent_range(rows * width, ranges) == (0, (2**31 - 1) * 40)
    assert extent_range(width + 1, ranges) is None
    assert extent_range(tvm.tirx.Var("Q", "int64"), ranges) is None
    assert dimension_ranges(tx.lower(kernels.softmax, (3, 40), (3, 40))["softmax"]) == {}


@pytest.mark.parametrize("columns", [40, tx.dynamic("N", max=40)], ids=str)
def test_a_dynamic_module_in_a_pipeline_of_the_users_own(columns):
    register_pipeline()
    module = lowered("softmax", columns)
    built = tvm.compile(module, target=resolve_target("llvm"), tir_pipeline="tilex")
    for rows in (1, 5, 300):
        x = np.random.default_rng(rows).standard_normal((rows, 40), dtype=np.float32)
        out = np.full_like(x, np.nan)
        built["softmax"](tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out))
        assert kernels.catalog()["softmax"].check((x, out))[0].within
    with pytest.raises(ValueError, match=r"extent N is outside|softmax"):
        wide = [tvm_ffi.from_dlpack(np.zeros((2, 41), np.float32)) for _ in range(2)]
        built["softmax"](*wide)
    on_metal = tvm.compile(module, target=resolve_target("metal"), tir_pipeline="tilex")
    assert on_metal.mod.imports[0].inspect_source().count("kernel void softmax_kernel") == 1


def test_a_range_that_nobody_states_declines():
    """A symbolic extent of somebody's own, without tilex.dimensions, is no dynamic dimension."""
    function = lowered("softmax", 40)["softmax"].without_attr("tilex.dimensions")
    module = tvm.IRModule({"softmax": function.with_attr("target", resolve_target("metal"))})
    proved = transform.ProveReductions()(module)["softmax"]
    assert "number of programs P has no range" in str(proved.attrs["tilex.proof"])


@pytest.mark.filterwarnings("ignore:no Apple GPU")
def test_unaligned_bases_and_shared_arrays_of_any_number_of_rows():
    options = tx.CompileOptions(threads_per_group=32, reduction_lane_elements=4)
    packed = tx.compile(kernels.softmax, ("P", 128), ("P", 128), target="metal", options=options)
    assert "float4" in packed.source
    plain = tx.compile(kernels.softmax, ("P", 128), ("P", 128), target="metal")
    for rows in (0, 1, 5):
        x = np.random.default_rng(rows).standard_normal(rows * 128 + 1, dtype=np.float32)
        x, out = x[1:].reshape(rows, 128), np.full((rows, 128), np.nan, np.float32)
        packed.simulate(x, out)
        assert rows == 0 or kernels.catalog()["softmax"].check((x, out))[0].within
        both = x.copy()
        plain.simulate(both, both)
        np.testing.assert_allclose(both, out, rtol=1e-5)


def test_reports_say_what_the_launch_decides():
    static = tx.compile(kernels.softmax, (3, 40), (3, 40))
    assert "3 programs" in describe_plan(static)
    assert "P programs" in describe_plan(tx.compile(kernels.softmax, ("P", 40), ("P", 40)))
    metal = tx.compile(kernels.softmax, ("P", 40), ("P", 40), target="metal")
    assert "ceil(P/8) threadgroups" in describe_plan(metal)


@T.prim_func(s_tir=True)
def foreign(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    T.func_attr({"global_symbol": "foreign"})
    for i in T.serial(8):
        b[i] = a[i]


def test_functions_of_somebody_else_are_left_alone():
    module = tvm.IRModule({"foreign": foreign})
    for name in ("PadDimensions", "GuardDimensions"):
        tvm.ir.assert_structural_equal(getattr(transform, name)()(module), module)


@pytest.mark.parametrize(
    ("extent", "greatest", "proved"), [(256, 256, True), (300, 256, True), (255, 256, False)]
)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_an_index_below_a_dynamic_extent_is_below_its_bound(extent, greatest, proved, index):
    width = tvm.tirx.Var("N", "int64")
    label = tvm.tirx.Var("label", index)
    bound = width if index == "int64" else tvm.tirx.Cast(index, width)
    inside = tvm.tirx.all(label >= tvm.tirx.IntImm(index, 0), label < bound)
    span = tvm.ir.Range.from_min_extent(
        tvm.tirx.IntImm("int64", 1), tvm.tirx.IntImm("int64", greatest)
    )
    limit = tvm.tirx.IntImm(index, extent)
    assert index_in_bounds(label, limit, (inside,), {width: span}) is proved
    assert not index_in_bounds(label, limit, (inside,), {})  # N without a range
    below = (label < bound,)  # the lower side is not guarded
    assert not index_in_bounds(label, limit, below, {width: span})


def test_a_bound_that_does_not_fit_the_index_type_proves_nothing():
    width, label = tvm.tirx.Var("N", "int64"), tvm.tirx.Var("label", "int32")
    inside = tvm.tirx.all(
        label >= tvm.tirx.IntImm("int32", 0), label < tvm.tirx.Cast("int32", width)
    )
    huge = tvm.ir.Range.from_min_extent(
        tvm.tirx.IntImm("int64", 1), tvm.tirx.IntImm("int64", 2**31)
    )
    assert not index_in_bounds(label, tvm.tirx.IntImm("int32", 256), (inside,), {width: huge})

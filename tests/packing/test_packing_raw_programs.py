"""Admission of packing from raw TIRx: what stands around a reduction, and what a tail replays.

Two accepted forms (direct, under a loop that runs once) and four refused ones (repeated, varying
with the row, a packed tail whose rows are read and written, over the thread limit).
"""

import re

import numpy as np
import pytest
from packing_runs import barriers_in, syncs
from tvm.script import tirx as T

import tvm_tilex as tx
from tvm_tilex import transform
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import MappingError
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.sim import MetalKernel
from tvm_tilex.tirx.compat import IRModule, tvm

register_pipeline()
PACKED = {"threads_per_group": 128, "reduction_programs_per_group": 2}  # S = 2, Q = 2


def direct(rows: int):
    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((rows, 100), "float32"), out: T.Buffer((rows,), "float32")):
        T.func_attr({"tilex.stage": "reference", "tirx.noalias": True})
        for row in T.parallel(rows, annotations={"tilex.parallel": 0}):
            carry = T.alloc_local((1,))
            carry[0] = T.float32(0)
            for k in T.serial(
                100, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
            ):
                carry[0] = carry[0] + x[row, k]
            out[row] = carry[0]

    return program


def enclosed(rows: int, first: int = 0):
    """The reduction alone stands in a loop that runs once, from ``first``."""

    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((rows, 100), "float32"), out: T.Buffer((rows,), "float32")):
        T.func_attr({"tilex.stage": "reference", "tirx.noalias": True})
        for row in T.parallel(rows, annotations={"tilex.parallel": 0}):
            carry = T.alloc_local((1,))
            carry[0] = T.float32(0)
            for once in T.serial(first, first + 1):
                for k in T.serial(
                    100, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
                ):
                    carry[0] = carry[0] + x[row, k + once - first]
            out[row] = carry[0]

    return program


def repeated(rows: int, times: int):
    """A whole program body ``times`` times, each with its own results."""

    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((rows, 100), "float32"), out: T.Buffer((rows, times), "float32")):
        T.func_attr({"tilex.stage": "reference", "tirx.noalias": True})
        for row in T.parallel(rows, annotations={"tilex.parallel": 0}):
            for again in T.serial(times):
                carry = T.alloc_local((1,))
                carry[0] = T.float32(0)
                for k in T.serial(
                    100, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
                ):
                    carry[0] = carry[0] + x[row, k]
                out[row, again] = carry[0]

    return program


def varying(rows: int):
    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((rows, 100), "float32"), out: T.Buffer((rows,), "float32")):
        T.func_attr({"tilex.stage": "reference", "tirx.noalias": True})
        for row in T.parallel(rows, annotations={"tilex.parallel": 0}):
            carry = T.alloc_local((1,))
            for once in T.serial(row, row + 1):
                carry[0] = T.float32(0)
                for k in T.serial(
                    100, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
                ):
                    carry[0] = carry[0] + x[once, k]
            out[row] = carry[0]

    return program


def updated(rows: int):
    """Each program divides its own row of ``x`` by the row's sum, in place."""

    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((rows, 100), "float32"), out: T.Buffer((rows,), "float32")):
        T.func_attr({"tilex.stage": "reference", "tirx.noalias": True})
        for row in T.parallel(rows, annotations={"tilex.parallel": 0}):
            carry = T.alloc_local((1,))
            carry[0] = T.float32(0)
            for k in T.serial(
                100, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
            ):
                carry[0] = carry[0] + T.float32(k % 7)
            for e in T.serial(100):
                x[row, e] = x[row, e] / carry[0]
            out[row] = carry[0]

    return program


def scheduled(program, target="metal", **options):
    """The mapped function; raises what the passes raise."""
    chosen = tx.CompileOptions(**(options or PACKED))
    resolved = resolve_target(target)
    mod = IRModule({"program": program.with_attr("global_symbol", "program")})
    for one in (
        transform.ProveReductions(resolved, chosen),
        transform.PlanGroups(resolved, chosen),
        transform.MapSubgroups(resolved, chosen),
    ):
        mod = one(mod)
    return mod["program"]


def run(function, rows: int, x):
    """Build the scheduled function and run its text with the plan's launch."""
    plan = GroupPlan.from_json(str(function.attrs["tilex.plan"]))
    module = tvm.compile(
        IRModule({"program": function}), target=resolve_target("metal"), tir_pipeline="tilex"
    )
    source = str(module.mod.imports[0].inspect_source())
    out = np.full(rows, np.nan, np.float32)
    kernel = MetalKernel.from_source(source)["program_kernel"]
    order = re.findall(r"device float\* (\w+)_ptr \[\[ buffer", source)
    arrays = [{"x": x, "out": out}[name] for name in order]
    kernel.launch((plan.blocks, 1, 1), (plan.threads, 1, 1), *arrays)
    return out, source


def rows_of(rows: int):
    return np.random.default_rng(0).standard_normal((rows, 100), dtype=np.float32)


@pytest.mark.parametrize("rows", [4, 5])
@pytest.mark.parametrize(
    "make",
    [direct, enclosed, lambda rows: enclosed(rows, 3), lambda rows: repeated(rows, 1)],
    ids=["direct", "unit", "unit-from-3", "unit-around-everything"],
)
def test_direct_and_unit_wrapped_reductions_are_packed(make, rows):
    function = scheduled(make(rows))
    plan = GroupPlan.from_json(str(function.attrs["tilex.plan"]))
    assert (plan.reduction_subgroups_per_program, plan.programs_per_group) == (2, 2)
    assert syncs(function) == (1, 0)  # the fence stands under no condition
    x = rows_of(rows)
    out, source = run(function, rows, x)
    assert barriers_in(source) == 1
    np.testing.assert_allclose(out, x.sum(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [4, 5])
def test_repeated_reductions_are_refused_even_without_a_tail(rows):
    with pytest.raises(MappingError, match="repeated loop"):
        scheduled(repeated(rows, 2))


@pytest.mark.parametrize("rows", [4, 5])
def test_a_loop_that_varies_with_the_row_is_refused(rows):
    with pytest.raises(MappingError, match=r"'control'.*not static"):
        scheduled(varying(rows))


def test_a_packed_tail_refuses_a_buffer_that_is_read_and_written():
    with pytest.raises(MappingError, match="packed tail replays the last row"):
        scheduled(updated(5))


def test_without_a_tail_or_without_cooperation_it_is_accepted():
    for rows, options in ((4, PACKED), (5, {"threads_per_group": 64}), (5, _SPATIAL)):
        function = scheduled(updated(rows), **options)
        x = rows_of(rows)
        wanted = x / np.float64(sum(k % 7 for k in range(100)))
        run(function, rows, x)
        np.testing.assert_allclose(x, wanted, rtol=1e-6)


_SPATIAL = {"threads_per_group": 64, "reduction_programs_per_group": 2}  # S = 1, Q = 2


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("metal", {"threads_per_group": 1152, "reduction_programs_per_group": 2}, "1152.*1024"),
        ("metal", {"threads_per_group": 2048}, "2048.*1024"),
        (_LIMITED := {"kind": "metal", "thread_warp_size": 32, "max_num_threads": 256},
         {"threads_per_group": 512, "reduction_programs_per_group": 2}, "512.*256"),
    ],
)  # fmt: skip
def test_over_the_thread_limit_is_refused(target, options, message):
    with pytest.raises(MappingError, match=message):
        scheduled(direct(4), target, **options)


def test_over_the_shared_memory_limit_is_refused():
    small = {"kind": "metal", "thread_warp_size": 32, "max_num_threads": 1024,
             "max_threads_per_block": 1024, "max_shared_memory_per_block": 12}  # fmt: skip
    with pytest.raises(MappingError, match="16 shared bytes exceed the target's 12"):
        scheduled(direct(4), small)

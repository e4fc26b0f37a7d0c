"""What the mapper emits, read off the scheduled TIRx and the Metal text."""

from __future__ import annotations

import re

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import MappingError
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IF_THEN_ELSE,
    Call,
    Op,
    structural_equal,
    structural_walk,
    tirx,
    tvm,
)
from tvm_tilex.transform import ForwardViews, MapPrograms, MapSubgroups, PlanGroups, ProveReductions
from tvm_tilex.transform.options import CompileOptions

METAL = resolve_target("metal")
REDUCTIONS = {"row_sum": 1, "softmax": 2, "layernorm": 2, "residual_layernorm": 2, "minmax": 2}


def compiled(name, rows, columns, **options):
    entry = kernels.catalog()[name]
    return tx.compile(
        entry.kernel, *entry.specs(rows, columns), target="metal", options=CompileOptions(**options)
    )


def lowered(name, rows=3, columns=257, **options):
    entry = kernels.catalog()[name]
    return tx.lower(entry.kernel, *entry.specs(rows, columns), options=CompileOptions(**options))


def only(module):
    (function,) = module.functions.values()
    return function


# The uniformity checker


def per_subgroup(condition, workers):
    """Whether ``condition`` compares the program slot alone: uniform within each SIMD group."""
    text = str(condition)
    return bool(re.search(rf"threadIdx[._]x(, | // ){workers}\b", text)) and "%" not in text


def convergent(function):
    """(kind, conditions above it) of each collective and barrier."""
    found = []

    def expression(node, above):
        def visit(call):
            name = call.op.name if isinstance(call.op, Op) else ""
            if name.startswith("tilex.subgroup_"):
                found.append(("collective", tuple(above)))
            if name == "tirx.tvm_storage_sync":
                found.append(("barrier", tuple(above)))
            if name == IF_THEN_ELSE:
                for branch in call.args[1:]:
                    structural_walk(branch, (Call, lambda c: hidden(c)))

        def hidden(call):
            name = call.op.name if isinstance(call.op, Op) else ""
            assert not name.startswith("tilex.subgroup_"), "a collective under a lazy selection"

        structural_walk(node, (Call, visit))

    def statement(node, above):
        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                statement(part, above)
        elif isinstance(node, tirx.AttrStmt):
            statement(node.body, above)
        elif isinstance(node, tirx.For):
            extent = [] if isinstance(node.extent, tirx.IntImm) else [node.extent]
            statement(node.body, above + extent)
        elif isinstance(node, tirx.IfThenElse):
            statement(node.then_case, [*above, node.condition])
            if node.else_case is not None:
                statement(node.else_case, [*above, node.condition])
        elif isinstance(node, (tirx.BufferStore, tirx.Evaluate)):
            expression(node.value, above)
        else:
            assert isinstance(node, tirx.AllocBuffer), type(node)

    statement(function.body, [])
    return found


def assert_uniform(function, plan):
    found = convergent(function)
    collectives = [above for kind, above in found if kind == "collective"]
    barriers = [above for kind, above in found if kind == "barrier"]
    wide = plan.reduction_subgroups_per_program > 1
    assert len(collectives) == len(plan.collectives) * (2 if wide else 1)
    assert len(barriers) == plan.barrier_sites == (len(plan.collectives) if wide else 0)
    assert all(not above for above in barriers), "a barrier under a condition"
    for above in collectives:
        assert all(per_subgroup(c, plan.workers) for c in above), "a collective may diverge"
        assert not (wide and above)


def test_the_checker_finds_a_divergent_collective():
    artifact = compiled("row_sum", 4, 257, threads_per_group=64)
    function = artifact.scheduled["row_sum"]
    lane = tirx.Var("threadIdx.x", "int32")
    broken = function.with_body(tirx.IfThenElse(lane < 3, function.body, None))
    with pytest.raises(AssertionError):
        assert_uniform(broken, artifact.plan)


def shared_bytes_in(text):
    sizes = re.findall(r"threadgroup float \w+\[(\d+)\]", text)
    return 4 * sum(map(int, sizes))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("threads", [32, 64, 96, 320])
def test_collectives_barriers_and_scratch_are_those_of_the_plan(name, threads):
    artifact = compiled(name, 3, 1000, threads_per_group=threads)
    plan, text, count = artifact.plan, artifact.source, REDUCTIONS[name]
    s = threads // 32
    assert plan.reduction_subgroups_per_program == s and artifact.fallback is None
    assert len(re.findall(r"\bsimd_(sum|max|min)\(", text)) == count * (2 if s > 1 else 1)
    assert text.count("threadgroup_barrier(") == (count if s > 1 else 0)
    assert shared_bytes_in(text) == plan.shared_bytes == (count * s * 4 if s > 1 else 0)
    (launch,) = artifact.device.launches
    assert (launch.grid, launch.group) == ((3, 1, 1), (threads, 1, 1))
    assert launch.shared_bytes == plan.shared_bytes
    assert_uniform(artifact.scheduled[name], plan)
    assert not re.search(r"\[1000\]", text), "a whole row is still private"
    private = [
        int(n) for n in re.findall(r"\bthread float \w+\[(\d+)\];", text, re.M) if int(n) > 1
    ]
    assert sorted(private) == sorted(n for n in plan.stripes if n > 1)


@pytest.mark.parametrize("subgroups", range(1, 33))
def test_every_width_gives_a_plan_of_that_width(subgroups):
    artifact = compiled("softmax", 3, 257, threads_per_group=32 * subgroups)
    assert artifact.plan.reduction_subgroups_per_program == subgroups
    assert artifact.fallback is None
    assert_uniform(artifact.scheduled["softmax"], artifact.plan)
    collectives = 4 if subgroups > 1 else 2
    assert len(re.findall(r"\bsimd_(sum|max|min)\(", artifact.source)) == collectives


@pytest.mark.parametrize(
    ("rows", "q", "threads"), [(5, 2, 128), (7, 3, 288), (8, 4, 256), (3, 8, 512)]
)
def test_cooperating_programs_share_a_group_without_divergence(rows, q, threads):
    artifact = compiled(
        "softmax", rows, 257, threads_per_group=threads, reduction_programs_per_group=q
    )
    plan, function = artifact.plan, artifact.scheduled["softmax"]
    s = threads // 32 // q
    assert (plan.programs_per_group, plan.reduction_subgroups_per_program) == (q, s) and s > 1
    assert_uniform(function, plan)
    assert shared_bytes_in(artifact.source) == 2 * q * s * 4
    text = function.script()
    ragged = rows % q != 0
    assert (f", {rows - 1})" in text) is ragged, "inactive programs replay the last row"
    assert artifact.device.launches[0].grid == (-(-rows // q), 1, 1)
    for above in global_stores(function):
        active = any(f"< {rows}" in str(c) for c in above)
        assert active is ragged, "inactive programs must not store"


def global_stores(function):
    """The conditions above each store to global memory."""
    found = []

    def visit(node, above):
        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                visit(part, above)
        elif isinstance(node, (tirx.AttrStmt, tirx.For)):
            visit(node.body, above)
        elif isinstance(node, tirx.IfThenElse):
            visit(node.then_case, [*above, node.condition])
        elif isinstance(node, tirx.BufferStore) and node.buffer.scope() == "global":
            found.append(above)

    visit(function.body, [])
    assert found
    return found


@pytest.mark.parametrize("rows", [8, 17])
def test_automatic_packing_guards_whole_simd_groups(rows):
    artifact = compiled("row_sum", rows, 257)
    plan, function = artifact.plan, artifact.scheduled["row_sum"]
    assert (plan.reduction_subgroups_per_program, plan.programs_per_group) == (1, 8)
    assert_uniform(function, plan)
    guards = [above for kind, above in convergent(function) if kind == "collective"]
    assert all(len(above) == (rows % 8 != 0) for above in guards)


# Passes

PASSES = {
    "ForwardViews": lambda: ForwardViews(),
    "ProveReductions": lambda: ProveReductions(METAL),
    "PlanGroups": lambda: PlanGroups(METAL),
    "MapSubgroups": lambda: MapSubgroups(METAL),
    "MapPrograms": lambda: MapPrograms(),
}


def run(module, *passes):
    return tvm.ir.transform.Sequential(list(passes))(module)


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy", "row_sum"])
def test_each_pass_twice_is_once_and_the_result_verifies(name):
    from tvm_tilex.tirx.wellformed import verify_function

    module = lowered(name)
    for make in PASSES.values():
        module = run(module, make())
        assert structural_equal(run(module, make()), module)
        verify_function(module[name])
    assert str(module[name].attrs[attrs.STAGE]) == "scheduled"
    assert "T.tilex.subgroup" in module.script()


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_alone_changes_only_what_it_states(name):
    module = lowered("softmax")
    alone = run(module, PASSES[name]())
    before, after = module["softmax"], alone["softmax"]
    if name in ("PlanGroups", "MapSubgroups"):  # nothing was proved or planned
        assert structural_equal(after, before)
    if name == "ProveReductions":
        assert structural_equal(after.body, before.body)
        assert structural_equal(after.without_attr(attrs.PROOF), before)


def reference_passes(target, options=None):
    return [
        ProveReductions(target, options),
        PlanGroups(target, options),
        MapSubgroups(target, options),
    ]


@pytest.mark.parametrize("case", ["option off", "no options", "llvm with the option on"])
def test_disabled_candidates_leave_the_reference_alone(case):
    on = case == "llvm with the option on"
    module = lowered("softmax", metal_subgroup_reductions=on)
    if case == "no options":
        module = tvm.IRModule({"softmax": module["softmax"].without_attr(attrs.OPTIONS)})
    target = resolve_target("llvm") if on else METAL
    assert structural_equal(run(module, *reference_passes(target)), module)


@tx.tile_kernel
def good_and_bad(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
    """Its integer maximum cannot be distributed; its sum could."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        total = tx.reduce(row, columns, tx.add)
        largest = tx.reduce(tx.cast(row, tx.int32), columns, tx.maximum)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(
            row * total + tx.cast(largest, tx.float32)
        )


def test_one_bad_reduction_declines_the_function():
    artifact = tx.compile(good_and_bad, (3, 64), (3, 64), target="metal")
    assert artifact.plan is None and artifact.fallback.startswith("reduction type")
    assert "simd_" not in artifact.source
    with pytest.raises(MappingError, match="reduction type"):
        tx.compile(
            good_and_bad,
            (3, 64),
            (3, 64),
            target="metal",
            options=CompileOptions(threads_per_group=64),
        )


def test_a_pipeline_of_the_users_own():
    module = lowered("softmax", 3, 4096)
    register_pipeline()
    options = CompileOptions(threads_per_group=128)
    mapped = run(module, ForwardViews(), *reference_passes(METAL, options))["softmax"]
    plan = GroupPlan.from_json(str(mapped.attrs[attrs.PLAN]))
    assert plan.threads == 128 and plan.stripes == (32,)
    assert_uniform(mapped, plan)


def test_axes_are_recovered_in_their_order():
    """A domain of two axes is unflattened by mixed radix, the last axis fastest."""

    @tx.tile_kernel
    def scaled(x: tx.TensorView[tx.float32, 3], out: tx.TensorView[tx.float32, 3, tx.Out]):
        rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
        a, b = tx.axis("a", x.extent(1)), tx.axis("b", x.extent(2))
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0, 0)
            tile = x[origin, tx.shape(one, a, b)]
            first = x[origin, tx.shape(one, 1, b)]
            out(origin, tx.shape(one, a, b)).store(tile / tx.reduce(first, b, tx.add))

    artifact = tx.compile(
        scaled,
        (2, 5, 7),
        (2, 5, 7),
        target="metal",
        options=CompileOptions(threads_per_group=32, vector_access=False),
    )
    assert artifact.fallback is None
    text = artifact.scheduled["scaled"].script()
    assert re.search(r"out\[[^\n]*// 7, [^\n]*% 7\]", text), text


ENCLOSED = """
# from tvm.script import tirx as T
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(x: T.Buffer((4, 70), "float32", align=4), y: T.Buffer((4, 70), "float32", align=4)):
        T.func_attr({"tilex.options": "{}", "tilex.stage": "reference", "tirx.noalias": True})
        for p in T.parallel(4, annotations={"tilex.parallel": 0}):
            tile = T.alloc_local((70,))
            carry = T.alloc_local((1,))
            for t in T.serial(TIMES):
                carry[0] = T.float32(0.0)
                for k in T.serial(70, annotations={"tilex.policy": "unordered_tree",
                                                   "tilex.reduction": "add", "tilex.value": 1}):
                    carry[0] = carry[0] + x[p, k]
                for e in T.serial(70):
                    tile[e] = x[p, e] * carry[0]
            for e in T.serial(70):
                y[p, e] = tile[e]
"""


@pytest.mark.parametrize("times", [1, 2])
def test_storage_filled_inside_an_enclosing_loop_becomes_a_stripe(times):
    register_pipeline()
    module = tvm.script.from_source(ENCLOSED.replace("TIMES", str(times)))
    mapped = run(module, *reference_passes(METAL))["f"]
    plan = GroupPlan.from_json(str(mapped.attrs[attrs.PLAN]))
    assert plan.stripes == (-(-70 // plan.workers),)
    text = mapped.script()
    assert "(70,))" not in text and f"tile = T.alloc_local(({plan.stripes[0]},))" in text
    assert_uniform(mapped, plan)


def test_a_repeated_loop_keeps_one_simd_group_and_refuses_more():
    register_pipeline()
    once, twice = (tvm.script.from_source(ENCLOSED.replace("TIMES", n)) for n in "12")
    wide = CompileOptions(threads_per_group=64)
    assert attrs.PLAN in run(once, *reference_passes(METAL, wide))["f"].attrs
    with pytest.raises(MappingError, match="repeated loop"):
        run(twice, *reference_passes(METAL, wide))

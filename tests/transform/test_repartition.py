"""A repartition from the language to the plan: one value, materialized, realized or declined."""

import numpy as np
import pytest
from compiled_programs import BOTH_MODES, compiled, outputs_of
from random_programs import inputs_for

import tvm_tilex as tx
from tvm_tilex.errors import CaptureError, MappingError, VerifyError
from tvm_tilex.ir import Repartition
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import walk
from tvm_tilex.lowering import lower_program
from tvm_tilex.plan.cost import CostFacts
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx import attrs

ROW = tx.TensorView[tx.float32, 2]


@tx.tile_kernel
def placed_softmax(x: ROW, out: tx.TensorView[tx.float32, 2, tx.Out]):
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        e = tx.repartition(tx.exp(x[origin, tx.shape(one, columns)]))
        out(origin, tx.shape(one, columns)).store(e / tx.reduce(e, columns, tx.add))


@tx.tile_kernel
def selected_softmax(
    x: ROW, at: tx.TensorView[tx.int32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]
):
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns, picks = tx.axis("columns", x.extent(1)), tx.axis("picks", at.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        e = tx.exp(x[origin, tx.shape(one, columns)])
        p = tx.repartition(e / tx.reduce(e, columns, tx.add))
        chosen = tx.gather(p, at[origin, tx.shape(one, picks)], columns)
        out(origin, tx.shape(one, picks)).store(chosen)


@tx.tile_kernel
def selected_in_a_group(
    x: ROW, at: tx.TensorView[tx.int32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]
):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    picks = tx.axis("picks", at.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        for _ in tx.group(tx.shape(picks)):
            origin = tx.coord(nest.index(), 0)
            e = tx.exp(x[origin, tx.shape(1, columns)])
            p = tx.repartition(e / tx.reduce(e, columns, tx.add))
            chosen = tx.gather(p, at[origin, tx.shape(1, picks)], columns)
            out(origin, tx.shape(1, picks)).store(chosen)


@tx.tile_kernel
def placed_view(x: ROW, out: tx.TensorView[tx.float32, 2, tx.Out]):
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = tx.repartition(x[origin, tx.shape(one, columns)])
        out(origin, tx.shape(one, columns)).store(row - tx.reduce(row, columns, tx.maximum))


def data(rows, columns):
    return np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)


def softmax(x):
    e = np.exp(x.astype(np.float64))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("mode", BOTH_MODES, ids=lambda mode: mode.value)
def test_the_value_is_stored_once_in_every_mode(mode):
    program = placed_softmax.capture([tx.spec((3, 77), "float32")] * 2)
    text = lower_program(program, mode).script()
    (placed,) = [s for s in walk(program) if isinstance(s, Repartition)]
    assert text.count(f"tile{placed.result.number}[columns") >= 3  # one store, two readers
    assert text.count("T.exp(") == 1
    assert text.count(f'"{attrs.REPARTITION}"') == 1


@pytest.mark.parametrize("shape", [(3, 77), (1, 1), (4, 1), (0, 5)])
def test_llvm_materializes_the_same_tile(shape):
    x, out = data(*shape), np.full(shape, np.nan, np.float32)
    placed_softmax(x, out)
    np.testing.assert_allclose(out, softmax(x), rtol=2e-6)


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("shape", [(3, 77), (5, 4096), (2, 33)])
def test_equal_owners_realize_it_as_a_stripe(target, shape):
    artifact = tx.compile(placed_softmax, shape, shape, target=target)
    assert artifact.plan is not None
    assert artifact.plan.repartitions == (shape[1],)
    assert f"repartitions of {shape[1]} elements" in artifact.plan.describe()
    assert GroupPlan.from_json(artifact.plan.to_json()) == artifact.plan
    assert len(artifact.plan.stripes) == 1
    if target == "metal":
        x, out = data(*shape), np.full(shape, np.nan, np.float32)
        artifact(x, out)
        np.testing.assert_allclose(out, softmax(x), rtol=2e-5)


def test_a_view_that_is_placed_anew_is_not_forwarded():
    artifact = tx.compile(placed_view, (3, 300), (3, 300), target="metal")
    assert artifact.plan is not None and artifact.plan.repartitions == (300,)
    # Each element of the row is loaded once, into the stripe, by the full chunks and the rest.
    assert artifact.source.count("= x_ptr[") == 2


def test_an_exchange_between_workers_declines_by_name():
    specs = (tx.spec((3, 77), "float32"), tx.spec((3, 50), "int32"), tx.spec((3, 50), "float32"))
    artifact = tx.compile(selected_softmax, *specs, target="metal")
    assert artifact.plan is None
    assert artifact.fallback.startswith("distributed private storage: tile")
    assert "no exchange between workers realizes the repartition" in artifact.fallback
    assert "tx.group" in artifact.fallback
    options = tx.CompileOptions(threads_per_group=64)
    with pytest.raises(MappingError, match="no exchange between workers"):
        tx.compile(selected_softmax, *specs, target="metal", options=options)


@pytest.mark.parametrize("target", ["llvm", "metal"])
def test_a_declined_exchange_still_gives_the_values(target):
    x = data(3, 77)
    at = np.random.default_rng(1).integers(-3, 80, (3, 50)).astype(np.int32)
    out = np.full((3, 50), np.nan, np.float32)
    tx.compile(selected_softmax, x, at, out, target=target)(x, at, out)
    inside = (at >= 0) & (at < 77)
    expected = np.take_along_axis(softmax(x), at.clip(0, 76).astype(np.int64), 1)
    np.testing.assert_allclose(out, np.where(inside, expected, 0), rtol=2e-5)


@pytest.mark.parametrize("columns", [77, 33, 1024])
def test_a_cooperative_group_realizes_the_exchange(columns):
    """The tile goes through shared memory: stored, a barrier, read at any element."""
    x = data(3, columns)
    at = np.random.default_rng(1).integers(-3, columns + 3, (3, 50)).astype(np.int32)
    out = np.full((3, 50), np.nan, np.float32)
    artifact = tx.compile(selected_in_a_group, x, at, out, target="metal")
    assert artifact.group_plans
    assert "threadgroup float" in artifact.source and "threadgroup_barrier" in artifact.source
    artifact(x, at, out)
    inside = (at >= 0) & (at < columns)
    expected = np.take_along_axis(softmax(x), at.clip(0, columns - 1).astype(np.int64), 1)
    np.testing.assert_allclose(out, np.where(inside, expected, 0), rtol=2e-5)


def test_cost_policies_see_it():
    seen: list[CostFacts] = []

    def policy(facts):
        seen.append(facts)
        return 1.0

    from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
    from tvm_tilex.plan.planner import plan_groups

    facts = ProgramFacts(3, (77,), ("add",), (77, 77), (77,), repartitions=(77,))
    plan_groups(facts, TargetFacts(1024, 32768), Request(), policy)
    assert seen and all(facts.repartitioned == 77 for facts in seen)


PREDICATED = """
kernel part(x: in float32[2, 5] predicate, out: out float32[2, 9], total: out float32[2]) {
  parallel n0(rows: 2) {
    %0: float32[one: 1, c: 9] = load x[n0.0, -2](one: 1, c: 9) predicate
    %1: float32[one: 1, c: 9] = add %0, float32(1.0)
    %2: float32[one: 1, c: 9] = repartition %1
    %3: float32[one: 1] = reduce minimum %2 over c
    store out[n0.0, 0](one: 1, c: 9) = %2
    store total[n0.0](one: 1) = %3
  }
}
"""


@pytest.mark.parametrize("mode", BOTH_MODES, ids=lambda mode: mode.value)
def test_activity_survives(mode):
    """An inactive element stays inactive: no store, and the identity in a reduction."""
    program = parse_program(PREDICATED)
    verify(program)
    arrays = inputs_for(program)
    x = arrays["x"]
    expected = np.full((2, 9), np.nan, np.float32)
    expected[:, 2:7] = x + 1
    for out, total in (
        interpret(program, arrays),
        outputs_of(program, compiled(program, mode), arrays),
    ):
        assert np.array_equal(out, expected, equal_nan=True)
        assert np.array_equal(total, (x + 1).min(1))


def test_the_type_is_the_source_s():
    text = PREDICATED.replace("%2: float32[one: 1, c: 9] = rep", "%2: float32[c: 9, one: 1] = rep")
    with pytest.raises(VerifyError, match=r"rule: type"):
        verify(parse_program(text))


def test_what_is_no_tile_is_refused():
    @tx.tile_kernel
    def wrong(out: tx.TensorView[tx.float32, 1, tx.Out]):
        rows = tx.axis("rows", out.extent(0))
        for nest in tx.parallel(tx.shape(rows)):
            out(tx.coord(nest.index()), tx.shape(1)).store(tx.repartition(1.0))

    with pytest.raises(CaptureError, match="repartition: float is not a tile"):
        tx.compile(wrong, (3,), target="llvm")

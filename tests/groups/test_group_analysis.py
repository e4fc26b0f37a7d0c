"""What the analysis of a group reads off its TIRx, and what it declines."""

import numpy as np
import pytest
from group_samples import arguments, both_axes, random, swapping

import tvm_tilex as tx
from tvm_tilex.analysis.group_facts import read_group
from tvm_tilex.analysis.group_structure import Outputs, Product, Steps, WholeOutputs, phases
from tvm_tilex.analysis.statements import Decline
from tvm_tilex.kernels import composed
from tvm_tilex.plan.cooperative import work_threads
from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import structural_map, tirx

TARGET = TargetFacts(max_threads=256, shared_bytes=32768, lanes=32)


def lowered(name):
    kernel, constants, arrays, _, _ = arguments(name)
    return tx.lower(kernel, *arrays, **constants)[kernel.name].body


def kinds(subject):
    return [type(phase).__name__ for phase in phases(subject.program.body)]


def test_phases_are_read_in_program_order():
    subject = read_group(lowered("product"), "metal")
    assert [k for k in kinds(subject) if k in ("Steps", "Product")] == ["Steps", "Product"]
    (product,) = (p for p in subject.phases if isinstance(p, Product))
    assert product.depth == 16 and product.count == 256
    (loop,) = subject.facts.loops
    assert loop.iterations == 4
    facts = next(f for f in subject.facts.phases if f.kind.value == "product")
    assert (facts.rows, facts.columns, facts.factor) == (16, 16, "float32")
    assert any(isinstance(p, Steps) for p in phases(subject.program.body))


@pytest.mark.parametrize("policy", ["unordered_tree", "fold_left", "ordered_tree"])
def test_the_workload_uses_the_emitters_matcher(policy):
    x = random(2, 3, 40)
    outputs = [np.empty((2, 3), np.float32), np.empty((2, 40), np.float32)]
    body = tx.lower(both_axes, x, *outputs, policy=policy)["both_axes"].body
    subject = read_group(body, "cuda")
    collective = [phase.collective for phase in subject.facts.phases]
    assert collective.count(True) == (2 if policy == "unordered_tree" else 0)
    for phase, facts in zip(subject.phases, subject.facts.phases, strict=True):
        if isinstance(phase, (Outputs, WholeOutputs)):
            assert facts.collective == (policy == "unordered_tree")
            assert facts.collective or facts.reason
    # 40 outputs of one SIMD group each, up to the target's 256 threads; else 120 elements.
    assert work_threads(subject.facts, TARGET) == (256 if policy == "unordered_tree" else 128)


def test_a_propagated_nan_is_no_collective_of_metals():
    def maximum(propagate):
        @tx.tile_kernel
        def peak(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
            p, n = tx.axis("p", x.extent(0)), tx.axis("n", x.extent(1))
            for nest in tx.parallel(tx.shape(p)):
                for _ in tx.group():
                    row = x[tx.coord(nest.index(), 0), tx.shape(1, n)]
                    nan = "propagate" if propagate else "target"
                    top = tx.reduce(row, n, tx.maximum, nan=nan)
                    out(tx.coord(nest.index()), tx.shape(1)).store(top)

        return tx.lower(peak, (2, 40), (2,))["peak"].body

    for kind, propagate, collective in (
        ("metal", False, True), ("metal", True, False), ("cuda", True, True)
    ):  # fmt: skip
        subject = read_group(maximum(propagate), kind)
        (facts,) = (f for f in subject.facts.phases if f.kind.value == "reduction")
        assert facts.collective == collective


# Single edits of a readable group


def stores(body, change):
    return structural_map(body, (tirx.BufferStore, change), order="post")


def shifted(store):
    """A tile stored at another element than its phase's own."""
    if not str(store.buffer.name).startswith("tile") or len(store.indices) != 2:
        return store
    first, second = store.indices
    return tirx.BufferStore(store.buffer, store.value, [first, second + 1])


def opaque(store):
    if store.buffer.scope() == "local":
        return store
    value = tirx.call_extern("float32", "unknown", store.value)
    return tirx.BufferStore(store.buffer, value, store.indices)


def swapped_identity(store):
    """A carry that starts from 1."""
    if not str(store.buffer.name).startswith("carry") or not isinstance(store.value, tirx.FloatImm):
        return store
    return tirx.BufferStore(store.buffer, tirx.FloatImm("float32", 1.0), store.indices)


def test_a_tile_stored_elsewhere_declines():
    found = read_group(stores(lowered("both_axes"), shifted), "metal")
    assert isinstance(found, Decline) and "not stored whole" in found.reason


def test_an_unknown_effect_declines():
    found = read_group(stores(lowered("both_axes"), opaque), "metal")
    assert isinstance(found, Decline) and found.rule == "contribution"


def test_a_carry_from_another_value_is_no_collective():
    found = read_group(stores(lowered("both_axes"), swapped_identity), "metal")
    assert not any(facts.collective for facts in found.facts.phases)
    assert any("not from the identity" in facts.reason for facts in found.facts.phases)


def test_a_false_marker_is_not_believed():
    def lie(loop):
        if attrs.annotation(loop, attrs.REDUCTION) is None:
            return loop
        notes = {**dict(loop.annotations), attrs.REDUCTION: "maximum"}
        parts = loop.loop_var, loop.min, loop.extent, loop.kind, loop.body
        return tirx.For(*parts, None, notes)

    body = structural_map(lowered("both_axes"), (tirx.For, lie), order="post")
    found = read_group(body, "metal")
    assert not any(facts.collective for facts in found.facts.phases)


def test_two_phases_that_store_one_view_decline():
    body = lowered("both_axes")
    twice = tirx.SeqStmt([body.body, body.body.seq[-1]])
    root = tirx.For(body.loop_var, body.min, body.extent, body.kind, twice, None, body.annotations)
    found = read_group(root, "metal")
    assert isinstance(found, Decline) and "stored by two phases" in found.reason


def test_the_same_array_in_and_out_runs_without_the_map():
    x = random(3, 23)
    wanted = x.copy()
    tx.compile(swapping, x, wanted, target="llvm")(x, wanted)
    artifact = tx.compile(swapping, x, x, target="metal")
    assert artifact.group_plans
    artifact(x, x)
    assert np.array_equal(x, wanted)


def test_no_program_launches_nothing():
    empty, out = np.zeros((0, 23), np.float32), np.zeros((0, 23), np.float32)
    for target in ("llvm", "metal"):
        tx.compile(swapping, empty, out, target=target)(empty, out)
    assert tx.compile(swapping, (0, 23), (0, 23), target="cuda").device.launches == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("columns", [64, 65])
def test_both_16_bit_types_are_copied_and_priced_alike(dtype, columns):
    entry = composed.catalog()["matmul"]
    specs = entry.specs({"rows": 64, "depth": 64, "columns": columns}, dtype)
    options = tx.CompileOptions(group_threads=128)
    artifact = tx.compile(entry.kernel, *specs, target="cuda", options=options)
    copies = artifact.source.count("tilex_copy_async_16((&")
    assert copies == (4 if columns == 64 else 2)  # two factors, before the loop and ahead
    half = tx.compile(
        entry.kernel, *entry.specs({"rows": 64, "depth": 64, "columns": columns}, "float16"),
        target="cuda", options=options,
    )  # fmt: skip
    (plan,), (other,) = artifact.group_plans, half.group_plans
    assert plan.prices[:5] == other.prices[:5]  # all but the rounding of the result

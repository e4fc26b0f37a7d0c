"""Groups mapped onto threadgroups: the Metal text in the simulator, against the formulas."""

import dataclasses
import re

import numpy as np
import pytest
from group_samples import NAMES, arguments, both_axes, placed, product, random

import tvm_tilex as tx
from tvm_tilex.errors import MappingError, OptionError, SimulatorError
from tvm_tilex.ir.interp import interpret

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
LANES = "simdgroup_barrier(mem_flags::mem_threadgroup);"
COLLECTIVE = re.compile(r"simd_(sum|max|min)\(")
CHOICES = {
    "automatic": {},
    "two subgroups": {"group_threads": 64, "group_reductions": "collective"},
    "fma": {"group_threads": 96, "group_products": "fma", "group_reductions": "collective"},
    "one subgroup": {"group_threads": 32, "group_products": "scalar"},
    "no whole subgroup": {"group_threads": 48},
    "one thread": {"group_threads": 1},
}


def mapped(kernel, arrays, target="metal", constants=None, **options):
    chosen = tx.CompileOptions(**options)
    artifact = tx.compile(kernel, *arrays, target=target, options=chosen, **(constants or {}))
    assert artifact.fallback is None
    return artifact, artifact.group_plans[0]


SLOW = {("product", "one thread"), ("both_axes_max", "one thread")}
RUNS = [(name, choice) for name in NAMES for choice in CHOICES if (name, choice) not in SLOW]


@pytest.mark.parametrize(("name", "choice"), RUNS)
def test_the_simulator_gives_the_formula(name, choice):
    kernel, constants, arrays, outputs, expected = arguments(name)
    artifact, plan = mapped(kernel, arrays, constants=constants, **CHOICES[choice])
    wanted = CHOICES[choice].get("group_threads")
    assert wanted in (None, plan.threads)
    artifact(*arrays)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert artifact.source.count(BARRIER) + artifact.source.count(LANES) == plan.barrier_sites


def run_both_axes(shape, op="add", policy="unordered_tree", **options):
    x = random(*shape)
    outputs = [np.full(shape[:2], np.nan, np.float32), np.full(shape[::2], np.nan, np.float32)]
    constants = {"op": op, "policy": policy}
    artifact, plan = mapped(both_axes, (x, *outputs), constants=constants, **options)
    artifact(x, *outputs)
    return x, outputs, artifact, plan


# (programs, rows, columns): extent one, ragged widths, more outputs than resident subgroups.
SHAPES = [(1, 1, 1), (2, 1, 40), (2, 40, 1), (1, 31, 33), (1, 33, 65), (1, 2, 257), (1, 257, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["add", "maximum", "minimum"])
def test_collectives_over_either_axis(shape, op):
    x, outputs, artifact, plan = run_both_axes(
        shape, op, group_threads=64, group_reductions="collective"
    )
    assert plan.realizations.count("collective") == 2
    assert len(COLLECTIVE.findall(artifact.source)) == 2
    formula = {"add": np.sum, "maximum": np.max, "minimum": np.min}[op]
    for got, axis in zip(outputs, (2, 1), strict=True):
        np.testing.assert_allclose(got, formula(x.astype(np.float64), axis), rtol=1e-5, atol=1e-5)


def test_an_output_belongs_to_one_subgroup_and_its_leader_publishes():
    _, _, artifact, plan = run_both_axes(
        (1, 33, 65), group_threads=64, group_reductions="collective"
    )
    text = artifact.source
    assert plan.subgroups == 2
    # 33 outputs, 2 subgroups: 17 batches with a guard that is uniform in the subgroup.
    assert "(batch * 2) + (((int)threadIdx) >> 5)) < 33" in text
    # 65 elements: two chunks of 32 lanes, then one lane; nothing conditional at the collective.
    assert "if ((((int)threadIdx) & 31) < 1)" in text
    assert text.count("if ((((int)threadIdx) % 32) == 0)") == 2


@pytest.mark.parametrize(
    "options",
    [
        {"metal_subgroup_reductions": False, "group_threads": 64},
        {"group_threads": 48},
        {"group_threads": 1},
        {"group_threads": 64, "group_reductions": "serial"},
    ],
    ids=["option off", "no whole subgroup", "one thread", "asked for"],
)
def test_the_ordered_realization_stays(options):
    x, outputs, artifact, plan = run_both_axes((2, 9, 70), **options)
    assert "collective" not in plan.realizations and not COLLECTIVE.search(artifact.source)
    specs = [tx.spec(array.shape) for array in (x, *outputs)]
    folded = both_axes.capture(specs, {"op": "add", "policy": "fold_left"})
    for got, want in zip(outputs, interpret(folded, [x]), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("policy", ["fold_left", "fold_right", "ordered_tree"])
def test_an_ordered_policy_is_kept_bit_for_bit(policy):
    x, outputs, artifact, plan = run_both_axes(
        (2, 9, 70), policy=policy, group_threads=64, group_reductions="collective"
    )
    assert not COLLECTIVE.search(artifact.source) and artifact.requires_precise_math
    assert len(plan.notes) == 2  # each says why
    specs = [tx.spec(array.shape) for array in (x, *outputs)]
    program = both_axes.capture(specs, {"op": "add", "policy": policy})
    for got, want in zip(outputs, interpret(program, [x]), strict=True):
        assert np.array_equal(got, want)


def test_results_depend_on_the_order_of_a_collective_within_rounding_only():
    x, outputs, artifact, _ = run_both_axes(
        (1, 8, 257), group_threads=64, group_reductions="collective"
    )
    again = [np.full_like(out, np.nan) for out in outputs]
    artifact.simulate(x, *again, seed=5)
    assert any(not np.array_equal(a, b) for a, b in zip(outputs, again, strict=True))
    for a, b in zip(outputs, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# Fences


def without_fence(artifact, number):
    """The artifact whose text lacks one of its barriers."""
    parts = artifact.source.split(BARRIER)
    before, after = BARRIER.join(parts[: number + 1]), BARRIER.join(parts[number + 1 :])
    text = before + after
    device = dataclasses.replace(artifact.device, source=text)
    return dataclasses.replace(artifact, device=device)


@pytest.mark.parametrize("name", ["both_axes", "nest_of_outputs"])
def test_every_fence_is_needed_and_none_is_elided_between_subgroups(name):
    kernel, constants, arrays, _, _ = arguments(name)
    artifact, plan = mapped(
        kernel, arrays, constants=constants, group_threads=64, group_reductions="collective"
    )
    assert not plan.independent_subgroups
    assert artifact.source.count(BARRIER) == plan.barrier_sites > 0
    assert LANES not in artifact.source
    for number in range(plan.barrier_sites):
        broken = without_fence(artifact, number)
        assert broken.device.source.count(BARRIER) == plan.barrier_sites - 1
        with pytest.raises(SimulatorError):
            broken.simulate(*arrays)


def test_one_subgroup_needs_its_lanes_ordered_only():
    kernel, constants, arrays, _, _ = arguments("both_axes")
    artifact, plan = mapped(
        kernel, arrays, constants=constants, group_threads=32, group_reductions="collective"
    )
    assert plan.independent_subgroups
    assert BARRIER not in artifact.source
    assert artifact.source.count(LANES) == plan.barrier_sites > 0


# Explicit requests


def test_explicit_threads_win_or_are_refused():
    x = random(1, 8, 40)
    outputs = [np.empty((1, 8), np.float32), np.empty((1, 40), np.float32)]
    for threads in (32, 48, 64, 100, 1024):
        _, plan = mapped(both_axes, (x, *outputs), group_threads=threads)
        assert plan.threads == threads
    _, plan = mapped(both_axes, (x, *outputs), threads_per_group=96)
    assert plan.threads == 96
    with pytest.raises(MappingError, match="2048 threads exceed the target's 1024"):
        mapped(both_axes, (x, *outputs), group_threads=2048)
    with pytest.raises(OptionError, match="group_threads"):
        tx.CompileOptions(group_threads=-1)


def test_memory_too_large_is_refused_or_falls_back():
    a, b = random(64, 64), random(64, 64)
    out = np.empty((64, 64), np.float32)
    wide = {"tile": (64, 64, 64)}
    small = tx.compile(product, a, b, out, target="metal", **wide)
    small(a, b, out)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    big = [tx.spec((256, 256))] * 3
    options = tx.CompileOptions(group_threads=64)
    with pytest.raises(MappingError, match="shared bytes exceed"):
        tx.compile(product, *big, target="metal", options=options, tile=(128, 128, 64))
    assert "shared bytes exceed" in str(
        tx.compile(product, *big, target="metal", tile=(128, 128, 64)).fallback
    )


def test_private_memory_is_for_its_owners_only():
    x, out = random(2, 23), np.empty((2, 23), np.float32)
    constants = {"scope": "private", "reversed_read": True}
    refused = tx.compile(placed, x, out, target="metal", **constants)
    assert "placed in private memory" in refused.fallback
    refused(x, out)
    assert np.array_equal(out, 2 * x[:, ::-1])
    with pytest.raises(MappingError, match="placed in private memory"):
        mapped(placed, (x, out), constants=constants, group_threads=64)


def test_shared_memory_that_a_person_placed_stays_shared():
    x, out = random(2, 23), np.empty((2, 23), np.float32)
    artifact, plan = mapped(placed, (x, out), group_threads=64)
    (memory,) = (p for p in plan.placements if p.tile == "memory0")
    assert memory.offset >= 0 and memory.private == 0
    artifact(x, out)
    assert np.array_equal(out, 2 * x)


# CUDA text


@pytest.mark.parametrize("name", NAMES)
def test_cuda_text_is_emitted_for_every_sample(name):
    kernel, constants, arrays, _, _ = arguments(name)
    artifact, plan = mapped(kernel, arrays, "cuda", constants, group_reductions="collective")
    assert artifact.source.count("__syncthreads();") == plan.barrier_sites
    # A butterfly of five exchanges, or one instruction.
    butterflies = artifact.source.count("= __shfl_xor_sync(") / 5
    instructions = len(re.findall(r"= tilex_warp_\w+\(", artifact.source))
    assert butterflies + instructions == plan.realizations.count("collective")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensor_core_products_on_cuda(dtype):
    specs = [tx.spec((256, 256), dtype), tx.spec((256, 256), dtype), tx.spec((256, 256))]
    artifact, plan = mapped(
        product, specs, "cuda", {"tile": (64, 64, 32)}, group_threads=128, group_products="matrix"
    )
    assert "matrix" in plan.realizations
    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{short}.{short}.f32" in artifact.source
    # Two versions of each factor: one fence an iteration, in front of the next one's loads.
    assert plan.barrier_sites == 1
    assert [p.versions for p in plan.placements if p.offset >= 0] == [2, 2]


def test_a_large_group_asks_cuda_for_its_memory():
    specs = [tx.spec((512, 512), "float16"), tx.spec((512, 512), "float16"), tx.spec((512, 512))]
    target = {"kind": "cuda", "max_num_threads": 1024, "max_shared_memory_per_block": 232448}
    target |= {"thread_warp_size": 32, "max_threads_per_block": 1024}
    artifact, plan = mapped(
        product, specs, target, {"tile": (128, 128, 64)}, group_threads=256, group_products="matrix"
    )
    (launch,) = artifact.device.launches
    assert launch.dynamic_shared_bytes == plan.shared_bytes > 48 * 1024
    assert launch.shared_bytes == 0
    assert "extern __shared__" in artifact.source

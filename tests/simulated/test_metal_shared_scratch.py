"""Scratch and barriers: no race as emitted, and a race once a barrier or a slot is taken away."""

import re

import numpy as np
import pytest
from simulated_runs import barriers_in, compiled, run

from tvm_tilex import kernels
from tvm_tilex.sim import Checks, MetalKernel
from tvm_tilex.sim.errors import (
    BarrierDivergenceError,
    CollectiveDivergenceError,
    RaceError,
    UninitializedReadError,
)

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
PLANS = [("softmax", 8, 0), ("softmax", 32, 0), ("minmax", 8, 0), ("layernorm", 32, 0)]
PLANS += [("softmax", 3, 2), ("minmax", 2, 8)]


def _launch(artifact, source, arguments, seed=0):
    """Launch another text with the artifact's own grid, group and argument order."""
    (launch,) = artifact.device.launches
    by_name = {v.name: a for v, a in zip(artifact.tile_ir.views, arguments, strict=True)}
    kernel = MetalKernel.from_source(source)[launch.entry]
    buffers = (by_name[name] for name in launch.buffers)
    return kernel.launch(
        launch.grid, launch.group, *buffers, *launch.scalars, seed=seed, checks=Checks(races=True)
    )


def _subject(name, subgroups, packed):
    artifact = compiled(name, 5, 1000, "float32", subgroups, packed)
    return artifact, kernels.catalog()[name].arguments(5, 1000)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "subgroups", "packed"), PLANS)
def test_two_reductions_do_not_race(name, subgroups, packed, seed):
    artifact, arguments = _subject(name, subgroups, packed)
    _launch(artifact, artifact.source, arguments, seed)
    assert all(c.within for c in kernels.catalog()[name].check(arguments))


@pytest.mark.parametrize("removed", [0, 1])
@pytest.mark.parametrize(("name", "subgroups", "packed"), PLANS)
def test_without_one_barrier_the_same_text_races(name, subgroups, packed, removed):
    artifact, arguments = _subject(name, subgroups, packed)
    parts = artifact.source.split(BARRIER)
    assert len(parts) == 3
    parts[removed : removed + 2] = ["".join(parts[removed : removed + 2])]
    with pytest.raises((RaceError, UninitializedReadError)) as caught:
        _launch(artifact, BARRIER.join(parts), arguments)
    assert f"partials{removed}" in str(caught.value)


@pytest.mark.parametrize(("name", "subgroups", "packed"), PLANS)
def test_one_scratch_array_for_both_reductions_would_race(name, subgroups, packed):
    """Why each reduction has slots of its own: nothing orders the first reads and next writes."""
    artifact, arguments = _subject(name, subgroups, packed)
    merged = re.sub(r"threadgroup float partials1\[\d+\];", "", artifact.source)
    merged = merged.replace("partials1", "partials0")
    assert barriers_in(merged) == 2
    with pytest.raises(RaceError):
        _launch(artifact, merged, arguments)


def test_a_collective_under_a_lane_condition_is_a_fault():
    artifact, arguments = _subject("softmax", 8, 0)
    moved = re.sub(
        r"(\w+)\[0\] = simd_max\(\w+\[0\]\);",
        r"if (threadIdx < 16) { \g<0> }",
        artifact.source,
        count=1,
    )
    assert moved != artifact.source
    with pytest.raises(CollectiveDivergenceError):
        _launch(artifact, moved, arguments)


def test_a_guard_around_a_packed_tail_would_split_its_barrier():
    """Why a packed tail replays its last row: under ``p < P`` part of the group has no barrier."""
    artifact, arguments = _subject("softmax", 3, 2)
    guarded = artifact.source.replace(
        BARRIER, f"if (((int)blockIdx) * 2 + ((int)threadIdx) / 96 < 5) {{ {BARRIER} }}"
    )
    with pytest.raises(BarrierDivergenceError):
        _launch(artifact, guarded, arguments)


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
@pytest.mark.parametrize("subgroups", [8, 32])
def test_equal_launches_are_bit_identical(name, subgroups):
    results = [run(name, 6, 4096, subgroups=subgroups).arguments[-1].tobytes() for _ in range(3)]
    assert len(set(results)) == 1
    others = run(name, 6, 4096, subgroups=subgroups, seed=11)
    others.assert_right()


def test_shared_bytes_are_slots_of_every_reduction():
    for name, subgroups, packed in PLANS:
        artifact, _ = _subject(name, subgroups, packed)
        slots = subgroups * max(packed, 1)
        sizes = re.findall(r"threadgroup float \w+\[(\d+)\];", artifact.source)
        assert sizes == [str(slots)] * 2
        assert artifact.plan.shared_bytes == 2 * slots * np.dtype(np.float32).itemsize
        assert "mem_none" not in artifact.source

"""Runs of the library under one explicit plan in the simulator, with sentinels around outputs."""

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm_tilex as tx
from tvm_tilex import kernels

MARGIN = 64  # elements before and after each output
MARK = 77.0  # held exactly by every storage type


@dataclass(frozen=True)
class Run:
    """One simulated launch."""

    artifact: Any
    counters: Any
    arguments: tuple[Any, ...]
    entry: Any

    @property
    def plan(self) -> Any:
        return self.artifact.plan

    @property
    def reductions(self) -> int:
        return len(self.plan.collectives)

    def loads(self, view: str) -> float:
        """Device loads of ``view`` per element of it."""
        position = self.entry.parameters.index(view)
        return self.counters.loads_per_element(f"{view}_ptr", self.arguments[position].size)

    def assert_right(self) -> None:
        for comparison in self.entry.check(self.arguments):
            assert comparison.within, (self.plan.describe(), comparison)


def collectives_in(source: str) -> int:
    """Collective calls in the text."""
    return len(re.findall(r"\bsimd_(?:sum|max|min)\(", source))


def barriers_in(source: str) -> int:
    """Barriers in the text."""
    return source.count("threadgroup_barrier(mem_flags::mem_threadgroup)")


def options_of(subgroups: int = 0, packed: int = 0, elements: int = 0, **others: Any) -> Any:
    """Options that ask for exactly this S, Q and V; 0 is automatic."""
    return tx.CompileOptions(
        threads_per_group=32 * subgroups * max(packed, 1),
        reduction_programs_per_group=packed,
        reduction_lane_elements=elements,
        **others,
    )


@functools.cache
def compiled(
    name: str,
    rows: int,
    columns: int,
    dtype: str = "float32",
    subgroups: int = 0,
    packed: int = 0,
    elements: int = 0,
) -> Any:
    """The library kernel for Metal; refuses to go on if the plan is not the one asked for."""
    entry = kernels.catalog()[name]
    artifact = tx.compile(
        entry.kernel,
        *entry.specs(rows, columns, dtype),
        target="metal",
        options=options_of(subgroups, packed, elements),
    )
    assert_mapped(artifact, subgroups, packed, elements)
    return artifact


def exchanges(artifact: Any) -> int:
    """How often partial results are exchanged: a rescaled sum goes with its maximum."""
    return len(artifact.plan.collectives) - (artifact.name in ("cross_entropy", "logsumexp"))


def assert_mapped(artifact: Any, subgroups: int = 0, packed: int = 0, elements: int = 0) -> None:
    """The plan is the one asked for, nothing fell back, and the text has its collectives."""
    plan = artifact.plan
    assert plan is not None and artifact.fallback is None, artifact.fallback
    if subgroups:
        assert plan.reduction_subgroups_per_program == subgroups
        assert plan.programs_per_group == max(packed, 1)
        assert plan.lane_elements == max(elements, 1)
    stages = 2 if plan.reduction_subgroups_per_program > 1 else 1
    assert collectives_in(artifact.source) == stages * len(plan.collectives)
    assert barriers_in(artifact.source) == plan.barrier_sites
    assert plan.barrier_sites == (exchanges(artifact) if stages == 2 else 0)
    (launch,) = artifact.device.launches
    assert launch.grid == (plan.blocks, 1, 1) and launch.group == (plan.threads, 1, 1)
    assert launch.shared_bytes == plan.shared_bytes


def guarded(array: Any) -> tuple[Any, Any]:
    """Memory full of a mark, and a copy of ``array`` inside it."""
    memory = np.full(array.size + 2 * MARGIN, MARK, array.dtype)
    inside = memory[MARGIN : MARGIN + array.size].reshape(array.shape)
    inside[...] = array
    return memory, inside


def assert_untouched(memory: Any) -> None:
    """The marks on both sides are still there."""
    assert (memory[:MARGIN] == MARK).all() and (memory[-MARGIN:] == MARK).all()


def run(
    name: str,
    rows: int,
    columns: int,
    dtype: str = "float32",
    subgroups: int = 0,
    packed: int = 0,
    elements: int = 0,
    *,
    inputs: tuple[Any, ...] | None = None,
    seed: int = 0,
) -> Run:
    """Simulate a library kernel; inputs and everything around the outputs stay unchanged."""
    entry = kernels.catalog()[name]
    artifact = compiled(name, rows, columns, dtype, subgroups, packed, elements)
    arguments = list(entry.arguments(rows, columns, dtype))
    given = iter(inputs or ())
    around = []
    for position in range(len(arguments)):
        if position in entry.outputs:
            memory, arguments[position] = guarded(arguments[position])
            around.append(memory)
        elif inputs is not None:
            arguments[position] = next(given)
    before = [a.copy() for a in arguments]
    (counters,) = artifact.simulate(*arguments, seed=seed)
    for memory in around:
        assert_untouched(memory)
    for position, array in enumerate(arguments):
        if position not in entry.outputs:
            assert array.tobytes() == before[position].tobytes()
    found = Run(artifact, counters, tuple(arguments), entry)
    _assert_counted(found)
    return found


def _assert_counted(found: Run) -> None:
    """Barriers and collectives as often as the plan says, in the launch."""
    plan, counters = found.plan, found.counters
    cooperating = plan.reduction_subgroups_per_program > 1
    assert counters.barriers == (exchanges(found.artifact) * plan.blocks if cooperating else 0)
    simd_groups = plan.blocks * plan.threads // 32 if cooperating else plan.programs
    stages = 2 if cooperating else 1
    assert counters.collectives.total() == stages * found.reductions * simd_groups

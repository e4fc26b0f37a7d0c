"""Compiled plans and guarded launches in the simulator, shared by the tests of this folder."""

import functools
import re
from typing import Any

import numpy as np

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.tirx.compat import structural_walk, tirx

GUARD_ROWS = 2
SENTINEL = 77.0  # held exactly by every storage type


def entry(name: str) -> Any:
    """The library's record of a kernel."""
    return kernels.catalog()[name]


@functools.cache
def compiled(name: str, rows: int, columns: int, dtype: str = "float32", **options: Any) -> Any:
    """A library kernel for Metal under these options; nothing may have fallen back."""
    found = entry(name)
    artifact = tx.compile(
        found.kernel,
        *found.specs(rows, columns, dtype),
        target="metal",
        options=tx.CompileOptions(**options),
    )
    assert artifact.plan is not None, artifact.fallback
    return artifact


def shape_of(plan: Any) -> tuple[int, int, int]:
    """S, Q and V of a plan."""
    return plan.reduction_subgroups_per_program, plan.programs_per_group, plan.lane_elements


def guarded(array: Any) -> tuple[Any, Any]:
    """``array`` as interior rows of a larger matrix of sentinels: (the whole, the interior)."""
    rows = array.shape[0]
    whole = np.full((rows + 2 * GUARD_ROWS, *array.shape[1:]), SENTINEL, array.dtype)
    inside = whole[GUARD_ROWS : GUARD_ROWS + rows]
    inside[...] = array
    return whole, inside


def launch(artifact: Any, name: str, rows: int, columns: int, dtype: str = "float32") -> Any:
    """Run with guard rows before and after every array; returns (arguments, counters).

    Inputs and all guard rows must be the same bits afterwards.
    """
    found = entry(name)
    pairs = [guarded(array) for array in found.arguments(rows, columns, dtype)]
    before = [whole.copy() for whole, _ in pairs]
    arguments = [inside for _, inside in pairs]
    (counters,) = artifact.simulate(*arguments)
    for position, (whole, _) in enumerate(pairs):
        old = before[position]
        if position in found.outputs:
            whole, old = whole.copy(), old
            assert not np.isnan(whole.astype(np.float32)).any(), "an output element is missing"
            whole[GUARD_ROWS:-GUARD_ROWS] = old[GUARD_ROWS:-GUARD_ROWS]
        assert whole.tobytes() == old.tobytes(), f"memory around argument {position} changed"
    return arguments, counters


def assert_right(name: str, arguments: Any) -> None:
    """Every output within the tolerance table of the FP64 oracle."""
    for comparison in entry(name).check(arguments):
        assert comparison.within, comparison


def collectives_in(source: str) -> int:
    """Collective calls in the text."""
    return len(re.findall(r"\bsimd_(?:sum|max|min)\(", source))


def barriers_in(source: str) -> int:
    """Threadgroup barriers in the text."""
    return source.count("threadgroup_barrier(mem_flags::mem_threadgroup)")


def scratch_bytes_in(source: str) -> int:
    """Bytes of the threadgroup arrays of FP32 that the text declares."""
    return sum(4 * int(n) for n in re.findall(r"threadgroup float \w+\[(\d+)\];", source))


def syncs(function: Any) -> tuple[int, int]:
    """Barriers of a typed function: (all, those under a condition or in a repeated loop)."""
    everything: list[Any] = []
    nested: list[Any] = []

    def is_sync(call: Any) -> bool:
        return "tvm_storage_sync" in str(getattr(call.op, "name", ""))

    def count(into: list[Any]) -> Any:
        return lambda call: into.append(call) if is_sync(call) else None

    from tvm_tilex.tirx.compat import Call

    structural_walk(function.body, (Call, count(everything)))
    structural_walk(
        function.body,
        (tirx.IfThenElse, lambda branch: structural_walk(branch, (Call, count(nested)))),
    )
    return len(everything), len(nested)

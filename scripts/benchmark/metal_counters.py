"""Counters of our SIMD-group plans beside TVM dlight's schedules of the same operators.

Both emitted texts run in the same simulator on the same inputs and are checked against the same
FP64 oracle. dlight schedules topi's softmax and layer_norm with ``gpu.GeneralReduction``; TVM's own
pipeline compiles it for the same Metal target. Counters are exact; nothing here is a device time.

Columns: loads and stores of device elements per element of the matrix (weights and biases apart),
barriers a threadgroup executes, collectives (``simd_sum`` and its kin, and shuffles) a SIMD group
executes, 128-byte segments per SIMD access (1 is fully coalesced), bytes of threadgroup memory,
private bytes of a thread, and the median time from the kernel (or the TE graph) to Metal text in a
warm process: elapsed, and of the processor, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from tvm import te, topi
from tvm.s_tir import dlight

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.device_artifact import DeviceArtifact, SplitRecorder, device_launches
from tvm_tilex.build.target import resolve_target
from tvm_tilex.sim import MetalKernel
from tvm_tilex.tirx.compat import IRModule, tvm

SHAPES = ((3, 4096), (64, 1024), (8, 32000))
OPERATORS = ("softmax", "layernorm")


@dataclass(frozen=True)
class Row:
    """What one compiler's kernel did on one shape."""

    operator: str
    shape: str
    compiler: str
    launch: str
    loads: float
    stores: float
    barriers: float
    collectives: float
    segments_per_access: float
    threadgroup_bytes: int
    private_bytes: int
    compile_ms: float
    processor_ms: float
    worst_error: float
    within: bool


def main() -> int:
    """Measure and print; exit status 1 if any output is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shapes", nargs="*", default=[f"{p}x{n}" for p, n in SHAPES])
    parser.add_argument("--repeats", type=int, default=9, help="compilations to time")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="no Apple GPU here")
    rows = []
    for operator in OPERATORS:
        for text in given.shapes:
            programs, columns = map(int, text.split("x"))
            for compiler in (_tilex, _dlight):
                rows.append(compiler(operator, programs, columns, given.repeats))
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)
    return 0 if all(row.within for row in rows) else 1


def _tilex(operator: str, programs: int, columns: int, repeats: int) -> Row:
    entry = kernels.catalog()[operator]
    specs = entry.specs(programs, columns)
    # Another search budget is another cache key, and the same work.
    budgets = iter(range(64, 64 + repeats + 1))

    def build() -> Any:
        options = tx.CompileOptions(max_thread_candidates=next(budgets))
        return tx.compile(entry.kernel, *specs, target="metal", options=options)

    artifact, milliseconds = _timed(build, repeats)
    arguments = entry.arguments(programs, columns)
    (counters,) = artifact.simulate(*arguments)
    plan = artifact.plan
    name = "tvm_tilex" if plan is None else f"tvm_tilex S={plan.reduction_subgroups_per_program}"
    return _row(operator, name, entry, arguments, counters, milliseconds)


def _dlight(operator: str, programs: int, columns: int, repeats: int) -> Row:
    entry = kernels.catalog()[operator]
    device, milliseconds = _timed(lambda: _scheduled(operator, programs, columns), repeats)
    arguments = entry.arguments(programs, columns)
    order = dict(zip(_names(operator), arguments, strict=True))
    (launch,) = device.launches
    kernel = MetalKernel.from_source(device.source)[launch.entry]
    counters = kernel.launch(
        launch.grid, launch.group, *(order[name] for name in launch.buffers), *launch.scalars
    )
    return _row(operator, "dlight", entry, arguments, counters, milliseconds)


def _names(operator: str) -> tuple[str, ...]:
    if operator == "softmax":
        return "A", "T_softmax_norm"
    return "A", "gamma", "beta", "T_layer_norm"


def _scheduled(operator: str, programs: int, columns: int) -> DeviceArtifact:
    """The topi operator, scheduled by dlight and compiled by TVM's own pipeline."""
    matrix = te.placeholder((programs, columns), name="A")
    if operator == "softmax":
        tensors = [matrix, topi.nn.softmax(matrix)]
    else:
        gamma, beta = (te.placeholder((columns,), name=name) for name in ("gamma", "beta"))
        result = topi.nn.layer_norm(matrix, gamma, beta, [1], 1e-5)
        tensors = [matrix, gamma, beta, result]
    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    target, recorder = resolve_target("metal"), SplitRecorder()
    with target:
        module = dlight.ApplyDefaultSchedule(dlight.gpu.GeneralReduction())(
            IRModule({"main": function})
        )
    with tvm.transform.PassContext(instruments=[recorder]):
        executable = tvm.compile(module, target=target)
    source = str(executable.mod.imports[0].inspect_source())
    return DeviceArtifact("metal", source, device_launches(recorder.module, "main"), False)


def _timed(build: Callable[[], Any], repeats: int) -> tuple[Any, tuple[float, float]]:
    """The result, and median milliseconds elapsed and of the processor."""
    built = build()  # warms the process; not timed
    elapsed, processor = [], []
    for _ in range(repeats):
        started = time.perf_counter(), time.process_time()
        built = build()
        elapsed.append(1e3 * (time.perf_counter() - started[0]))
        processor.append(1e3 * (time.process_time() - started[1]))
    return built, (statistics.median(elapsed), statistics.median(processor))


def _row(
    operator: str,
    compiler: str,
    entry: Any,
    arguments: Any,
    counters: Any,
    milliseconds: tuple[float, float],
) -> Row:
    matrix, checks = arguments[0], entry.check(arguments)
    names = ("input_ptr", "x_ptr", "A_ptr")
    read = next(traffic for name, traffic in counters.device.items() if name in names)
    traffic = counters.device.values()
    accesses = sum(t.load_accesses + t.store_accesses for t in traffic)
    segments = sum(t.load_segments + t.store_segments for t in traffic)
    simd_groups = counters.threadgroups * -(-counters.threads_per_threadgroup // 32)
    return Row(
        operator=operator,
        shape="x".join(map(str, matrix.shape)),
        compiler=compiler,
        launch=f"{counters.threadgroups} x {counters.threads_per_threadgroup}",
        loads=read.load_elements / matrix.size,
        stores=sum(t.store_elements for t in traffic) / matrix.size,
        barriers=counters.barriers_per_threadgroup,
        collectives=counters.collectives.total() / simd_groups,
        segments_per_access=segments / accesses,
        threadgroup_bytes=counters.threadgroup_bytes,
        private_bytes=counters.private_bytes_per_thread,
        compile_ms=milliseconds[0],
        processor_ms=milliseconds[1],
        worst_error=max(check.max_absolute_error for check in checks),
        within=all(check.within for check in checks),
    )


def _print(rows: list[Row]) -> None:
    table = Table(title="Counters in the simulator")
    for name in Row.__dataclass_fields__:
        table.add_column(name.replace("_", " "))
    for row in rows:
        cells = asdict(row).values()
        table.add_row(*(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=180).print(table)


if __name__ == "__main__":
    sys.exit(main())

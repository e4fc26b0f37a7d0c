"""A torch transformer block through Relax, for Metal: our row schedules beside dlight's alone.

    python scripts/benchmark/relax_block.py [--length 256] [--width 256] [--heads 1]

The block is imported with ``relax.frontend.torch.from_exported_program`` and legalized and fused by
Relax. One copy is scheduled by dlight; the other has ``tx.transform.ScheduleReductions`` in front.
Every kernel that differs runs in the simulator on the same inputs; its outputs are compared with
LLVM's, and its counters are printed: loads of device elements, barriers a threadgroup executes,
collectives a SIMD group executes. Counters are exact; nothing here is a time.
"""

import argparse
import dataclasses
import json
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import dlight

import tvm_tilex as tx
from tvm_tilex.build.device_artifact import SplitRecorder, device_launches
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.sim import MetalKernel
from tvm_tilex.tirx.compat import IRModule, ir, tvm

# Without dlight's Matmul rule, which takes minutes; products are the same in both copies.
RULES = ("GEMV", "Reduction", "GeneralReduction", "Fallback")


class Block(nn.Module):
    """Attention behind a LayerNorm, a feed-forward network behind an RMSNorm."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


def imported(model, x, dynamic_shapes=None):
    """The model as a Relax module of fused PrimFuncs, before any schedule."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_exported_program(
            torch.export.export(model, (x,), dynamic_shapes=dynamic_shapes)
        )
    return tvm.ir.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(),
        ]
    )(module)


def scheduled(module, target, *, ours):
    """The module scheduled for a GPU target, and the report of our pass (None without it)."""
    report, module = None, module.clone()  # dlight writes into the module that it is given
    with target:
        if ours:
            schedule = tx.transform.ScheduleReductions("unordered_tree")
            module = schedule(module)
            report = schedule.report
        rules = [getattr(dlight.gpu, name)() for name in RULES]
        return dlight.ApplyDefaultSchedule(*rules)(module), report


class Simulated:
    """A scheduled module's kernels, each compiled once, and its calls run in the simulator."""

    def __init__(self, module, target):
        self.module = module
        self.target = target
        self.kernels = {}
        self.counters = {}
        register_pipeline()

    def __call__(self, *inputs):
        """Run ``main``; the outputs as NumPy arrays."""
        main = self.module["main"]
        values = dict(zip(main.params, inputs, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self._value(binding.value, values)
        return self._value(main.body.body, values)

    def _value(self, expression, values):
        if isinstance(expression, relax.Var):
            return values[expression]
        if isinstance(expression, ir.GenericConst):
            return expression.value.numpy()
        if isinstance(expression, relax.Tuple):
            return tuple(self._value(field, values) for field in expression.fields)
        name = expression.args[0].name_hint
        inputs = [self._value(argument, values) for argument in expression.args[1].fields]
        result = expression.ty_args[0]
        out = np.full([int(extent) for extent in result.shape], np.nan, str(result.dtype))
        self.run(name, [*inputs, out])
        return out

    def run(self, name, arguments):
        """Launch a function's kernels on arrays in the order of its parameters."""
        function = self.module[name]
        source, launches = self.kernel(name)
        by_name = {p.name: a for p, a in zip(function.params, arguments, strict=True)}
        found = []
        for launch in launches:
            kernel = MetalKernel.from_source(source)[launch.entry]
            given = [np.ascontiguousarray(by_name[buffer]) for buffer in launch.buffers]
            found.append(kernel.launch(launch.grid, launch.group, *given, *launch.scalars))
            for buffer, array in zip(launch.buffers, given, strict=True):
                by_name[buffer][...] = array
        self.counters[name] = found

    def kernel(self, name):
        """Text and launches of one function."""
        if name not in self.kernels:
            recorder = SplitRecorder()
            function = self.module[name].with_attr("global_symbol", name)
            with tvm.transform.PassContext(instruments=[recorder]):
                built = tvm.compile(
                    IRModule({name: function}), target=self.target, tir_pipeline="tilex"
                )
            source = str(built.mod.imports[0].inspect_source())
            self.kernels[name] = source, device_launches(recorder.module, name)
        return self.kernels[name]


@dataclasses.dataclass(frozen=True)
class Row:
    """What one version's kernels of a function did."""

    function: str
    version: str
    launch: str
    loads: int
    stores: int
    barriers: float
    collectives: float
    worst_error: float


def compare(model, x, target):
    """Rows of every function that our pass schedules, and the pass's report.

    Inputs of each function are random; the reference is the same function compiled for LLVM.
    """
    module = imported(model, x)
    ours, report = scheduled(module, target, ours=True)
    dlights, _ = scheduled(module, target, ours=False)
    rows = []
    for outcome in report:
        if outcome.reason is not None:
            continue
        function = module[outcome.function]
        generator = np.random.default_rng(0)
        shapes = [[int(extent) for extent in p.ty.shape] for p in function.params]
        arrays = [generator.standard_normal(s).astype(np.float32) ** 2 for s in shapes]
        expected = on_llvm(function, arrays)
        for version, scheduled_module in (("tvm_tilex", ours), ("dlight", dlights)):
            runner = Simulated(scheduled_module, target)
            out = [*arrays[:-1], np.full(shapes[-1], np.nan, np.float32)]
            runner.run(outcome.function, out)
            error = float(np.abs(out[-1] - expected).max())
            rows.append(_row(outcome.function, version, runner.counters[outcome.function], error))
    return rows, report


def on_llvm(function, arrays):
    """The function's last parameter after TVM's own CPU pipeline ran it."""
    named = IRModule({"reference": function.with_attr("global_symbol", "reference")})
    built = tvm.compile(named, target="llvm")
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(a)) for a in arrays]
    built["reference"](*tensors)
    return tensors[-1].numpy()


def _row(function, version, counters, error):
    traffic = [t for c in counters for t in c.device.values()]
    groups = [c.threadgroups * -(-c.threads_per_threadgroup // 32) for c in counters]
    return Row(
        function=function,
        version=version,
        launch=" + ".join(f"{c.threadgroups} x {c.threads_per_threadgroup}" for c in counters),
        loads=sum(t.load_elements for t in traffic),
        stores=sum(t.store_elements for t in traffic),
        barriers=sum(c.barriers_per_threadgroup for c in counters),
        collectives=sum(c.collectives.total() / n for c, n in zip(counters, groups, strict=True)),
        worst_error=error,
    )


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = Block(given.width, given.heads).eval()
    x = torch.randn(1, given.length, given.width)
    rows, report = compare(model, x, resolve_target("metal"))
    if given.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        table = Table(title="Row operators of the block, counted in the simulator")
        for name in Row.__dataclass_fields__:
            table.add_column(name.replace("_", " "))
        for row in rows:
            cells = dataclasses.astuple(row)
            table.add_row(*(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells))
        console = Console(width=160)
        console.print(table)
        for outcome in report:
            if outcome.reason is not None:
                console.print(f"left to dlight: {outcome.function}: {outcome.reason}")
    return 0 if all(row.worst_error < 1e-4 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

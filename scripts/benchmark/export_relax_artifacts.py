"""Compiles Relax row operators for CUDA twice, with our pass and by dlight alone.

    python scripts/benchmark/export_relax_artifacts.py artifacts.json [--shapes 8192x4096 ...]

The operators are Relax's own ``softmax``, ``layer_norm`` and ``rms_norm``, legalized, and the
LayerNorm and softmax of a transformer block that was imported from torch (``--no-block`` leaves
them out). The file has the form of `export_cuda_artifacts.py`: `measure_cuda.py` checks every
kernel against FP64 and times it on a machine with a GPU and no compiler. ``requested`` is
``tvm_tilex`` or ``dlight``; rows of one operator and shape are to be compared with each other.
"""

import dataclasses
import json
import math
import sys

import click
import torch
from export_cuda_artifacts import with_cluster
from relax_block import Block, imported
from row_operators import OPERATORS, SHAPES
from tvm import relax
from tvm.s_tir import dlight

import tvm_tilex as tx
from tvm_tilex.build.device_artifact import SplitRecorder, device_launches
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, tvm

ROWS = ("softmax", "layernorm", "rmsnorm")


def relax_operator(operator, rows, columns):
    """One operator of Relax as a legalized PrimFunc."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var("x", relax.TensorType((rows, columns), "float32"))]
    inputs += [
        relax.Var(name, relax.TensorType((columns,), "float32"))
        for name in {"layernorm": ("weight", "bias"), "rmsnorm": ("weight",)}.get(operator, ())
    ]
    with builder.function("main", inputs):
        if operator == "softmax":
            call = relax.op.nn.softmax(inputs[0], axis=-1)
        elif operator == "layernorm":
            call = relax.op.nn.layer_norm(*inputs, axes=[-1], epsilon=1e-5)
        else:
            call = relax.op.nn.rms_norm(*inputs, axes=[-1], epsilon=1e-6)
        builder.emit_func_output(builder.emit(call))
    module = relax.transform.LegalizeOps()(builder.get())
    ((_, function),) = [(v, f) for v, f in module.functions_items() if v.name_hint != "main"]
    return function


def block_operators():
    """The softmax and LayerNorm of a transformer block of width 4096 over 2048 tokens."""
    with torch.device("meta"):
        model = Block(4096, 32).eval()
    module = imported(model.to_empty(device="cpu"), torch.empty(1, 2048, 4096))
    for variable, function in module.functions_items():
        name = variable.name_hint
        operator = "layernorm" if name == "layer_norm" else "softmax" if "softmax" in name else None
        if operator is not None:
            shape = [int(extent) for extent in function.params[-1].ty.shape]
            yield operator, (math.prod(shape[:-1]), shape[-1]), function


def exported(function, target, *, ours):
    """What another machine needs to launch one version of a function."""
    name = "main"
    module = IRModule({name: function.with_attr("global_symbol", name)})
    reason = None
    with target:
        if ours:
            schedule = tx.transform.ScheduleReductions("unordered_tree")
            module = schedule(module)
            reason = schedule.report[0].reason
        rules = (dlight.gpu.Reduction(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
        module = dlight.ApplyDefaultSchedule(*rules)(module)
    recorder = SplitRecorder()
    with tvm.transform.PassContext(instruments=[recorder]):
        built = tvm.compile(module, target=target, tir_pipeline="tilex")
    plan = module[name].attrs.get(attrs.PLAN, None)
    plan = None if plan is None else GroupPlan.from_json(str(plan))
    launches = device_launches(recorder.module, name)
    return {
        "source": with_cluster(str(built.mod.imports[0].inspect_source()), launches),
        "launches": [dataclasses.asdict(launch) for launch in launches],
        "parameters": [parameter.name for parameter in function.params],
        "materialization": "relax",
        "plan": None if plan is None else {**dataclasses.asdict(plan), "candidates": []},
        "fallback": reason,
    }


@click.command()
@click.argument("output")
@click.option("--shapes", default=" ".join(f"{p}x{n}" for p, n in SHAPES))
@click.option("--block/--no-block", default=True)
def main(output, shapes, block):
    register_pipeline()
    target = resolve_target("cuda")
    subjects = []
    for text in shapes.split():
        shape = tuple(map(int, text.split("x")))
        subjects += [(name, shape, relax_operator(name, *shape)) for name in ROWS]
    if block:
        subjects += block_operators()
    rows = []
    for operator, shape, function in subjects:
        for version, ours in (("tvm_tilex", True), ("dlight", False)):
            row = {"operator": operator, "shape": shape, "requested": version}
            row |= exported(function, target, ours=ours)
            row["useful_bytes"] = OPERATORS[operator].useful_bytes(*shape, "float32")
            rows.append(row)
            print(operator, shape, version, row["fallback"] or "", file=sys.stderr)
    with open(output, "w") as file:
        json.dump({"dtype": "float32", "rows": rows}, file)


if __name__ == "__main__":
    main()

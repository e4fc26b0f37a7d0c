"""Compiles the composed kernels for CUDA and writes what a GPU machine needs to launch them.

    python scripts/benchmark/export_cuda_groups.py groups.json [--kernels attention,column_sum]
    python scripts/benchmark/attention_cuda.py groups.json attention.json     # on the GPU machine
    python scripts/benchmark/measure_cuda_groups.py groups.json measured.json # on the GPU machine

One row for every kernel, shape, storage type, tile sizes and choice of threads and reductions; the
row holds source, launches, the plan with the cost model's prices, and why anything was refused.
"""

import dataclasses
import itertools
import json
import sys

import click
from command_line import Names

import tvm_tilex as tx
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.kernels import composed

HALF = ("float16", "bfloat16")
CHOICES = ({}, {"group_reductions": "collective"}, {"group_reductions": "serial"})
REDUCTIONS = (*CHOICES, {"group_reductions": "columns"})
TALL = ((8192, 8192), (65536, 1024))


def attention():
    """Extents, constants, storage types and options worth measuring."""
    for depth, causal in itertools.product((64, 128), (False, True)):
        extents = {"batch": 4, "heads": 16, "queries": 4096, "keys": 4096, "depth": depth}
        for queries, keys, threads in (
            (64, 64, 128),
            (128, 64, 256),
            (128, 64, 128),
            (128, 128, 128),
            (128, 128, 256),
            (64, 32, 128),
            (128, 32, 128),
            (128, 32, 256),
            (64, 128, 128),
            (64, 64, 64),
            (64, 32, 64),
        ):
            constants = {"causal": causal, "block_queries": queries, "block_keys": keys}
            choices = CHOICES[:2] if keys == 64 else CHOICES[:1]
            yield extents, constants, HALF, threads, choices


def matmul():
    extents = {"rows": 4096, "depth": 4096, "columns": 4096}
    for rows, columns, depth, threads in (
        (64, 64, 32, 128),
        (128, 128, 32, 256),
        (128, 128, 64, 256),
        (128, 128, 32, 128),
        (128, 128, 64, 128),
        (128, 256, 32, 256),
        (128, 64, 64, 128),
        (128, 128, 32, 512),
        (128, 128, 64, 512),
    ):
        constants = {"block_rows": rows, "block_columns": columns, "block_depth": depth}
        yield extents, constants, HALF, threads, ({},)
    constants = {"block_rows": 64, "block_columns": 64, "block_depth": 16}
    for threads in (32, 64, 128, 256):
        yield extents, constants, ("float32",), threads, ({},)


def matmul_softmax():
    extents = {"rows": 16384, "depth": 512, "columns": 256}
    for rows, depth, threads in ((32, 32, 128), (64, 32, 128), (64, 32, 256)):
        constants = {"block_rows": rows, "block_depth": depth}
        yield extents, constants, ("float16",), threads, CHOICES


def batched_gemv():
    extents = {"batch": 64, "rows": 4096, "depth": 4096}
    for rows, depth, threads in ((4, 1024, 128), (8, 512, 256), (8, 2048, 256), (32, 256, 256)):
        constants = {"block_rows": rows, "block_depth": depth}
        yield extents, constants, ("float32", "float16"), threads, CHOICES


def column_sum():
    for rows, columns in TALL:
        for block_rows, block_columns, threads in (
            (64, 32, 256),
            (256, 32, 1024),
            (1024, 64, 512),
            (8192, 32, 512),
            (8192, 64, 1024),
            (8192, 64, 512),
        ):
            constants = {"block_rows": block_rows, "block_columns": block_columns}
            extents = {"rows": rows, "columns": columns}
            choices = REDUCTIONS if block_rows < 1024 else REDUCTIONS[:1]
            yield extents, constants, ("float32", "float16"), threads, choices


def split_column_sum():
    for (rows, columns), slices in (
        (TALL[0], 4),
        (TALL[0], 16),
        (TALL[1], 32),
        (TALL[1], 128),
        (TALL[1], 512),
    ):
        for block_columns, threads in ((64, 256), (128, 256), (64, 512), (256, 256)):
            extents = {"rows": rows, "columns": columns, "slices": slices}
            constants = {"block_columns": block_columns}
            yield extents, constants, ("float32", "float16"), threads, REDUCTIONS[:1]


def group_normalization():
    extents = {"batch": 32, "channels": 256, "pixels": 4096}
    for block, threads in ((256, 256), (1024, 256), (1024, 512)):
        constants = {"groups": 32, "block_pixels": block}
        yield extents, constants, ("float32", "float16"), threads, CHOICES


FAMILIES = {f.__name__: f for f in (
    attention, matmul, matmul_softmax, batched_gemv, column_sum, split_column_sum,
    group_normalization
)}  # fmt: skip


@click.command()
@click.argument("output")
@click.option("--kernels", default=",".join(FAMILIES), type=Names(FAMILIES))
def main(output: str, kernels: list[str]) -> None:
    rows = []
    for name in kernels:
        for extents, constants, dtypes, threads, choices in FAMILIES[name]():
            for dtype, choice in itertools.product(dtypes, choices):
                for requested in (threads, 0) if not choice else (threads,):
                    options = {"group_threads": requested, **choice}
                    rows.append(_row(name, extents, constants, dtype, options))
        print(name, len(rows), file=sys.stderr)
    with open(output, "w") as file:
        json.dump({"rows": rows}, file)


def _row(name, extents, constants, dtype, options):
    entry = composed.catalog()[name]
    row = {
        "kernel": name,
        "extents": extents,
        "constants": constants,
        "dtype": dtype,
        "requested": options,
    }
    try:
        specs = entry.specs(extents, dtype)
        chosen = tx.CompileOptions(**options)
        artifact = tx.compile(entry.kernel, *specs, target="h200", options=chosen, **constants)
    except tx.errors.TilexError as error:
        return {**row, "refused": str(error)}
    if artifact.fallback is not None:
        return {**row, "refused": artifact.fallback}
    plans = artifact.group_plans  # one a launch
    views = artifact.tile_ir.views
    return {
        **row,
        "source": artifact.source,
        "launches": [dataclasses.asdict(launch) for launch in artifact.device.launches],
        "parameters": [view.name for view in views],
        "shapes": {view.name: view.shape for view in views},
        "dtypes": {view.name: str(view.dtype) for view in views},
        "read": [view.name for view in views if view.access is ViewAccess.read],
        "plan": json.loads(plans[0].to_json()),
        "description": "; ".join(plan.describe() for plan in plans),
        "score": sum(plan.score for plan in plans),
    }


if __name__ == "__main__":
    main()

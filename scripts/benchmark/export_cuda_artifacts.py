"""Compiles library kernels for CUDA and writes what another machine needs to launch them.

    python scripts/benchmark/export_cuda_artifacts.py artifacts.json [--plans grid|automatic]
        [--dtype bfloat16] [--dlight] [--ordinary-launch]

The output holds, for every operator, shape, storage type and plan: source, entry, grid, threads,
the order of the buffers, the plan, and why anything was refused. `measure_cuda.py` needs only
that file and a GPU: no TVM there, so that a build machine without a GPU and a GPU machine without
the compiler suffice. `--dlight` adds TVM dlight's kernels of the operators that topi has, for
`peers.py --artifacts`, `--ordinary-launch` the automatic plans with `dependent_launch=False`
(`tilex-ordinary` there).
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys

import click
from command_line import Names

import tvm_tilex as tx
from tvm_tilex import kernels

OPERATORS = ("row_sum", "softmax", "rmsnorm", "layernorm", "residual_layernorm", "cross_entropy")
SHAPES = (
    (32768, 256),
    (16384, 1024),
    (8192, 4096),
    (4096, 8192),
    (2048, 16384),
    (1024, 32000),
    (512, 131072),
    (8191, 4095),
)
# Beside them in the policy's records: a vocabulary, and a narrow one, both odd.
ODD_SHAPES = ((16384, 1023), (1024, 50257))
AUTOMATIC = (0, 0, 0, 0, None, None, None, 0, None)


# Which tiles are kept, where, and whether weights are loaded early: values of three options.
KEPT = (
    ("preserve", "register", False),
    ("preserve", "register", True),
    ("loaded", "register", False),
    ("loaded", "register", True),
    ("recompute", "register", False),
    ("preserve", "shared", False),
    ("preserve", "shared", True),
    ("loaded", "shared", False),
    ("loaded", "shared", True),
)


def grid(columns: int, item_bytes: int) -> list[tuple]:
    """(threads, Q, V, C, what is kept, where, early, R, peeled) worth measuring for a width."""
    widest = 16 // item_bytes
    whole = math.gcd(columns, widest)
    plans = _grid(columns, whole, peeled=False)
    return plans if whole == widest else plans + _grid(columns, widest, peeled=True)


def _grid(columns: int, elements: int, *, peeled: bool) -> list[tuple]:
    plans = []
    for subgroups in (1, 2, 4, 8, 16, 25, 32):
        for blocks in (1, 2, 4, 8):
            if blocks > 1 and (columns < 4096 * blocks or subgroups not in (4, 8, 16, 32)):
                continue
            if subgroups == 25 and columns % (32 * 25 * elements):
                continue
            scalars = columns / (32 * subgroups * blocks)
            if not 0.9 * elements <= scalars:
                continue
            packings = {1: (1, 2, 4, 8), 2: (1, 2, 4), 4: (1, 2)}.get(subgroups, (1,))
            for packed in packings if blocks == 1 else (1,):
                for kept, where, early in KEPT:
                    if where == "shared" and (packed > 1 or columns < 4096 or peeled):
                        continue
                    if kept == "recompute" and blocks > 1:
                        continue
                    if scalars > (256 if kept == "recompute" or where == "shared" else 128):
                        continue
                    threads = 32 * subgroups * packed
                    kind = (kept, where, early, 1, peeled)
                    plans.append((threads, packed, elements, blocks, *kind))
    return plans + ([] if peeled else _shared_grid(columns, elements))


def _shared_grid(columns: int, elements: int) -> list[tuple]:
    """The plans of narrow rows whose SIMD groups serve R of them."""
    plans = []
    for sharing in (2, 4) if columns <= 1024 else ():
        scalars = columns * sharing / 32
        for threads in (32, 64, 128, 256):
            for kept, where, early in KEPT:
                if where == "shared" or scalars > (256 if kept == "recompute" else 128):
                    continue
                packed = threads * sharing // 32
                plans.append((threads, packed, elements, 1, kept, where, early, sharing, False))
    return plans


@click.command()
@click.argument("output")
@click.option("--plans", type=click.Choice(["grid", "automatic"]), default="grid")
@click.option("--dtype", default="float32")
@click.option("--operators", default=",".join(OPERATORS), type=Names(OPERATORS))
@click.option("--dlight/--no-dlight", default=False)
@click.option("--ordinary-launch", is_flag=True)
def main(
    output: str,
    plans: str,
    dtype: str,
    operators: list[str],
    dlight: bool,
    ordinary_launch: bool,
) -> None:
    rows = []
    for name in operators:
        entry = kernels.catalog()[name]
        for shape in (*SHAPES, *ODD_SHAPES) if plans == "grid" else SHAPES:
            wanted = [AUTOMATIC]
            if plans == "grid":
                wanted += grid(shape[1], 4 if dtype == "float32" else 2)
            for plan in wanted:
                rows.append(_row(entry, shape, dtype, plan))
            rows = _distinct(rows)
            if ordinary_launch:
                row = _row(entry, shape, dtype, AUTOMATIC, dependent_launch=False)
                rows.append({**row, "compiler": "tilex-ordinary"})
            if dlight:
                rows += _dlight_rows(entry, shape, dtype)
        print(name, len(rows), file=sys.stderr)
    with open(output, "w") as file:
        json.dump({"dtype": dtype, "rows": rows}, file)


def _row(entry, shape, dtype, wanted, **more):
    threads, packed, lane_elements, blocks, kept, where, early, sharing, peeled = wanted
    options = tx.CompileOptions(
        threads_per_group=threads,
        reduction_programs_per_group=packed,
        reduction_lane_elements=lane_elements,
        reduction_blocks_per_program=blocks,
        reduction_programs_per_subgroup=sharing,
        shared_tile_materialization=kept,
        reduction_stripe_storage=where,
        reduction_early_views=early,
        reduction_peeled_rows=peeled,
        **more,
    )
    row = {"operator": entry.name, "shape": shape, "requested": wanted}
    try:
        specs = entry.specs(*shape, dtype)
        artifact = tx.compile(entry.kernel, *specs, target="cuda", options=options)
    except tx.errors.TilexError as error:
        return {**row, "refused": str(error)}
    plan = artifact.plan
    return {
        **row,
        "source": with_cluster(artifact.source, artifact.device.launches),
        "launches": [dataclasses.asdict(launch) for launch in artifact.device.launches],
        "parameters": [v.name for v in artifact.tile_ir.views],
        "materialization": artifact.materialization.value,
        "early": artifact.early_views,
        "plan": None if plan is None else {**dataclasses.asdict(plan), "candidates": []},
        "fallback": artifact.fallback,
        "useful_bytes": entry.useful_bytes(*shape, dtype),
    }


def _distinct(rows):
    """The rows without those whose source another one has already, the automatic ones excepted."""
    seen, kept = set(), []
    for row in rows:
        source = row.get("source")
        if source in seen and row["requested"] != AUTOMATIC:
            continue
        seen.add(source)
        kept.append(row)
    return kept


def with_cluster(source, launches):
    """The source; a cluster's size stated in it, as cupy's launches have no place for that."""
    size = launches[0].cluster[0]
    if size == 1:
        return source
    bounds = "__launch_bounds__("
    return source.replace(bounds, f"__cluster_dims__({size}, 1, 1) {bounds}")


def _dlight_rows(entry, shape, dtype):
    """The row of dlight's kernel, where topi has the operator."""
    import dlight_kernels

    if entry.name not in dlight_kernels.OPERATORS:
        return []
    row = {
        "operator": entry.name,
        "shape": shape,
        "requested": AUTOMATIC,
        "compiler": "dlight",
        "useful_bytes": entry.useful_bytes(*shape, dtype),
        "plan": None,
        "materialization": None,
        "fallback": None,
    }
    try:
        return [{**row, **dlight_kernels.exported(entry.name, *shape, dtype)}]
    except Exception as failure:  # recorded: TVM raises many kinds
        return [{**row, "refused": str(failure).strip().splitlines()[-1]}]


if __name__ == "__main__":
    main()

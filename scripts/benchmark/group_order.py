"""How the cost model of cooperative groups orders plans, against what the simulator counts.

    python scripts/benchmark/group_order.py [--json FILE]

Every composed kernel of ``CASES`` is compiled for Metal with each of ``THREADS`` and with its
reductions as collectives and serial, and run in the simulator. Counted cost, dimensionless, is

    arithmetic  operations of a thread, mean over the threads of a group, times T / 128: how many
                of its threads wait for one issue slot
    segments    device segments (128 bytes) of a group's loads and stores, a quarter each
    banks       extra passes of threadgroup memory, of a group, over 4
    collectives of a group, 5 each, over its SIMD groups
    barriers    30 each

summed over the groups of a launch. The table gives Kendall's tau of price and count, whether the
cheapest plan by price is the cheapest by count, its regret, and whether collectives lose. These
are counts of the emitted text, not time on a device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import tvm_tilex as tx
from tvm_tilex.driver import _ARTIFACTS
from tvm_tilex.errors import TilexError
from tvm_tilex.kernels import composed

BLOCKS = {"block_queries": 16, "block_keys": 16}
HEADS = {"batch": 1, "heads": 2, "queries": 48, "keys": 48}
CASES: dict[str, tuple[str, dict[str, int], dict[str, Any], str]] = {
    "attention d64": ("attention", {**HEADS, "depth": 64}, BLOCKS, "float32"),
    "attention d64 causal": (
        "attention", {**HEADS, "depth": 64}, {**BLOCKS, "causal": True}, "float32"
    ),
    "attention d64 half": ("attention", {**HEADS, "depth": 64}, BLOCKS, "float16"),
    "attention d128 half": ("attention", {**HEADS, "depth": 128}, BLOCKS, "float16"),
    "matmul_softmax n64": (
        "matmul_softmax", {"rows": 48, "depth": 64, "columns": 64}, {}, "float32"
    ),
    "matmul_softmax n192": (
        "matmul_softmax", {"rows": 32, "depth": 32, "columns": 192}, {}, "float16"
    ),
    "batched_gemv 8x512": ("batched_gemv", {"batch": 2, "rows": 32, "depth": 512}, {}, "float32"),
    "batched_gemv 32x64": (
        "batched_gemv",
        {"batch": 2, "rows": 64, "depth": 64},
        {"block_rows": 32, "block_depth": 64},
        "float32",
    ),
    "column_sum 64x32": (
        "column_sum",
        {"rows": 256, "columns": 64},
        {"block_rows": 64, "block_columns": 32},
        "float32",
    ),
    "column_sum 256x8": (
        "column_sum",
        {"rows": 512, "columns": 32},
        {"block_rows": 256, "block_columns": 8},
        "float32",
    ),
    "column_max 64x32 half": (
        "column_max",
        {"rows": 256, "columns": 64},
        {"block_rows": 64, "block_columns": 32},
        "float16",
    ),
    "group_norm 3x128": (
        "group_normalization", {"batch": 2, "channels": 6, "pixels": 384}, {}, "float32"
    ),
    "group_norm 16x64": (
        "group_normalization",
        {"batch": 1, "channels": 32, "pixels": 256},
        {"block_pixels": 64},
        "float32",
    ),
    "matmul": ("matmul", {"rows": 64, "depth": 64, "columns": 64}, {}, "float32"),
}  # fmt: skip
THREADS = (32, 64, 128, 256)
REDUCTIONS = ("collective", "columns", "serial")


def counted(counters: Any) -> float:
    """The stated cost of one launch."""
    groups, threads = counters.threadgroups, counters.threads_per_threadgroup
    device = sum(t.load_segments + t.store_segments for t in counters.device.values())
    banks = sum(t.bank_conflicts for t in counters.threadgroup.values())
    subgroups = max(1, threads // 32)
    arithmetic = counters.arithmetic.total() / (groups * threads) * max(1.0, threads / 128)
    memory = device / groups / 4 + banks / groups / 4
    collectives = 5 * counters.collectives.total() / groups / subgroups
    barriers = 30 * (counters.barriers_per_threadgroup + counters.simdgroup_barriers / groups / 4)
    return arithmetic + memory + collectives + barriers


def measure(case: str) -> list[dict[str, Any]]:
    """Price and count of every plan of a case."""
    kernel, extents, constants, dtype = CASES[case]
    entry = composed.catalog()[kernel]
    found = []
    for threads, reductions in itertools.product(THREADS, REDUCTIONS):
        options = tx.CompileOptions(group_threads=threads, group_reductions=reductions)
        try:
            artifact = tx.compile(
                entry.kernel,
                *entry.specs(extents, dtype),
                target="metal",
                options=options,
                **constants,
            )
        except TilexError as error:
            print(case, threads, reductions, error)
            continue
        (plan,) = artifact.group_plans
        if reductions != "serial" and reductions not in plan.realizations:
            continue  # no reduction that permits it
        arrays = entry.arguments(extents, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (counters,) = artifact.simulate(*arrays)
        assert entry.check(arrays, **constants).within
        found.append(
            {
                "threads": threads,
                "reductions": reductions,
                "score": sum(plan.prices),
                "counted": counted(counters),
                "fences": plan.barrier_sites,
            }
        )
        _ARTIFACTS.clear()
    return found


def tau(plans: list[dict[str, Any]]) -> float:
    """Kendall's tau of price and count."""
    products = [
        (a["score"] - b["score"]) * (a["counted"] - b["counted"])
        for a, b in itertools.combinations(plans, 2)
    ]
    agree, differ = sum(p > 0 for p in products), sum(p < 0 for p in products)
    return (agree - differ) / max(1, agree + differ)


def least(plans: list[dict[str, Any]], reductions: str) -> float:
    """The cheapest count with one realization of the reductions."""
    return min((p["counted"] for p in plans if p["reductions"] == reductions), default=float("nan"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    record = {}
    print("| kernel | plans | tau | pick | cheapest counted | regret | collective / serial |")
    print("|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        plans = record[case] = measure(case)
        pick = min(plans, key=lambda p: p["score"])
        best = min(plans, key=lambda p: p["counted"])
        regret = pick["counted"] / best["counted"] - 1
        ratio = least(plans, "collective") / least(plans, "serial")
        names = [f"{p['threads']} {p['reductions']}" for p in (pick, best)]
        print(
            f"| {case} | {len(plans)} | {tau(plans):.2f} | {names[0]} | {names[1]} | {regret:.0%} "
            f"| {ratio:.2f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(record))


if __name__ == "__main__":
    main()

"""Measures exported CUDA artifacts on a GPU, from their JSON record alone.

    python scripts/benchmark/measure_cuda.py artifacts.json results.json [--peers]

Needs torch, cupy and nvcc; neither TVM nor tvm_tilex. Every kernel is first checked over its
whole output against FP64, with outputs poisoned by NaN; only right ones are timed. Time is the
median over CUDA graph replays that rotate input sets past the L2 cache. Rates are useful bytes
over the rate of an elementwise copy measured in the same run.
"""

import argparse
import concurrent.futures
import json
import os
from pathlib import Path

import torch
from cuda_measuring import (
    cache_bytes,
    compile_source,
    conditions,
    copy_rate,
    launcher,
    set_count,
    timed,
)
from record_argument import record_file
from row_operators import LIMITS, OPERATORS, relative_error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", type=record_file)
    parser.add_argument("results")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    record = json.loads(Path(options.artifacts).read_text())
    dtype = record["dtype"]
    rows = [row for row in record["rows"] if "source" in row and "compiler" not in row]
    sources = sorted({row["source"] for row in rows})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(sources, pool.map(compile_source, sources), strict=True))
    print(len(sources), "sources compiled", flush=True)
    copy = copy_rate()
    results = {
        **conditions(),
        "copy_GBps": copy,
        "dtype": dtype,
        "rows": [],
        "peers": [],
    }
    groups = {}
    for row in rows:
        groups.setdefault((row["operator"], tuple(row["shape"])), []).append(row)
    for (operator, shape), members in groups.items():
        size = members[0]["useful_bytes"]
        form = OPERATORS[operator]
        count = set_count(size, cache_bytes())
        sets = [form.arguments(*shape, dtype, "cuda") for _ in range(count)]
        wanted = form.expected(sets[0])
        for row in members:
            cubin, facts = built[row["source"]]
            plan = row["plan"] or {}
            out = {
                "operator": operator,
                "shape": shape,
                "requested": row["requested"],
                **facts,
                "S": plan.get("reduction_subgroups_per_program"),
                "Q": plan.get("programs_per_group"),
                "V": plan.get("lane_elements"),
                "C": plan.get("blocks_per_program"),
                "R": plan.get("programs_per_subgroup", 1),
                "materialization": row["materialization"],
                "staged_bytes": plan.get("staged_bytes"),
                "early": row["early"],
                "peeled": plan.get("peeled", False),
            }
            results["rows"].append(out)
            if cubin is None:
                continue
            try:
                run = launcher(row, cubin)
                sets[0][-1].fill_(float("nan"))
                run(*sets[0])
                torch.cuda.synchronize()
                out["error"] = relative_error(sets[0][-1], wanted)
                if not out["error"] < LIMITS[dtype]:
                    continue
                out |= timed(run, sets)
                out["fraction"] = size / out["us"] / 1e3 / copy
            except Exception as failure:
                out["error"] = repr(failure)[:200]
        if options.peers:
            inputs = [arguments[:-1] for arguments in sets]
            for name, function in (
                ("torch", form.function),
                ("compile", torch.compile(form.function, dynamic=False)),
            ):
                found = timed(function, inputs)
                results["peers"].append(
                    {
                        "operator": operator,
                        "shape": shape,
                        "peer": name,
                        **found,
                        "fraction": size / found["us"] / 1e3 / copy,
                    }
                )
        best = sorted(
            (
                r
                for r in results["rows"]
                if r["operator"] == operator and tuple(r["shape"]) == shape and "fraction" in r
            ),
            key=lambda r: r["us"],
        )[:3]
        peers = {
            p["peer"]: round(p["fraction"], 3)
            for p in results["peers"]
            if p["operator"] == operator and tuple(p["shape"]) == shape
        }
        print(
            operator,
            shape,
            [
                (
                    r["S"],
                    r["Q"],
                    r["V"],
                    r["C"],
                    r["R"],
                    r["registers"],
                    r["spill_bytes"],
                    round(r["fraction"], 3),
                )
                for r in best
            ],
            peers,
            flush=True,
        )
        del sets, wanted
        torch.cuda.empty_cache()
        Path(options.results).write_text(json.dumps(results))


if __name__ == "__main__":
    main()

"""Measures exported composed kernels on a GPU beside torch, from their JSON record alone.

    python scripts/benchmark/measure_cuda_groups.py groups.json measured.json

Needs torch, cupy and nvcc; neither TVM nor this package. Every kernel is checked over its whole
output against FP64 (outputs poisoned by NaN) before it is timed; times are medians over CUDA graph
replays that rotate argument sets past the cache. ``fraction`` is useful bytes a second of an
elementwise copy's in the same run, or operations of a square product's where products dominate.
``order`` says how the cost model's order of the measured plans of one problem agrees with the
measured one: Kendall's tau, and the slowdown of the plan it ranks first.
"""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from cuda_measuring import (
    cache_bytes,
    compile_source,
    conditions,
    copy_rate,
    group_record,
    launcher,
    set_count,
    timed,
)
from record_argument import record_file

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PEERS = {
    "matmul": lambda c: lambda a, b, o: a @ b,
    "matmul_softmax": lambda c: lambda a, b, o: torch.softmax(a @ b, -1),
    "batched_gemv": lambda c: lambda m, v, o: torch.bmm(m, v[:, :, None])[:, :, 0],
    "column_sum": lambda c: lambda x, o: x.sum(0),
    "split_column_sum": lambda c: lambda x, o: x.sum(0),
    "group_normalization": lambda c: lambda x, w, b, o: F.group_norm(x, c["groups"], w, b, 1e-5),
}
PRODUCTS = ("matmul",)


def operations(kernel, extents):
    return 2 * math.prod(extents.values()) if kernel in PRODUCTS else 0


def arguments(row):
    """Normal inputs and an output of NaN; no workspaces."""
    return [
        torch.randn(row["shapes"][name], device="cuda").to(DTYPES[row["dtypes"][name]])
        if name in row["read"]
        else poisoned(row, name)
        for name in (*row["read"], row["parameters"][-1])
    ]


def poisoned(row, name):
    dtype = DTYPES[row["dtypes"][name]]
    return torch.full(row["shapes"][name], float("nan"), device="cuda", dtype=dtype)


def launched(row, sets):
    """The sets of arguments with one set of workspaces in their places."""
    known = (*row["read"], row["parameters"][-1])
    spaces = {name: poisoned(row, name) for name in row["parameters"] if name not in known}
    return [
        [{**spaces, **dict(zip(known, given, strict=True))}[name] for name in row["parameters"]]
        for given in sets
    ]


def wanted(row, given):
    *inputs, output = given
    wide = [t.double() for t in inputs]
    return PEERS[row["kernel"]](row["constants"])(*wide, output)


def error(got, expected):
    return ((got.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def tau(pairs):
    """Kendall's tau of (predicted, measured) pairs; ties count as neither."""
    found = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    agree, differ = sum(x > 0 for x in found), sum(x < 0 for x in found)
    return (agree - differ) / max(1, agree + differ)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", type=record_file)
    parser.add_argument("results")
    options = parser.parse_args()
    rows = json.loads(Path(options.artifacts).read_text())["rows"]
    rows = [r for r in rows if r["kernel"] in PEERS and "source" in r]
    sources = sorted({row["source"] for row in rows})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(sources, pool.map(compile_source, sources), strict=True))
    copy = copy_rate()
    results = {"conditions": conditions(), "copy_GBps": copy, "rows": [], "peers": [], "order": []}
    groups = {}
    for row in rows:
        asked = {name: size for name, size in row["extents"].items() if name != "slices"}
        key = (row["kernel"], tuple(asked.items()), row["dtype"])
        groups.setdefault(key, []).append(row)
    for (kernel, extents, dtype), members in groups.items():
        torch.cuda.empty_cache()
        first = arguments(members[0])
        size = sum(t.numel() * t.element_size() for t in first)
        count = min(8, set_count(size, cache_bytes()))
        sets = [first, *(arguments(members[0]) for _ in range(count - 1))]
        expected = wanted(members[0], first)
        limit = 1e-4 if dtype == "float32" else 2e-2
        known = {"kernel": kernel, "extents": dict(extents), "dtype": dtype}

        def rate(found, size=size, known=known):
            flops = operations(known["kernel"], known["extents"])
            return {
                **found,
                "GBps": size / found["us"] / 1e3,
                "fraction": size / found["us"] / 1e3 / copy,
                "tflops": flops / found["us"] / 1e6,
            }

        pairs = []
        for row in members:
            cubin, facts = built[row["source"]]
            record = known | group_record(row, facts)
            if "slices" in row["extents"]:
                record["slices"] = row["extents"]["slices"]
            results["rows"].append(record)
            if cubin is None:
                continue
            try:
                run = launcher(row, cubin)
                given = launched(row, sets)
                first[-1].fill_(float("nan"))
                run(*given[0])
                torch.cuda.synchronize()
                record["error"] = error(first[-1], expected)
                if record["error"] < limit:
                    record |= rate(timed(run, given))
                    pairs.append((row["score"], record["us"]))
            except Exception as failure:
                record["error"] = repr(failure)[:200]
        peer = PEERS[kernel](members[0]["constants"])
        for name, function in (("torch", peer), ("compile", torch.compile(peer, dynamic=False))):
            try:
                results["peers"].append({**known, "peer": name, **rate(timed(function, sets))})
            except Exception as failure:
                results["peers"].append({**known, "peer": name, "error": repr(failure)[:200]})
        if pairs:
            chosen, best = min(pairs), min(us for _, us in pairs)
            results["order"].append(
                {**known, "plans": len(pairs), "tau": tau(pairs), "regret": chosen[1] / best - 1}
            )
        mine = sorted(
            (r for r in results["rows"] if known.items() <= r.items() and "us" in r),
            key=lambda r: r["us"],
        )
        for r in mine[:3]:
            print(kernel, dtype, f"{r['us']:.1f} us {r['fraction']:.3f} {r['tflops']:.0f} TFLOP/s",
                  r["constants"], r["requested"], set(r["realizations"]))  # fmt: skip
        for p in (p for p in results["peers"] if known.items() <= p.items() and "us" in p):
            print("   ", p["peer"], f"{p['us']:.1f} us {p['fraction']:.3f}", flush=True)
        Path(options.results).write_text(json.dumps(results))


if __name__ == "__main__":
    main()

"""Attention forward on a GPU: exported kernels beside torch's SDPA and a Triton kernel.

    python scripts/benchmark/attention_cuda.py groups.json attention.json [--best 3]

Needs torch, cupy and nvcc; Triton where it is installed; neither TVM nor this package. Every
kernel is checked over its whole output against FP64 (outputs poisoned by NaN); only right ones
are timed, as medians over CUDA graph replays. ``tflops`` counts 4 B H S T D operations, half of it
where causal; ``fraction`` is of the rate of a square float16 product of torch in the same run.
"""

import argparse
import concurrent.futures
import json
import math
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from cuda_measuring import compile_source, conditions, group_record, launcher, timed
from record_argument import record_file

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}

try:
    import triton
    import triton.language as tl
except ImportError:  # the peer is left out
    triton = None

if triton is not None:

    @triton.jit
    def _forward(
        q, k, v, o, scale, length,
        D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr,
    ):  # fmt: skip
        block, head = tl.program_id(0), tl.program_id(1)
        base = head * length * D
        rows, columns, depth = block * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
        query = tl.load(q + base + rows[:, None] * D + depth[None, :])
        peak = tl.full([M], -float("inf"), tl.float32)
        total = tl.zeros([M], tl.float32)
        mixed = tl.zeros([M, D], tl.float32)
        end = (block + 1) * M if CAUSAL else length
        for first in range(0, end, N):
            at = first + columns
            key = tl.load(k + base + at[None, :] * D + depth[:, None])
            scores = tl.dot(query, key) * scale
            if CAUSAL:
                scores = tl.where(rows[:, None] >= at[None, :], scores, -float("inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            fade = tl.exp2(peak - higher)
            total = total * fade + tl.sum(weights, 1)
            value = tl.load(v + base + at[:, None] * D + depth[None, :])
            mixed = tl.dot(weights.to(value.dtype), value, mixed * fade[:, None])
            peak = higher
        mixed = mixed / total[:, None]
        place = o + base + rows[:, None] * D + depth[None, :]
        tl.store(place, mixed.to(o.dtype.element_ty))


def triton_candidates(q, k, v, o, causal):
    """(description, function) of the Triton kernel at several tile sizes."""
    batch, heads, length, depth = q.shape
    scale = math.log2(math.e) / math.sqrt(depth)
    for m, n, warps, stages in ((128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3)):

        def run(q, k, v, o, m=m, n=n, warps=warps, stages=stages):
            _forward[(length // m, batch * heads)](
                q, k, v, o, scale, length, D=depth, M=m, N=n, CAUSAL=causal,
                num_warps=warps, num_stages=stages,
            )  # fmt: skip

        yield f"triton {m}x{n} warps {warps} stages {stages}", run


def expected(q, k, v, causal):
    """FP64, one head at a time."""
    result = torch.empty_like(q, dtype=torch.float64)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            result[b, h] = F.scaled_dot_product_attention(
                q[b, h].double(), k[b, h].double(), v[b, h].double(), is_causal=causal
            )
    return result


def error(got, wanted):
    return ((got.double() - wanted).norm() / wanted.norm()).item()


def matmul_rate(dtype):
    """TFLOP/s of torch's product of two 8192 x 8192 matrices."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    found = timed(lambda x, y: x @ y, [(a, b)])
    return 2 * 8192**3 / found["us"] / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", type=record_file)
    parser.add_argument("results")
    parser.add_argument("--limit", type=int, default=0, help="measure only the first rows")
    options = parser.parse_args()
    rows = json.loads(Path(options.artifacts).read_text())["rows"]
    rows = [r for r in rows if r["kernel"] == "attention" and "source" in r]
    rows = rows[: options.limit or None]
    sources = sorted({row["source"] for row in rows})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(sources, pool.map(compile_source, sources), strict=True))
    rates = {name: matmul_rate(dtype) for name, dtype in DTYPES.items()}
    results = {"conditions": conditions(), "matmul_tflops": rates, "rows": [], "peers": []}
    groups = {}
    for row in rows:
        causal = row["constants"]["causal"]
        groups.setdefault((row["extents"]["depth"], causal, row["dtype"]), []).append(row)
    for (depth, causal, dtype), members in groups.items():
        extents = members[0]["extents"]
        shape = (extents["batch"], extents["heads"], extents["queries"], depth)
        q, k, v = (torch.randn(shape, device="cuda").to(DTYPES[dtype]) for _ in range(3))
        o = torch.empty_like(q)
        wanted = expected(q, k, v, causal)
        operations = 4 * math.prod(shape) * extents["keys"] / (2 if causal else 1)
        known = {"depth": depth, "causal": causal, "dtype": dtype}

        def rate(found, operations=operations, dtype=dtype):
            tflops = operations / found["us"] / 1e6
            return {**found, "tflops": tflops, "fraction": tflops / rates[dtype]}

        def measure(record, run, arguments, wanted=wanted, o=o, rate=rate):
            try:
                o.fill_(float("nan"))
                given = run(*arguments)
                torch.cuda.synchronize()
                record["error"] = error(o if given is None else given, wanted)
                if record["error"] < 1e-2:
                    record |= rate(timed(run, [arguments]))
            except Exception as failure:
                record["error"] = repr(failure)[:200]
            return record

        for row in members:
            cubin, facts = built[row["source"]]
            record = known | group_record(row, facts)
            results["rows"].append(record)
            if cubin is None:
                continue
            try:
                run = launcher(row, cubin)
            except Exception as failure:
                record["error"] = repr(failure)[:200]
                continue
            measure(record, run, (q, k, v, o))
        sdpa = {**known, "peer": "sdpa"}
        results["peers"].append(
            measure(
                sdpa,
                lambda q, k, v, o, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
                (q, k, v, o),
            )
        )
        if triton is not None:
            for name, run in triton_candidates(q, k, v, o, causal):
                results["peers"].append(measure({**known, "peer": name}, run, (q, k, v, o)))
        best = sorted(
            (
                r
                for r in (*results["rows"], *results["peers"])
                if "us" in r and known.items() <= r.items()
            ),
            key=lambda r: r["us"],
        )
        for r in best[:8]:
            label = r.get("peer") or f"{r['constants']} {r['requested']}"
            print(depth, causal, dtype, f"{r['us']:.0f} us", f"{r['tflops']:.0f} TFLOP/s", label)
        Path(options.results).write_text(json.dumps(results))
        del wanted
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

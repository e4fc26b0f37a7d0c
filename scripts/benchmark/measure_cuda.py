"""Measures exported CUDA artifacts on a GPU, from their JSON record alone.

    python scripts/benchmark/measure_cuda.py artifacts.json results.json [--peers]

Needs torch, cupy and nvcc; neither TVM nor tvm_tilex. Every kernel is first checked over its
whole output against FP64, with outputs poisoned by NaN; only right ones are timed. Time is the
median over CUDA graph replays that rotate input sets past the L2 cache. Rates are useful bytes
over the rate of an elementwise copy measured in the same run.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import cupy
import torch
import torch.nn.functional as F

FOLDER = tempfile.mkdtemp(prefix="tilex-cubin-")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def compile_source(source):
    """Compile once per text; returns the cubin's path and ptxas' registers and spills."""
    stem = os.path.join(FOLDER, hashlib.sha256(source.encode()).hexdigest()[:24])
    with open(stem + ".cu", "w") as file:
        file.write(source)
    command = ["nvcc", "-cubin", "-arch=sm_90a", "-O3", "-Xptxas", "-v"]
    run = subprocess.run(
        [*command, "-o", stem + ".cubin", stem + ".cu"], capture_output=True, text=True
    )
    if run.returncode:
        return None, {"error": run.stderr[-300:]}
    spills = sum(map(int, re.findall(r"(\d+) bytes spill", run.stderr)))
    registers = re.findall(r"Used (\d+) registers", run.stderr)
    return stem + ".cubin", {"registers": int(registers[0]), "spill_bytes": spills}


def timed(run, sets, reps=7):
    """Median microseconds of ``run(*set)`` over graph replays that rotate the sets."""
    for s in sets:
        run(*s)
    torch.cuda.synchronize()
    count = max(20, len(sets))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for s in sets:
            run(*s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            run(*sets[i % len(sets)])
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(reps):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count * 1e3)
    return sorted(times)[len(times) // 2]


def inputs(operator, shape, dtype):
    """One set of arguments in call order; outputs are poisoned with NaN."""
    rows, columns = shape
    x = lambda *s: torch.randn(*s, device="cuda").to(dtype)  # noqa: E731
    out = torch.full((rows, columns), float("nan"), device="cuda", dtype=dtype)
    line = torch.full((rows,), float("nan"), device="cuda", dtype=dtype)
    if operator == "row_sum":
        return [x(rows, columns), line]
    if operator == "softmax":
        return [x(rows, columns), out]
    if operator == "rmsnorm":
        return [x(rows, columns), x(columns), out]
    if operator == "layernorm":
        return [x(rows, columns), x(columns), x(columns), out]
    if operator == "residual_layernorm":
        return [x(rows, columns), x(rows, columns), out]
    labels = torch.randint(0, columns, (rows,), device="cuda")
    return [x(rows, columns), labels, line]


def expected(operator, arguments):
    a = [t.double() if t.is_floating_point() else t for t in arguments]
    if operator == "row_sum":
        return a[0].sum(-1)
    if operator == "softmax":
        return torch.softmax(a[0], -1)
    if operator == "rmsnorm":
        return a[0] / torch.sqrt((a[0] ** 2).mean(-1, keepdim=True) + 1e-6) * a[1]
    if operator == "layernorm":
        return F.layer_norm(a[0], a[0].shape[-1:], a[1], a[2], 1e-5)
    if operator == "residual_layernorm":
        return F.layer_norm(a[0] + a[1], a[0].shape[-1:], None, None, 1e-5)
    return F.cross_entropy(a[0], a[1], reduction="none")


def torch_peer(operator):
    """The same operator in torch, into a fresh output."""
    if operator == "row_sum":
        return lambda x, o: x.sum(-1)
    if operator == "softmax":
        return lambda x, o: torch.softmax(x, -1)
    if operator == "rmsnorm":
        return lambda x, w, o: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
    if operator == "layernorm":
        return lambda x, w, b, o: F.layer_norm(x, x.shape[-1:], w, b, 1e-5)
    if operator == "residual_layernorm":
        return lambda x, r, o: F.layer_norm(x + r, x.shape[-1:], None, None, 1e-5)
    return lambda x, y, o: F.cross_entropy(x, y, reduction="none")


def error(got, wanted):
    return ((got.double() - wanted).norm() / wanted.norm().clamp_min(1e-30)).item()


def launcher(row, cubin):
    module = cupy.RawModule(path=cubin)
    places = {name: i for i, name in enumerate(row["parameters"])}
    launches = [
        (
            module.get_function(k["entry"]),
            tuple(k["grid"]),
            tuple(k["group"]),
            [places[name] for name in k["buffers"]],
        )
        for k in row["launches"]
    ]

    def run(*arguments):
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            for function, grid, group, order in launches:
                function(grid, group, tuple(cupy.uint64(arguments[i].data_ptr()) for i in order))

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts")
    parser.add_argument("results")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    record = json.loads(Path(options.artifacts).read_text())
    dtype = DTYPES[record["dtype"]]
    rows = [row for row in record["rows"] if "source" in row]
    sources = sorted({row["source"] for row in rows})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(sources, pool.map(compile_source, sources), strict=True))
    print(len(sources), "sources compiled", flush=True)
    a = torch.randn(256 << 20, device="cuda")
    b = torch.empty_like(a)
    micro = timed(lambda x, y: torch.add(x, 1.0, out=y), [(a, b)])
    copy = 2 * a.numel() * 4 / micro / 1e3
    del a, b
    results = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_GBps": copy,
        "dtype": record["dtype"],
        "rows": [],
        "peers": [],
    }
    groups = {}
    for row in rows:
        groups.setdefault((row["operator"], tuple(row["shape"])), []).append(row)
    for (operator, shape), members in groups.items():
        size = members[0]["useful_bytes"]
        sets = [
            inputs(operator, shape, dtype) for _ in range(max(1, min(8, 400_000_000 // size + 1)))
        ]
        wanted = expected(operator, sets[0])
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
                "materialization": row["materialization"],
            }
            results["rows"].append(out)
            if cubin is None:
                continue
            try:
                run = launcher(row, cubin)
                sets[0][-1].fill_(float("nan"))
                run(*sets[0])
                torch.cuda.synchronize()
                out["error"] = error(sets[0][-1], wanted)
                limit = 1e-4 if dtype is torch.float32 else 1e-2
                if not out["error"] < limit:
                    continue
                out["us"] = timed(run, sets)
                out["fraction"] = size / out["us"] / 1e3 / copy
            except Exception as failure:
                out["error"] = repr(failure)[:200]
        if options.peers:
            peer = torch_peer(operator)
            for name, function in (
                ("torch", peer),
                ("compile", torch.compile(peer, dynamic=False)),
            ):
                us = timed(function, sets)
                results["peers"].append(
                    {
                        "operator": operator,
                        "shape": shape,
                        "peer": name,
                        "us": us,
                        "fraction": size / us / 1e3 / copy,
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
                (r["S"], r["Q"], r["V"], r["registers"], r["spill_bytes"], round(r["fraction"], 3))
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

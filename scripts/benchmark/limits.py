"""Says what limits exported CUDA kernels, from Nsight Compute's counters.

    python scripts/benchmark/export_cuda_artifacts.py artifacts.json --plans automatic
    python scripts/benchmark/limits.py artifacts.json limits.json        # on the GPU machine

Needs torch, cupy, nvcc and ncu with access to the counters. Each kernel runs once with cold caches
(ncu's default) at the device's own clocks. The JSON holds, for each kernel, microseconds, percent
of the peak of memory, L2 and issue slots, warps resident of those possible, and the average number
of warps that wait for memory, for a barrier, and for their turn at each issue.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

from record_argument import record_file

METRICS = {
    "us": "gpu__time_duration.sum",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "wait_memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "wait_barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "wait_membar": "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio",
    "wait_turn": "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",
}
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


def rows_of(path):
    record = json.loads(Path(path).read_text())
    wanted = [r for r in record["rows"] if "source" in r and "compiler" not in r]
    return record["dtype"], [r for r in wanted if not any(r["requested"])]


def launch_all(path):
    """The profiled process: every kernel once, in the order of the file."""
    import torch
    from cuda_measuring import compile_source, launcher
    from row_operators import OPERATORS

    dtype, rows = rows_of(path)
    for row in rows:
        cubin, report = compile_source(row["source"])
        if cubin is None:
            sys.exit(report["error"])
        arguments = OPERATORS[row["operator"]].arguments(*row["shape"], dtype, "cuda")
        torch.cuda.synchronize()
        launcher(row, cubin)(*arguments)
        torch.cuda.synchronize()


def profiled(path, entries):
    """Counter values of each launch of our kernels, in order."""
    command = ["ncu", "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name", "regex:" + "|".join(sorted(set(entries)))]
    command += [sys.executable, __file__, path, "--launch"]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if not lines:
        sys.exit((run.stdout + run.stderr)[-2000:])
    names = {metric: name for name, metric in METRICS.items()}
    found = {}
    for line in csv.DictReader(lines):
        name = names.get(line["Metric Name"])
        if name is None:
            continue
        value = float(line["Metric Value"].replace(",", ""))
        scale = UNITS.get(line["Metric Unit"], 1.0) if name == "us" else 1.0
        found.setdefault(int(line["ID"]), {})[name] = round(value * scale, 3)
    return [found[launch] for launch in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", type=record_file)
    parser.add_argument("results", nargs="?")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        return launch_all(options.artifacts)
    dtype, rows = rows_of(options.artifacts)
    launches = [(row, kernel) for row in rows for kernel in row["launches"]]
    counters = profiled(options.artifacts, [kernel["entry"] for _, kernel in launches])
    if len(counters) != len(launches):
        sys.exit(f"ncu saw {len(counters)} launches of {len(launches)}")
    results = []
    for (row, _), values in zip(launches, counters, strict=True):
        results.append(
            {"operator": row["operator"], "shape": row["shape"], "dtype": dtype} | values
        )
        text = " ".join(f"{name}={value}" for name, value in values.items())
        print(row["operator"], *row["shape"], text, flush=True)
    Path(options.results).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

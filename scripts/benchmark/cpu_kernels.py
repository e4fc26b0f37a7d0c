"""Times the library on the CPU beside torch eager, torch.compile and a copy of the same bytes.

    python scripts/benchmark/cpu_kernels.py [--shape 4096x4096 ...] [--rounds 40] [--json]
    python scripts/benchmark/cpu_kernels.py --threads 1 --clock cpu    # on a machine that is loaded

In a cell, every contender runs once a round, in an order that changes: what disturbs one disturbs
all, and none always finds what the same one before left in the cache. The least and the median of
the rounds are kept. ``copy`` moves as many bytes as the kernel must: half of them read, half
written. ``--quiet 0.05`` measures a cell again while other processes take more than 5 % of a
processor. ``--clock cpu`` counts the time that this thread has run, which waiting for a processor
does not lengthen; it means one thread. All arrays are torch's, aligned to 64 bytes. Outputs of ours
and of the copy are allocated before, torch's are its own; ``eager out`` writes into an allocated
one where torch has such a form. Ratios compare figures of this run alone.

Idle threads of either pool sleep (``OMP_WAIT_POLICY=PASSIVE``, ``TVM_THREAD_POOL_SPIN_COUNT=0``):
otherwise those of the contender before spin on the processors that the next one needs.

Also prints compile latency with ``--latency``: import time beyond TVM's own, and capture to module
for softmax 3x4096.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time

import click

# Before torch and TVM are imported, in this process and in those it starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

SHAPES = ("4096x4096", "16384x256", "512x32000")


def eager_functions(torch, F):
    return {
        "row_sum": lambda x: x.sum(-1),
        "row_max": lambda x: x.amax(-1),
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "layernorm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        "rmsnorm": lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        "residual_layernorm": lambda x, r: F.layer_norm(x + r, x.shape[-1:], None, None, 1e-5),
        "cross_entropy": lambda x, y: F.cross_entropy(x, y, reduction="none"),
    }


def written_functions(torch):
    return {
        "row_sum": lambda x, out: torch.sum(x, -1, out=out),
        "row_max": lambda x, out: torch.amax(x, -1, out=out),
        "softmax": lambda x, out: torch.softmax(x, -1, out=out),
        "log_softmax": lambda x, out: torch.log_softmax(x, -1, out=out),
        "logsumexp": lambda x, out: torch.logsumexp(x, -1, out=out),
    }


def interleaved(contenders, rounds, clock):
    """Least and median milliseconds of each contender over rounds in which each runs once."""
    times = {name: [] for name in contenders}
    for run in contenders.values():
        run()
        run()
    order, generator = list(contenders.items()), random.Random(0)
    for _ in range(rounds):
        generator.shuffle(order)
        for name, run in order:
            begin = clock()
            run()
            times[name].append(1e3 * (clock() - begin))
    return {name: (min(found), statistics.median(found)) for name, found in times.items()}


def busy_seconds():
    """Seconds that all processors together have not been idle, on Linux."""
    with open("/proc/stat") as lines:
        user, nice, system, _, _, *rest = map(int, lines.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def undisturbed(measure, share, tries=10):
    """``measure()``, again while other processes take more than ``share`` of a processor.

    Returns what was measured with the least disturbance, and that share.
    """
    best = None
    for _ in range(tries):
        busy, own, begin = busy_seconds(), time.process_time(), time.perf_counter()
        times = measure()
        wall = time.perf_counter() - begin
        others = (busy_seconds() - busy - (time.process_time() - own)) / wall
        if best is None or others < best[1]:
            best = times, others
        if others <= share:
            break
        time.sleep(1)
    return best


def cell(torch, name, shape, rounds, clock, with_compile, quiet):
    import torch.nn.functional as F

    import tvm_tilex as tx
    from tvm_tilex import kernels

    rows, columns = map(int, shape.split("x"))
    entry = kernels.catalog()[name]
    arrays = [torch.from_numpy(a).clone() for a in entry.arguments(rows, columns)]
    inputs = [a for i, a in enumerate(arrays) if i not in entry.outputs]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns))
    source = torch.randn(entry.useful_bytes(rows, columns) // 8)
    into = torch.empty_like(source)
    eager = eager_functions(torch, F)[name]
    contenders = {
        "copy": lambda: into.copy_(source),
        "ours": lambda: artifact(*arrays),
        "eager": lambda: eager(*inputs),
    }
    written = written_functions(torch).get(name)
    if written is not None:
        out = torch.empty_like(arrays[entry.outputs[0]])
        contenders["eager out"] = lambda: written(*inputs, out)
    if with_compile:
        torch._dynamo.reset()
        compiled = torch.compile(eager)
        contenders["compile"] = lambda: compiled(*inputs)
    with torch.no_grad():
        if quiet is None:
            return interleaved(contenders, rounds, clock), None
        return undisturbed(lambda: interleaved(contenders, rounds, clock), quiet)


def median_ms(run, repeat=9):
    run()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def latency():
    import tvm_tilex as tx
    from tvm_tilex import driver, kernels

    def import_ms(code):
        command = [sys.executable, "-W", "ignore", "-c", code]
        return median_ms(lambda: subprocess.run(command, check=True), repeat=5)

    def compile_ms(target):
        entry = kernels.catalog()["softmax"]
        specs = entry.specs(3, 4096)

        def fresh():
            driver._ARTIFACTS.clear()
            tx.compile(entry.kernel, *specs, target=target).source  # noqa: B018

        return median_ms(fresh)

    imports = ("pass", "import tvm", "import tvm, tvm_tilex", "import tvm_tilex")
    return {
        "import_ms": {code: import_ms(code) for code in imports},
        "compile_ms": {target: compile_ms(target) for target in ("llvm", "metal", "cuda")},
    }


@click.command()
@click.option("--shape", "shapes", multiple=True, default=SHAPES)
@click.option("--kernel", "names", multiple=True, help="only these")
@click.option("--rounds", default=40)
@click.option("--threads", default=0, help="0: every physical core")
@click.option("--clock", type=click.Choice(["wall", "cpu"]), default="wall")
@click.option("--compile/--no-compile", "with_compile", default=True)
@click.option("--latency", "with_latency", is_flag=True)
@click.option("--quiet", type=float, help="repeat while others take this share of a processor")
@click.option("--json", "as_json", is_flag=True)
def main(shapes, names, rounds, threads, clock, with_compile, with_latency, quiet, as_json):
    if threads:
        os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    if clock == "cpu" and threads != 1:
        raise click.UsageError("--clock cpu counts one thread: add --threads 1")
    import torch

    if threads:
        torch.set_num_threads(threads)
    tick = time.thread_time if clock == "cpu" else time.perf_counter
    found = {"threads": torch.get_num_threads(), "torch": torch.__version__, "cells": {}}
    for shape in shapes:
        for name in names or eager_functions(torch, None):
            times, others = cell(torch, name, shape, rounds, tick, with_compile, quiet)
            load = os.getloadavg()[0]
            found["cells"][f"{name} {shape}"] = {"ms": times, "load": load, "others": others}
            if not as_json:
                copy, median = times["copy"]
                text = "  ".join(
                    f"{who} {least:.3f} ({least / copy:.2f} / {middle / median:.2f})"
                    for who, (least, middle) in times.items()
                )
                state = f"load {load:4.1f}" if others is None else f"others {others:4.2f}"
                click.echo(f"{name:<18} {shape:<10} {state}  {text}")
    if with_latency:
        found |= latency()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif with_latency:
        for group in ("import_ms", "compile_ms"):
            for what, value in found[group].items():
                click.echo(f"{group:<11} {what:<22} {value:8.1f}")


if __name__ == "__main__":
    main()

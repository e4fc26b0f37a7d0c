"""Times the library on the CPU beside torch eager and a copy of the same bytes, in one run.

    python scripts/benchmark/cpu_kernels.py [--shape 4096x4096] [--json]

Also prints compile latency: import time beyond TVM's own, and capture to module for softmax 3x4096.
Every figure is a median; ratios compare figures of this run alone.
"""

import json
import statistics
import subprocess
import sys
import time

import click
import torch
import torch.nn.functional as F

import tvm_tilex as tx
from tvm_tilex import driver, kernels

EAGER = {
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


def median_ms(run, repeat=9):
    run()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


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


@click.command()
@click.option("--shape", default="4096x4096")
@click.option("--json", "as_json", is_flag=True)
def main(shape, as_json):
    rows, columns = map(int, shape.split("x"))
    found = {"shape": [rows, columns], "threads": torch.get_num_threads(), "kernels": {}}
    found["import_ms"] = {
        "python": import_ms("pass"),
        "tvm": import_ms("import tvm"),
        "tvm and tvm_tilex": import_ms("import tvm, tvm_tilex"),
        "tvm_tilex alone": import_ms("import tvm_tilex"),
    }
    found["compile_ms"] = {target: compile_ms(target) for target in ("llvm", "metal", "cuda")}
    for name, eager in EAGER.items():
        entry = kernels.catalog()[name]
        arrays = [torch.from_numpy(a) for a in entry.arguments(rows, columns)]
        inputs = [a for i, a in enumerate(arrays) if i not in entry.outputs]
        artifact = tx.compile(entry.kernel, *entry.specs(rows, columns))
        size = entry.useful_bytes(rows, columns)
        source = torch.randn(size // 8)
        into = torch.empty_like(source)
        found["kernels"][name] = {
            "ours_ms": median_ms(lambda a=artifact, x=arrays: a(*x)),
            "eager_ms": median_ms(lambda f=eager, x=inputs: f(*x)),
            "copy_ms": median_ms(lambda a=source, b=into: b.copy_(a)),
        }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for group in ("import_ms", "compile_ms"):
        for name, value in found[group].items():
            click.echo(f"{group:<11} {name:<18} {value:8.1f}")
    for name, t in found["kernels"].items():
        click.echo(
            f"{name:<19} ours {t['ours_ms']:7.2f} ms  eager {t['eager_ms']:7.2f} ms "
            f"({t['eager_ms'] / t['ours_ms']:5.2f}x)  copy {t['copy_ms']:6.2f} ms "
            f"(ours {t['ours_ms'] / t['copy_ms']:5.2f}x of it)"
        )


if __name__ == "__main__":
    main()

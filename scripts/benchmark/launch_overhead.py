"""Host time of a call, argument checks included, beside a bare tvm_ffi call of the same function.

    python scripts/benchmark/launch_overhead.py [--target llvm|cuda] [--operator layernorm]
        [--no-dependent-launch]

`bare` hands the tensors to the packed function unchecked; `artifact` is `artifact(*tensors)`;
`kernel` is `kernel(*tensors)`, which also looks its artifact up and asks whether anything that its
body reads has changed. A GPU is not waited for inside the timed loop. The least of several repeats.
"""

import timeit

import click
import torch

import tvm_tilex as tx
from tvm_tilex import kernels


def nanoseconds(function, settle, number=5000, repeats=9):
    times = []
    for _ in range(repeats):
        settle()
        # Few enough launches that the queue of the GPU never fills and blocks the host.
        for _ in range(number // 500):
            times.append(timeit.timeit(function, number=500) / 500)
            settle()
    return min(times) * 1e9


@click.command()
@click.option("--target", type=click.Choice(["llvm", "cuda"]), default="llvm")
@click.option("--operator", default="layernorm")
@click.option("--columns", default=64, help="One row, so that the kernel itself is short.")
@click.option("--dependent-launch/--no-dependent-launch", default=None, help="For the artifact.")
def main(target, operator, columns, dependent_launch):
    device = {"llvm": "cpu", "cuda": "cuda"}[target]
    settle = torch.cuda.synchronize if target == "cuda" else lambda: None
    entry = kernels.catalog()[operator]
    tensors = [torch.from_numpy(a).to(device) for a in entry.arguments(1, columns)]
    options = tx.CompileOptions(dependent_launch=dependent_launch)
    artifact = tx.compile(entry.kernel, *tensors, target=target, options=options)
    artifact(*tensors)
    entry.kernel(*tensors)
    packed, environment = artifact.function, entry.kernel.environment
    for name, function in (
        ("bare", lambda: packed(*tensors)),
        ("artifact", lambda: artifact(*tensors)),
        ("kernel", lambda: entry.kernel(*tensors)),
        ("of which environment", environment),
    ):
        click.echo(f"{name:<22}{nanoseconds(function, settle):8.0f} ns")
    click.echo(f"{operator}, {len(tensors)} tensors, {target}, torch {torch.__version__}")


if __name__ == "__main__":
    main()

"""Host time of a registered operator beside the kernel that it runs, and beside torch's own.

    python scripts/benchmark/torch_overhead.py [--operator softmax] [--columns 64] [--json]

One short row, so that the time is that of the call. `artifact` and `kernel` are given their output,
as `out` is; `operator` allocates it; `operator, gradient` also records what a backward pass needs,
and `with backward` runs that, as `torch, with backward` does. `graph` is the operator inside a
function that torch.compile compiled with the aot_eager backend. The least of several repeats.
"""

import json
import timeit

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import tvm_tilex as tx
from tvm_tilex import kernels

EAGER = {
    "softmax": lambda x: F.softmax(x, -1),
    "layernorm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    "rmsnorm": lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
}


def microseconds(function, number, repeats=7):
    function()
    return 1e6 * min(timeit.repeat(function, number=number, repeat=repeats)) / number


def backward(function, inputs):
    def run():
        torch.autograd.grad(function(*inputs).sum(), inputs)

    return run


@click.command()
@click.option("--operator", type=click.Choice(sorted(EAGER)), default="softmax")
@click.option("--columns", default=64)
@click.option("--number", default=2000, help="Calls in a repeat.")
@click.option("--json", "as_json", is_flag=True)
def main(operator, columns, number, as_json):
    entry, op, eager = kernels.catalog()[operator], getattr(tx.torch.ops, operator), EAGER[operator]
    *inputs, out = (torch.from_numpy(a) for a in entry.arguments(1, columns))
    leaves = [t.clone().requires_grad_() for t in inputs]
    artifact = tx.compile(entry.kernel, *inputs, out)
    name = op.signature.outputs[0]
    graph = torch.compile(op, fullgraph=True, backend="aot_eager")
    calls = {
        "artifact": lambda: artifact(*inputs, out),
        "kernel": lambda: entry.kernel(*inputs, out),
        "operator": lambda: op(*inputs),
        "out": lambda: op.out(*inputs, **{name: out}),
        "operator, gradient": lambda: op(*leaves),
        "operator, with backward": backward(op, leaves),
        "graph": lambda: graph(*inputs),
        "torch": lambda: eager(*inputs),
        "torch, with backward": backward(eager, leaves),
    }
    found = {what: microseconds(call, number) for what, call in calls.items()}
    if as_json:
        click.echo(json.dumps({"operator": operator, "columns": columns, "us": found}))
        return
    table = Table(title=f"{operator} 1x{columns}, {torch.get_num_threads()} threads")
    table.add_column("call")
    table.add_column("us", justify="right")
    for what, time in found.items():
        table.add_row(what, f"{time:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()

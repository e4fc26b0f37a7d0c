"""Times a tile with several consumers on the CPU: kept in storage, or computed by each consumer.

    python scripts/benchmark/cpu_materialization.py [--views 3] [--consumers 3] [--width 4096]

The tile is a sum of products of ``views`` arrays (the operations of each are one multiply-add); its
consumers are ``consumers - 1`` reductions, each of which the next one needs, and the output. Both
artifacts run on the same arrays, in an order that changes. Each line gives the least milliseconds
of keeping and of computing again, and their quotient: below 1, keeping wins. The last column is the
planner's choice.
"""

import functools
import itertools
import os
import random
import time

import click

os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

ELEMENTS = 1 << 21  # of each array


def kernel_of(tx, views, consumers):
    """A kernel of one to six views; written out, as a kernel's signature is its interface."""

    def body(arrays, out):
        rows, columns = tx.axis("rows", out.extent(0)), tx.axis("columns", out.extent(1))
        row = tx.shape(1, columns)
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0)
            tile = arrays[0][origin, row] * 0.5
            for array in arrays[1:]:
                tile = tile + array[origin, row] * 0.25
            number = None
            for _ in range(consumers - 1):
                value = tile if number is None else tile * number
                number = tx.reduce(value, columns, tx.add) * 0.001
            out(origin, row).store(tile - number)

    view, output = tx.TensorView[tx.float32, 2], tx.TensorView[tx.float32, 2, tx.Out]

    @tx.tile_kernel
    def one(a: view, out: output):
        body((a,), out)

    @tx.tile_kernel
    def three(a: view, b: view, c: view, out: output):
        body((a, b, c), out)

    @tx.tile_kernel
    def six(a: view, b: view, c: view, d: view, e: view, f: view, out: output):
        body((a, b, c, d, e, f), out)

    return {1: one, 3: three, 6: six}[views]


def least(contenders, rounds):
    times = {name: float("inf") for name in contenders}
    order, generator = list(contenders.items()), random.Random(0)
    for _, run in order:
        run()
    for _ in range(rounds):
        generator.shuffle(order)
        for name, run in order:
            begin = time.perf_counter()
            run()
            times[name] = min(times[name], 1e3 * (time.perf_counter() - begin))
    return times


@click.command()
@click.option("--views", multiple=True, type=int, default=(1, 3, 6))
@click.option("--consumers", multiple=True, type=int, default=(2, 3, 4))
@click.option("--width", "widths", multiple=True, type=int, default=(256, 4096, 32000, 131072))
@click.option("--rounds", default=25)
def main(views, consumers, widths, rounds):
    import torch

    import tvm_tilex as tx

    for count, uses, width in itertools.product(views, consumers, widths):
        kernel, shape = kernel_of(tx, count, uses), (ELEMENTS // width, width)
        arrays = [torch.randn(shape) for _ in range(count)] + [torch.empty(shape)]
        contenders = {}
        for mode in ("preserve", "expensive-only"):
            options = tx.CompileOptions(shared_tile_materialization=mode)
            artifact = tx.compile(kernel, *arrays, target="llvm", options=options)
            contenders[mode] = functools.partial(artifact, *arrays)
        chosen = tx.compile(kernel, *arrays, target="llvm").materialization.value
        kept, again = least(contenders, rounds).values()
        click.echo(
            f"{count} views {uses} consumers width {width:>6}  kept {kept:8.3f}  "
            f"again {again:8.3f}  {kept / again:5.2f}  {chosen}"
        )


if __name__ == "__main__":
    main()

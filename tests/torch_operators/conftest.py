"""Tile kernels of a user's own, registered once."""

import shutil
from types import SimpleNamespace

import pytest
import torch

import tvm_tilex as tx
from tvm_tilex.kernels.shapes import MATRIX

BACKENDS = ["aot_eager"] + (["inductor"] if shutil.which("g++") else [])


@pytest.fixture(params=BACKENDS)
def backend(request):
    torch._dynamo.reset()
    return request.param


@tx.tile_kernel
def plain_softmax(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
    """Dimensions without names."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = x[origin, tx.shape(one, columns)]
        shifted = tx.exp(value - tx.reduce(value, columns, tx.maximum))
        out(origin, tx.shape(one, columns)).store(shifted / tx.reduce(shifted, columns, tx.add))


@tx.tile_kernel
def halves(x: tx.TensorView[tx.float32, 1], out: tx.TensorView[tx.float32, 2, tx.Out]):
    """(2 N,) -> (2, N): an output that no input has the shape of."""
    half = tx.axis("half", x.extent(0) // 2)
    two = tx.axis("two", 2)
    for nest in tx.parallel(tx.shape(two)):
        value = x[tx.coord(nest.index() * (x.extent(0) // 2)), tx.shape(half)]
        out(tx.coord(nest.index(), 0), tx.shape(1, half)).store(value)


@tx.tile_kernel
def asks_the_output(x: tx.TensorView[tx.float32, 1], out: tx.TensorView[tx.float32, 1, tx.Out]):
    elements = tx.axis("elements", out.extent(0))
    for nest in tx.parallel(tx.shape(elements)):
        out(tx.coord(nest.index()), tx.shape(1)).store(x[tx.coord(0), tx.shape(1)])


@tx.tile_kernel
def scale_in_place(
    x: tx.TensorView[tx.floating, MATRIX, tx.InOut],
    *,
    factor: float = 2.0,
    negate: bool = False,
    times: int = 1,
):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
        value = tx.cast(x[at, region], "float32")
        for _ in range(times):
            value = value * factor
        x(at, region).store(tx.cast(-value if negate else value, x.dtype))


@pytest.fixture(scope="session")
def own():
    return SimpleNamespace(
        plain_softmax=tx.torch.register(plain_softmax),
        halves=tx.torch.register(halves),
        asks_the_output=tx.torch.register(asks_the_output),
        scale_in_place=tx.torch.register(scale_in_place),
        kernel=plain_softmax,
        scale=scale_in_place,
    )

"""Kernels launched before those they follow have ended: a chain of them changes no bit."""

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device("cuda")
CATALOG = kernels.catalog()
# Launches of few and of many waves, whose last threadgroups leave room for the next kernel's; a
# cluster; a row that several threadgroups' neighbours wrote.
SHAPES = [(64, 256), (5000, 256), (8192, 1024), (4096, 4095), (96, 131072)]
LENGTH = 40


@tx.tile_kernel
def drifts(x: tx.TensorView[tx.floating, 2], out: tx.TensorView[tx.floating, 2, tx.Out]):
    """A row and a tenth of its mean: no two steps of a chain have the same values."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin, row = tx.coord(nest.index(), 0), tx.shape(tx.axis("one", 1), columns)
        value = tx.cast(x[origin, row], tx.float32)
        mean = tx.reduce(value, columns, tx.add) / float(x.extent(1))
        out(origin, row).store(tx.cast(value + mean * 0.1, out.dtype))


def chain(gpu, rows, columns, dtype, *, dependent):
    """A chain of launches to and fro between two matrices: each reads what the last one wrote.

    Whoever reads or writes too early is seen in the last matrix.
    """
    specs = CATALOG["softmax"].specs(rows, columns, dtype)
    options = tx.CompileOptions(dependent_launch=dependent)
    artifact = tx.compile(drifts, *specs, target=gpu.target, options=options)
    first, _ = gpu.arguments(CATALOG["softmax"], rows, columns, dtype)
    matrices = [torch.empty_like(first), torch.empty_like(first)]

    def run():
        matrices[0].copy_(first)
        for number in range(LENGTH):
            artifact(matrices[number % 2], matrices[(number + 1) % 2])
        return matrices[LENGTH % 2]

    return run


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_chain_keeps_its_bits(gpu, rows, columns, dtype):
    wanted = chain(gpu, rows, columns, dtype, dependent=False)().clone()
    run = chain(gpu, rows, columns, dtype, dependent=True)
    for _ in range(5):
        assert torch.equal(run(), wanted)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_captured_chain_keeps_its_bits(gpu, rows, columns):
    wanted = chain(gpu, rows, columns, "float32", dependent=False)().clone()
    run = chain(gpu, rows, columns, "float32", dependent=True)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(5):
        found.zero_()
        graph.replay()
        assert torch.equal(found, wanted)


def test_others_wait_for_a_dependent_kernel(gpu):
    """A kernel without the attribute, torch's here, waits for the end as ever."""
    entry = CATALOG["softmax"]
    options = tx.CompileOptions(dependent_launch=True)
    artifact = tx.compile(
        entry.kernel, *entry.specs(8192, 4096), target=gpu.target, options=options
    )
    x, out = gpu.arguments(entry, 8192, 4096)
    late = torch.full_like(x, float("nan"))
    for _ in range(20):
        late.copy_(x)
        artifact(late, out)
        late.fill_(float("nan"))
        result = out.clone()
        out.fill_(float("nan"))
        gpu.check(entry, [x, result])


@pytest.mark.parametrize("name", CATALOG)
def test_the_library(gpu, name):
    entry = CATALOG[name]
    options = tx.CompileOptions(dependent_launch=True)
    specs = entry.specs(300, 1030)
    artifact = tx.compile(entry.kernel, *specs, target=gpu.target, options=options)
    tensors = gpu.arguments(entry, 300, 1030)
    for _ in range(3):
        artifact(*tensors)
    gpu.check(entry, tensors)

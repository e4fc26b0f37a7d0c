"""Rows over clusters and rows of odd widths, launched by TVM's CUDA runtime: against FP64."""

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device("cuda")
CATALOG = kernels.catalog()
LIBRARY = ("row_sum", "softmax", "rmsnorm", "layernorm", "residual_layernorm", "cross_entropy")
WHOLE = {"max_reduction_striped_scalars_per_worker": 255}


def ran(gpu, name, rows, columns, dtype, **options):
    """Launch on fresh arguments, twice, and check every output."""
    entry = CATALOG[name]
    chosen = tx.CompileOptions(**{**WHOLE, **options})
    specs = entry.specs(rows, columns, dtype)
    artifact = tx.compile(entry.kernel, *specs, target=gpu.target, options=chosen)
    tensors = gpu.arguments(entry, rows, columns, dtype)
    for _ in range(2):
        for position in entry.outputs:
            tensors[position].fill_(float("nan"))
        artifact(*tensors)
        gpu.check(entry, tensors)
    return artifact


@pytest.mark.parametrize("columns", [4096, 40000, 50257])
@pytest.mark.parametrize("threads", [32, 128, 1024])
@pytest.mark.parametrize("blocks", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_exchange_of_a_cluster(gpu, dtype, blocks, threads, columns):
    """One and two exchanges, of one value and of two; more rows than are resident at once."""
    for name in LIBRARY:
        elements = columns // (threads * blocks)
        if elements > 200:
            continue
        asked = {"threads_per_group": threads, "reduction_blocks_per_program": blocks}
        artifact = ran(gpu, name, 700, columns, dtype, **asked)
        assert artifact.plan.blocks_per_program == blocks


@pytest.mark.parametrize("columns", [257, 1022, 4095, 4100])
@pytest.mark.parametrize("threads", [32, 256])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rows_of_odd_widths_as_vectors(gpu, dtype, threads, columns):
    if columns == 4100 and dtype == "float32":
        pytest.skip("every row is aligned")
    for name in LIBRARY:
        if columns // threads > 130:
            continue
        asked = {"threads_per_group": threads, "reduction_peeled_rows": True}
        assert ran(gpu, name, 37, columns, dtype, **asked).plan.peeled
    early = {"reduction_peeled_rows": True, "reduction_early_views": True}
    ran(gpu, "layernorm", 37, columns, dtype, threads_per_group=256, **early)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_odd_rows_of_memory_that_no_vector_fits(gpu, dtype):
    """Every tensor begins one element late: the same map, element by element."""
    entry = CATALOG["rmsnorm"]
    options = tx.CompileOptions(reduction_peeled_rows=True)
    specs = entry.specs(9, 1021, dtype)
    artifact = tx.compile(entry.kernel, *specs, target=gpu.target, options=options)
    late = []
    for tensor in gpu.arguments(entry, 9, 1021, dtype):
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
        room[1:].copy_(tensor.reshape(-1))
        late.append(room[1:].view(tensor.shape))
    late[-1].fill_(float("nan"))
    artifact(*late)
    gpu.check(entry, late)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("columns", [32003, 50257, 131071])
def test_odd_rows_as_planned(gpu, name, columns):
    """Automatic plans: peeled, on a cluster or both."""
    for dtype in ("float32", "bfloat16"):
        entry = CATALOG[name]
        specs = entry.specs(5, columns, dtype)
        artifact = tx.compile(entry.kernel, *specs, target=gpu.target)
        tensors = gpu.arguments(entry, 5, columns, dtype)
        artifact(*tensors)
        gpu.check(entry, tensors)

"""Composed kernels launched by TVM's CUDA runtime: ragged, causal and whole, against FP64."""

import pytest

import tvm_tilex as tx
from tvm_tilex.kernels import composed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device("cuda")

HEADS = {"batch": 2, "heads": 3}
# name -> (kernel, extents, constants)
CASES = {
    f"attention d{depth}{' causal' if causal else ''} {queries}x{keys}": (
        "attention",
        {**HEADS, "queries": queries, "keys": keys, "depth": depth},
        {"block_queries": 64, "block_keys": 64, "causal": causal},
    )
    for depth in (64, 128)
    for causal in (False, True)
    for queries, keys in ((256, 256), (70, 70), (1, 1), (333, 333))
}
CASES |= {
    "attention keys of their own": (
        "attention", {**HEADS, "queries": 70, "keys": 333, "depth": 64}, {}
    ),
    "matmul": ("matmul", {"rows": 130, "depth": 70, "columns": 133}, {}),
    "matmul whole": (
        "matmul",
        {"rows": 256, "depth": 256, "columns": 256},
        {"block_rows": 128, "block_columns": 128},
    ),
    "matmul_softmax": ("matmul_softmax", {"rows": 130, "depth": 70, "columns": 133}, {}),
    "batched_gemv": ("batched_gemv", {"batch": 3, "rows": 190, "depth": 3000}, {}),
    "batched_gemv one": ("batched_gemv", {"batch": 1, "rows": 1, "depth": 1}, {}),
    "column_sum": ("column_sum", {"rows": 1500, "columns": 700}, {}),
    "column_sum one row": ("column_sum", {"rows": 1, "columns": 33}, {}),
    "column_max": ("column_max", {"rows": 1500, "columns": 70}, {}),
    "split_column_sum": ("split_column_sum", {"rows": 15000, "columns": 70, "slices": 16}, {}),
    "split_column_max": ("split_column_max", {"rows": 150, "columns": 70, "slices": 7}, {}),
    "group_normalization": ("group_normalization", {"batch": 3, "channels": 6, "pixels": 2001}, {}),
}  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16")


def ran(gpu, case, dtype, **options):
    kernel, extents, constants = CASES[case]
    entry = composed.catalog()[kernel]
    specs, chosen = entry.specs(extents, dtype), tx.CompileOptions(**options)
    artifact = tx.compile(entry.kernel, *specs, target=gpu.target, options=chosen, **constants)
    tensors = [gpu.tensor(array) for array in entry.arguments(extents, dtype)]
    artifact(*tensors)
    comparison = entry.check([gpu.array(tensor) for tensor in tensors], **constants)
    assert comparison.within, comparison
    return artifact


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_composed_kernels_against_fp64(gpu, case, dtype):
    assert ran(gpu, case, dtype).group_plans


@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("case", ["attention d64 causal 70x70", "matmul", "group_normalization"])
def test_exact_thread_counts(gpu, case, threads):
    for plan in ran(gpu, case, "float16", group_threads=threads).group_plans:
        assert plan.threads == threads


@pytest.mark.parametrize("reductions", ["serial", "collective", "columns"])
@pytest.mark.parametrize("case", ["column_sum", "batched_gemv", "attention d64 333x333"])
def test_every_realization_of_a_reduction(gpu, case, reductions):
    ran(gpu, case, "float16", group_reductions=reductions)

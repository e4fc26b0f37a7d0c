"""The CUDA text of composed kernels, run on the processor and compared with FP64."""

import cuda_on_cpu
import pytest

import tvm_tilex as tx
from tvm_tilex.kernels import composed

pytestmark = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")

HEADS = {"batch": 1, "heads": 1, "queries": 64, "keys": 64}
BLOCKS = {"block_queries": 64, "block_keys": 32}
CASES = {
    "attention d64": ("attention", {**HEADS, "depth": 64}, BLOCKS, {"group_threads": 128}),
    "attention d64 causal ragged": (
        "attention",
        {**HEADS, "queries": 70, "keys": 70, "depth": 64},
        {**BLOCKS, "causal": True},
        {"group_threads": 128},
    ),
    "attention d64 two fragments of rows": (
        "attention",
        {**HEADS, "queries": 130, "keys": 130, "depth": 64},
        {"block_queries": 128, "block_keys": 64, "causal": True, "scale": -0.2},
        {"group_threads": 128},
    ),
    "attention d128": ("attention", {**HEADS, "depth": 128}, BLOCKS, {"group_threads": 128}),
    "attention collectives": (
        "attention",
        {**HEADS, "depth": 64},
        BLOCKS,
        {"group_threads": 128, "group_reductions": "collective"},
    ),
    "matmul": (
        "matmul",
        {"rows": 64, "depth": 96, "columns": 64},
        {"block_rows": 64, "block_columns": 64},
        {"group_threads": 128},
    ),
    "matmul in squares": (
        "matmul",
        {"rows": 128, "depth": 40, "columns": 128},
        {"block_rows": 128, "block_columns": 128},
        {"group_threads": 128},
    ),
    "matmul two by two": (
        "matmul", {"rows": 40, "depth": 40, "columns": 48}, {}, {"group_threads": 128}
    ),
    "matmul_softmax": (
        "matmul_softmax",
        {"rows": 64, "depth": 64, "columns": 64},
        {"block_rows": 64},
        {"group_threads": 128},
    ),
    "batched_gemv": ("batched_gemv", {"batch": 2, "rows": 19, "depth": 300}, {}, {}),
    "column_sum": ("column_sum", {"rows": 150, "columns": 70}, {}, {}),
    "group_normalization": (
        "group_normalization", {"batch": 1, "channels": 6, "pixels": 200}, {}, {}
    ),
}  # fmt: skip
FRAGMENT = (
    "attention d64",
    "attention d64 causal ragged",
    "attention d64 two fragments of rows",
    "attention d128",
    "matmul_softmax",
)


PAIRS = [(case, "float16") for case in CASES]
PAIRS += [(case, "bfloat16") for case in ("attention d64 causal ragged", "matmul", "column_sum")]
PAIRS += [(case, "float32") for case in ("matmul", "matmul_softmax", "batched_gemv")]


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_the_cuda_text_is_right(case, dtype, tmp_path):
    kernel, extents, constants, options = CASES[case]
    entry = composed.catalog()[kernel]
    arrays = entry.arguments(extents, dtype)
    specs, chosen = entry.specs(extents, dtype), tx.CompileOptions(**options)
    artifact = tx.compile(entry.kernel, *specs, target="cuda", options=chosen, **constants)
    (plan,) = artifact.group_plans
    if dtype != "float32" and "matmul" in kernel + case:
        assert "matrix" in plan.realizations
    if dtype != "float32" and case in FRAGMENT:
        assert "fragment" in plan.realizations
        assert plan.row_classes
        assert bool(plan.owned_factors) == (kernel == "attention")
    cuda_on_cpu.run(artifact, arrays, tmp_path)
    comparison = entry.check(arrays, **constants)
    assert comparison.within, comparison

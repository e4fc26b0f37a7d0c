"""The composed kernels against FP64: LLVM, the Metal text in the simulator, CUDA text."""

import numpy as np
import pytest
import torch

import tvm_tilex as tx
from tvm_tilex.errors import ShapeError
from tvm_tilex.kernels import composed
from tvm_tilex.kernels.tolerances import TOLERANCES

SMALL = {"block_queries": 16, "block_keys": 16}
# name -> (kernel, extents, constants): ragged and whole shapes, extent one, causal and not.
CASES = {
    "attention 64": (
        "attention", {"batch": 1, "heads": 2, "queries": 40, "keys": 40, "depth": 64}, SMALL
    ),
    "attention 64 causal": (
        "attention",
        {"batch": 1, "heads": 2, "queries": 40, "keys": 40, "depth": 64},
        {**SMALL, "causal": True},
    ),
    "attention 128": (
        "attention", {"batch": 1, "heads": 1, "queries": 32, "keys": 50, "depth": 128}, SMALL
    ),
    "attention 128 causal": (
        "attention",
        {"batch": 1, "heads": 1, "queries": 33, "keys": 33, "depth": 128},
        {**SMALL, "causal": True},
    ),
    "attention causal more queries than keys": (
        "attention",
        {"batch": 1, "heads": 1, "queries": 70, "keys": 32, "depth": 64},
        {"block_queries": 32, "block_keys": 16, "causal": True},
    ),
    "attention causal wide blocks of keys": (
        "attention",
        {"batch": 1, "heads": 1, "queries": 50, "keys": 50, "depth": 64},
        {"block_queries": 8, "block_keys": 32, "causal": True},
    ),
    "attention one key": (
        "attention", {"batch": 1, "heads": 1, "queries": 3, "keys": 1, "depth": 64}, SMALL
    ),
    "matmul": ("matmul", {"rows": 50, "depth": 70, "columns": 33}, {}),
    "matmul whole": ("matmul", {"rows": 64, "depth": 64, "columns": 32}, {}),
    "matmul_softmax": ("matmul_softmax", {"rows": 20, "depth": 40, "columns": 48}, {}),
    "matmul_softmax ragged": ("matmul_softmax", {"rows": 17, "depth": 33, "columns": 37}, {}),
    "batched_gemv": ("batched_gemv", {"batch": 2, "rows": 19, "depth": 300}, {}),
    "batched_gemv one": ("batched_gemv", {"batch": 1, "rows": 1, "depth": 1}, {}),
    "column_sum": ("column_sum", {"rows": 150, "columns": 70}, {}),
    "column_sum one row": ("column_sum", {"rows": 1, "columns": 33}, {}),
    "column_sum in steps": (
        "column_sum", {"rows": 150, "columns": 70}, {"block_rows": 64, "block_columns": 32}
    ),
    "column_max": ("column_max", {"rows": 150, "columns": 70}, {}),
    "split_column_sum": ("split_column_sum", {"rows": 150, "columns": 70, "slices": 4}, {}),
    "split_column_sum empty slice": (
        "split_column_sum", {"rows": 5, "columns": 3, "slices": 4}, {}
    ),
    "split_column_max": ("split_column_max", {"rows": 150, "columns": 70, "slices": 7}, {}),
    "group_normalization": ("group_normalization", {"batch": 2, "channels": 6, "pixels": 200}, {}),
    "group_normalization one": (
        "group_normalization", {"batch": 1, "channels": 2, "pixels": 3}, {"groups": 1}
    ),
}  # fmt: skip

HALVES = ("attention 64", "attention 128 causal", "matmul", "matmul_softmax", "batched_gemv",
          "column_sum", "split_column_sum", "group_normalization")  # fmt: skip
PAIRS = [(case, "float32") for case in CASES] + [(case, "float16") for case in HALVES]
PAIRS += [(case, "bfloat16") for case in ("attention 64", "matmul", "group_normalization")]


def run(case, dtype, target, seed=0, **options):
    name, extents, constants = CASES[case]
    entry = composed.catalog()[name]
    arrays = entry.arguments(extents, dtype, seed=seed)
    artifact = tx.compile(
        entry.kernel,
        *entry.specs(extents, dtype),
        target=target,
        options=tx.CompileOptions(**options),
        **constants,
    )
    if target != "cuda":
        artifact(*arrays)
        comparison = entry.check(arrays, **constants)
        assert comparison.within, comparison
    return artifact, arrays


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_llvm_is_right(case, dtype):
    run(case, dtype, "llvm", seed=1)


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_the_metal_text_is_right(case, dtype):
    artifact, _ = run(case, dtype, "metal", seed=2)
    roots = 2 if case.startswith("split") else 1
    assert artifact.fallback is None and len(artifact.group_plans) == roots


@pytest.mark.parametrize("threads", [48, 128])
@pytest.mark.parametrize(
    "case", ["attention one key", "matmul_softmax ragged", "column_sum", "group_normalization"]
)
def test_every_realization_of_the_metal_text_is_right(case, threads):
    for reductions in ("collective", "serial"):
        artifact, _ = run(
            case, "float32", "metal", group_threads=threads, group_reductions=reductions
        )
        (plan,) = artifact.group_plans
        assert plan.threads == threads
        collective = threads % 32 == 0 and reductions == "collective"
        assert ("collective" in plan.realizations) == collective


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_cuda_text_is_emitted(case, dtype):
    artifact, _ = run(case, dtype, "cuda")
    assert artifact.fallback is None
    sites = sum(plan.barrier_sites for plan in artifact.group_plans)
    assert artifact.source.count("__syncthreads();") == sites


def test_products_of_half_types_use_tensor_cores():
    for dtype in ("float16", "bfloat16"):
        artifact, _ = run("matmul whole", dtype, "cuda", group_threads=64)
        assert "mma.sync.aligned.m16n8k16" in artifact.source
    artifact, _ = run("matmul whole", "float32", "cuda", group_threads=64)
    assert "mma.sync" not in artifact.source
    artifact, _ = run("matmul whole", "float32", "metal", group_threads=64)
    assert "simdgroup_multiply_accumulate" in artifact.source


def test_the_catalog_is_complete_and_documented():
    assert set(composed.catalog()) == set(composed.__all__) - {"catalog"}
    for name, entry in composed.catalog().items():
        assert entry.kernel is getattr(composed, name)
        assert entry.operation in TOLERANCES
        assert (entry.kernel.__doc__ or "").partition("\n")[0].endswith(".")


def test_the_oracles_agree_with_torch():
    entry = composed.catalog()["attention"]
    q, k, v, _ = entry.arguments({"batch": 2, "heads": 2, "queries": 9, "keys": 9, "depth": 16})
    tensors = [torch.from_numpy(x).double() for x in (q, k, v)]
    for causal in (False, True):
        want = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)
        np.testing.assert_allclose(entry.oracle(q, k, v, causal=causal), want, rtol=1e-12)
    entry = composed.catalog()["group_normalization"]
    x, w, b, _ = entry.arguments({"batch": 2, "channels": 6, "pixels": 11})
    tensors = [torch.from_numpy(a).double() for a in (x, w, b)]
    want = torch.nn.functional.group_norm(tensors[0], 3, *tensors[1:], eps=1e-5)
    np.testing.assert_allclose(entry.oracle(x, w, b, groups=3), want, rtol=1e-10, atol=1e-12)


def test_a_wrong_output_is_noticed():
    for name in HALVES:
        kernel, extents, constants = CASES[name]
        entry = composed.catalog()[kernel]
        arrays = entry.arguments(extents, "float32")
        arrays[-1][...] = entry.oracle(*entry.inputs(arrays), **constants)
        assert entry.check(arrays, **constants).within, name
        arrays[-1].flat[-1] += 1e-2 * max(1.0, abs(arrays[-1].flat[-1]))
        assert not entry.check(arrays, **constants).within, name


def test_groups_that_do_not_divide_the_channels_are_refused():
    entry = composed.catalog()["group_normalization"]
    with pytest.raises(ShapeError, match="4 groups do not divide 6 channels"):
        tx.compile(entry.kernel, *entry.specs({"batch": 1, "channels": 6, "pixels": 8}), groups=4)

"""Cooperative groups on CUDA devices without asynchronous copies and m16n8k16 (before sm_80)."""

import shutil
import subprocess

import cuda_on_cpu
import pytest

import tvm_tilex as tx
from tvm_tilex.kernels import composed

TURING = {"kind": "cuda", "arch": "sm_75", "max_num_threads": 1024, "thread_warp_size": 32}
CASES = {
    "matmul": (
        {"rows": 64, "depth": 96, "columns": 64},
        {"block_rows": 64, "block_columns": 64},
        {"group_threads": 128},
    ),
    "matmul_softmax": (
        {"rows": 64, "depth": 64, "columns": 64},
        {"block_rows": 64},
        {"group_threads": 128, "group_products": "matrix"},
    ),
    "batched_gemv": ({"batch": 2, "rows": 19, "depth": 300}, {}, {}),
    "column_sum": ({"rows": 150, "columns": 70}, {}, {}),
}


def turing(name, dtype):
    extents, constants, options = CASES[name]
    entry = composed.catalog()[name]
    asked = tx.CompileOptions(**options)
    specs = entry.specs(extents, dtype)
    return tx.compile(entry.kernel, *specs, target=TURING, options=asked, **constants)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_the_text_asks_for_nothing_newer(name, dtype):
    artifact = turing(name, dtype)
    (plan,) = artifact.group_plans
    assert "matrix" not in plan.realizations and not plan.asynchronous
    for instruction in ("cp.async", "mma.sync", "ldmatrix", "ulonglong4"):
        assert instruction not in artifact.source


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_against_fp64(name, dtype, tmp_path):
    extents, constants, _ = CASES[name]
    entry = composed.catalog()[name]
    arrays = entry.arguments(extents, dtype)
    cuda_on_cpu.run(turing(name, dtype), arrays, tmp_path)
    comparison = entry.check(arrays, **constants)
    assert comparison.within, comparison


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["matmul", "batched_gemv"])
def test_a_device_compiler_takes_it(name, tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text(turing(name, "bfloat16").source)
    command = ["nvcc", "-arch=sm_75", "-cubin", "-std=c++17", str(source)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernel.cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

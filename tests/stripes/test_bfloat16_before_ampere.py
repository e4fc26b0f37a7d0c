"""bfloat16 on CUDA devices that have no such type: TVM keeps it as integers and widens those."""

import re
import shutil
import subprocess

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import kernel_of

import tvm_tilex as tx
from tvm_tilex import kernels

TURING = {"kind": "cuda", "arch": "sm_75", "max_num_threads": 1024, "thread_warp_size": 32}


def turing(name, rows, columns, **options):
    entry = kernels.catalog()[name]
    specs = entry.specs(rows, columns, "bfloat16")
    return tx.compile(entry.kernel, *specs, target=TURING, options=tx.CompileOptions(**options))


def packs_of(elements):
    return {"threads_per_group": 64, "reduction_lane_elements": elements}


@pytest.mark.parametrize("name", kernels.catalog())
def test_every_kernel_has_a_text(name):
    for columns in (1, 33, 1024, 4096):
        assert "nv_bfloat16" not in kernel_of(turing(name, 3, columns))


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("elements", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["softmax", "minmax", "layernorm", "cross_entropy"])
def test_against_fp64(name, elements, tmp_path):
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(3, 520, "bfloat16"))
    for position in entry.outputs:
        arguments[position][...] = np.nan
    cuda_on_cpu.run(turing(name, 3, 520, **packs_of(elements)), arguments, tmp_path)
    assert all(comparison.within for comparison in entry.check(arguments))


def test_vectors_are_those_that_cuda_has():
    """Eight integers of 32 bits are no vector; eight halves are."""
    source = turing("softmax", 3, 520, **packs_of(8)).source
    assert "ulonglong4" not in source and re.search(r"\*\(ushort4\*\)\(input_ptr", source)
    entry = kernels.catalog()["softmax"]
    options = tx.CompileOptions(**packs_of(8))
    specs = entry.specs(3, 520, "float16")
    half = tx.compile(entry.kernel, *specs, target=TURING, options=options).source
    assert re.search(r"\*\(uint4\*\)\(input_ptr", half)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["softmax", "row_max"])
def test_a_device_compiler_takes_it(name, tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text(turing(name, 3, 520, **packs_of(8)).source)
    command = ["nvcc", "-arch=sm_75", "-cubin", "-std=c++17", str(source)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernel.cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

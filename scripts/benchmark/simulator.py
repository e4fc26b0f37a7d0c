"""Measure the Metal source simulator: softmax kernels, lanes per second, peak memory.

Run ``python scripts/benchmark/simulator.py`` (about a minute), ``--all-reduce`` for every kernel of
TVM's all-reduce code generation test, ``--matmul`` for dlight's float32 matmul (slow to schedule).
All checks are on. Each case runs in its own process, so that peak memory is its own.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import multiprocessing
import resource
import time
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
TESTS = Path(__file__).resolve().parents[2] / "tests" / "sim"

COOPERATIVE = """kernel void softmax(
  device float* A [[ buffer(0) ]], device float* B [[ buffer(1) ]],
  uint blockIdx [[threadgroup_position_in_grid]],
  uint threadIdx [[thread_position_in_threadgroup]]) {
  thread float x[16];
  threadgroup float pm[8];
  threadgroup float ps[8];
  float m = -INFINITY;
  for (int c = 0; c < 16; ++c) {
    m = max(m, A[((((int)blockIdx) * 4096) + (c * 256)) + ((int)threadIdx)]);
  }
  float r = simd_max(m);
  if ((((int)threadIdx) % 32) == 0) { pm[((int)threadIdx) >> 5] = r; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float condval;
  if ((((int)threadIdx) % 32) < 8) { condval = pm[((int)threadIdx) % 32]; }
  else { condval = -INFINITY; }
  float mx = simd_max(condval);
  float s = 0.000000e+00f;
  for (int c = 0; c < 16; ++c) {
    x[c] = exp(A[((((int)blockIdx) * 4096) + (c * 256)) + ((int)threadIdx)] - mx);
    s = s + x[c];
  }
  float t = simd_sum(s);
  if ((((int)threadIdx) % 32) == 0) { ps[((int)threadIdx) >> 5] = t; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float condval_1;
  if ((((int)threadIdx) % 32) < 8) { condval_1 = ps[((int)threadIdx) % 32]; }
  else { condval_1 = 0.0f; }
  float total = simd_sum(condval_1);
  for (int c = 0; c < 16; ++c) {
    B[((((int)blockIdx) * 4096) + (c * 256)) + ((int)threadIdx)] = x[c] / total;
  }
}
"""
# One thread per row, as a map without cooperation has it.
REFERENCE = """kernel void softmax(device float* A [[ buffer(0) ]], device float* B [[ buffer(1) ]],
  uint i [[thread_position_in_grid]]) {
  float m = -INFINITY;
  for (int c = 0; c < 4096; ++c) { m = max(m, A[((int)i) * 4096 + c]); }
  float s = 0.0f;
  for (int c = 0; c < 4096; ++c) { s = s + exp(A[((int)i) * 4096 + c] - m); }
  for (int c = 0; c < 4096; ++c) {
    B[((int)i) * 4096 + c] = exp(A[((int)i) * 4096 + c] - m) / s;
  }
}
"""


def helpers():
    spec = importlib.util.spec_from_file_location("sim_conftest", TESTS / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dlight_softmax(rows: int):
    from tvm import te, topi
    from tvm.s_tir import dlight

    kernels = helpers().TvmKernels()
    a = te.placeholder((rows, 4096), name="A")
    function = te.create_prim_func([a, topi.nn.softmax(a)]).with_attr("global_symbol", "main")
    module = kernels.scheduled(function, dlight.gpu.GeneralReduction())
    return kernels.source(module), kernels.launches(module)[0]


def softmax(case: str, rows: int) -> str:
    from tvm_tilex.sim import MetalKernel

    if case == "dlight":
        text, (grid, group) = dlight_softmax(rows)
    else:
        text = REFERENCE if case == "reference" else COOPERATIVE
        grid, group = ((rows // 32,), (32,)) if case == "reference" else ((rows,), (256,))
    a = np.random.default_rng(0).standard_normal((rows, 4096)).astype(np.float32)
    b = np.zeros_like(a)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    (kernel,) = MetalKernel.from_source(text).values()
    compiled = time.perf_counter()
    counters = kernel.launch(grid, group, a, b)
    seconds = time.perf_counter() - compiled
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    error = float(np.abs(b - e / e.sum(1, keepdims=True)).max())
    device = counters.device.values()
    accesses = sum(d.load_elements + d.store_elements for d in device)
    return (
        f"{case:12} {rows:5}x4096  {seconds:7.2f} s  (+{compiled - start:.2f} s compile)  "
        f"{counters.threads / seconds:12,.0f} threads/s  {accesses / seconds:12,.0f} accesses/s  "
        f"peak {peak:6.0f} MB (before {base:.0f})  max error {error:.1e}"
    )


def all_reduce() -> str:
    from tvm_tilex.sim.errors import KernelFault

    spec = importlib.util.spec_from_file_location("codegen", TESTS / "test_sim_tvm_codegen.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels = helpers().TvmKernels()
    found = collections.defaultdict(list)
    extents = (2, 4, 8, 12, 16, 32, 48, 64, 100, 128, 201, 256, 512, 1024)
    for index in range(16 * len(extents)):
        d1, d2, d3 = 1 + index % 4, 1 + index // 4 % 4, extents[index // 16]
        if d1 * d2 * d3 >= 1024:
            continue
        try:
            got, expected = module.all_reduced(kernels, (d1, d2, d3), False)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
            found["right"].append((d1, d2, d3))
        except KernelFault as error:
            found[type(error).__name__].append((d1, d2, d3))
    return "\n".join(f"{name}: {len(cases)} {cases}" for name, cases in found.items())


def matmul() -> str:
    from tvm import te, topi
    from tvm.s_tir import dlight

    from tvm_tilex.sim import MetalKernel

    kernels = helpers().TvmKernels()
    x = te.placeholder((128, 256), name="X")
    y = te.placeholder((256, 128), name="Y")
    function = te.create_prim_func([x, y, topi.matmul(x, y)]).with_attr("global_symbol", "main")
    start = time.perf_counter()
    module = kernels.scheduled(function, dlight.gpu.Matmul())
    scheduled = time.perf_counter() - start
    text = kernels.source(module)
    same = text == (TESTS / "kernels" / "dlight_matmul_float32.metal").read_text()
    (kernel,) = MetalKernel.from_source(text).values()
    rng = np.random.default_rng(0)
    a = rng.standard_normal((128, 256)).astype(np.float32)
    b = rng.standard_normal((256, 128)).astype(np.float32)
    out = np.zeros((128, 128), np.float32)
    arrays = {"X_ptr": a, "Y_ptr": b}
    kernel.launch(
        *kernels.launches(module)[0], *(arrays.get(p.symbol.name, out) for p in kernel.buffers)
    )
    error = np.abs(out - a.astype(np.float64) @ b.astype(np.float64)).max()
    return (
        f"dlight float32 matmul: scheduled in {scheduled:.1f} s, max error {error:.1e}, "
        f"text {'equals' if same else 'DIFFERS from'} the kept one"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all-reduce", action="store_true")
    parser.add_argument("--matmul", action="store_true")
    options = parser.parse_args()
    jobs = [
        (softmax, ("cooperative", 1024)),
        (softmax, ("cooperative", 4096)),
        (softmax, ("dlight", 1024)),
        (softmax, ("dlight", 4096)),
        (softmax, ("reference", 4096)),
    ]
    if options.all_reduce:
        jobs = [(all_reduce, ())]
    if options.matmul:
        jobs = [(matmul, ())]
    context = multiprocessing.get_context("spawn")
    for function, arguments in jobs:
        with context.Pool(1) as pool:
            print(pool.apply(function, arguments), flush=True)


if __name__ == "__main__":
    main()

"""Schedules of TVM's dlight for topi functions, run in the simulator against NumPy.

Code that nobody of this project wrote: dlight schedules it, TVM's Metal code generator emits it.
All checks are on with their defaults.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvm_tilex.sim import Checks, MetalKernel
from tvm_tilex.sim.errors import UndefinedValueError

pytest.importorskip("tvm")


class Scheduled:
    """A scheduled function: its text, and launches of all its kernels on arrays by name."""

    def __init__(self, tvm_kernels, outputs, *rules):
        from tvm import te

        function = te.create_prim_func(outputs).with_attr("global_symbol", "main")
        self.module = tvm_kernels.scheduled(function, *rules)
        self.text = tvm_kernels.source(self.module)
        self.launches = tvm_kernels.launches(self.module)

    def run(self, out, *, checks=None, **arrays):
        """Launch the kernels in order; a buffer without a given name is the result."""
        kernels = list(MetalKernel.from_source(self.text).values())
        assert len(kernels) == len(self.launches)
        scratch: dict[str, np.ndarray] = {}
        counters = []
        for kernel, (grid, group) in zip(kernels, self.launches, strict=True):
            given = []
            for buffer in kernel.buffers:
                name = buffer.symbol.name.removesuffix("_ptr")
                if name in arrays:
                    given.append(arrays[name])
                elif name in out:
                    given.append(out[name])
                else:
                    given.append(scratch.setdefault(name, np.zeros(1 << 16, np.float32)))
            counters.append(kernel.launch(grid, group, *given, checks=checks or Checks()))
        return counters


def rules(*names):
    from tvm.s_tir import dlight

    return [getattr(dlight.gpu, name)() for name in names]


def random(*shape, dtype="float32"):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def softmax64(x):
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("rule", ["GeneralReduction", "Fallback"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 4096), (64, 512), (5, 1000), (17, 257)])
def test_softmax(tvm_kernels, rule, rows, columns):
    from tvm import te, topi

    a = te.placeholder((rows, columns), name="A")
    function = Scheduled(tvm_kernels, [a, topi.nn.softmax(a)], *rules(rule))
    x, out = random(rows, columns), np.zeros((rows, columns), np.float32)
    function.run({"T_softmax_norm": out}, A=x)
    np.testing.assert_allclose(out, softmax64(x), rtol=2e-5, atol=2e-6)


def test_the_emitted_reduction_reads_thread_memory_that_nothing_wrote(tvm_kernels):
    """Idle lanes shuffle a partial that only some lanes set; no result depends on it."""
    from tvm import te, topi

    a = te.placeholder((4, 512), name="A")
    function = Scheduled(tvm_kernels, [a, topi.nn.softmax(a)], *rules("GeneralReduction"))
    x, out = random(4, 512), np.zeros((4, 512), np.float32)
    with pytest.raises(UndefinedValueError, match="'red_buf0_1' that nothing wrote"):
        function.run({"T_softmax_norm": out}, A=x, checks=Checks(uninitialized="read"))


@pytest.mark.parametrize("rule", ["GeneralReduction", "Fallback"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 4096), (8, 1000)])
def test_layer_norm(tvm_kernels, rule, rows, columns):
    from tvm import te, topi

    a = te.placeholder((rows, columns), name="A")
    gamma = te.placeholder((columns,), name="gamma")
    beta = te.placeholder((columns,), name="beta")
    result = topi.nn.layer_norm(a, gamma, beta, [1], 1e-5)
    function = Scheduled(tvm_kernels, [a, gamma, beta, result], *rules(rule))
    x, g, b = random(rows, columns), random(columns), random(1, columns)[0]
    out = np.zeros((rows, columns), np.float32)
    function.run({"T_layer_norm": out}, A=x, gamma=g, beta=b)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    expected = centered / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_reduction(tvm_kernels, axis, name):
    from tvm import te, topi

    a = te.placeholder((64, 768), name="A")
    # The Reduction rule takes sums alone; a maximum falls to the next rule that applies.
    order = rules("Reduction", "GeneralReduction", "Fallback")
    function = Scheduled(tvm_kernels, [a, getattr(topi, name)(a, axis=axis)], *order)
    x = random(64, 768)
    out = np.zeros(768 if axis == 0 else 64, np.float32)
    function.run({"A_red": out}, A=x)
    expected = getattr(np, name)(x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gemv(tvm_kernels, dtype):
    from tvm import te, topi

    v = te.placeholder((1, 512), name="v", dtype=dtype)
    w = te.placeholder((96, 512), name="W", dtype=dtype)
    function = Scheduled(tvm_kernels, [v, w, topi.matmul(v, w, transp_b=True)], *rules("GEMV"))
    x, y = random(1, 512, dtype=dtype) / 16, random(96, 512, dtype=dtype) / 16
    out = np.zeros((1, 96), dtype)
    function.run({"T_matmul": out}, v=x.astype(dtype), W=y.astype(dtype))
    expected = x.astype(np.float64) @ y.astype(np.float64).T
    tolerance = 1e-6 if dtype == "float32" else 8 * 2.0**-11  # eight roundings of values near 1
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("transposed", [False, True])
def test_matmul_with_simdgroup_matrices(tvm_kernels, transposed):
    from tvm import te, topi

    dtype = "float16"
    x = te.placeholder((64, 128), name="X", dtype=dtype)
    shape = (64, 128) if transposed else (128, 64)
    y = te.placeholder(shape, name="Y", dtype=dtype)
    result = topi.matmul(x, y, transp_b=transposed)
    function = Scheduled(tvm_kernels, [x, y, result], *rules("Matmul"))
    assert "simdgroup_half8x8" in function.text
    a, b = random(64, 128, dtype=dtype), random(*shape, dtype=dtype)
    out = np.zeros((64, 64), dtype)
    (counters,) = function.run({"T_matmul": out}, X=a, Y=b)
    wide = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)
    # One rounding to half per 8 of the 128 summands, each at most half an ulp of a partial sum.
    bound = (
        16
        * 2.0**-11
        * np.abs(a.astype(np.float64))
        @ np.abs((b.T if transposed else b).astype(np.float64))
    )
    assert (np.abs(out - wide) <= bound).all()
    assert counters.collectives["simdgroup_multiply_accumulate"] == 8 * 8 * 16


def test_float32_matmul():
    """The text that dlight and TVM 0.27 give for (128, 256) @ (256, 128) in float32.

    It is kept in a file because dlight needs minutes to schedule it;
    ``scripts/benchmark/simulator.py --matmul`` schedules it anew and compares the text.
    """
    text = (Path(__file__).with_name("kernels") / "dlight_matmul_float32.metal").read_text()
    a, b = random(128, 256), random(256, 128)
    out = np.zeros((128, 128), np.float32)
    MetalKernel.from_source(text)["main_kernel"].launch((4, 4), (8, 8), out, a, b)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert (np.abs(out - wide) <= 256 * 2.0**-24 * scale).all()


def test_matmul_by_hand_with_simdgroup_matrices(tvm_kernels):
    """dlight uses matrices for float16 only; here TVM emits 8x8 float32 ones.

    (Its pipeline turns bfloat16 matrices into uint16, which its code generator then refuses.)
    """
    from tvm.script import tirx as T

    dtype = "float32"

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((64, 32), dtype), B: T.Buffer((32, 64), dtype), C: T.Buffer((64, 64), dtype)
    ):
        bx = T.launch_thread("blockIdx.x", 8)
        tx = T.launch_thread("threadIdx.x", 64)
        fa = T.alloc_buffer((64,), dtype, scope="metal.simdgroup")
        fb = T.alloc_buffer((64,), dtype, scope="metal.simdgroup")
        fc = T.alloc_buffer((256,), dtype, scope="metal.simdgroup")
        for j in T.serial(4):
            T.metal.make_filled_simdgroup_matrix(fc.data, j, T.float32(0), 8, 8)
        for k in T.serial(4):
            T.metal.simdgroup_load(
                fa.data, 0, T.address_of(A[bx * 8, k * 8]), 32, 8, 8, T.bool(False)
            )
            for j in T.serial(4):
                T.metal.simdgroup_load(
                    fb.data,
                    0,
                    T.address_of(B[k * 8, tx // 32 * 32 + j * 8]),
                    64,
                    8,
                    8,
                    T.bool(False),
                )
                T.metal.simdgroup_multiply_accumulate(
                    fc.data, j, fa.data, 0, fb.data, 0, fc.data, j
                )
        for j in T.serial(4):
            T.metal.simdgroup_store(
                fc.data,
                j,
                T.address_of(C[bx * 8, tx // 32 * 32 + j * 8]),
                64,
                8,
                8,
                T.bool(False),
            )

    text = tvm_kernels.source(main)
    assert "simdgroup_float8x8" in text
    a, b = random(64, 32), random(32, 64)
    c = np.zeros((64, 64), np.float32)
    (kernel,) = MetalKernel.from_source(text).values()
    kernel.launch(8, 64, a, b, c)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert (np.abs(c - wide) <= 12 * 2.0**-24 * scale).all()

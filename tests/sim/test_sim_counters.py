"""Counters against counts that follow from the kernel by hand, and their table."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tilex.sim import MetalKernel, format_counters

HEAD = """kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
uint g [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
"""


def run(body: str, grid=4, group=64, size=4096, **options):
    a, b = np.zeros(size, np.float32), np.zeros(size, np.float32)
    return MetalKernel.from_source(HEAD + body + "}\n")["k"].launch(grid, group, a, b, **options)


@pytest.mark.parametrize("chunk", [64, 1 << 16])
def test_device_traffic_per_buffer(chunk):
    body = "for (int i = 0; i < 3; ++i) { b[g * 64 + t] = a[g * 64 + t] + a[0]; }"
    counters = run(body, lanes_per_chunk=chunk)
    a, b = counters.device["a"], counters.device["b"]
    assert (a.load_elements, a.load_bytes, a.store_elements) == (1536, 6144, 0)
    assert (b.store_elements, b.store_bytes, b.load_elements) == (768, 3072, 0)
    assert (a.load_accesses, b.store_accesses) == (48, 24)
    assert counters.loads_per_element("a", 256) == 6
    assert counters.arithmetic["float.add"] == 768


def test_only_active_threads_count():
    counters = run("if (t < 10) { b[g * 64 + t] = a[t] * 2.0f; } else { b[g * 64 + t] = 1.0f; }")
    assert counters.device["a"].load_elements == 40
    assert counters.device["b"].store_elements == 256
    assert counters.arithmetic["float.multiply"] == 40
    assert counters.device["a"].load_accesses == 4  # one of the two SIMD groups of each


def test_vector_access_counts_its_components():
    counters = run("*(device float4*)(b + (g * 64 + t) * 4) = *(device float4*)(a + t * 4);")
    assert counters.device["a"].load_elements == 4 * 256
    assert counters.device["a"].load_bytes == 16 * 256
    assert counters.device["a"].load_segments == 4 * 8  # 512 bytes a SIMD access


SEGMENTS = {
    "a[t]": 1,
    "a[0]": 1,
    "a[t * 2]": 2,
    "a[t * 32]": 32,
    "a[63 - t]": 1,
    "a[t + 1]": 2,
    "a[(t * 5) % 32]": 1,
    "a[lane % 2 * 512]": 2,
}


@pytest.mark.parametrize("access", SEGMENTS)
def test_coalescing_counts_distinct_segments(access):
    counters = run(f"b[g * 64 + t] = {access};")
    a = counters.device["a"]
    assert a.load_segments / a.load_accesses == SEGMENTS[access]
    masked = run(
        f"if (lane < 32 && t < 64 && a[4000] < float(t + 1)) {{ b[g * 64 + t] = {access}; }}"
    )
    assert masked.device["a"].load_segments - 8 == a.load_segments  # 8: the guard's broadcast


CONFLICTS = {
    "x[t]": 0,
    "x[0]": 0,
    "x[lane * 2]": 1,
    "x[lane * 32]": 31,
    "x[lane * 33 % 1024]": 0,
    "x[lane / 2 * 32]": 15,
}


@pytest.mark.parametrize("access", CONFLICTS)
def test_bank_conflicts(access):
    body = (
        "threadgroup float x[1024]; for (int i = 0; i < 16; ++i) { x[i * 64 + (int)t] = 1.0f; }\n"
        f"threadgroup_barrier(mem_flags::mem_threadgroup);\nb[g * 64 + t] = {access};"
    )
    counters = run(body)
    x = counters.threadgroup["x"]
    assert x.bank_conflicts == CONFLICTS[access] * 8
    assert (x.store_elements, x.load_elements) == (4 * 1024, 256)
    assert x.accesses == 8 * 17


def test_barriers_collectives_and_static_sizes():
    body = """threadgroup float x[8]; thread float y[16]; simdgroup_float8x8 m[2];
for (int i = 0; i < 3; ++i) { threadgroup_barrier(mem_flags::mem_threadgroup); }
if (g < 2) { threadgroup_barrier(mem_flags::mem_none); }
if (simd == 1) { simdgroup_barrier(mem_flags::mem_none); }
float s = simd_sum(a[t]) + simd_max(a[t]);
b[g * 64 + t] = s;
"""
    counters = run(body)
    assert counters.barriers == 4 * 3 + 2 and counters.barriers_per_threadgroup == 3.5
    assert counters.simdgroup_barriers == 4
    assert dict(counters.collectives) == {"simd_sum": 8, "simd_max": 8}
    assert counters.threadgroup_bytes == 32
    assert counters.private_bytes_per_thread == 64 + 2 * 8
    assert counters.threads == 256 and counters.loop_iterations == 3


def test_arithmetic_by_type_and_kind():
    body = """int i = (int)t * 3 + 1; i = i / 2; i = i << 1; half h = (half)1.0h * (half)i;
float f = exp((float)h) / 2.0f; b[g * 64 + t] = max(f, 0.0f);"""
    counts = run(body, grid=1, group=32).arithmetic
    for key in ("int.multiply", "int.divide", "int.shift", "half.multiply", "float.exp"):
        assert counts[key] == 32, key
    assert counts["float.divide"] == counts["float.max"] == 32


def test_table_shows_every_counter():
    body = "threadgroup float part[64]; part[t] = simd_sum(a[t]); b[g * 64 + t] = part[t];"
    counters = run(body)
    text = format_counters(counters)
    assert text == counters.table()
    assert "4 threadgroups x 64 threads, 256 threadgroup bytes" in text
    for word in ("device", "threadgroup", "simd_sum", "int", "bank conflicts", "segments/access"):
        assert word in text
    row = next(line for line in text.splitlines() if " part " in line)
    assert "1,024" in row and "256" in row


def test_equal_launches_give_equal_counters_and_chunks_do_not_matter():
    body = "threadgroup float part[64]; part[t] = simd_sum(a[t]); b[g * 64 + t] = part[t];"
    assert run(body) == run(body) == run(body, lanes_per_chunk=64)

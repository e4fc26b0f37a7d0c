"""SIMD-group functions, their order, and SIMD-group matrices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tvm_tilex.sim import MetalKernel
from tvm_tilex.sim.errors import UndefinedValueError


def run(expression: str, data: np.ndarray, kind="float", threads=64, groups=2, **options):
    text = (
        f"kernel void k(device {kind}* a [[buffer(0)]], device {kind}* b [[buffer(1)]],\n"
        "uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {\n"
        f"b[i] = {expression};\n}}"
    )
    out = np.zeros_like(data)
    counters = MetalKernel.from_source(text)["k"].launch(groups, threads, data, out, **options)
    return out, counters


def rows(data: np.ndarray) -> np.ndarray:
    return data.reshape(-1, 32)


@pytest.mark.parametrize("kind", ["float", "int", "half"])
@pytest.mark.parametrize(
    ("name", "function"),
    [("simd_sum", np.sum), ("simd_max", np.max), ("simd_min", np.min), ("simd_product", np.prod)],
)
def test_reductions(kind, name, function):
    dtype = {"float": np.float32, "int": np.int32, "half": np.float16}[kind]
    data = (np.arange(128) % 3 + 1).astype(dtype)
    if name == "simd_product":
        data = np.where(np.arange(128) % 8 == 0, 2, 1).astype(dtype)
    out, counters = run(f"{name}(a[i])", data, kind)
    expected = function(rows(data.astype(np.int64)), axis=1)
    np.testing.assert_array_equal(rows(out), np.repeat(expected[:, None], 32, 1).astype(dtype))
    assert counters.collectives[name] == 4


@pytest.mark.parametrize("name", ["simd_and", "simd_or", "simd_xor"])
def test_bit_reductions(name):
    data = np.random.default_rng(0).integers(-(2**31), 2**31, 128).astype(np.int32)
    out, _ = run(f"{name}(a[i])", data, "int")
    function = {"simd_and": np.bitwise_and, "simd_or": np.bitwise_or, "simd_xor": np.bitwise_xor}
    expected = function[name].reduce(rows(data), axis=1)
    np.testing.assert_array_equal(rows(out), np.repeat(expected[:, None], 32, 1))


def test_sum_of_negative_zeros_and_of_a_partial_simd_group():
    out, _ = run("simd_sum(a[i])", np.full(20, -0.0, np.float32), threads=20, groups=1)
    assert np.signbit(out).all()
    data = np.arange(40, dtype=np.float32)
    out, _ = run("simd_max(-a[i]) + simd_sum(a[i])", data, threads=40, groups=1)
    assert (out[:32] == data[:32].sum()).all()
    assert (out[32:] == data[32:].sum() - 32).all()


def test_vector_argument_reduces_by_component():
    out, _ = run("simd_sum(float2(a[i], 1.0f)).y", np.zeros(64, np.float32), groups=1)
    assert (out == 32).all()


SHUFFLES = {
    "simd_shuffle(a[i], 5)": lambda lane: np.full(32, 5),
    "simd_shuffle(a[i], (lane * 7) % 32)": lambda lane: lane * 7 % 32,
    "simd_broadcast(a[i], 3)": lambda lane: np.full(32, 3),
    "simd_broadcast_first(a[i])": lambda lane: lane * 0,
    "simd_shuffle_xor(a[i], 9)": lambda lane: lane ^ 9,
    "simd_shuffle_up(a[i], 3)": lambda lane: np.where(lane >= 3, lane - 3, lane),
    "simd_shuffle_down(a[i], 16)": lambda lane: np.where(lane < 16, lane + 16, lane),
    "simd_shuffle_rotate_up(a[i], 3)": lambda lane: (lane - 3) % 32,
    "simd_shuffle_rotate_down(a[i], 3)": lambda lane: (lane + 3) % 32,
}


@pytest.mark.parametrize("expression", SHUFFLES)
def test_shuffles(expression):
    data = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    out, _ = run(expression, data)
    source = SHUFFLES[expression](np.arange(32))
    np.testing.assert_array_equal(rows(out), rows(data)[:, source])


def test_shuffle_from_a_lane_that_does_not_exist_is_undefined():
    data = np.arange(40, dtype=np.float32)
    with pytest.raises(UndefinedValueError, match="simd_shuffle_xor"):
        run("simd_shuffle_xor(a[i], 16)", data, threads=40, groups=1)
    run("simd_shuffle_xor(a[i], 7)", data, threads=40, groups=1)


def test_scans_and_votes():
    data = np.arange(128, dtype=np.float32)
    inclusive = np.cumsum(rows(data), axis=1)
    out, _ = run("simd_prefix_inclusive_sum(a[i])", data)
    np.testing.assert_array_equal(rows(out), inclusive)
    out, _ = run("simd_prefix_exclusive_sum(a[i])", data)
    np.testing.assert_array_equal(rows(out), inclusive - rows(data))
    out, _ = run("simd_any(a[i] == 40.0f) ? 1.0f : 0.0f", data)
    assert rows(out)[:, 0].tolist() == [0, 1, 0, 0]
    out, _ = run("simd_all(a[i] < 64.0f) ? 1.0f : 0.0f", data)
    assert rows(out)[:, 0].tolist() == [1, 1, 0, 0]
    out, _ = run("simd_is_first() ? 1.0f : 0.0f", data)
    assert (rows(out) == (np.arange(32) == 0)).all()


def test_order_of_a_sum_varies_with_the_seed_and_only_with_it():
    data = np.random.default_rng(0).standard_normal(128).astype(np.float32) * 1e3
    results = {seed: run("simd_sum(a[i])", data, seed=seed)[0].tobytes() for seed in range(8)}
    assert len(set(results.values())) > 1
    for seed, expected in results.items():
        assert run("simd_sum(a[i])", data, seed=seed)[0].tobytes() == expected
        assert run("simd_sum(a[i])", data, seed=seed, lanes_per_chunk=64)[0].tobytes() == expected
    default = run("simd_sum(a[i])", data)[0].tobytes()
    assert default == results[0]


def test_a_result_that_depends_on_the_order_shows():
    data = np.zeros(64, np.float32)
    data[:3] = 1e8, 1.0, -1e8
    found = {run("simd_sum(a[i])", data, groups=1, seed=s)[0][0] for s in range(16)}
    assert found == {0.0, 1.0}


@pytest.mark.parametrize("width", [8, 16, 64])
def test_simd_width_is_settable(width):
    data = np.arange(128, dtype=np.float32)
    out, counters = run("simd_sum(a[i])", data, simd_width=width)
    expected = data.reshape(-1, width).sum(1)
    np.testing.assert_array_equal(out, np.repeat(expected, width))
    assert counters.collectives["simd_sum"] == 128 // width


MATRIX = """kernel void k(device {t}* a [[buffer(0)]], device {t}* b [[buffer(1)]],
device {t}* c [[buffer(2)]], uint simd [[simdgroup_index_in_threadgroup]]) {{
  simdgroup_{t}8x8 x[2];
  simdgroup_matrix<{t}, 8, 8> y;
  simdgroup_{t}8x8 acc[1];
  acc[0] = make_filled_simdgroup_matrix<{t}, 8, 8>(0.5f);
  for (int k = 0; k < 3; ++k) {{
    simdgroup_load(x[k % 2], a + (simd * 192) + (k * 8), 24, 0, (bool)0);
    simdgroup_load(y, (&(b[k * 8])), 24, 0, (bool)1);
    simdgroup_multiply_accumulate(acc[0], x[k % 2], y, acc[0]);
  }}
  simdgroup_store(acc[0], c + simd * 64, 8, 0, (bool)0);
}}"""


@pytest.mark.parametrize(
    ("name", "dtype"), [("float", np.float32), ("half", np.float16), ("bfloat", ml_dtypes.bfloat16)]
)
def test_matrices_load_transpose_accumulate_store(name, dtype):
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (16, 24)).astype(dtype)
    b = rng.integers(-3, 4, (8, 24)).astype(dtype)
    c = np.zeros((16, 8), dtype)
    counters = MetalKernel.from_source(MATRIX.format(t=name))["k"].launch(1, 64, a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64).T + 0.5
    np.testing.assert_array_equal(c.astype(np.float64), expected.astype(dtype).astype(np.float64))
    assert counters.collectives["simdgroup_multiply_accumulate"] == 6
    assert counters.device["a"].load_elements == 6 * 64
    assert counters.device["c"].store_elements == 2 * 64


def test_half_matrices_round_to_half_at_every_accumulate():
    """0.5 + 2048 + 1 + 1 is 2048 with a rounding per step and 2050 with one at the end."""
    a = np.zeros((8, 24), np.float16)
    a[:, :8], a[:, 8], a[:, 16] = 16, 1, 1
    c = np.zeros((8, 8), np.float16)
    MetalKernel.from_source(MATRIX.format(t="half"))["k"].launch(1, 32, a, a.copy(), c)
    assert (c == 2048).all()

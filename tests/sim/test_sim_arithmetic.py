"""Arithmetic, conversions, vectors and control flow against NumPy and plain Python."""

from __future__ import annotations

import ctypes
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.sim import MetalKernel

BF16 = ml_dtypes.bfloat16
NAMES = {
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "half": np.float16,
    "bfloat": BF16,
    "float": np.float32,
}


def evaluate(expression: str, result: str, *arrays: tuple[str, np.ndarray], before: str = ""):
    """Run ``r[t] = expression`` over threads t; inputs are x, y, z with their MSL types."""
    names = "xyz"
    size = arrays[0][1].size if arrays else 32
    parameters = "".join(
        f"device const {kind}* p{names[k]} [[buffer({k + 1})]], "
        for k, (kind, _) in enumerate(arrays)
    )
    loads = "".join(f"{kind} {names[k]} = p{names[k]}[t];\n" for k, (kind, _) in enumerate(arrays))
    text = (
        f"kernel void k(device {result}* r [[buffer(0)]], {parameters}"
        f"uint t [[thread_position_in_grid]]) {{\n{loads}{before}r[t] = {expression};\n}}"
    )
    out = np.zeros(size, NAMES[result])
    MetalKernel.from_source(text)["k"].launch(1, size, out, *(a for _, a in arrays))
    return out


INT_OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}
C_TYPES = {"int": ctypes.c_int32, "uint": ctypes.c_uint32, "long": ctypes.c_int64}
C_TYPES |= {"char": ctypes.c_int8, "ushort": ctypes.c_uint16, "ulong": ctypes.c_uint64}


def numbers(kind: str):
    info = np.iinfo(NAMES[kind])
    edges = [info.min, info.min + 1, 0, 1, 3, info.max - 1, info.max]
    return st.lists(
        st.one_of(st.sampled_from(edges), st.integers(int(info.min), int(info.max))),
        min_size=8,
        max_size=8,
    )


@pytest.mark.parametrize("kind", ["int", "uint", "long", "ulong"])
@pytest.mark.parametrize("operator", INT_OPERATIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_integers_wrap_and_divide_as_c_does(kind, operator, data):
    a = data.draw(numbers(kind))
    b = data.draw(numbers(kind))
    if operator in "/%":
        b = [v or 7 for v in b]
    dtype = NAMES[kind]
    got = evaluate(f"x {operator} y", kind, (kind, np.array(a, dtype)), (kind, np.array(b, dtype)))
    wrap = C_TYPES[kind]
    expected = [wrap(INT_OPERATIONS[operator](p, q)).value for p, q in zip(a, b, strict=True)]
    assert got.tolist() == expected


def test_narrow_integers_promote_to_int():
    x = np.array([100, -100, 127, -128], np.int8)
    assert evaluate("x + x", "int", ("char", x)).tolist() == [200, -200, 254, -256]
    assert evaluate("(char)(x + x)", "char", ("char", x)).tolist() == [-56, 56, -2, 0]
    assert evaluate("x * x * x", "char", ("char", x)).dtype == np.int8
    assert evaluate("~x", "int", ("char", x)).tolist() == [~int(v) for v in x]


def test_mixed_signedness_is_unsigned():
    x = np.array([-1, 1], np.int32)
    assert evaluate("x < 1u", "bool", ("int", x)).tolist() == [False, False]
    assert evaluate("x / 2u", "uint", ("int", x)).tolist() == [2**31 - 1, 0]
    assert evaluate("(long)x < 1u", "bool", ("int", x)).tolist() == [True, False]


@pytest.mark.parametrize("kind", ["int", "uint", "long"])
def test_shifts(kind):
    x = np.array([-7, 7, 1, 123456], np.int64).astype(NAMES[kind])
    y = np.array([1, 2, 31, 4], np.uint32)
    wrap = C_TYPES[kind]
    left = [wrap(int(a) << int(b)).value for a, b in zip(x, y, strict=True)]
    right = [int(a) >> int(b) for a, b in zip(x, y, strict=True)]
    assert evaluate("x << y", kind, (kind, x), ("uint", y)).tolist() == left
    assert evaluate("x >> y", kind, (kind, x), ("uint", y)).tolist() == right


@pytest.mark.parametrize("kind", ["half", "bfloat", "float"])
@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
def test_floats_round_once_as_their_type(kind, operator):
    """Against float64, which is exact or innocuous before the one rounding of these operations."""
    rng = np.random.default_rng(1)
    dtype = NAMES[kind]
    x = (rng.standard_normal(512) * 10.0 ** rng.integers(-3, 4, 512)).astype(dtype)
    y = (rng.standard_normal(512) + 3).astype(dtype)
    got = evaluate(f"x {operator} y", kind, (kind, x), (kind, y))
    wide = eval(f"a {operator} b", {"a": x.astype(np.float64), "b": y.astype(np.float64)})
    # float64 to bfloat16 goes through float32 in ml_dtypes; round to odd there keeps it exact.
    np.testing.assert_array_equal(got, round_to(wide, dtype))


def round_to(wide: np.ndarray, dtype) -> np.ndarray:
    if dtype is not BF16:
        return wide.astype(dtype)
    near = wide.astype(np.float32)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(wide), np.nextafter(near, 0), near)
    bits = toward.astype(np.float32).view(np.uint32)
    odd = np.where(toward.astype(np.float64) == wide, bits, bits | 1).astype(np.uint32)
    return odd.view(np.float32).astype(BF16)


def test_half_arithmetic_differs_from_float_arithmetic():
    x = np.full(4, 2048, np.float16)
    one = np.ones(4, np.float16)
    assert (evaluate("x + y + y", "half", ("half", x), ("half", one)) == 2048).all()
    assert (evaluate("(float)x + y + y", "half", ("half", x), ("half", one)) == 2050).all()
    assert (evaluate("x + 1.0f + 1.0f", "half", ("half", x)) == 2050).all()
    x = np.full(4, 256, BF16)
    one = np.ones(4, BF16)
    assert (evaluate("x + y + y", "bfloat", ("bfloat", x), ("bfloat", one)) == 256).all()
    assert (
        evaluate("(float)x + (float)y + (float)y", "float", ("bfloat", x), ("bfloat", one)) == 258
    ).all()


def test_float_overflow_and_half_overflow():
    x = np.array([65504, 60000], np.float16)
    assert evaluate("x + x", "half", ("half", x)).tolist() == [math.inf, math.inf]
    x = np.array([3e38], np.float32)
    assert evaluate("x * 10.0f", "float", ("float", x)).tolist() == [math.inf]


def test_conversions_truncate_saturate_and_wrap():
    x = np.array([1.9, -1.9, 3e10, -3e10, np.nan, np.inf], np.float32)
    assert evaluate("(int)x", "int", ("float", x)).tolist() == [
        1,
        -1,
        2**31 - 1,
        -(2**31),
        0,
        2**31 - 1,
    ]
    assert evaluate("(uchar)x", "uchar", ("float", x)).tolist() == [1, 0, 255, 0, 0, 255]
    x = np.array([300, -1, 2**31 - 1], np.int32)
    assert evaluate("(char)x", "char", ("int", x)).tolist() == [44, -1, -1]
    assert evaluate("(uint)x", "uint", ("int", x)).tolist() == [300, 2**32 - 1, 2**31 - 1]
    assert evaluate("(bool)x", "bool", ("int", x)).tolist() == [True] * 3
    assert evaluate("(float)x", "float", ("int", x)).tolist() == [300.0, -1.0, 2.0**31]
    assert evaluate("(float)true + (float)(x > 0)", "float", ("int", x)).tolist() == [2, 1, 2]
    assert evaluate("static_cast<long>(x) + 1", "long", ("int", x))[2] == 2**31
    assert evaluate("(uint)3735928559 ^ 0xFFu", "uint", ("int", x))[0] == 0xDEADBE10


def test_as_type_moves_bits():
    x = np.array([1.5, -0.0, np.inf], np.float32)
    np.testing.assert_array_equal(evaluate("as_type<uint>(x)", "uint", ("float", x)), x.view("u4"))
    h = np.array([1.5, -2], np.float16)
    np.testing.assert_array_equal(
        evaluate("as_type<ushort>(x)", "ushort", ("half", h)), h.view("u2")
    )
    # The way TVM widens and narrows bfloat16 kept as ushort.
    b = np.array([1.5, 3.1415927], BF16)
    got = evaluate("as_type<float>(((uint)x) << (uint)16)", "float", ("ushort", b.view("u2")))
    np.testing.assert_array_equal(got, b.astype(np.float32))
    u = np.array([0x40004200], np.uint32)
    got = evaluate(
        "(float)as_type<half2>(x)[0] + 10.0f * (float)as_type<half2>(x).y", "float", ("uint", u)
    )
    assert got[0] == 3 + 10 * 2
    got = evaluate("as_type<uint>(half2(3.0h, 2.0h))", "uint", ("uint", u))
    assert got[0] == u[0]


MATH = {
    "exp(x)": np.exp,
    "log(fabs(x))": lambda x: np.log(np.abs(x)),
    "sqrt(abs(x))": lambda x: np.sqrt(np.abs(x)),
    "rsqrt(abs(x))": lambda x: 1 / np.sqrt(np.abs(x)),
    "exp2(x)": np.exp2,
    "exp10(x)": lambda x: 10.0**x,
    "tanh(x)": np.tanh,
    "metal::precise::sin(x)": np.sin,
    "fast::cos(x)": np.cos,
    "floor(x)": np.floor,
    "ceil(x)": np.ceil,
    "trunc(x)": np.trunc,
    "rint(x)": np.rint,
    "round(x)": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "fract(x)": lambda x: x - np.floor(x),
    "sign(x)": np.sign,
    "saturate(x)": lambda x: np.clip(x, 0, 1),
    "clamp(x, -1.0f, 1.0f)": lambda x: np.clip(x, -1, 1),
    "pow(fabs(x), 1.5f)": lambda x: np.abs(x) ** 1.5,
    "fmod(x, 0.7f)": lambda x: np.fmod(x, np.float64(np.float32(0.7))),
    "fma(x, x, 1.0f)": lambda x: x * x + 1,
    "mix(x, 2.0f, 0.25f)": lambda x: x + (2 - x) * 0.25,
    "step(0.5f, x)": lambda x: (x >= 0.5) * 1.0,
    "max(x, 0.25f) + min(x, 0.5f)": lambda x: np.maximum(x, 0.25) + np.minimum(x, 0.5),
    "copysign(2.0f, x)": lambda x: np.copysign(2.0, x),
    "atan2(x, 2.0f)": lambda x: np.arctan2(x, 2),
}


@pytest.mark.parametrize("expression", MATH)
def test_math_functions(expression):
    x = np.concatenate((np.linspace(-3, 3, 61), [0.5, 1.5, -2.5, 1e-3])).astype(np.float32)
    with np.errstate(divide="ignore"):
        expected = MATH[expression](x.astype(np.float64))
        got = evaluate(expression, "float", ("float", x))
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=1e-6)


def test_max_and_min_return_the_number_beside_a_nan():
    x = np.array([np.nan, 1, np.nan], np.float32)
    y = np.array([2, np.nan, np.nan], np.float32)
    got = evaluate("max(x, y)", "float", ("float", x), ("float", y))
    np.testing.assert_array_equal(got, [2, 1, np.nan])
    assert evaluate("isnan(x)", "bool", ("float", x)).tolist() == [True, False, True]
    assert evaluate("x != x", "bool", ("float", x)).tolist() == [True, False, True]


def test_integer_builtins():
    x = np.array([0, 1, 255, -1, 2**30], np.int32)
    assert evaluate("popcount(x)", "int", ("int", x)).tolist() == [0, 1, 8, 32, 1]
    assert evaluate("clz(x)", "int", ("int", x)).tolist() == [32, 31, 24, 0, 1]
    assert evaluate("ctz(x)", "int", ("int", x)).tolist() == [32, 0, 0, 0, 30]
    assert evaluate("abs(x - 2)", "int", ("int", x)).tolist() == [2, 1, 253, 3, 2**30 - 2]
    assert evaluate("max(x, 3) + min(x, 5)", "int", ("int", x)).tolist() == [
        3,
        4,
        260,
        2,
        2**30 + 5,
    ]


def test_vectors():
    x = np.arange(4, dtype=np.float32)
    before = "float4 v = float4(x, 2.0f, 3.0f, 4.0f); int i = (int)t % 4;\n"

    def value(expression, kind="float"):
        return evaluate(expression, kind, ("float", x), before=before).tolist()

    assert value("(v * 2.0f + v).x") == [0, 3, 6, 9]
    assert value("(v + v.wzyx).y") == [5] * 4
    assert value("v[i]") == [0, 2, 3, 4]
    assert value("v.zw[1] + v.b") == [7] * 4
    assert value("dot(v, float4(1.0f))") == [9, 10, 11, 12]
    assert value("((float4)int4(1, 2, 3, 4))[3]") == [4] * 4
    assert value("float4(v.xy, v.zw).z") == [3] * 4
    assert value("max(v, float4(2.5f)).y + max(v, 3.5f).w") == [6.5] * 4
    assert value("any(v > float4(3.5f)) ? 1.0f : 0.0f") == [1] * 4
    assert value("all(v > float4(1.5f)) ? 1.0f : 0.0f") == [0, 0, 1, 1]
    assert value("select(v, v.wzyx, v > float4(2.5f))[3]") == x.tolist()
    assert value("(-v)[1] + (float)((int4)v % int4(2))[2]") == [-1] * 4


def test_vector_components_are_assignable():
    x = np.arange(4, dtype=np.float32)
    before = (
        "float4 v = float4(0.0f); v.y = x; v[2] = 2.0f; v.xw = float2(7.0f, 8.0f);\n"
        "v[(int)t % 4] += 100.0f; if (t > 1) { v.z = 50.0f; }\n"
    )
    got = evaluate("v.x + 10.0f * v.y + v.z + v.w", "float", ("float", x), before=before)
    expected = []
    for t in range(4):
        v = [7.0, float(t), 2.0, 8.0]
        v[t] += 100
        if t > 1:
            v[2] = 50
        expected.append(v[0] + 10 * v[1] + v[2] + v[3])
    assert got.tolist() == expected


def test_vector_and_packed_memory():
    text = """kernel void k(device float* a [[buffer(0)]], device packed_float3* p [[buffer(1)]],
    device float3* q [[buffer(2)]], device half4* h [[buffer(3)]],
    uint t [[thread_position_in_grid]]) {
    float4 v = *(device float4*)(a + t * 4);
    p[t] = (packed_float3)v.xyz;
    q[t] = v.yzw;
    h[t] = (half4)v;
    a[t * 4 + 3] = h[t].x + p[t][1];
    h[t].w = 9.0h;
}"""
    a = np.arange(16, dtype=np.float32)
    p, q, h = np.zeros(12, "f4"), np.full(16, -1, "f4"), np.zeros(16, "f2")
    MetalKernel.from_source(text)["k"].launch(1, 4, a, p, q, h)
    rows = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(p.reshape(4, 3), rows[:, :3])
    np.testing.assert_array_equal(q.reshape(4, 4)[:, :3], rows[:, 1:])
    assert (q.reshape(4, 4)[:, 3] == -1).all()
    np.testing.assert_array_equal(h.reshape(4, 4)[:, :3], rows[:, :3])
    assert (h.reshape(4, 4)[:, 3] == 9).all()
    np.testing.assert_array_equal(a.reshape(4, 4)[:, 3], rows[:, 0] + rows[:, 1])


def test_thread_arrays_with_varying_index_and_vector_view():
    x = np.arange(8, dtype=np.float32)
    before = (
        "thread float s[8]; for (int i = 0; i < 8; ++i) { s[i] = (float)i * 10.0f; }\n"
        "s[(int)t] = x + 1.0f; *(thread float4*)(s + 4) = *(thread float4*)(s + 4) + 0.5f;\n"
    )
    got = evaluate("s[7 - (int)t] + s[(int)t]", "float", ("float", x), before=before)
    expected = []
    for t in range(8):
        s = [10.0 * i for i in range(8)]
        s[t] = t + 1
        s[4:] = [v + 0.5 for v in s[4:]]
        expected.append(s[7 - t] + s[t])
    assert got.tolist() == expected


def test_lazy_operators_guard_their_right_side():
    x = np.array([0, 1, 2, 3], np.int32)
    assert evaluate("(x != 0) && (6 / x > 2)", "bool", ("int", x)).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert evaluate("(x == 0) || (6 / x > 2)", "bool", ("int", x)).tolist() == [
        True,
        True,
        True,
        False,
    ]
    assert evaluate("x != 0 ? 6 / x : -1", "int", ("int", x)).tolist() == [-1, 6, 3, 2]
    assert evaluate("(x < 2) && (px[x + 2] > 0)", "bool", ("int", x)).tolist() == [
        True,
        True,
        False,
        False,
    ]


def collatz(start: int, limit: int) -> int:
    n, steps = start, 0
    while True:
        if n == 1 or steps >= limit:
            break
        steps += 1
        if n % 2 == 0:
            n //= 2
            continue
        n = 3 * n + 1
    return steps


def test_divergent_loops_with_break_and_continue():
    x = np.arange(1, 65, dtype=np.int32)
    before = """int n = x; int steps = 0;
while (1) {
  if (!(n != 1)) { break; }
  if (steps >= 40) { break; }
  ++steps;
  if (n % 2 == 0) { n = n / 2; continue; }
  n = 3 * n + 1;
}
"""
    got = evaluate("steps", "int", ("int", x), before=before)
    assert got.tolist() == [collatz(int(v), 40) for v in x]


def test_for_do_and_nested_loops():
    x = np.arange(16, dtype=np.int32)
    before = """int total = 0;
for (int i = 0; i < x; i += 2) {
  int j = 0;
  do { total += i * j; j++; if (j == 3) { break; } } while (j < i);
  if (i == 6) { continue; }
  total -= 1;
}
"""
    expected = []
    for n in range(16):
        total = 0
        for i in range(0, n, 2):
            j = 0
            while True:
                total += i * j
                j += 1
                if j == 3 or not j < i:
                    break
            if i == 6:
                continue
            total -= 1
        expected.append(total)
    assert evaluate("total", "int", ("int", x), before=before).tolist() == expected


def test_return_inside_a_loop_retires_lanes():
    text = """kernel void k(device int* a [[buffer(0)]], uint t [[thread_position_in_grid]]) {
    for (int i = 0; i < 10; ++i) {
      if (i == (int)t) { a[t] = i; return; }
      for (int j = 0; j < 2; ++j) { if ((int)t == 20 && i == 3) { return; } }
    }
    a[t] = a[t] - 1;
}"""
    data = np.full(32, 100, np.int32)
    MetalKernel.from_source(text)["k"].launch(1, 32, data)
    expected = [t if t < 10 else 100 if t == 20 else 99 for t in range(32)]
    assert data.tolist() == expected


def test_steps_and_compound_assignments():
    x = np.arange(8, dtype=np.int32)
    before = "int i = x; int a = i++; int b = ++i; int c = i--; i <<= 2; i |= 1; i -= a; i %= 7;\n"
    got = evaluate("a * 1000000 + b * 10000 + c * 100 + i", "int", ("int", x), before=before)
    expected = []
    for v in range(8):
        i = v + 1
        a, b, c = v, v + 2, v + 2
        i = ((((i) << 2) | 1) - a) % 7
        expected.append(a * 1000000 + b * 10000 + c * 100 + i)
    assert got.tolist() == expected


def test_pointer_arithmetic_and_reinterpretation_of_threadgroup_memory():
    text = """kernel void k(device float* a [[buffer(0)]],
    uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[16];
    threadgroup float* typed =
        (threadgroup float*)((threadgroup float*)(((threadgroup char*)s) + 4));
    threadgroup void* raw =
        (threadgroup void*)((threadgroup void*)(((threadgroup char*)s) + 8));
    s[0] = a[0];
    typed[0] = a[1];
    ((volatile threadgroup float*)raw)[0] = a[2];
    threadgroup uchar* bytes = (threadgroup uchar*)s;
    a[3] = s[0] + 10.0f * s[1] + 100.0f * *(s + 2);
    a[4] = (float)bytes[3];
    device float* p = a + 5;
    p += 1;
    *p = (&(a[0]))[2];
    *(1 + p) = p[-4];
}"""
    data = np.array([1, 2, 3, 0, 0, 0, 0, 0], np.float32)
    MetalKernel.from_source(text)["k"].launch(1, 1, data)
    assert data.tolist() == [1, 2, 3, 321, 0x3F, 0, 3, 3]


def test_positions_and_sizes():
    text = """kernel void k(device int* out [[buffer(0)]],
    uint3 g [[threadgroup_position_in_grid]], ushort3 t [[thread_position_in_threadgroup]],
    uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_threadgroup]],
    uint3 m [[threadgroups_per_grid]], uint3 all [[threads_per_grid]],
    uint i [[thread_index_in_threadgroup]], uint l [[thread_index_in_simdgroup]],
    uint s [[simdgroup_index_in_threadgroup]], uint w [[threads_per_simdgroup]],
    uint c [[simdgroups_per_threadgroup]]) {
    uint group = (g.z * m.y + g.y) * m.x + g.x;
    uint row = (group * n.x * n.y * n.z + i) * 8;
    out[row] = (int)(g.x + 10 * g.y + 100 * g.z);
    out[row + 1] = (int)(t.x + 10 * t.y + 100 * t.z);
    out[row + 2] = (int)(p.x + 100 * p.y + 10000 * p.z);
    out[row + 3] = (int)l;
    out[row + 4] = (int)s;
    out[row + 5] = (int)(w * 100 + c);
    out[row + 6] = (int)(all.x + 100 * all.y + 10000 * all.z);
    out[row + 7] = (int)(n.x + 10 * n.y + 100 * n.z);
}"""
    grid, group = (2, 3, 2), (4, 5, 2)
    out = np.zeros((12, 40, 8), np.int32)
    MetalKernel.from_source(text)["k"].launch(grid, group, out, lanes_per_chunk=100)
    for g in range(12):
        for i in range(40):
            gx, gy, gz = g % 2, g // 2 % 3, g // 6
            tx, ty, tz = i % 4, i // 4 % 5, i // 20
            assert out[g, i].tolist() == [
                gx + 10 * gy + 100 * gz,
                tx + 10 * ty + 100 * tz,
                gx * 4 + tx + 100 * (gy * 5 + ty) + 10000 * (gz * 2 + tz),
                i % 32,
                i // 32,
                3202,
                8 + 1500 + 40000,
                4 + 50 + 200,
            ]

"""What the simulator accepts as source, and how it refuses the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tilex.errors import ParseError, SimulatorError
from tvm_tilex.sim import MetalKernel
from tvm_tilex.sim.errors import (
    LaunchError,
    MslSyntaxError,
    MslTypeError,
    UnsupportedConstructError,
)

HEAD = "kernel void k(device float* a [[buffer(0)]], uint t [[thread_position_in_grid]]) {\n"


def refused(text: str):
    with pytest.raises((MslSyntaxError, UnsupportedConstructError, MslTypeError)) as caught:
        MetalKernel.from_source(text)
    error = caught.value
    assert isinstance(error, ParseError) and isinstance(error, SimulatorError)
    assert f"line {error.line}, column {error.column}" in str(error)
    return error


# body line -> (construct, column of it in that line)
UNSUPPORTED = {
    "switch (t) { case 0: break; }": ("switch statement", 1),
    "goto done;": ("goto statement", 1),
    "double x = 1.0;": ("type double", 1),
    "auto x = a[t];": ("auto declaration", 1),
    "constexpr int n = 4;": ("constexpr declaration", 1),
    "atomic_int x;": ("atomic type", 1),
    "int n = sizeof(float);": ("sizeof expression", 9),
    "a[t] = fmodf(a[t], 2.0f);": ("function fmodf", 8),
    "a[t] = nearbyint(a[t]);": ("function nearbyint", 8),
    "a[t] = erf(a[t]);": ("function erf", 8),
    "simd_ballot(true);": ("function simd_ballot", 1),
    "float x[2] = {1.0f, 2.0f};": ("'{'", 14),
    "float x[t];": ("array length", 7),
    "threadgroup float x;": ("threadgroup scalar", 19),
    "thread float* p;": ("pointer variable", 15),
    "float x = 0.0f; thread float* p = &x;": ("address-of a local variable", 35),
    "threadgroup_barrier(mem_flags::mem_texture);": ("memory flags", 21),
    "return a[t];": ("return with a value", 1),
    "simdgroup_matrix<float, 4, 4> m;": ("simdgroup_matrix", 1),
    "#define N 4": ("directive #define", 1),
    "thread float x[4]; x[0] = 1.0f; a[t] = (float)*(thread char*)x;": (
        "reinterpretation of thread memory",
        47,
    ),
}


@pytest.mark.parametrize("line", UNSUPPORTED)
def test_outside_the_subset_is_an_error_that_names_the_construct(line):
    construct, column = UNSUPPORTED[line]
    text = HEAD + line + "\n}\n"
    if construct == "reinterpretation of thread memory":  # known when the pointer is followed
        with pytest.raises(UnsupportedConstructError) as caught:
            MetalKernel.from_source(text)["k"].launch(1, 1, np.zeros(1, np.float32))
        error = caught.value
    else:
        error = refused(text)
    assert (error.construct, error.line, error.column) == (construct, 2, column)


FILE_LEVEL = {
    "float f(float x) { return x; }\n": "function definition",
    "constant int n = 4;\n": "program-scope declaration",
    "template <typename T> kernel void k(device T* a [[buffer(0)]]) {}\n": "template",
    "using namespace std;\n": "using namespace",
    "#include <vector>\n": "directive #include",
    "vertex void k(device float* a [[buffer(0)]]) {}\n": "vertex function",
    "kernel void k(texture2d t [[texture(0)]]) {}\n": "texture",
    "kernel void k(device float* a) {}\n": "parameter attribute",
    "kernel void k(uint t [[vertex_id]]) {}\n": "parameter attribute",
    "kernel void k(float t [[thread_position_in_grid]]) {}\n": "thread_position_in_grid",
    "": "kernel",
    "struct s { int a; };\nstruct s { float a; };\n": "record redefinition",
    "kernel void k() {}\nkernel void k() {}\n": "kernel redefinition",
    "kernel int k() {}\n": "kernel return type",
    "struct s { device float* p; };\nkernel void k() {}\n": "struct field",
    "kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(0)]]) {}\n": (
        "buffer attribute"
    ),
}


@pytest.mark.parametrize("text", FILE_LEVEL)
def test_file_level_constructs_are_refused_by_name(text):
    assert refused(text).construct == FILE_LEVEL[text]


TYPE_ERRORS = (
    "a[t] = missing;",
    "a[t] = a;",
    "int i = 1.0f % 2.0f;",
    "float4 v = int4(1);",
    "a[t] = float4(1.0f) + int4(1);",
    "half x = 1.0h; bfloat y = x;",
    "a[t] = (float)(bfloat(1.0f) + half(1.0f));",
    "a[t] = max(1, 2u);",
    "a[t] = float4(1.0f).q;",
    "a[t] = float2(1.0f)[2];",
    "float3 v = float3(1.0f, 2.0f);",
    "threadgroup float x[4]; device float* p = (device float*)x;",
    "a[t] = as_type<float>((half)1.0h);",
    "const int n = 1; n = 2;",
    "1 = 2;",
    "break;",
    "int i = 0; int i = 1;",
    "a[t] = exp(a[t], a[t]);",
    "a[t] = simd_and(a[t]);",
    "simdgroup_float8x8 m; simdgroup_half8x8 n; simdgroup_multiply_accumulate(m, n, n, m);",
    "simdgroup_float8x8 m; threadgroup half x[64]; simdgroup_load(m, x, 8);",
    "int i = 99999999999999999999;",
)


@pytest.mark.parametrize("line", TYPE_ERRORS)
def test_type_errors_have_a_position(line):
    assert refused(HEAD + line + "\n}\n").line == 2


@pytest.mark.parametrize(
    "text",
    [HEAD + "a[t] = ;\n}", HEAD + "a[t] = 1.0f\n}", HEAD + "if (t) {", HEAD + "a[t] = 1.0f; @\n}"],
)
def test_syntax_errors_have_a_position(text):
    assert isinstance(refused(text), MslSyntaxError)


def test_comments_pragmas_and_repeated_unions_are_accepted():
    union = "union __TVMArgUnion {\n int v_int[2];\n};\n"
    text = (
        "// first\n#include <metal_stdlib>\nusing namespace metal;\n"
        + union
        + "/* a block\n comment */\n"
        + union
        + HEAD
        + "#pragma unroll\nfor (int i = 0; i < 2; ++i) { a[t] = a[t] + 1.0f; } // done\n}\n"
    )
    data = np.zeros(4, np.float32)
    MetalKernel.from_source(text)["k"].launch(1, 4, data)
    assert (data == 2).all()


def test_a_16_bit_scalar_argument_of_tvm_is_refused_because_the_union_has_no_such_member():
    """TVM 0.27 emits ``arg.x.v_half`` for a union that declares ``v_int`` alone."""
    text = (
        "union __TVMArgUnion {\n int v_int[2];\n};\nstruct args_t {\n  __TVMArgUnion x;\n};\n"
        "kernel void k(device half* b [[buffer(0)]], constant args_t& arg [[buffer(1)]]) {\n"
        "  b[0] = arg.x.v_half;\n}\n"
    )
    error = refused(text)
    assert error.line == 8 and "no member v_half" in str(error)


def simple(name="k", parameters="", body=""):
    return MetalKernel.from_source(
        f"kernel void {name}(device float* a [[buffer(0)]]{parameters}) {{ {body} }}"
    )[name]


def test_launch_limits():
    data = np.zeros(4, np.float32)
    simple().launch(1, 1024, data)
    with pytest.raises(LaunchError, match=r"1025 threads; the limit is 1024"):
        simple().launch(1, 1025, data)
    with pytest.raises(LaunchError, match=r"1056 threads"):
        simple().launch(1, (33, 32), data)
    simple(body="threadgroup float x[8192];").launch(1, 1, data)
    with pytest.raises(LaunchError, match=r"32784 bytes of threadgroup memory; the limit is 32768"):
        simple(body="threadgroup float x[8192]; threadgroup char y[1];").launch(1, 1, data)
    simple(parameters=", device float* b [[buffer(30)]]").launch(1, 1, data, np.zeros(1, "f4"))
    with pytest.raises(LaunchError, match="31 buffers"):
        simple(parameters=", device float* b [[buffer(31)]]")


def test_launch_arguments_are_checked_by_name():
    data = np.zeros((4, 4), np.float32)
    kernel = simple()
    for arguments, words in (
        ((), "none for buffer 'a'"),
        ((data, data), "1 too many"),
        ((data.astype(np.float64),), "buffer 'a' is device float*, the array is float64"),
        ((data.T[1:],), "not C-contiguous"),
        (([1.0],), "takes a NumPy array, not list"),
    ):
        with pytest.raises(LaunchError, match="kernel k") as caught:
            kernel.launch(1, 1, *arguments)
        assert words in str(caught.value)
    for grid, group in (((1, 1, 1, 1), 1), (-1, 1), (1, 0), (1.5, 1)):
        with pytest.raises(LaunchError, match="integers of at least"):
            kernel.launch(grid, group, data)
    with pytest.raises(LaunchError, match="names no buffer"):
        kernel.launch(1, 1, data, read_only=("nothing",))
    with pytest.raises(LaunchError, match="no kernel 'other'; it has k"):
        MetalKernel.from_source("kernel void k() {}")["other"]
    with pytest.raises(LaunchError, match="simd_width"):
        kernel.launch(1, 1, data, simd_width=0)


def test_empty_grid_runs_nothing():
    data = np.zeros(4, np.float32)
    counters = simple(body="a[100] = 1.0f;").launch(0, 32, data)
    assert counters.threads == 0 and not data.any()


def test_struct_arguments_by_order_and_by_name():
    text = """struct k_args_t {
  int n[2];
  float x[2];
  long y;
};
kernel void k(device float* a [[ buffer(0) ]], constant k_args_t& arg [[ buffer(1) ]]) {
  a[0] = ((float)arg.n[0]) + arg.x[0] + ((float)arg.y);
}"""
    kernel = MetalKernel.from_source(text)["k"]
    data = np.zeros(1, np.float32)
    kernel.launch(1, 1, data, 3, 0.5, 1 << 20)
    assert data[0] == 3.5 + (1 << 20)
    kernel.launch(1, 1, data, {"y": 1, "x": 2.0, "n": np.int32(-4)})
    assert data[0] == -1
    for arguments, words in (
        ((3, 0.5), "takes 3 scalars"),
        ((1 << 40, 0.5, 1), "does not fit field 'n'"),
        (({"n": 1, "x": 2.0},), "no value for 'y'"),
        (({"n": 1, "x": 2.0, "y": 1, "z": 1},), "no field 'z'"),
        (([1], 0.5, 1), "takes a scalar"),
    ):
        with pytest.raises(LaunchError) as caught:
            kernel.launch(1, 1, data, *arguments)
        assert words in str(caught.value)


def test_dynamic_threadgroup_memory():
    text = """kernel void k(device float* a [[buffer(0)]], threadgroup float* x [[threadgroup(0)]],
    uint t [[thread_position_in_threadgroup]]) {
    x[t] = a[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    a[t] = x[7 - t];
}"""
    kernel = MetalKernel.from_source(text)["k"]
    data = np.arange(8, dtype=np.float32)
    kernel.launch(1, 8, data, threadgroup_memory={0: 32})
    np.testing.assert_array_equal(data, np.arange(8)[::-1])
    with pytest.raises(LaunchError, match="no size given"):
        kernel.launch(1, 8, data)
    with pytest.raises(LaunchError, match="threadgroup memory"):
        kernel.launch(1, 8, data, threadgroup_memory={0: 40000})

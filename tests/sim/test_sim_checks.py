"""Every check has a kernel with that fault, which is caught, and a repaired twin, which passes."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_tilex.errors import SimulatorError
from tvm_tilex.sim import Checks, MetalKernel
from tvm_tilex.sim.errors import (
    BarrierDivergenceError,
    CollectiveDivergenceError,
    ConstWriteError,
    IntegerDivisionByZeroError,
    KernelFault,
    MisalignedAccessError,
    OutOfBoundsError,
    RaceError,
    ShiftWidthError,
    StepLimitError,
    UndefinedValueError,
    UninitializedReadError,
)

HEAD = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
              uint g [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
              uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]])
{
"""
FIRST = HEAD.count("\n") + 1  # line of the first body line

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SUM = """threadgroup float part[2];
float s = simd_sum(a[g * 64 + t]);
{write}
{barrier}
float total = simd_sum(lane < 2 ? part[lane] : 0.0f);
b[g * 64 + t] = total;
"""
GOOD_SUM = SUM.format(write="if (lane == 0) { part[simd] = s; }", barrier=BARRIER)

# name: (error, faulty body, repaired body, line of the fault in the body (0-based),
#        thread or None, memory or None, byte address or None)
CASES = {
    "removed barrier": (
        RaceError,
        SUM.format(write="if (lane == 0) { part[simd] = s; }", barrier=""),
        GOOD_SUM,
        4,
        (1, 0, 0),
        "part",
        4,
    ),
    "second reduction without a barrier before the next write": (
        RaceError,
        "threadgroup float x[64];\nfor (int i = 0; i < 2; ++i) {\nx[t] = a[t];\n"
        + BARRIER
        + "\nb[g * 64 + t] = x[63 - t];\n}\n",
        "threadgroup float x[64];\nfor (int i = 0; i < 2; ++i) {\nx[t] = a[t];\n"
        + BARRIER
        + "\nb[g * 64 + t] = x[63 - t];\n"
        + BARRIER
        + "\n}\n",
        2,
        (0, 0, 0),
        "x",
        0,
    ),
    "barrier under if": (
        BarrierDivergenceError,
        "threadgroup float x[64];\nx[t] = a[t];\nif (t < 32) {\n"
        + BARRIER
        + "\n}\nb[g * 64 + t] = x[t];\n",
        "threadgroup float x[64];\nx[t] = a[t];\nif (g < 1) {\n"
        + BARRIER
        + "\n}\nb[g * 64 + t] = x[t];\n",
        3,
        (32, 0, 0),
        None,
        None,
    ),
    "barrier after an early return": (
        BarrierDivergenceError,
        "if (t == 63) { return; }\n" + BARRIER + "\nb[g * 64 + t] = a[t];\n",
        BARRIER + "\nif (t == 63) { return; }\nb[g * 64 + t] = a[t];\n",
        1,
        (63, 0, 0),
        None,
        None,
    ),
    "simdgroup_barrier under lane": (
        BarrierDivergenceError,
        "if (lane < 4) {\nsimdgroup_barrier(mem_flags::mem_threadgroup);\n}\nb[g * 64 + t] = a[t];",
        "if (simd < 1) {\nsimdgroup_barrier(mem_flags::mem_threadgroup);\n}\nb[g * 64 + t] = a[t];",
        1,
        (4, 0, 0),
        None,
        None,
    ),
    "collective under lane == 0": (
        CollectiveDivergenceError,
        "float s = a[t];\nif (lane == 0) {\ns = simd_sum(s);\n}\nb[g * 64 + t] = s;\n",
        "float s = a[t];\nif (simd == 0) {\ns = simd_sum(s);\n}\nb[g * 64 + t] = s;\n",
        2,
        (1, 0, 0),
        None,
        None,
    ),
    "shuffle by a varying delta": (
        CollectiveDivergenceError,
        "float s = simd_shuffle_down(a[t], t % 3);\nb[g * 64 + t] = s;\n",
        "float s = simd_shuffle_down(a[t], g % 3);\nb[g * 64 + t] = s;\n",
        0,
        (1, 0, 0),
        None,
        None,
    ),
    "off-by-one index": (
        OutOfBoundsError,
        "b[g * 64 + t] = a[g * 64 + t + 1];\n",
        "b[g * 64 + t] = a[g * 64 + t];\n",
        0,
        (63, 0, 0),
        "a",
        512,
    ),
    "negative index": (
        OutOfBoundsError,
        "b[g * 64 + t] = a[(int)(g * 64 + t) - 1];\n",
        "b[g * 64 + t] = a[max((int)(g * 64 + t) - 1, 0)];\n",
        0,
        (0, 0, 0),
        "a",
        -4,
    ),
    "wrong tail guard": (
        OutOfBoundsError,
        "uint i = g * 64 + t + 32;\nif (i <= 128) {\nb[i] = a[i];\n}\n",
        "uint i = g * 64 + t + 32;\nif (i < 128) {\nb[i] = a[i];\n}\n",
        2,
        (32, 0, 0),
        "a",
        512,
    ),
    "threadgroup index past the end": (
        OutOfBoundsError,
        "threadgroup float x[64];\nx[t + 1] = a[t];\n",
        "threadgroup float x[65];\nx[t + 1] = a[t];\n",
        1,
        (63, 0, 0),
        "x",
        256,
    ),
    "thread array index past the end": (
        OutOfBoundsError,
        "thread float x[4];\nfor (int i = 0; i <= 4; ++i) {\nx[i] = a[t];\n}\n"
        "b[g * 64 + t] = x[3];\n",
        "thread float x[4];\nfor (int i = 0; i < 4; ++i) {\nx[i] = a[t];\n}\n"
        "b[g * 64 + t] = x[3];\n",
        2,
        (0, 0, 0),
        "x",
        16,
    ),
    "uninitialized partial": (
        UninitializedReadError,
        SUM.format(write="if (t == 0) { part[simd] = s; }", barrier=BARRIER),
        GOOD_SUM,
        4,
        (1, 0, 0),
        "part",
        4,
    ),
    "uninitialized accumulator": (
        UndefinedValueError,
        "thread float acc[1];\nacc[0] = acc[0] + a[t];\nb[g * 64 + t] = acc[0];\n",
        "thread float acc[1];\nacc[0] = 0.0f;\nacc[0] = acc[0] + a[t];\nb[g * 64 + t] = acc[0];\n",
        2,
        (0, 0, 0),
        "acc",
        None,
    ),
    "variable set on one path only": (
        UndefinedValueError,
        "float x;\nif (t < 60) {\nx = a[t];\n}\nb[g * 64 + t] = x;\n",
        "float x;\nif (t < 60) {\nx = a[t];\n} else { x = 0.0f; }\nb[g * 64 + t] = x;\n",
        4,
        (60, 0, 0),
        "x",
        None,
    ),
    "branch on an undefined value": (
        UndefinedValueError,
        "int x;\nif (x > 0) {\nb[g * 64 + t] = a[t];\n}\n",
        "int x = 1;\nif (x > 0) {\nb[g * 64 + t] = a[t];\n}\n",
        1,
        (0, 0, 0),
        "x",
        None,
    ),
    "overlapping stores": (
        RaceError,
        "b[g * 64 + t / 2] = a[t];\n",
        "b[g * 64 + t] = a[t / 2];\n",
        0,
        (0, 0, 0),
        "b",
        0,
    ),
    "overlapping stores of two threadgroups": (
        RaceError,
        "b[g * 63 + t] = a[t];\n",
        "b[g * 64 + t] = a[t];\n",
        0,
        None,
        "b",
        252,
    ),
    "device exchange without a device barrier": (
        RaceError,
        "b[g * 64 + t] = a[t];\n" + BARRIER + "\na[g * 64 + t] = b[g * 64 + (63 - t)];\n",
        "b[g * 64 + t] = a[g * 64 + t];\nthreadgroup_barrier(mem_flags::mem_device);\n"
        "a[g * 64 + t] = b[g * 64 + (63 - t)];\n",
        2,
        (0, 0, 0),
        "b",
        252,
    ),
    "one SIMD group without simdgroup_barrier": (
        RaceError,
        "threadgroup float x[64];\nx[t] = a[t];\nb[g * 64 + t] = x[t ^ 1];\n",
        "threadgroup float x[64];\nx[t] = a[t];\n"
        "simdgroup_barrier(mem_flags::mem_threadgroup);\nb[g * 64 + t] = x[t ^ 1];\n",
        2,
        (0, 0, 0),
        "x",
        4,
    ),
    "simdgroup_barrier between SIMD groups": (
        RaceError,
        "threadgroup float x[64];\nx[t] = a[t];\n"
        "simdgroup_barrier(mem_flags::mem_threadgroup);\nb[g * 64 + t] = x[t ^ 32];\n",
        "threadgroup float x[64];\nx[t] = a[t];\n" + BARRIER + "\nb[g * 64 + t] = x[t ^ 32];\n",
        3,
        (0, 0, 0),
        "x",
        128,
    ),
    "barrier without memory flags": (
        RaceError,
        "threadgroup float x[64];\nx[t] = a[t];\n"
        "threadgroup_barrier(mem_flags::mem_none);\nb[g * 64 + t] = x[t ^ 32];\n",
        "threadgroup float x[64];\nx[t] = a[t];\n" + BARRIER + "\nb[g * 64 + t] = x[t ^ 32];\n",
        3,
        (0, 0, 0),
        "x",
        128,
    ),
    "write through const": (
        ConstWriteError,
        "device const float* p = a;\n*(p + t) = 1.0f;\n",
        "device float* p = a;\nif (g == 0) { *(p + t) = 1.0f; }\n",
        1,
        (0, 0, 0),
        "a",
        0,
    ),
    "integer division by zero": (
        IntegerDivisionByZeroError,
        "b[g * 64 + t] = (float)(64 / ((int)t - 5));\n",
        "b[g * 64 + t] = (float)(64 / ((int)t + 5));\n",
        0,
        (5, 0, 0),
        None,
        None,
    ),
    "integer remainder by zero": (
        IntegerDivisionByZeroError,
        "b[g * 64 + t] = (float)(64 % ((int)t - 5));\n",
        "if (t != 5) {\nb[g * 64 + t] = (float)(64 % ((int)t - 5));\n}\n",
        0,
        (5, 0, 0),
        None,
        None,
    ),
    "shift past the width": (
        ShiftWidthError,
        "b[g * 64 + t] = (float)(1 << t);\n",
        "b[g * 64 + t] = (float)((long)1 << t);\n",
        0,
        (32, 0, 0),
        None,
        None,
    ),
    "shift by a negative amount": (
        ShiftWidthError,
        "b[g * 64 + t] = (float)(1 >> ((int)t - 1));\n",
        "b[g * 64 + t] = (float)(1 >> ((int)t / 2));\n",
        0,
        (0, 0, 0),
        None,
        None,
    ),
    "endless loop": (
        StepLimitError,
        "int i = 0;\nwhile (i < 10) {\nif (t == 7) { continue; }\ni = i + 1;\n}\n"
        "b[g * 64 + t] = a[t];",
        "int i = 0;\nwhile (i < 10) {\ni = i + 1;\nif (t == 7) { continue; }\n}\n"
        "b[g * 64 + t] = a[t];",
        1,
        (7, 0, 0),
        None,
        None,
    ),
    "misaligned vector": (
        MisalignedAccessError,
        "if (t < 16) { *(device float4*)(b + g * 64 + t) = float4(a[t]); }\n",
        "if (t < 16) {\n*(device float4*)(b + g * 64 + t * 4) = float4(a[t]);\n}\n",
        0,
        (1, 0, 0),
        "b",
        4,
    ),
}


def run(body: str, **options):
    source = np.arange(128, dtype=np.float32)
    target = np.zeros(128, np.float32)
    kernel = MetalKernel.from_source(HEAD + body + "}\n")["k"]
    options.setdefault("step_limit", 1000)
    kernel.launch(2, 64, source, target, **options)
    return source, target


@pytest.mark.parametrize("name", CASES)
def test_fault_is_caught_with_line_thread_and_address(name):
    kind, faulty, _, line, thread, memory, address = CASES[name]
    with pytest.raises(kind) as caught:
        run(faulty)
    error = caught.value
    assert isinstance(error, KernelFault) and isinstance(error, SimulatorError)
    assert error.line == FIRST + line
    assert (error.memory, error.address) == (memory, address)
    if thread is not None:
        assert error.thread == thread
    assert f"line {error.line}" in str(error) and str(error.thread) in str(error)
    if address is not None:
        assert f"{memory!r} + {address} bytes" in str(error)
    assert str(error).count("\n") == 1


@pytest.mark.parametrize("name", CASES)
def test_repaired_twin_passes(name):
    run(CASES[name][2])


@pytest.mark.parametrize("chunk", [64, 1 << 16])
@pytest.mark.parametrize("name", ["overlapping stores of two threadgroups", "off-by-one index"])
def test_fault_is_caught_across_chunks(name, chunk):
    with pytest.raises(CASES[name][0]):
        run(CASES[name][1], lanes_per_chunk=chunk)


def test_repaired_sum_is_right():
    source, target = run(GOOD_SUM)
    expected = np.repeat(source.reshape(2, 64).sum(1), 64)
    np.testing.assert_array_equal(target, expected)


def test_input_only_buffer_by_flag_by_name_and_by_position():
    body = "a[g * 64 + t] = 1.0f;\n"
    run(body)
    for option in ("a", 0):
        with pytest.raises(ConstWriteError, match="input-only"):
            run(body, read_only=(option,))
    kernel = MetalKernel.from_source(HEAD + body + "}\n")["k"]
    fixed = np.zeros(128, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ConstWriteError, match="input-only") as caught:
        kernel.launch(2, 64, fixed, np.zeros(128, np.float32))
    assert caught.value.memory == "a" and not fixed.any()


def test_constant_address_space_is_not_writable():
    text = """kernel void k(constant float* c [[buffer(0)]],
        uint t [[thread_position_in_threadgroup]]) { c[t] = 1.0f; }"""
    with pytest.raises(ConstWriteError):
        MetalKernel.from_source(text)["k"].launch(1, 8, np.zeros(8, np.float32))


def test_race_through_two_overlapping_arguments():
    body = "b[g * 64 + t] = a[g * 64 + t];\n"
    kernel = MetalKernel.from_source(HEAD + body + "}\n")["k"]
    data = np.arange(129, dtype=np.float32)
    kernel.launch(2, 64, data[:128], data[:128])  # each thread its own element
    with pytest.raises(RaceError) as caught:
        kernel.launch(2, 64, data[:128], data[1:])
    assert caught.value.memory == "b"


def test_race_is_found_where_only_the_second_reader_conflicts():
    """Reader and writer are one thread for half of the readers; the other half races."""
    body = "threadgroup float x[64];\nx[t] = a[t];\n" + BARRIER
    faulty = body + "\nfloat y = x[t & 62];\nx[t] = y;\n"
    repaired = body + "\nfloat y = x[t & 62];\n" + BARRIER + "\nx[t] = y;\n"
    with pytest.raises(RaceError):
        run(faulty)
    run(repaired)


def test_early_return_of_whole_simd_groups_leaves_collectives_alone():
    """A SIMD group that returned takes no part in another one's collective."""
    source, target = run("if (simd == 1) { return; }\nb[g * 64 + t] = simd_sum(a[g * 64 + t]);\n")
    assert target[0] == source[:32].sum() and not target[32:64].any()
    with pytest.raises(CollectiveDivergenceError):
        run("if (t == 1) { return; }\nb[g * 64 + t] = simd_sum(a[t]);\n")


def test_undefined_values_may_move_but_not_matter():
    """What idle lanes of a generated reduction do: shuffle and add values that nobody wrote."""
    body = """thread float x[1];
thread float y[1];
if (lane < 2) { x[0] = a[lane]; }
y[0] = simd_shuffle_down(x[0], 1);
x[0] = x[0] + y[0];
if (t == 0) { b[g] = x[0]; }
"""
    source, target = run(body)
    assert target[0] == source[0] + source[1]
    with pytest.raises(UndefinedValueError, match="'x'"):
        run(body, checks=Checks(uninitialized="read"))
    with pytest.raises(UndefinedValueError, match="'x'"):
        run(body.replace("t == 0", "t < 2"))


def test_checks_can_be_switched_off_one_by_one():
    _, faulty = CASES["removed barrier"][:2]
    run(faulty, checks=Checks(races=False))
    _, faulty = CASES["uninitialized partial"][:2]
    run(faulty, checks=Checks(uninitialized="off"))


def test_step_limit_is_settable():
    body = "int i = 0;\nwhile (i < 10) { i = i + 1; }\nb[g * 64 + t] = (float)i;\n"
    run(body, step_limit=10)
    with pytest.raises(StepLimitError, match="limit of 9 steps"):
        run(body, step_limit=9)


def test_matrix_element_out_of_bounds_and_uninitialized():
    text = """kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(1)]]) {{
simdgroup_float8x8 m[2];
threadgroup float x[64];
{body}
}}"""
    good = "simdgroup_load(m[1], a, 8);\nsimdgroup_store(m[1], b, 8);"
    cases = {
        "simdgroup_load(m[1], a + 1, 8);": OutOfBoundsError,
        "simdgroup_store(m[0], b, 8);": UndefinedValueError,
        "simdgroup_load(m[2], a, 8);": OutOfBoundsError,
        "simdgroup_load(m[0], x, 8);": UninitializedReadError,
    }
    source, target = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    MetalKernel.from_source(text.format(body=good))["k"].launch(1, 32, source, target)
    np.testing.assert_array_equal(source, target)
    for body, kind in cases.items():
        kernel = MetalKernel.from_source(text.format(body=body))["k"]
        with pytest.raises(kind) as caught:
            kernel.launch(1, 32, source, target)
        assert caught.value.line == 4


def test_matrix_store_and_load_need_a_barrier_between_simd_groups():
    text = """kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
uint simd [[simdgroup_index_in_threadgroup]]) {{
simdgroup_float8x8 m;
threadgroup float x[128];
simdgroup_load(m, a + simd * 64, 8);
simdgroup_store(m, x + simd * 64, 8);
{barrier}
simdgroup_load(m, x + (1 - simd) * 64, 8);
simdgroup_store(m, b + simd * 64, 8);
}}"""
    source, target = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    MetalKernel.from_source(text.format(barrier=BARRIER))["k"].launch(1, 64, source, target)
    np.testing.assert_array_equal(target, np.roll(source, 64))
    with pytest.raises(RaceError, match="SIMD group"):
        MetalKernel.from_source(text.format(barrier=""))["k"].launch(1, 64, source, target)

"""Runs emitted CUDA text on the processor: one fiber a thread, matrix instructions by their books.

The kernel's body is compiled by g++ as it stands, with CUDA's names defined here; the inline
assembly of ldmatrix, mma, cp.async becomes calls of functions that follow the PTX ISA. Threads run
one after the other between synchronizations, so that a missing one may go unnoticed: races are the
Metal simulator's to find. An asynchronous copy happens when its thread waits for it, so that a
missing wait does not. A synchronization that not all threads reach is reported. Dynamic shared
memory begins as NaN. The hardware's exponential is off by all that PTX allows.
"""

import ctypes
import re
import shutil
import subprocess

import numpy as np

__all__ = ["available", "run"]

PRELUDE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <vector>
using std::max; using std::min;
typedef _Float16 half;
struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float f) {
    uint32_t u; memcpy(&u, &f, 4);
    u += 0x7fff + ((u >> 16) & 1); bits = u >> 16;
  }
  operator float() const {
    uint32_t u = uint32_t(bits) << 16; float f; memcpy(&f, &u, 4);
    return f;
  }
};
typedef nv_bfloat16 __nv_bfloat16;
struct nv_bfloat162 { nv_bfloat16 x, y; };
typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned char uchar;
struct uint4 { uint x, y, z, w; }; struct int4 { int x, y, z, w; }; struct int2 { int x, y; };
 struct uint2 { uint x, y; };
struct ushort2 { ushort x, y; }; struct ushort4 { ushort x, y, z, w; };
static uint2 make_uint2(uint x, uint y) { return {x, y}; }
static uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
struct float2 { float x, y; }; struct float4 { float x, y, z, w; };
struct half2 { half x, y; }; struct half4 { half x, y, z, w; };
struct nv_bfloat164 { nv_bfloat16 x, y, z, w; };
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(x)
#define __align__(x) alignas(x)
#define CUDART_INF_F INFINITY
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float __uint_as_float(uint u) { float f; memcpy(&f, &u, 4); return f; }
static inline half __float2half_rn(float f) { return (half)f; }
static inline half __habs(half h) { return (half)std::fabs((float)h); }
static inline float nan_of(float a, float b, float c) { return a != a ? a : b != b ? b : c; }
// PTX: +0 is greater than -0.
static inline bool below(float a, float b) {
  return a == b ? std::signbit(a) > std::signbit(b) : a < b;
}
static inline float tilex_maximum(float a, float b) { return nan_of(a, b, below(a, b) ? b : a); }
static inline float tilex_minimum(float a, float b) { return nan_of(a, b, below(b, a) ? b : a); }
static inline float tilex_round_bfloat16(float f) { return (float)nv_bfloat16(f); }
struct Dim { int x, y, z; };
static Dim threadIdx, blockIdx;
static std::vector<ucontext_t> fibers; static ucontext_t home;
static std::vector<char> done; static int here, THREADS; static long generation; static int arrived;
static std::vector<long> warp_generation; static std::vector<int> warp_arrived;
static long progress;
static void yield() { int me = here; swapcontext(&fibers[me], &home); here = me; threadIdx.x = me; }
static void meet(int& count, long& gen, int size) {
  long mine = gen;
  if (++count == size) { count = 0; ++gen; ++progress; } else while (gen == mine) yield();
}
static void __syncthreads() { meet(arrived, generation, THREADS); }
static void warp() { meet(warp_arrived[here / 32], warp_generation[here / 32], 32); }
static uint64_t exchange[1024][8];
template <class T> static T __shfl_xor_sync(uint, T value, int offset, int) {
  memcpy(exchange[here], &value, sizeof(T)); warp();
  T other; memcpy(&other, exchange[here ^ offset], sizeof(T)); warp();
  return other;
}
template <class F> static float tilex_warp(float value, F op) {
  for (int offset = 16; offset; offset /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffu, value, offset, 32));
  return value;
}
static float tilex_warp_maximum(float v) { return tilex_warp(v, tilex_maximum); }
static float tilex_warp_minimum(float v) { return tilex_warp(v, tilex_minimum); }
static void emu_ldmatrix(int count, bool trans, const void* row, unsigned* to) {
  exchange[here][0] = (uint64_t)row; warp();
  int base = here / 32 * 32, lane = here % 32;
  for (int i = 0; i < count; ++i) {
    uint16_t pair[2];
    for (int o = 0; o < 2; ++o) {
      int r = trans ? lane % 4 * 2 + o : lane / 4, c = trans ? lane / 4 : lane % 4 * 2 + o;
      pair[o] = ((const uint16_t*)exchange[base + 8 * i + r][0])[c];
    }
    memcpy(to + i, pair, 4);
  }
  warp();
}
static float widen(uint16_t bits, bool bf) {
  if (bf) { uint32_t u = uint32_t(bits) << 16; float f; memcpy(&f, &u, 4); return f; }
  half h; memcpy(&h, &bits, 2); return (float)h;
}
static void emu_mma(bool bf, float* c, const unsigned* a, const unsigned* b) {
  memcpy(exchange[here], a, 16); memcpy(exchange[here] + 2, b, 8); warp();
  int base = here / 32 * 32, lane = here % 32; float sum[4];
  for (int s = 0; s < 4; ++s) {
    int m = lane / 4 + 8 * (s / 2), n = lane % 4 * 2 + s % 2; float total = c[s];
    for (int k = 0; k < 16; ++k) {
      int al = base + m % 8 * 4 + k % 8 / 2, as = k % 2 + 2 * (m / 8) + 4 * (k / 8);
      int bl = base + n * 4 + k % 8 / 2, bs = k % 2 + 2 * (k / 8);
      const uint16_t* av = (const uint16_t*)exchange[al];
      const uint16_t* bv = (const uint16_t*)(exchange[bl] + 2);
      total += widen(av[as], bf) * widen(bv[bs], bf);
    }
    sum[s] = total;
  }
  warp();
  memcpy(c, sum, 16);
}
struct Copy { void* to; const void* from; size_t size; };
static std::vector<std::vector<Copy>> pending;
static int misaligned, abandoned, outside;
static void copy_async(void* to, const void* from, size_t size) {
  misaligned += (uintptr_t)to % size || (uintptr_t)from % size;
  pending[here].push_back({to, from, size});
}
static void tilex_copy_async_16(void* to, const void* from) { copy_async(to, from, 16); }
static void tilex_copy_async_8(void* to, const void* from) { copy_async(to, from, 8); }
static void tilex_copy_async_4(void* to, const void* from) { copy_async(to, from, 4); }
static void tilex_wait_copies() {
  for (auto& copy : pending[here]) memcpy(copy.to, copy.from, copy.size);
  pending[here].clear();
}
struct Memory { const char *first, *last; };
static std::vector<Memory> memories;
static bool is_outside(const void* from, size_t size) {
  const char* at = (const char*)from;
  for (auto& memory : memories)
    if (memory.first <= at && at + size <= memory.last) return false;
  return true;
}
static float tilex_load_kept_4(const void* from) {
  outside += is_outside(from, 4);
  float f; memcpy(&f, from, 4); return f;
}
static void tilex_load_streamed_16(void* to, const void* from) {
  misaligned += (uintptr_t)to % 16 || (uintptr_t)from % 16;
  outside += is_outside(from, 16);
  memcpy(to, from, 16);
}
static void tilex_load_streamed_coherently_16(void* to, const void* from) {
  tilex_load_streamed_16(to, from);
}
static void tilex_grid_dependency() {}
static void tilex_load_kept_16(void* to, const void* from) { tilex_load_streamed_16(to, from); }
static void tilex_load_last_16(void* to, const void* from) { tilex_load_streamed_16(to, from); }
static uint __funnelshift_r(uint low, uint high, int bits) {
  return uint((uint64_t(high) << 32 | low) >> (bits & 31));
}
static uint16_t __half_as_ushort(half h) { uint16_t bits; memcpy(&bits, &h, 2); return bits; }
static uint16_t __bfloat16_as_ushort(nv_bfloat16 b) { return b.bits; }
static half __ushort_as_half(uint16_t bits) { half h; memcpy(&h, &bits, 2); return h; }
static float __half2float(half h) { return (float)h; }
template <class F> static uint pairwise(F op, bool greater, uint a, uint b) {
  return uint(op(greater, a >> 16, b >> 16)) << 16 | op(greater, a, b);
}
template <bool bf> static uint16_t emu_extremum(bool greater, uint16_t a, uint16_t b) {
  float x = widen(a, bf), y = widen(b, bf);
  if (x != x || y != y) return 0x7fff;  // PTX: the canonical NaN
  return (greater ? below(x, y) : below(y, x)) ? b : a;
}
static uint emu_max_bf16x2(uint a, uint b) { return pairwise(emu_extremum<true>, true, a, b); }
static uint emu_min_bf16x2(uint a, uint b) { return pairwise(emu_extremum<true>, false, a, b); }
static uint emu_max_f16x2(uint a, uint b) { return pairwise(emu_extremum<false>, true, a, b); }
static uint emu_min_f16x2(uint a, uint b) { return pairwise(emu_extremum<false>, false, a, b); }
static float emu_ex2(float x) {
  if (std::fabs(x) < 0x1p-126f) return 1;
  float exact = (float)(std::exp2((double)x) * (1 - 0x1p-22));
  return exact < 0x1p-126f ? 0 : exact;
}
alignas(64) static unsigned char dynamic_arena[262144];
"""

EPILOGUE = r"""
static void** given;
static void body() { KERNEL_CALL; done[here] = 1; swapcontext(&fibers[here], &home); }
extern "C" void launch(int grid, int threads, int dynamic_bytes, int count, void** arguments,
                       size_t* sizes, int* faults) {
  given = arguments; memories.clear();
  for (int i = 0; i < count; ++i)
    memories.push_back({(char*)arguments[i], (char*)arguments[i] + sizes[i]});
  THREADS = threads; pending.resize(threads);
  fibers.resize(threads); done.resize(threads);
  std::vector<std::vector<char>> stacks(threads, std::vector<char>(1 << 17));
  for (int block = 0; block < grid; ++block) {
    blockIdx.x = block; arrived = 0;
    memset(dynamic_arena, 0xff, sizeof dynamic_arena);
    warp_arrived.assign((threads + 31) / 32, 0); warp_generation.assign((threads + 31) / 32, 0);
    for (int t = 0; t < threads; ++t) {
      done[t] = 0; getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = stacks[t].data(); fibers[t].uc_stack.ss_size = stacks[t].size();
      fibers[t].uc_link = &home; makecontext(&fibers[t], body, 0);
    }
    for (int left = threads; left;) {
      left = 0; long before = progress;
      for (int t = 0; t < threads; ++t)
        if (!done[t]) {
          here = t; threadIdx.x = t;
          swapcontext(&home, &fibers[t]);
          left += !done[t]; progress += done[t];
        }
      if (left && progress == before) { faults[3] = left; return; }
    }
    for (auto& copies : pending) abandoned += copies.size(), copies.clear();
    for (size_t at = dynamic_bytes; at < sizeof dynamic_arena; ++at)
      outside += dynamic_arena[at] != 0xff;
  }
  faults[0] = misaligned; faults[1] = abandoned; faults[2] = outside; faults[3] = 0;
}
"""

_LDMATRIX = re.compile(
    r"unsigned int addr = __cvta_generic_to_shared\((?P<row>[^;]*)\);\s*__asm__ __volatile__\(\s*"
    r'"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>\d)(?P<trans>\.trans)?\.shared\.b16"[^;]*;'
    r'\\n"\s*:\s*"=r"\(\(\(unsigned \*\)\((?P<to>[^"]*?)\)\)\[0\]\).*?\);',
    re.DOTALL,
)
_MMA = re.compile(
    r'__asm__ __volatile__\(\s*"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(?P<kind>b?f16)\.'
    r'(?P=kind)\.f32"[^;]*;\\n"\s*:\s*"=f"\(\(\(float \*\)\((?P<c>[^"]*?)\)\)\[0\]\).*?'
    r':\s*"r"\(\(\(unsigned \*\)\((?P<a>[^"]*?)\)\)\[0\]\).*?'
    r'"r"\(\(\(unsigned \*\)\((?P<b>(?!(?P=a)\)\))[^"]*?)\)\)\[0\]\).*?\);',
    re.DOTALL,
)

# Device functions that are run as emitted, but for their one instruction.
_EMITTED = re.compile(
    r"(?:__device__ __forceinline__ (?:float|unsigned int) "
    r"(?:tilex_exp_approximate|tilex_widen_\w+|tilex_m(?:ax|in)imum_\w+x2)"
    r"|__forceinline__ __device__ void tilex_shifted_16)\(.*?\n}\n",
    re.DOTALL,
)
_INSTRUCTIONS = (
    (
        r'asm\("ex2\.approx\.ftz\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((\w+)\)\);',
        r"\1 = emu_ex2(\2);",
    ),
    (
        r'asm volatile\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\((.*?)\)\);',
        r"\1 = widen(\2, false);",
    ),
    (
        r'asm volatile\("{ \.reg \.b16 low; mov\.b16 low, 0; mov\.b32 %0, {low, %1}; }"\s*'
        r': "=f"\((\w+)\) : "h"\((.*?)\)\);',
        r"\1 = widen(\2, true);",
    ),
    (
        r'asm\("(max|min)\.NaN\.(b?f16x2) %0, %1, %2;" : "=r"\((\w+)\) : "r"\((\w+)\), '
        r'"r"\((.*)\)\);',
        r"\3 = emu_\1_\2(\4, \5);",
    ),
)


def available():
    """Whether there is a compiler."""
    return shutil.which("g++") is not None


def _kernel(source, entry):
    """The definition of one kernel: the text has one for each range of the dynamic extents."""
    parts = re.split(r'(?=extern "C" __global__)', source)
    (found,) = (p for p in parts[1:] if "{" in p and f" {entry}(" in p[: p.index("{")])
    return found


def _translated(source, entry, parameters, scalars):
    kernel = _kernel(source, entry)
    kernel = _LDMATRIX.sub(
        lambda m: (
            f"emu_ldmatrix({m['count']}, {str(bool(m['trans'])).lower()}, {m['row']}, "
            f"(unsigned*)({m['to']}));"
        ),
        kernel,
    )
    kernel = _MMA.sub(
        lambda m: (
            f"emu_mma({str(m['kind'] == 'bf16').lower()}, (float*)({m['c']}), "
            f"(unsigned*)({m['a']}), (unsigned*)({m['b']}));"
        ),
        kernel,
    )
    assert "asm" not in kernel, kernel[kernel.index("asm") - 300 :][:600]
    kernel = re.sub(
        r"extern __shared__ __align__\(64\) (\w+) (\w+)\[\];",
        r"\1* \2 = (\1*)dynamic_arena;",
        kernel,
    )
    kernel = kernel.replace("__shared__ alignas(64)", "alignas(64) static")
    functions = "".join(found[0] for found in _EMITTED.finditer(source))
    for instruction, call in _INSTRUCTIONS:
        functions = re.sub(instruction, call, functions)
    assert "asm" not in functions, functions
    head = kernel[: kernel.index("{")]
    types = re.findall(r"(\w+)\* (?:__restrict__ )?\w+", head)
    assert len(types) == parameters
    values = [f"({kind}*)given[{i}]" for i, kind in enumerate(types)]
    call = ", ".join([*values, *map(str, scalars)])
    return PRELUDE + functions + kernel + EPILOGUE.replace("KERNEL_CALL", f"{entry}({call})")


def run(artifact, arrays, folder, **dimensions):
    """Launch the artifact's only kernel on NumPy arrays, in place; at these dynamic extents."""
    (launch,) = artifact.device.launches_at(dimensions)
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    parameters = len(launch.buffers)
    source.write_text(_translated(artifact.source, launch.entry, parameters, launch.scalars))
    command = ["g++", "-std=c++20", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC"]
    done = subprocess.run(
        [*command, "-o", str(library), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]
    names = [view.name for view in artifact.tile_ir.views]
    given = [arrays[names.index(name)] for name in launch.buffers]
    pointers, sizes = [a.ctypes.data for a in given], [a.nbytes for a in given]
    assert all(array.flags.c_contiguous for array in arrays)
    loaded = ctypes.CDLL(str(library))
    faults = (ctypes.c_int * 4)()
    loaded.launch(
        launch.grid[0],
        launch.group[0],
        launch.dynamic_shared_bytes,
        len(given),
        (ctypes.c_void_p * len(given))(*pointers),
        (ctypes.c_size_t * len(given))(*sizes),
        faults,
    )
    assert faults[3] == 0, f"{faults[3]} threads wait for others that do not come"
    assert list(faults[:3]) == [0, 0, 0], "copies misaligned or not waited for, or bytes outside"
    return np.asarray(arrays[-1])

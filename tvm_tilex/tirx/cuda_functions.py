"""Operators that CUDA has an instruction for: device functions in the emitted text.

Each function here returns the lowering of a call, or lowers it: a device function's source with a
call of it. Which operator it serves is :mod:`tvm_tilex.tirx.register`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_tilex.tirx import compat

__all__ = [
    "CLUSTER",
    "cluster",
    "exponential",
    "extremum",
    "grid_dependency",
    "pair_extremum",
    "rounding",
    "warp_extremum",
    "widened_extremum",
    "widening",
]

Lowering = Callable[[Any], Any]


def extremum(instruction: str, otherwise: Lowering) -> Lowering:
    """One instruction of PTX (``max.NaN.f32``, sm_80 and later) instead of three.

    ``instruction`` is ``max`` or ``min``; ``otherwise`` lowers what is no FP32 number.
    """
    function = f"tilex_{instruction}imum"
    sign = ">" if instruction == "max" else "<"
    source = f"""
__device__ __forceinline__ float {function}(float a, float b) {{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  float c;
  asm("{instruction}.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a == a ? (a {sign} b ? a : b) : a;
#endif
}}
"""

    def lower(call: Any) -> Any:
        if str(call.ty.dtype) != "float32":
            return otherwise(call)
        return compat.cuda_function(function, *call.args, source=source, dtype="float32")

    return lower


# A cluster's exchange (PTX ISA 8.1, compute capability 9.0), as CUTLASS has it. A mailbox is a
# transaction barrier in threadgroup memory, used once: it is full when one thread has said how many
# bytes it expects and as many have come. A barrier of the cluster, entered at the start, makes the
# mailboxes known; entering needs to publish nothing else (relaxed), least of all the stores of the
# threadgroup that ran here before.
CLUSTER = {
    "tilex_cluster_prepare": """
__device__ __forceinline__ void tilex_cluster_prepare(void* mailbox, int bytes) {
  unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(mailbox));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(place), "r"(bytes) : "memory");
  }
}
""",
    "tilex_cluster_arrive": """
__device__ __forceinline__ void tilex_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
""",
    "tilex_cluster_wait": """
__device__ __forceinline__ void tilex_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
""",
    "tilex_cluster_send": """
__device__ __forceinline__ void tilex_cluster_send(
    void* place, void* mailbox, int block, float value) {
  unsigned int own[2] = {static_cast<unsigned int>(__cvta_generic_to_shared(place)),
                         static_cast<unsigned int>(__cvta_generic_to_shared(mailbox))};
  unsigned int to, full;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(own[0]), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(full) : "r"(own[1]), "r"(block));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               ::"r"(to), "r"(__float_as_uint(value)), "r"(full) : "memory");
}
""",
    "tilex_cluster_receive": """
__device__ __forceinline__ void tilex_cluster_receive(void* mailbox) {
  unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(mailbox)), full;
  do {
    asm volatile("{ .reg .pred full;\\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 full, [%1], 0;\\n"
                 "selp.u32 %0, 1, 0, full; }" : "=r"(full) : "r"(place) : "memory");
  } while (!full);
}
""",
}


def grid_dependency(call: Any) -> Any:
    """Let the next kernel be launched where there is room, and wait for those before this one.

    PTX ISA 7.8, compute capability 9.0. Nothing where the launch does not allow the overlap, or
    where the text is compiled for an earlier device.
    """
    source = """
__device__ __forceinline__ void tilex_grid_dependency() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
"""
    return compat.cuda_function("tilex_grid_dependency", source=source, dtype="void")


def cluster(function: str) -> Lowering:
    """Synchronization of a cluster, by one of the functions of :data:`CLUSTER`."""
    source = CLUSTER[function]
    return lambda call: compat.cuda_function(function, *call.args, source=source, dtype="void")


def warp_extremum(combiner: str) -> Lowering:
    """``redux.sync`` on integers that are ordered as the floats are: a NaN is beyond them all.

    Flipping the other bits of a negative number orders floats as signed integers, and undoes
    itself; -0 comes before +0, as IEEE 754-2019 ``maximum`` and ``minimum`` want it.
    """
    function = f"tilex_warp_{combiner}"
    reduce = {"maximum": "__reduce_max_sync", "minimum": "__reduce_min_sync"}[combiner]
    nan = {"maximum": "0x7FFFFFFF", "minimum": "0xFFFFFFFF"}[combiner]
    source = f"""
__device__ __forceinline__ float {function}(float a) {{
  int key = a == a ? __float_as_int(a) : static_cast<int>({nan}u);
  key ^= (key >> 31) & 0x7FFFFFFF;
  key = {reduce}(0xFFFFFFFFu, key);
  key ^= (key >> 31) & 0x7FFFFFFF;
  return __int_as_float(key);
}}
"""
    return lambda call: compat.cuda_function(function, *call.args, source=source, dtype="float32")


# PTX's name, C's name, the bits of a number, the lower half of a pair as FP32.
_HALVES = {
    "bfloat16": ("bf16x2", "nv_bfloat16", "__bfloat16_as_ushort", "__uint_as_float(pair << 16)"),
    "float16": (
        "f16x2",
        "half",
        "__half_as_ushort",
        "__half2float(__ushort_as_half(static_cast<unsigned short>(pair)))",
    ),
}


def pair_extremum(combiner: str, dtype: str) -> Lowering:
    """One packed instruction (``max.NaN.bf16x2``, sm_80 and later) for two elements.

    Neighbours of a vector in registers are a pair already: putting them together costs nothing.
    """
    function = f"tilex_{combiner}_{dtype}x2"
    pairs, kind, bits, _ = _HALVES[dtype]
    instruction = f"{combiner[:3]}.NaN.{pairs}"
    source = f"""
__device__ __forceinline__ unsigned int {function}(unsigned int pair, {kind} low, {kind} high) {{
  unsigned int upper = static_cast<unsigned int>({bits}(high)) << 16, c;
  asm("{instruction} %0, %1, %2;" : "=r"(c) : "r"(pair), "r"(upper | {bits}(low)));
  return c;
}}
"""
    return lambda call: compat.cuda_function(function, *call.args, source=source, dtype="uint32")


def widened_extremum(combiner: str, dtype: str) -> Lowering:
    """The extremum of a pair's two numbers, as FP32."""
    function = f"tilex_{combiner}_of_{dtype}x2"
    pairs, _, _, lower = _HALVES[dtype]
    source = f"""
__device__ __forceinline__ float {function}(unsigned int pair) {{
  asm("{combiner[:3]}.NaN.{pairs} %0, %1, %2;" : "=r"(pair) : "r"(pair), "r"(pair >> 16));
  return {lower};
}}
"""
    return lambda call: compat.cuda_function(function, *call.args, source=source, dtype="float32")


_ROUNDING = """
__device__ __forceinline__ float tilex_round_bfloat16(float a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  unsigned short upper;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(upper) : "f"(a));
  return __uint_as_float(static_cast<unsigned int>(upper) << 16);
#else
  unsigned int bits = __float_as_uint(a);
  unsigned int cut = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
  return a == a ? __uint_as_float(cut) : __uint_as_float(0x7FC00000u);
#endif
}
"""


def rounding(otherwise: Lowering) -> Lowering:
    """One conversion (``cvt.rn.bf16.f32``, sm_80 and later) instead of six integer operations.

    ``otherwise`` lowers vectors.
    """

    def lower(call: Any) -> Any:
        if call.ty.dtype.lanes != 1:
            return otherwise(call)
        function = "tilex_round_bfloat16"
        return compat.cuda_function(function, *call.args, source=_ROUNDING, dtype="float32")

    return lower


_EXPONENTIAL = """
__device__ __forceinline__ float tilex_exp_approximate(float a) {
  float power = a * 1.44269504f, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(power));
  return result;
}
"""
# Volatile: neither moved to, nor shared with, another use.
_WIDENING = {
    "bfloat16": """
__device__ __forceinline__ float tilex_widen_bfloat16(nv_bfloat16 a) {
  float wide;
  asm volatile("{ .reg .b16 low; mov.b16 low, 0; mov.b32 %0, {low, %1}; }"
               : "=f"(wide) : "h"(__bfloat16_as_ushort(a)));
  return wide;
}
""",
    "float16": """
__device__ __forceinline__ float tilex_widen_float16(half a) {
  float wide;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(__half_as_ushort(a)));
  return wide;
}
""",
}


def exponential(call: Any) -> Any:
    """``ex2.approx`` of the argument in units of ln 2."""
    function = "tilex_exp_approximate"
    return compat.cuda_function(function, *call.args, source=_EXPONENTIAL, dtype="float32")


def widening(call: Any) -> Any:
    """A float16 or bfloat16 as FP32.

    Below compute capability 8.0, which has no bfloat16, TVM has widened that already.
    """
    narrow = str(call.args[0].ty.dtype)
    if narrow == "float32":
        return call.args[0]
    source = _WIDENING[narrow]
    function = f"tilex_widen_{narrow}"
    return compat.cuda_function(function, *call.args, source=source, dtype="float32")

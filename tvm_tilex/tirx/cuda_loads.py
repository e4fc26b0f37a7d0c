"""Loads that say how the caches should treat them, as device functions in CUDA's text.

For memory that the kernel does not write: see :mod:`tvm_tilex.transform.cache_hints`.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx.compat import cuda_function, tirx

__all__ = [
    "load_kept",
    "load_kept_scalar",
    "load_last",
    "load_streamed",
    "load_streamed_coherently",
    "shifted",
]

_LOAD_STREAMED = """
__forceinline__ __device__ void {name}(void* to, const void* from) {{
  uint4 value;
  {asm}("{load}.L1::no_allocate.v4.u32 {{%0, %1, %2, %3}}, [%4];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(__cvta_generic_to_global(from)));
  *static_cast<uint4*>(to) = value;
}}
"""
# Volatile, so that what is loaded early stays in front of what it should overlap.
_LOAD_PRIORITY = """
__forceinline__ __device__ void {name}(void* to, const void* from) {{
  uint4 value;
  unsigned long long policy;
  asm("createpolicy.fractional.L2::{priority}.b64 %0;" : "=l"(policy));
  asm volatile("ld.global.L1::{priority}.L2::cache_hint.v4.u32 {{%0, %1, %2, %3}}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(from)), "l"(policy));
  *static_cast<uint4*>(to) = value;
}}
"""
_LOAD_KEPT_SCALAR = """
__forceinline__ __device__ float tilex_load_kept_4(const void* from) {
  float value;
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
  asm volatile("ld.global.L1::evict_last.L2::cache_hint.f32 %0, [%1], %2;"
               : "=f"(value)
               : "l"(__cvta_generic_to_global(from)), "l"(policy));
  return value;
}
"""
# Shifts by words are selections, so that the blocks stay in registers.
_SHIFTED = """
__forceinline__ __device__ void tilex_shifted_16(void* to, const void* blocks, int bytes) {
  const uint4 *given = static_cast<const uint4*>(blocks), low = given[0], high = given[1];
  unsigned int w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  int words = bytes / 4, bits = bytes % 4 * 8;
  #pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = words & 2 ? w[i + 2] : w[i];
  #pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = words & 1 ? w[i + 1] : w[i];
  uint4 value;
  value.x = __funnelshift_r(w[0], w[1], bits);
  value.y = __funnelshift_r(w[1], w[2], bits);
  value.z = __funnelshift_r(w[2], w[3], bits);
  value.w = __funnelshift_r(w[3], w[4], bits);
  *static_cast<uint4*>(to) = value;
}
"""


def load_streamed(to: Any, source: Any) -> Any:
    """Load 16 bytes, from an element of a view that nothing writes, into a private array.

    They take no place in the first-level cache (PTX ISA 7.4, compute capability 7.0).
    """
    # Not volatile: the memory is nobody's to write, so that loads may move past anything.
    text = _LOAD_STREAMED.format(name="tilex_load_streamed_16", asm="asm", load="ld.global.nc")
    return _loaded("tilex_load_streamed_16", text, to, source)


def load_streamed_coherently(to: Any, source: Any) -> Any:
    """Load 16 bytes likewise, where kernels before this one may write them until it has waited."""
    name = "tilex_load_streamed_coherently_16"
    text = _LOAD_STREAMED.format(name=name, asm="asm volatile", load="ld.global")
    return _loaded(name, text, to, source)


def load_kept(to: Any, source: Any) -> Any:
    """Load 16 bytes likewise; both caches evict them last (compute capability 8.0)."""
    return _load_with("tilex_load_kept_16", "evict_last", to, source)


def load_last(to: Any, source: Any) -> Any:
    """Load 16 bytes likewise; both caches evict them first (compute capability 8.0)."""
    return _load_with("tilex_load_last_16", "evict_first", to, source)


def _load_with(name: str, priority: str, to: Any, source: Any) -> Any:
    return _loaded(name, _LOAD_PRIORITY.format(name=name, priority=priority), to, source)


def _loaded(name: str, text: str, to: Any, source: Any) -> Any:
    """A call of the device function ``name``, which loads from ``source`` into ``to``."""
    pointers = tirx.address_of(to), tirx.address_of(source)
    return cuda_function(name, *pointers, source=text, dtype="void")


def load_kept_scalar(source: Any) -> Any:
    """The float32 element ``source`` of such a view; both caches evict it last."""
    place = tirx.address_of(source)
    return cuda_function("tilex_load_kept_4", place, source=_LOAD_KEPT_SCALAR, dtype="float32")


def shifted(to: Any, blocks: Any, size: Any) -> Any:
    """Move the 16 bytes that begin ``size`` bytes, 0 to 14 and even, behind ``blocks``.

    Both are elements of private arrays, of which ``blocks`` is followed by 32 bytes.
    """
    pointers = tirx.address_of(to), tirx.address_of(blocks)
    number = tirx.Cast("int32", size)
    return cuda_function("tilex_shifted_16", *pointers, number, source=_SHIFTED, dtype="void")

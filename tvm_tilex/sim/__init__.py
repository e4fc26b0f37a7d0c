"""A strict SIMT simulator for Metal Shading Language text.

It executes the text as written, all threads of many threadgroups at once, with checks that a GPU
does not make. It imports nothing of the compiler.
"""

from tvm_tilex.sim.counters import Counters, DeviceTraffic, ThreadgroupTraffic
from tvm_tilex.sim.kernel import LIMITS, Checks, Limits, MetalKernel, MetalLibrary
from tvm_tilex.sim.report import counters_table, format_counters

__all__ = [
    "LIMITS",
    "Checks",
    "Counters",
    "DeviceTraffic",
    "Limits",
    "MetalKernel",
    "MetalLibrary",
    "ThreadgroupTraffic",
    "counters_table",
    "format_counters",
]

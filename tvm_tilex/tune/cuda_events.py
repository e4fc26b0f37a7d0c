"""Device timestamps on CUDA: events of the driver, around one launch each.

Between launches a buffer larger than the L2 cache is overwritten. That makes every launch read
from memory, and keeps the device busy while the host enqueues the events and the launch, so that
the host's own time is not between the two timestamps.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from tvm_tilex.tune.errors import MetricError

__all__ = ["CudaEvents", "load_driver"]

FLUSH_BYTES = 256 << 20


@functools.cache
def load_driver() -> Any:
    """The CUDA driver's library.

    Raises
    ------
    MetricError
        If this system has none.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MetricError("gpu-control on cuda needs the CUDA driver (libcuda.so.1)") from None


class CudaEvents:
    """Times launches on the default stream of the current context (TVM's after any launch)."""

    def __init__(self, driver: Any | None = None, flush_bytes: int = FLUSH_BYTES) -> None:
        self._driver = driver if driver is not None else load_driver()
        self._flush_bytes = flush_bytes
        self._scratch = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(self._scratch), ctypes.c_size_t(flush_bytes))

    def close(self) -> None:
        """Free the buffer."""
        self._call("cuMemFree_v2", self._scratch)

    def seconds(self, launch: Callable[[], None], calls: int) -> list[float]:
        """Seconds between the two timestamps of each of ``calls`` launches."""
        pairs = [(self._event(), self._event()) for _ in range(calls)]
        for begin, end in pairs:
            self._flush()
            self._call("cuEventRecord", begin, None)
            launch()
            self._call("cuEventRecord", end, None)
        self._call("cuCtxSynchronize")
        found = [self._elapsed(begin, end) for begin, end in pairs]
        for event in (event for pair in pairs for event in pair):
            self._call("cuEventDestroy_v2", event)
        return found

    def _flush(self) -> None:
        size = ctypes.c_size_t(self._flush_bytes)
        self._call("cuMemsetD8Async", self._scratch, ctypes.c_ubyte(0), size, None)

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    def _elapsed(self, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        return milliseconds.value / 1e3

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._driver, name)(*arguments))
        if code != 0:
            raise MetricError(f"the CUDA driver's {name} failed with code {code}")

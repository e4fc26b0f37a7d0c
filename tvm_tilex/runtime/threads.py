"""How many threads TVM's pool runs parallel programs on."""

from __future__ import annotations

import functools
import os
from pathlib import Path

__all__ = ["physical_cores", "use_every_core"]

_TOPOLOGY = Path("/sys/devices/system/cpu")
# TVM's mode that lets every thread run on every listed processor.
_SHARE_ALL = -3


def physical_cores() -> int:
    """Physical cores that this process may run on; 0 where the system doesn't say."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    siblings = set()
    for processor in os.sched_getaffinity(0):
        path = _TOPOLOGY / f"cpu{processor}" / "topology" / "thread_siblings_list"
        if not path.is_file():
            return 0
        siblings.add(path.read_text())
    return len(siblings)


@functools.cache
def use_every_core() -> None:
    """Give TVM's pool a thread for each physical core, once.

    On x86 TVM takes half of the logical processors, taking two for one core, which is half of the
    cores where there is no simultaneous multithreading, and it binds the calling thread to one of
    them. Here every thread may run on every processor that the process has. ``TVM_NUM_THREADS``
    and ``OMP_NUM_THREADS`` decide where they are set. A pool that TVM has made already keeps its
    size.
    """
    if "TVM_NUM_THREADS" in os.environ or "OMP_NUM_THREADS" in os.environ:
        return
    cores = physical_cores()
    if not cores:
        return
    import tvm_ffi

    processors = [str(processor) for processor in sorted(os.sched_getaffinity(0))]
    tvm_ffi.get_global_func("runtime.config_threadpool")(_SHARE_ALL, cores, processors)

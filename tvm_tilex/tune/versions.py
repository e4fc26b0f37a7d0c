"""Versions and devices as a report and a database key state them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

from tvm_tilex.build.target import host_target, system_has

__all__ = ["device_name", "environment", "versions"]


def versions() -> dict[str, str]:
    """Versions of what decides the emitted code."""
    return {
        "tvm_tilex": _version("tvm-tilex"),
        "apache-tvm": _version("apache-tvm"),
        "apache-tvm-ffi": _version("apache-tvm-ffi"),
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return "not installed"


def environment() -> dict[str, str]:
    """Where a report was made: versions, Python and machine."""
    return {
        **versions(),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_name(kind: str) -> str:
    """The device of that kind in this process: processor and cores, GPU name, or ``simulator``."""
    if kind == "llvm":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        threads = os.environ.get("TVM_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or cores
        cpu = host_target().attrs.get("mcpu", platform.machine())
        return f"{cpu}, {threads} threads"
    if not system_has(kind):
        return "simulator" if kind == "metal" else "none"
    import tvm

    name: Any = tvm.runtime.device(kind, 0).device_name
    return str(name)

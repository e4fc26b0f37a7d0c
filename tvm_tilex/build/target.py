"""Targets with the facts that code generation and planning need, never TVM's bare defaults.

A bare Metal target says 16 lanes and 256 threads; here Metal has 32 lanes, 1024 threads and
32 KiB of threadgroup memory unless the caller states otherwise.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm_tilex.errors import TargetError
from tvm_tilex.tirx.compat import Target, tvm

__all__ = ["host_target", "resolve_target", "system_has"]


@functools.cache
def host_target() -> Any:
    """The LLVM target of this machine's processor."""
    from tvm.target import codegen

    config: dict[str, Any] = {"kind": "llvm"}
    cpu = codegen.llvm_get_system_cpu()
    if cpu:
        config["mcpu"] = str(cpu)
    return Target(config)


def resolve_target(target: Any) -> Any:
    """Return a TVM target from a kind (``"llvm"``, ``"metal"``, ``"cuda"``), dict or Target.

    Raises
    ------
    TargetError
        If the kind is not one of these three, or TVM rejects the description.
    """
    if isinstance(target, str) and target in _DEFAULTS:
        if target == "llvm":
            return host_target()
        return Target(_DEFAULTS[target], host=host_target())
    try:
        resolved = Target(target)
    except Exception as error:
        first = str(error).strip().splitlines()[-1]
        raise TargetError(f"target {target!r} is not understood: {first}") from None
    if resolved.kind.name not in _DEFAULTS:
        raise TargetError(f"target kind {resolved.kind.name!r}: use one of {', '.join(_DEFAULTS)}")
    if resolved.kind.name != "llvm" and resolved.host is None:
        resolved = resolved.with_host(host_target())
    return resolved


_DEFAULTS: dict[str, Any] = {
    "llvm": {"kind": "llvm"},
    "metal": {
        "kind": "metal",
        "thread_warp_size": 32,
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 32768,
    },
    "cuda": {
        "kind": "cuda",
        "arch": "sm_90",
        "thread_warp_size": 32,
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
    },
}


def system_has(kind: str) -> bool:
    """Whether a device of that kind can be used by this process."""
    return kind == "llvm" or bool(tvm.runtime.device(kind, 0).exist)

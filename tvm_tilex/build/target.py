"""Targets with the facts that code generation and planning need, never TVM's bare defaults.

A bare Metal target says 16 lanes and 256 threads. Here a target that is given by name takes its
facts from ``configs/targets`` (:mod:`.target_config`), and from the runtime where a device is
present. A target that the caller describes is taken as it is described.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm_tilex.build.target_config import config_for_device, target_configs
from tvm_tilex.errors import TargetError
from tvm_tilex.tirx.compat import Target, tvm

__all__ = ["KINDS", "host_target", "resolve_target", "system_has"]

KINDS = ("llvm", "metal", "cuda")


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
    """Return a TVM target from a kind or family name, a description or a Target.

    ``"metal"`` and ``"cuda"`` are the GPU of that kind that is present, else the facts common to
    all of them; ``"apple-m1"``, ``"h200"`` and the other families are as ``configs/targets`` says.

    Raises
    ------
    TargetError
        If the kind is not llvm, metal or cuda, or TVM rejects the description.
    """
    if isinstance(target, str) and target == "llvm":
        return host_target()
    if isinstance(target, str) and target in target_configs():
        return Target(_described(target), host=host_target())
    try:
        resolved = Target(target)
    except Exception as error:
        first = str(error).strip().splitlines()[-1]
        raise TargetError(f"target {target!r} is not understood: {first}") from None
    if resolved.kind.name not in KINDS:
        raise TargetError(f"target kind {resolved.kind.name!r}: use one of {', '.join(KINDS)}")
    if resolved.kind.name != "llvm" and resolved.host is None:
        resolved = resolved.with_host(host_target())
    return resolved


def _described(name: str) -> dict[str, Any]:
    if name not in KINDS:  # a family: as stated, so that it cross-compiles
        return target_configs()[name].description()
    device = tvm.runtime.device(name, 0)
    return config_for_device(name, device).description(device)


def system_has(kind: str) -> bool:
    """Whether a device of that kind can be used by this process."""
    return kind == "llvm" or bool(tvm.runtime.device(kind, 0).exist)

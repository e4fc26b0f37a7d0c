"""Which metric a target has here; a metric that it lacks is refused by name, before any work."""

from __future__ import annotations

from typing import Any

from tvm_tilex.build.target import system_has
from tvm_tilex.errors import OptionError
from tvm_tilex.tune.command_buffer import load_metal
from tvm_tilex.tune.cuda_events import load_driver
from tvm_tilex.tune.endpoint import Endpoint
from tvm_tilex.tune.errors import MetricError
from tvm_tilex.tune.record import METRICS

__all__ = ["default_metric", "require_metric"]


def default_metric(kind: str, endpoint: Endpoint | None = None) -> str:
    """The wall clock; the simulator's model for Metal where there is no Apple GPU."""
    local = endpoint is None or endpoint.kind == "local"
    if local and kind == "metal" and not system_has("metal"):
        return "sim-cost"
    return "gpu-control" if kind == "cuda" and not local else "host-wall"


def require_metric(metric: str, kind: str, endpoint: Endpoint) -> None:
    """Refuse a metric that ``kind`` does not have at ``endpoint``.

    Raises
    ------
    MetricError
        With what is missing, and what to use instead.
    """
    if metric not in METRICS:
        raise OptionError(f"tuning metric {metric!r}: use one of {', '.join(METRICS)}")
    if metric == "sim-cost":
        if kind != "metal" or endpoint.kind != "local":
            raise MetricError(f"sim-cost counts Metal text in this machine's simulator, not {kind}")
        return
    if metric == "gpu-control" and kind == "llvm":
        raise MetricError("gpu-control needs device timestamps, and a processor has none")
    if endpoint.kind != "local":
        _require_remote(metric, kind)
        return
    if not system_has(kind):
        other = "; sim-cost counts the emitted text" if kind == "metal" else ""
        raise MetricError(f"{metric}: this process has no {kind} device{other}")
    if metric == "gpu-control":
        _device_timestamps(kind)


def _require_remote(metric: str, kind: str) -> None:
    if metric == "gpu-control" and kind == "metal":
        raise MetricError(
            "gpu-control on metal over RPC: TVM's Metal timer has no command buffer's GPU time; "
            "use host-wall, or tune on that machine"
        )
    if metric == "host-wall" and kind == "cuda":
        raise MetricError("host-wall on cuda over RPC would time the network; use gpu-control")


def _device_timestamps(kind: str) -> Any:
    return load_driver() if kind == "cuda" else load_metal()

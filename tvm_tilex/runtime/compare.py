"""Launches a Metal kernel on the device and in the simulator, and compares their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.errors import SimulatorError, TargetError
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.runtime.arguments import Argument, as_numpy, describe
from tvm_tilex.runtime.simulate import simulate

if TYPE_CHECKING:
    from tvm_tilex.runtime.artifact import Artifact

__all__ = ["disagreement", "launch_and_compare"]

# Of the output's largest magnitude: the device's fast math differs from the simulator's rounding.
_TOLERANCE = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}


def launch_and_compare(artifact: Artifact, arguments: Sequence[Argument]) -> tuple[Any, ...]:
    """Launch, simulate the same text on copies of the inputs, and return the counters.

    Raises
    ------
    TargetError
        For a kernel that is not Metal.
    SimulatorError
        If an output of the device differs from the simulator's beyond fast math's rounding.
    """
    if artifact.kind != "metal" or artifact.device is None:
        raise TargetError(f"{artifact.name}: only a Metal kernel runs in the simulator")
    if artifact.simulated:
        return artifact.launch(arguments) or ()
    views = artifact.tile_ir.views
    copies = [host_copy(argument) for argument in arguments]
    described = [describe(view.name, copy) for view, copy in zip(views, copies, strict=True)]
    artifact.launch(arguments)
    if artifact.runs_nothing(arguments):
        return ()
    device = artifact.variant(arguments).device
    assert device is not None
    counters = simulate(device, artifact.tile_ir, described)
    for view, argument, expected in zip(views, arguments, copies, strict=True):
        if view.access is ViewAccess.read:
            continue
        problem = disagreement(host_copy(argument), expected)
        if problem is not None:
            raise SimulatorError(f"{artifact.name}: output {view.name!r}: {problem}")
    return counters


def host_copy(argument: Argument) -> np.ndarray:
    """A copy of the argument in processor memory."""
    tensor = argument.tensor
    if argument.device[0] == "llvm":
        return as_numpy(argument).copy()
    if hasattr(tensor, "cpu"):  # torch
        moved = describe("copy", tensor.cpu())
        return as_numpy(moved).copy()
    return np.asarray(tensor.numpy()).copy()


def disagreement(device: np.ndarray, simulator: np.ndarray) -> str | None:
    """The worst element where two outputs differ beyond the tolerance, or None."""
    tolerance = _TOLERANCE.get(str(device.dtype))
    if tolerance is None:
        different = device != simulator
    else:
        a, b = device.astype(np.float64), simulator.astype(np.float64)
        scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        with np.errstate(invalid="ignore"):
            close = np.abs(a - b) <= tolerance * scale
        different = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not different.any():
        return None
    at = tuple(int(i) for i in np.argwhere(different)[0])
    return (
        f"the device gives {device[at]} at {list(at)}, the simulator {simulator[at]} "
        f"({int(different.sum())} elements differ)"
    )

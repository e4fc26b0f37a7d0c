"""Runs the emitted Metal text in the simulator, from nothing but the device artifact."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from tvm_tilex.build.device_artifact import DeviceArtifact
from tvm_tilex.ir.dimensions import bind_shapes
from tvm_tilex.ir.program import Program, ViewAccess
from tvm_tilex.runtime.arguments import Argument, as_numpy

__all__ = ["SimulatedLaunchWarning", "simulate"]


class SimulatedLaunchWarning(UserWarning):
    """A Metal kernel runs in the simulator because this process has no Apple GPU."""


def simulate(
    device: DeviceArtifact, program: Program, arguments: Sequence[Argument], *, seed: int = 0
) -> tuple[Any, ...]:
    """Launch every kernel of ``device`` on processor memory and return the counters.

    Raises
    ------
    SimulatorError
        A subclass that names line, thread and address of a fault in the emitted text.
    """
    _say_once()
    arrays = {view.name: as_numpy(a) for view, a in zip(program.views, arguments, strict=True)}
    inputs = {view.name for view in program.views if view.access is ViewAccess.read}
    dimensions = bind_shapes(program.views, [a.shape for a in arguments], program.name)
    launches = device.launches_at(dimensions)
    library = _library(device.source) if launches else {}
    counters = []
    for launch in launches:
        read_only = tuple(i for i, name in enumerate(launch.buffers) if name in inputs)
        counters.append(
            library[launch.entry].launch(
                launch.grid,
                launch.group,
                *(arrays[name] for name in launch.buffers),
                *launch.scalars,
                seed=seed,
                read_only=read_only,
            )
        )
    return tuple(counters)


@functools.lru_cache(maxsize=64)
def _library(source: str) -> Any:
    from tvm_tilex.sim import MetalKernel

    return MetalKernel.from_source(source)


@functools.cache
def _say_once() -> None:
    warnings.warn(
        "no Apple GPU here: Metal kernels run in the simulator",
        SimulatedLaunchWarning,
        stacklevel=5,
    )

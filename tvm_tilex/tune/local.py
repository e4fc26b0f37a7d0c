"""Validation and measurement of an artifact on this machine's devices, or in the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_tilex.errors import TilexError
from tvm_tilex.ir import Parallel, Program
from tvm_tilex.runtime.arguments import Argument, describe, exported
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.tune.command_buffer import CommandBufferTimer
from tvm_tilex.tune.cuda_events import CudaEvents
from tvm_tilex.tune.errors import MetricError
from tvm_tilex.tune.job import Timing
from tvm_tilex.tune.record import Measurement
from tvm_tilex.tune.sim_cost import count_events, modelled_cost
from tvm_tilex.tune.wall import calls_for, from_samples, wall_clock

__all__ = ["LocalLaunch"]

Array = NDArray[Any]

# A base that every vector access fits, as allocations of a device do.
_ALIGNMENT = 128


class LocalLaunch:
    """An artifact with arguments in the memory that it takes, outputs still poisoned."""

    def __init__(self, artifact: Artifact, arrays: Sequence[Array], metric: str) -> None:
        self.artifact = artifact
        self.metric = metric
        self._counters: tuple[Any, ...] = ()
        self._on_host = artifact.kind == "llvm" or metric == "sim-cost"
        device = None if self._on_host else tvm.runtime.device(artifact.kind, 0)
        self._wait: Callable[[], None] = device.sync if device is not None else lambda: None
        place = _aligned if device is None else lambda a: tvm.runtime.tensor(a, device=device)
        self._arrays: list[Any] = [place(array) for array in arrays]
        views = artifact.tile_ir.views
        self._arguments: list[Argument] = [
            describe(view.name, array) for view, array in zip(views, self._arrays, strict=True)
        ]
        if not artifact.empty and artifact.variant(self._arguments) is not artifact:
            raise TilexError(f"{artifact.name}: these arguments would run another variant")

    def run(self) -> list[Array]:
        """Launch once and return every argument as a NumPy array."""
        if self.metric == "sim-cost":
            self._counters = self.artifact.simulate(*self._arrays)
            return list(self._arrays)
        self.artifact.launch(self._arguments)
        self._wait()
        return [a if self._on_host else a.numpy() for a in self._arrays]

    def measure(self, timing: Timing) -> tuple[tuple[Measurement, ...], dict[str, str]]:
        """Every scope that there is here, and why the others are missing.

        Raises
        ------
        MetricError
            If the scope that the metric compares cannot be measured.
        """
        if self.metric == "sim-cost":
            return (self._modelled(),), {"end_to_end": "ran in the simulator", "gpu": "no GPU"}
        launch = lambda: self.artifact.launch(self._arguments)  # noqa: E731
        found = [wall_clock(launch, self._wait, timing)]
        if self.artifact.kind == "llvm":
            return tuple(found), {"gpu": "a processor has no device timestamps"}
        try:
            found.append(self._gpu(timing))
        except MetricError as error:
            if self.metric == "gpu-control":
                raise
            return tuple(found), {"gpu": str(error)}
        return tuple(found), {}

    def _modelled(self) -> Measurement:
        events = count_events(self._counters, programs_of(self.artifact.tile_ir))
        cost = modelled_cost(events)
        how = "modelled: weighted events of the simulator, no time (" + ", ".join(
            f"{name} {value:.4g}" for name, value in events.items()
        )
        return from_samples("modelled", "modelled operations", [cost], 1, how + ")")

    def _gpu(self, timing: Timing) -> Measurement:
        if self.artifact.kind == "cuda":
            return self._cuda(timing)
        return self._metal(timing)

    def _cuda(self, timing: Timing) -> Measurement:
        tensors = [exported(argument) for argument in self._arguments]
        function, events = self.artifact.function, CudaEvents()
        try:
            launch = lambda: function(*tensors)  # noqa: E731
            estimate = float(np.median(events.seconds(launch, 5)))
            calls = min(calls_for(estimate, timing), 1000)
            samples = [float(np.mean(events.seconds(launch, calls))) for _ in range(timing.samples)]
        finally:
            events.close()
        how = "CUDA events around each launch, L2 overwritten before it"
        return from_samples("gpu", "seconds", samples, calls, how)

    def _metal(self, timing: Timing) -> Measurement:
        assert self.artifact.device is not None
        names = [view.name for view in self.artifact.tile_ir.views]
        arrays = [array.numpy() for array in self._arrays]
        timer = CommandBufferTimer(self.artifact.device, names, arrays)
        estimate = min(timer.seconds(1) for _ in range(3))
        calls = calls_for(estimate, timing)
        samples = [timer.seconds(calls) for _ in range(timing.samples)]
        how = "GPU time of command buffers of back-to-back dispatches"
        return from_samples("gpu", "seconds", samples, calls, how)


def programs_of(program: Program) -> int:
    """P: the programs of every root nest, at least one."""
    roots = [s for s in program.body if isinstance(s, Parallel)]
    return max(1, sum(math.prod(int(axis.extent) for axis in root.axes) for root in roots))


def _aligned(array: Array) -> Array:
    """A copy whose base is as aligned as a device allocation."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

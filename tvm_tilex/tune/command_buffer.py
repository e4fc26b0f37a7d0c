"""GPU time of Metal command buffers, through PyObjC (``pip install 'tvm-tilex[metal]'``).

TVM's Metal runtime samples its timestamps around a stream synchronization, which is not the GPU's
own time. Here the device artifact is launched without TVM, and a command buffer says when the GPU
began and ended it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex.build.device_artifact import DeviceArtifact, KernelLaunch
from tvm_tilex.tune.errors import MetricError

__all__ = ["CommandBufferTimer", "load_metal"]


def load_metal() -> Any:
    """PyObjC's binding of the Metal framework.

    Raises
    ------
    MetricError
        If it is not installed.
    """
    try:
        return importlib.import_module("Metal")
    except ImportError:
        raise MetricError(
            "gpu-control on metal reads command buffers' GPU times through PyObjC "
            "(pyobjc-framework-Metal), which is not installed"
        ) from None


class CommandBufferTimer:
    """A kernel's launches with their buffers, ready to be encoded any number of times."""

    def __init__(
        self,
        artifact: DeviceArtifact,
        names: Sequence[str],
        arrays: Sequence[NDArray[Any]],
        framework: Any | None = None,
    ) -> None:
        self._metal = framework if framework is not None else load_metal()
        device = self._metal.MTLCreateSystemDefaultDevice()
        if device is None:
            raise MetricError("gpu-control on metal: the framework finds no device")
        options = self._metal.MTLCompileOptions.new()
        options.setFastMathEnabled_(not artifact.requires_precise_math)
        library, error = device.newLibraryWithSource_options_error_(artifact.source, options, None)
        if library is None:
            raise MetricError(f"Metal rejects the emitted source: {error}")
        self._queue = device.newCommandQueue()
        self._arrays = dict(zip(names, arrays, strict=True))
        shared = self._metal.MTLResourceStorageModeShared
        self._buffers = {
            name: device.newBufferWithBytes_length_options_(array.tobytes(), array.nbytes, shared)
            for name, array in self._arrays.items()
        }
        self._stages = [self._stage(device, library, launch) for launch in artifact.launches]

    def seconds(self, calls: int) -> float:
        """GPU seconds of a call: one command buffer with ``calls`` of them, divided."""
        commands = self._queue.commandBuffer()
        encoder = commands.computeCommandEncoder()
        for _ in range(calls):
            for launch, state in self._stages:
                self._encode(encoder, launch, state)
        encoder.endEncoding()
        commands.commit()
        commands.waitUntilCompleted()
        if commands.error() is not None:
            raise MetricError(f"the command buffer failed: {commands.error()}")
        return float(commands.GPUEndTime() - commands.GPUStartTime()) / calls

    def array(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's contents."""
        like = self._arrays[name]
        memory = self._buffers[name].contents().as_buffer(like.nbytes)
        return np.frombuffer(bytes(memory), like.dtype).reshape(like.shape)

    def _stage(self, device: Any, library: Any, launch: KernelLaunch) -> tuple[KernelLaunch, Any]:
        if launch.scalars:
            raise MetricError(f"{launch.entry}: takes scalars, which this launcher does not pass")
        function = library.newFunctionWithName_(launch.entry)
        state, error = device.newComputePipelineStateWithFunction_error_(function, None)
        if state is None:
            raise MetricError(f"{launch.entry}: no pipeline state: {error}")
        return launch, state

    def _encode(self, encoder: Any, launch: KernelLaunch, state: Any) -> None:
        encoder.setComputePipelineState_(state)
        for position, name in enumerate(launch.buffers):
            encoder.setBuffer_offset_atIndex_(self._buffers[name], 0, position)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(
            self._metal.MTLSizeMake(*launch.grid), self._metal.MTLSizeMake(*launch.group)
        )

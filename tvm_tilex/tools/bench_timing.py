"""How ``tilex bench`` measures: arguments that rotate past the cache, a copy by the same clock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import tvm_tilex as tx
from tvm_tilex.errors import TargetError

__all__ = ["Bench", "CudaBench", "HostBench", "Timing", "bench_for"]

Arguments = Sequence[Any]
_MEMORY = 1 << 30  # of all argument sets together on the host, in bytes
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the median over rounds, the least and the most; argument sets rotated."""

    median: float
    least: float
    most: float
    sets: int


class Bench(Protocol):
    """A clock of one target."""

    def moved(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """Arrays where the kernel takes them."""
        ...

    def returned(self, tensors: Arguments) -> tuple[np.ndarray, ...]:
        """The same as NumPy arrays."""
        ...

    def time(
        self, function: Callable[..., Any], arguments: Arguments, size: int, rounds: int
    ) -> Timing:
        """Time calls on copies of ``arguments``, whose ``size`` bytes are moved a call."""
        ...

    def copy_rate(self, size: int, rounds: int) -> float:
        """Bytes a second of an elementwise copy that moves ``size`` bytes, halves each way."""
        ...


def bench_for(kind: str) -> Bench:
    """The clock of a target kind.

    Raises
    ------
    TargetError
        If nothing of that kind can be timed here.
    """
    if kind == "llvm":
        return HostBench()
    if kind != "cuda":
        raise TargetError(f"bench measures llvm and cuda; the simulator of {kind} has no clock")
    try:
        import torch
    except ImportError:
        raise TargetError("bench on cuda needs torch, for its memory and graphs") from None
    if not torch.cuda.is_available():
        raise TargetError("bench on cuda: this process has no CUDA device")
    return CudaBench()


def set_count(size: int, cache: int, memory: int) -> int:
    """Argument sets to rotate: one is used again after three caches' bytes, if memory allows."""
    return max(1, min(1 + math.ceil(3 * cache / max(1, size)), memory // max(1, size)))


@tx.tile_kernel
def _copy(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]) -> None:  # type: ignore[valid-type]
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
        out(at, region).store(x[at, region])


class HostBench:
    """The processor, from the host's clock around each call."""

    def moved(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """Copies of the arrays."""
        return tuple(array.copy() for array in arrays)

    def returned(self, tensors: Arguments) -> tuple[np.ndarray, ...]:
        """The arrays themselves."""
        return tuple(tensors)

    def time(
        self, function: Callable[..., Any], arguments: Arguments, size: int, rounds: int
    ) -> Timing:
        """Time ``rounds`` calls of each of several argument sets in turn."""
        count = set_count(size, _last_level_cache(), _MEMORY)
        sets = [tuple(a.copy() for a in arguments) for _ in range(count)]
        for given in sets:
            function(*given)
        times = []
        for _ in range(max(rounds, math.ceil(rounds * 5 / count))):
            for given in sets:
                begin = time.perf_counter()
                function(*given)
                times.append(time.perf_counter() - begin)
        return Timing(statistics.median(times), min(times), max(times), count)

    def copy_rate(self, size: int, rounds: int) -> float:
        """The faster of NumPy's copy and one over all cores, compiled as the kernel is."""
        columns = min(4096, max(1, size // 8))
        matrix = np.ones((max(1, size // 8 // columns), columns), np.float32)
        pair = (matrix, np.empty_like(matrix))
        ours = tx.compile(_copy, matrix.shape, matrix.shape)
        moved = 2 * matrix.nbytes
        calls = (ours, lambda x, out: np.copyto(out, x))
        return moved / min(self.time(call, pair, moved, rounds).median for call in calls)


def _last_level_cache() -> int:
    """Bytes of the largest cache that the system reports, or 32 MiB."""
    sizes = []
    for path in _CACHES.glob("index*/size"):
        text = path.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:])
        if factor is not None and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * factor)
    return max(sizes, default=32 << 20)


class CudaBench:
    """An NVIDIA GPU, from events around replays of a CUDA graph."""

    def moved(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """Torch tensors on the current GPU."""
        import torch

        found = []
        for array in arrays:
            narrow = array.dtype.name == "bfloat16"
            tensor = torch.from_numpy(array.view(np.int16) if narrow else array).cuda()
            found.append(tensor.view(torch.bfloat16) if narrow else tensor)
        return tuple(found)

    def returned(self, tensors: Arguments) -> tuple[np.ndarray, ...]:
        """Copies in the processor's memory."""
        import ml_dtypes
        import torch

        found = []
        for tensor in tensors:
            if tensor.dtype is torch.bfloat16:
                found.append(tensor.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16))
            else:
                found.append(tensor.cpu().numpy())
        return tuple(found)

    def time(
        self, function: Callable[..., Any], arguments: Arguments, size: int, rounds: int
    ) -> Timing:
        """Time ``rounds`` replays of a graph that calls each of several argument sets in turn."""
        import torch

        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        free, _ = torch.cuda.mem_get_info()
        count = set_count(size, cache, free // 2)
        sets = [tuple(a.clone() for a in arguments) for _ in range(count)]
        function(*sets[0])  # loads the code, which a capture forbids
        torch.cuda.synchronize()
        calls = count * math.ceil(20 / count)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(calls):
                function(*sets[i % count])
        graph.replay()
        times = []
        for _ in range(rounds):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / calls / 1e3)
        return Timing(statistics.median(times), min(times), max(times), count)

    def copy_rate(self, size: int, rounds: int) -> float:
        """Torch's elementwise kernel ``x + 1`` into another tensor."""
        import torch

        x = torch.zeros(max(1, size // 8), device="cuda")
        moved = 8 * x.numel()
        pair = (x, torch.empty_like(x))
        found = self.time(lambda a, b: torch.add(a, 1.0, out=b), pair, moved, rounds)
        return moved / found.median

"""The short way from torch tensors to a launch: every check, no description of the arguments.

A call costs what its checks cost. Tensors that are exactly what a kernel was compiled for go
straight to the packed function, which takes them through torch's own C exchange of DLPack and sets
TVM's stream to torch's current one. Anything else is left to the long way (:mod:`.artifact`), which
names what differs, or copes with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import TargetError
from tvm_tilex.ir.program import View, ViewAccess

__all__ = ["Launcher"]

_MEMORY = {"llvm": "is_cpu", "cuda": "is_cuda"}  # Metal's addresses are no addresses


@dataclass(frozen=True)
class Launcher:
    """Launches one packed function.

    ``alignment`` gives the bytes that vector accesses assume of a view's base, by name; ``scalar``
    returns the launcher of the same map without vectors.
    """

    name: str
    kind: str
    views: tuple[View, ...]
    function: Callable[..., None]
    alignment: dict[str, int]
    scalar: Callable[[], Launcher]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ready", set())

    def send(self, index: int, tensors: Sequence[Any]) -> None:
        """Launch on checked tensors of device ``index``; the caller's current device stays.

        Raises
        ------
        TargetError
            If a CUDA graph is being captured before the kernel's code was ever loaded: loading
            allocates and synchronizes, which a capture forbids.
        """
        if self.kind != "cuda":
            self.function(*tensors)
            return
        torch = sys.modules.get("torch")
        torch = torch if torch is not None and torch.cuda.is_initialized() else None
        ready: set[int] = self._ready  # type: ignore[attr-defined]
        if index not in ready and torch is not None and torch.cuda.is_current_stream_capturing():
            raise TargetError(
                f"{self.name}: captured into a CUDA graph before its first launch on cuda:{index}; "
                "call it once before the capture, so that its code is loaded"
            )
        if torch is None or torch.cuda.current_device() == index:
            self.function(*tensors)
        else:
            with torch.cuda.device(index):  # TVM makes the tensors' device current, and leaves it
                self.function(*tensors)
        ready.add(index)

    def direct(self) -> Callable[[Sequence[Any]], bool] | None:
        """A function that launches tensors as compiled, or returns False and does nothing.

        None where there is no short way: no torch, a torch without the C exchange, a target whose
        memory has no addresses, or an extent that a launch decides.
        """
        torch = sys.modules.get("torch")
        if torch is None or self.kind not in _MEMORY:
            return None
        if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            return None
        if not all(isinstance(extent, int) for view in self.views for extent in view.shape):
            return None
        return self._direct(torch)

    def _direct(self, torch: Any) -> Callable[[Sequence[Any]], bool]:
        # Closure variables, not attributes: this runs before every launch.
        types = frozenset((torch.Tensor, torch.nn.Parameter))
        strided, memory, count = torch.strided, _MEMORY[self.kind], len(self.views)
        expected = [
            (
                torch.Size(view.shape),
                getattr(torch, view.dtype.name),
                view.dtype.bytes,
                self.alignment.get(view.name, 1),
            )
            for view in self.views
        ]
        pairs = _written_pairs(self.views)
        plain = self.function if self.kind == "llvm" else None

        def launch(arrays: Sequence[Any]) -> bool:
            if len(arrays) != count:
                return False
            device, aligned, bases = None, True, []
            for array, (shape, dtype, item, alignment) in zip(arrays, expected, strict=True):
                if (
                    type(array) not in types
                    or array.dtype is not dtype
                    or array.shape != shape
                    or not getattr(array, memory)
                    or array.layout is not strided
                    or not array.is_contiguous()
                    or array.is_neg()
                ):
                    return False
                index = array.get_device()
                if device is None:
                    device = index
                elif index != device:
                    return False
                base = array.data_ptr()
                if base % item:
                    return False
                if base % alignment:
                    aligned = False
                bases.append(base)
            for a, a_bytes, b, b_bytes in pairs:
                if bases[a] < bases[b] + b_bytes and bases[b] < bases[a] + a_bytes:
                    return False
            if not aligned:
                self.scalar().send(device or 0, arrays)
            elif plain is not None:
                plain(*arrays)
            else:
                self.send(device or 0, arrays)
            return True

        return launch


def _written_pairs(views: tuple[View, ...]) -> tuple[tuple[int, int, int, int], ...]:
    """Positions and bytes of each written view beside every other one, once a pair."""
    sizes = []
    for view in views:
        size = view.dtype.bytes
        for extent in view.shape:
            size *= extent
        sizes.append(size)
    return tuple(
        (i, sizes[i], j, sizes[j])
        for i in range(len(views))
        for j in range(i + 1, len(views))
        if ViewAccess.read is not views[i].access or ViewAccess.read is not views[j].access
    )

"""The short way from torch tensors to a launch: every check, no description of the arguments.

A call costs what its checks cost. Tensors that are exactly what a kernel was compiled for go
straight to the packed function, which takes them through torch's own C exchange of DLPack and sets
TVM's stream to torch's current one. Anything else is left to the long way (:mod:`.artifact`), which
names what differs, or copes with it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import TargetError, TilexError
from tvm_tilex.ir.index import Dimension, most
from tvm_tilex.ir.program import View, ViewAccess

__all__ = ["Launcher"]

_ADDRESSED = ("llvm", "cuda")  # Metal's addresses are no addresses


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
        ready: set[int] = self._ready  # type: ignore[attr-defined]
        if index not in ready:
            self._first(index, tensors, torch)
            ready.add(index)
        elif torch is None or _current_device(torch) == index:
            self.function(*tensors)
        else:
            with torch.cuda.device(index):  # TVM makes the tensors' device current, and leaves it
                self.function(*tensors)

    def _first(self, index: int, tensors: Sequence[Any], torch: Any | None) -> None:
        if torch is None or not torch.cuda.is_initialized():
            self.function(*tensors)
            return
        if torch.cuda.is_current_stream_capturing():
            raise TargetError(
                f"{self.name}: captured into a CUDA graph before its first launch on cuda:{index}; "
                "call it once before the capture, so that its code is loaded"
            )
        with torch.cuda.device(index):
            self.function(*tensors)

    def direct(
        self, views: tuple[View, ...] | None = None
    ) -> Callable[[Sequence[Any]], bool] | None:
        """A function that launches tensors as compiled, or returns False and does nothing.

        ``views`` may fix dynamic extents, which saves checking them.

        None where there is no short way: no torch, a torch without the C exchange, or a target
        whose memory has no addresses.
        """
        torch = sys.modules.get("torch")
        if torch is None or self.kind not in _ADDRESSED:
            return None
        if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            return None
        return self._direct(torch, views or self.views)

    def _direct(self, torch: Any, views: tuple[View, ...]) -> Callable[[Sequence[Any]], bool]:
        # Closure variables, not attributes: this runs before every launch.
        types = frozenset((torch.Tensor, torch.nn.Parameter))
        count, on_gpu = len(views), self.kind == "cuda"
        dynamic = any(isinstance(extent, Dimension) for view in views for extent in view.shape)
        fits = _extents_fit(views) if dynamic else None
        wanted = [(view.dtype.bytes, self.alignment.get(view.name, 1)) for view in views]
        pairs = _written_pairs(views)
        fixed = [] if dynamic else [_bytes(view) for view in views]
        function, send = self.function, self.send

        def launch(arrays: Sequence[Any]) -> bool:
            if len(arrays) != count:
                return False
            device, aligned, bases = 0, True, []
            for array, (item, alignment) in zip(arrays, wanted, strict=True):
                if type(array) not in types or array.is_neg():
                    return False
                if on_gpu:
                    index = array.get_device()
                    if bases and index != device:
                        return False
                    device = index
                base = array.data_ptr()
                if base % item:
                    return False
                if base % alignment:
                    aligned = False
                bases.append(base)
            if fits is not None and not fits(arrays):
                return False
            sizes = fixed if fits is None else [array.nbytes for array in arrays]
            for a, b in pairs:
                if bases[a] < bases[b] + sizes[b] and bases[b] < bases[a] + sizes[a]:
                    return False
            if not aligned:
                self.scalar().send(device, arrays)
            elif on_gpu:
                send(device, arrays)
            else:
                function(*arrays)
            return True

        def guarded(arrays: Sequence[Any]) -> bool:
            # The packed function itself refuses another type, shape, layout or kind of device,
            # before anything runs; the long way then says which argument it was, or copes.
            try:
                return launch(arrays)
            except (TypeError, ValueError, RuntimeError) as error:
                if isinstance(error, TilexError):
                    raise
                return False

        return guarded


def _current_device(torch: Any) -> int:
    """``torch.cuda.current_device()`` without the question whether CUDA is initialized."""
    ask = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    return int(ask())


def _extents_fit(views: tuple[View, ...]) -> Callable[[Sequence[Any]], bool]:
    """Whether shapes have the static extents and one value in its range for each dynamic one.

    An empty launch does not: the long way knows whether a program runs.
    """
    shapes = [view.shape for view in views]

    def fits(arrays: Sequence[Any]) -> bool:
        values: dict[str, int] = {}
        for array, shape in zip(arrays, shapes, strict=True):
            given = array.shape
            if len(given) != len(shape):
                return False
            for value, extent in zip(given, shape, strict=True):
                if isinstance(extent, int):
                    if value != extent:
                        return False
                elif (
                    not extent.minimum <= value <= extent.maximum
                    or values.setdefault(extent.name, value) != value
                ):
                    return False
        return 0 not in values.values()

    return fits


def _bytes(view: View) -> int:
    return math.prod(map(most, view.shape)) * view.dtype.bytes


def _written_pairs(views: tuple[View, ...]) -> tuple[tuple[int, int], ...]:
    """Positions of each written view beside every other one, once a pair."""
    return tuple(
        (i, j)
        for i in range(len(views))
        for j in range(i + 1, len(views))
        if ViewAccess.read is not views[i].access or ViewAccess.read is not views[j].access
    )

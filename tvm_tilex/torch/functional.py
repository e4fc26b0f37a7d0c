"""``torch.nn.functional`` by the library's kernels: the same arguments, or :class:`Unsupported`.

``use_kernels()`` puts them under functions that a model calls itself, such as ``F.softmax`` inside
a ``forward``, for as long as the context lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from tvm_tilex.lang import bfloat16, float16, float32
from tvm_tilex.torch.library import ops
from tvm_tilex.torch.signature import torch_dtype

__all__ = [
    "Unsupported",
    "cross_entropy",
    "layer_norm",
    "log_softmax",
    "rms_norm",
    "softmax",
    "use_kernels",
]

_STORAGE = tuple(map(torch_dtype, (float32, float16, bfloat16)))
_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Unsupported:
    """Why a call is left to torch."""

    reason: str


def softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> torch.Tensor | Unsupported:
    """``F.softmax`` over the last dimension."""
    return _over_last("softmax", input, dim, dtype)


def log_softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> torch.Tensor | Unsupported:
    """``F.log_softmax`` over the last dimension."""
    return _over_last("log_softmax", input, dim, dtype)


def _over_last(name: str, x: torch.Tensor, dim: int | None, dtype: Any) -> Any:
    if dim is None or x.dim() == 0 or dim not in (-1, x.dim() - 1):
        return Unsupported(f"dim={dim} is not the last dimension")
    x = x if dtype is None else x.to(dtype)
    return _unsupported(x) or getattr(ops, name)(x)


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor | Unsupported:
    """``F.layer_norm``; a bias without a weight, or the reverse, is completed by a constant."""
    rows = _rows(input, normalized_shape, weight, bias)
    if isinstance(rows, Unsupported):
        return rows
    if weight is None and bias is None:
        return ops.layernorm_no_affine(rows, eps).view(input.shape)
    like = weight if weight is not None else bias
    assert like is not None
    scale = torch.ones_like(like) if weight is None else weight
    shift = torch.zeros_like(like) if bias is None else bias
    return ops.layernorm(rows, scale.reshape(-1), shift.reshape(-1), eps).view(input.shape)


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor | Unsupported:
    """``F.rms_norm``; without ``eps`` torch takes that of the type it computes in, FP32."""
    rows = _rows(input, normalized_shape, weight)
    if isinstance(rows, Unsupported):
        return rows
    scale = rows.new_ones(rows.shape[-1]) if weight is None else weight.reshape(-1)
    added = torch.finfo(torch.float32).eps if eps is None else eps
    return ops.rmsnorm(rows, scale, added).view(input.shape)


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor | Unsupported:
    """``F.cross_entropy`` of (P, N) logits and (P,) int64 labels.

    A label that is neither ``ignore_index`` nor a class makes its loss NaN, where torch raises
    on the CPU and asserts on a GPU: raising would have to wait for the labels.
    """
    reason = _loss_options(input, target, weight, size_average, reduce, label_smoothing)
    if reason is None and reduction not in ("none", "mean", "sum"):
        reason = f"reduction={reduction!r}"
    problem = Unsupported(reason) if reason else _unsupported(input)
    if problem is not None:
        return problem
    losses = ops.cross_entropy(input, target)
    outside = (target < 0) | (target >= input.shape[-1])
    ignored = target == ignore_index
    losses = losses.masked_fill(outside, math.nan).masked_fill(ignored, 0.0)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / (~ignored).sum()


def _loss_options(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: Any,
    size_average: Any,
    reduce: Any,
    label_smoothing: float,
) -> str | None:
    if weight is not None:
        return "class weights"
    if label_smoothing:
        return f"label_smoothing={label_smoothing}"
    if size_average is not None or reduce is not None:
        return "the deprecated size_average or reduce"
    if input.dim() != 2 or target.dim() != 1:
        return f"{input.dim()} dimensions of logits; the kernel takes rows of classes"
    if target.dtype != torch.int64:
        return f"{target.dtype} targets; the kernel takes int64 class indices"
    return None


def _rows(
    x: torch.Tensor, normalized_shape: Sequence[int], *parameters: torch.Tensor | None
) -> torch.Tensor | Unsupported:
    """``x`` with its normalized dimensions flattened to one; parameters have their shape."""
    count, wanted = len(normalized_shape), tuple(normalized_shape)
    if not count or tuple(x.shape[-count:]) != wanted:
        return Unsupported(f"shape {tuple(x.shape)} does not end in {wanted}")
    for parameter in parameters:
        if parameter is not None and tuple(parameter.shape) != wanted:
            return Unsupported(f"a parameter of shape {tuple(parameter.shape)}, not {wanted}")
    return _unsupported(x, *parameters) or (x if count == 1 else x.flatten(-count))


def _unsupported(x: torch.Tensor, *others: torch.Tensor | None) -> Unsupported | None:
    """What about the tensors no kernel takes, or None."""
    for tensor in (x, *(other for other in others if other is not None)):
        if tensor.dtype not in _STORAGE:
            return Unsupported(f"element type {tensor.dtype}")
        if tensor.device.type not in _DEVICES or tensor.device != x.device:
            return Unsupported(f"device {tensor.device}")
        if tensor.layout is not torch.strided:
            return Unsupported(f"layout {tensor.layout}")
    if x.shape[-1] == 0:
        return Unsupported("rows without elements")
    if torch.is_autocast_enabled(x.device.type):
        return Unsupported("autocast, which chooses element types by torch's own operators")
    return None


def _softmax_method(input: torch.Tensor, dim: int, dtype: Any = None) -> Any:
    return softmax(input, dim, dtype=dtype)


def _log_softmax_method(input: torch.Tensor, dim: int, dtype: Any = None) -> Any:
    return log_softmax(input, dim, dtype=dtype)


# Names stand beside the functions because a compiler that traces the context cannot ask for them.
_HANDLERS: dict[Any, tuple[str, Callable[..., Any]]] = {
    F.softmax: ("softmax", softmax),
    torch.softmax: ("softmax", _softmax_method),
    torch.Tensor.softmax: ("softmax", _softmax_method),
    F.log_softmax: ("log_softmax", log_softmax),
    torch.log_softmax: ("log_softmax", _log_softmax_method),
    torch.Tensor.log_softmax: ("log_softmax", _log_softmax_method),
    F.layer_norm: ("layer_norm", layer_norm),
    F.rms_norm: ("rms_norm", rms_norm),
    F.cross_entropy: ("cross_entropy", cross_entropy),
}


class use_kernels(TorchFunctionMode):
    """Context in which functional calls run the library's kernels where they can.

    ``softmax`` and ``log_softmax`` (functions and methods), ``F.layer_norm``, ``F.rms_norm`` and
    ``F.cross_entropy``; a call that no kernel takes runs torch's own. Modules are covered too,
    since theirs call these functions. It needs no change of the model and ends with the context.

    Attributes
    ----------
    used
        How many calls of each function ran a kernel.
    left
        How many calls were left to torch, by function and reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, int] = {}
        self.left: dict[tuple[str, str], int] = {}

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a kernel for ``func`` where there is one."""
        kwargs = kwargs or {}
        if func not in _HANDLERS:
            return func(*args, **kwargs)
        name, handler = _HANDLERS[func]
        result = handler(*args, **kwargs)
        if not isinstance(result, Unsupported):
            self.used[name] = self.used.get(name, 0) + 1
            return result
        key = (name, result.reason)
        self.left[key] = self.left.get(key, 0) + 1
        return func(*args, **kwargs)

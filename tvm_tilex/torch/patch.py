"""``patch_model``: the library under a model's own modules, with a report, reversibly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tvm_tilex.errors import ArgumentError
from tvm_tilex.torch.functional import _STORAGE
from tvm_tilex.torch.modules import PATCHED, rms_norm_of

__all__ = ["PatchReport", "Replaced", "Skipped", "patch_model"]

_KERNELS = {
    nn.LayerNorm: "layernorm",
    nn.RMSNorm: "rmsnorm",
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
    nn.CrossEntropyLoss: "cross_entropy",
}
# Kin of the covered modules: what a reader of the report may expect to find in it.
_KIN = {
    nn.GroupNorm: "no kernel normalizes groups of channels",
    nn.Softmax2d: "its dimension is not the last one",
    nn.Softmin: "no kernel; -x through nn.Softmax is the same",
    nn.NLLLoss: "no kernel; nn.CrossEntropyLoss takes logits",
    nn.AdaptiveLogSoftmaxWithLoss: "no kernel",
    nn.MultiheadAttention: "its softmax is inside torch's attention",
}


@dataclass(frozen=True)
class Replaced:
    """A module that now runs a kernel where its inputs allow."""

    name: str
    module: str
    kernel: str


@dataclass(frozen=True)
class Skipped:
    """A module that was left as it is, and why."""

    name: str
    module: str
    reason: str


class PatchReport:
    """What :func:`patch_model` did. As a context manager it restores the model at the end."""

    def __init__(self) -> None:
        self.replaced: list[Replaced] = []
        self.skipped: list[Skipped] = []
        self._originals: list[tuple[nn.Module, type[nn.Module]]] = []

    def _exchange(self, name: str, module: Any, patched: type[nn.Module], kernel: str) -> None:
        self.replaced.append(Replaced(name, type(module).__name__, kernel))
        self._originals.append((module, type(module)))
        module.__class__ = patched

    def restore(self) -> None:
        """Give every replaced module its own class back. Idempotent."""
        for module, original in self._originals:
            module.__class__ = original
        self._originals.clear()

    def __enter__(self) -> PatchReport:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def __str__(self) -> str:
        lines = [f"{r.name or '(model)'}: {r.module} -> {r.kernel}" for r in self.replaced]
        lines += [f"{s.name or '(model)'}: {s.module} left: {s.reason}" for s in self.skipped]
        return "\n".join(lines) or "no module that a kernel covers"


def patch_model(model: nn.Module, *, rms_norms: Sequence[type[nn.Module]] = ()) -> PatchReport:
    """Run LayerNorm, RMSNorm, Softmax, LogSoftmax and CrossEntropyLoss modules by kernels.

    Modules are changed in place: a module keeps its identity, parameters, hooks and ``state_dict``,
    and only its class is exchanged for a subclass. An input that no kernel takes (float64,
    autocast, another device) runs torch's own code. A softmax that ``forward`` calls as a function
    is no module: see :class:`~tvm_tilex.torch.functional.use_kernels`.

    Parameters
    ----------
    rms_norms
        Classes beside ``nn.RMSNorm`` of which the caller knows that ``forward(x)`` is
        ``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension, with ``weight`` and
        ``variance_epsilon`` or ``eps`` as attributes, as those of many language models are.

    Returns
    -------
    PatchReport
        ``replaced`` and ``skipped`` with reasons, and ``restore()``.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"patch_model takes an nn.Module, not {type(model).__name__}")
    if isinstance(rms_norms, type) or not all(isinstance(kind, type) for kind in rms_norms):
        raise ArgumentError("patch_model: rms_norms takes a sequence of module classes")
    report, vouched = PatchReport(), {rms_norm_of(kind): kind for kind in rms_norms}
    for name, module in model.named_modules():
        kind = type(module).__name__
        own = vouched.get(type(module), type(module))
        if own in rms_norms:
            reason = "already patched" if own is not type(module) else _own_refusal(module)
            if reason is None:
                report._exchange(name, module, rms_norm_of(own), "rmsnorm")
            else:
                report.skipped.append(Skipped(name, kind, reason))
            continue
        base = next((base for base in PATCHED if isinstance(module, base)), None)
        if base is None:
            reason = _kin(module)
            if reason is not None:
                report.skipped.append(Skipped(name, kind, reason))
            continue
        reason = _refusal(module, base)
        if reason is not None:
            report.skipped.append(Skipped(name, kind, reason))
            continue
        report._exchange(name, module, PATCHED[base], _KERNELS[base])
    return report


def _kin(module: nn.Module) -> str | None:
    for kind, reason in _KIN.items():
        if isinstance(module, kind):
            return reason
    if type(module).__name__.endswith(("RMSNorm", "LayerNorm")):
        return "a class of its own, whose forward may differ from torch's"
    return None


def _refusal(module: Any, base: type[nn.Module]) -> str | None:
    """Why a module of a covered kind stays as it is, or None."""
    if type(module) is PATCHED[base]:
        return "already patched"
    if type(module) is not base:
        return f"a subclass of nn.{base.__name__}, whose forward may differ"
    reason = _instance_refusal(module)
    if reason is not None:
        return reason
    if isinstance(module, (nn.Softmax, nn.LogSoftmax)) and module.dim is None:
        return "dim=None is chosen by the number of dimensions"
    if isinstance(module, nn.CrossEntropyLoss):
        return _loss_refusal(module)
    return None


def _own_refusal(module: Any) -> str | None:
    """Why a module of a vouched class stays as it is, or None."""
    if not isinstance(getattr(module, "weight", None), torch.Tensor):
        return "it has no tensor 'weight'"
    if not (hasattr(module, "variance_epsilon") or hasattr(module, "eps")):
        return "it has neither 'variance_epsilon' nor 'eps'"
    return _instance_refusal(module)


def _instance_refusal(module: Any) -> str | None:
    """What about this module, rather than its class, no kernel serves."""
    if "forward" in vars(module):
        return "its forward is replaced on the instance"
    for parameter in module.parameters(recurse=False):
        if parameter.dtype not in _STORAGE:
            return f"parameters of {parameter.dtype}"
    return None


def _loss_refusal(module: nn.CrossEntropyLoss) -> str | None:
    if isinstance(module.weight, torch.Tensor):
        return "class weights"
    if module.label_smoothing:
        return f"label_smoothing={module.label_smoothing}"
    return None

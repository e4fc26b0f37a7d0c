"""Subclasses of torch's modules whose ``forward`` runs a kernel, and torch's own where none fits.

A patched module *is* the original object with its class exchanged: parameters, buffers, hooks,
names and ``state_dict`` stay, and so does ``isinstance``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from tvm_tilex.torch import functional
from tvm_tilex.torch.functional import Unsupported

__all__ = [
    "PATCHED",
    "CrossEntropyLoss",
    "LayerNorm",
    "LogSoftmax",
    "RMSNorm",
    "Softmax",
    "rms_norm_of",
]


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` by :func:`tvm_tilex.kernels.layernorm`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimensions."""
        result = functional.layer_norm(
            input, self.normalized_shape, self.weight, self.bias, self.eps
        )
        return super().forward(input) if isinstance(result, Unsupported) else result


class RMSNorm(nn.RMSNorm):
    """``nn.RMSNorm`` by :func:`tvm_tilex.kernels.rmsnorm`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimensions."""
        result = functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return super().forward(x) if isinstance(result, Unsupported) else result


class Softmax(nn.Softmax):
    """``nn.Softmax`` by :func:`tvm_tilex.kernels.softmax`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Softmax of the last dimension."""
        result = functional.softmax(input, self.dim)
        return super().forward(input) if isinstance(result, Unsupported) else result


class LogSoftmax(nn.LogSoftmax):
    """``nn.LogSoftmax`` by :func:`tvm_tilex.kernels.log_softmax`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Logarithm of the softmax of the last dimension."""
        result = functional.log_softmax(input, self.dim)
        return super().forward(input) if isinstance(result, Unsupported) else result


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """``nn.CrossEntropyLoss`` by :func:`tvm_tilex.kernels.cross_entropy`."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of each row, or their sum or mean."""
        result = functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
        return super().forward(input, target) if isinstance(result, Unsupported) else result


@functools.cache
def rms_norm_of(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a model's own RMS normalization that runs the kernel.

    It is pickled by the class that it is made of, since no module holds it under its name.
    """

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        result = functional.rms_norm(x, self.weight.shape, self.weight, eps)
        return kind.forward(self, x) if isinstance(result, Unsupported) else result

    def reduce(self: Any) -> tuple[Any, ...]:
        return _empty_rms_norm, (kind,), self.__dict__

    members = {"forward": forward, "__reduce__": reduce, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), members)


def _empty_rms_norm(kind: type[nn.Module]) -> nn.Module:
    """What a pickled module's attributes are put into."""
    patched = rms_norm_of(kind)
    return patched.__new__(patched)


PATCHED: dict[type[nn.Module], type[nn.Module]] = {
    nn.LayerNorm: LayerNorm,
    nn.RMSNorm: RMSNorm,
    nn.Softmax: Softmax,
    nn.LogSoftmax: LogSoftmax,
    nn.CrossEntropyLoss: CrossEntropyLoss,
}

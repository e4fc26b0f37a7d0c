"""Tile kernels as PyTorch operators, and a drop-in for the modules that the library covers.

``tx.torch.register(kernel)`` makes a ``torch.library`` operator of any tile kernel: with a fake
implementation, so that ``torch.compile`` keeps it in one graph, and with autograd where backward
kernels are given. ``tx.torch.patch_model(model)`` puts the library under a model's LayerNorm,
RMSNorm, Softmax, LogSoftmax and CrossEntropyLoss modules and reports what it did.

Importing this package imports torch; ``import tvm_tilex`` does not.
"""

from __future__ import annotations

from tvm_tilex.torch.functional import use_kernels
from tvm_tilex.torch.library import ops
from tvm_tilex.torch.operator import TileOperator, register
from tvm_tilex.torch.patch import PatchReport, Replaced, Skipped, patch_model

__all__ = [
    "PatchReport",
    "Replaced",
    "Skipped",
    "TileOperator",
    "ops",
    "patch_model",
    "register",
    "use_kernels",
]

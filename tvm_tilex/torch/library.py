"""The kernel library as operators: ``tx.torch.ops.softmax`` and so on, by their kernels' names.

All are registered when this module is imported, since a compiler that traces a model cannot
register what the model asks for. Nothing is captured or compiled by that.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from tvm_tilex import kernels
from tvm_tilex.kernels import gradients
from tvm_tilex.kernels.shapes import ROWS_PER_BLOCK
from tvm_tilex.lang.kernel import TileKernel
from tvm_tilex.torch.operator import TileOperator, register
from tvm_tilex.transform.options import CompileOptions

__all__ = ["ops"]


def _blocks(known: Mapping[str, Any]) -> Any:
    return (known["rows"] + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK


def _parameters(kernel: TileKernel) -> TileOperator:
    """One thread a column, so that neighbouring threads read neighbouring elements."""
    one_thread = CompileOptions(metal_subgroup_reductions=False, subgroup_reductions=False)
    return register(kernel, extents={"blocks": _blocks}, options=one_thread)


def _backward(name: str) -> tuple[TileKernel | TileOperator, ...]:
    found = getattr(gradients, f"{name}_backward", None)
    if found is None:
        return ()
    parameters = getattr(gradients, f"{name}_parameters_backward", None)
    return (found,) if parameters is None else (found, _parameters(parameters))


def _register_all() -> types.SimpleNamespace:
    found = {}
    for name in kernels.__all__:
        kernel = getattr(kernels, name)
        if isinstance(kernel, TileKernel):
            found[name] = register(kernel, backward=_backward(name))
    return types.SimpleNamespace(**found)


ops = _register_all()

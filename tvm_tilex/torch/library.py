"""The kernel library as operators, each registered when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


_BACKWARD: dict[str, Callable[[], tuple[TileKernel | TileOperator, ...]]] = {
    "softmax": lambda: (gradients.softmax_backward,),
    "log_softmax": lambda: (gradients.log_softmax_backward,),
    "layernorm": lambda: (
        gradients.layernorm_backward,
        _parameters(gradients.layernorm_parameters_backward),
    ),
    "layernorm_no_affine": lambda: (gradients.layernorm_no_affine_backward,),
    "rmsnorm": lambda: (
        gradients.rmsnorm_backward,
        _parameters(gradients.rmsnorm_parameters_backward),
    ),
    "cross_entropy": lambda: (gradients.cross_entropy_backward,),
}


class _Operators:
    """``tx.torch.ops.softmax`` and so on, by the names of :mod:`tvm_tilex.kernels`."""

    def __getattr__(self, name: str) -> TileOperator:
        kernel = getattr(kernels, name, None)
        if not isinstance(kernel, TileKernel):
            raise AttributeError(f"tvm_tilex.kernels has no kernel {name!r}")
        backward = _BACKWARD.get(name, tuple)()
        operator = register(kernel, backward=backward)
        setattr(self, name, operator)
        return operator

    def __dir__(self) -> list[str]:
        return sorted(n for n in kernels.__all__ if isinstance(getattr(kernels, n), TileKernel))


ops = _Operators()

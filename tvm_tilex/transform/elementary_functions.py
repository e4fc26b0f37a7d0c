"""Replaces TVM's FP32 elementary functions by polynomials that LLVM vectorizes.

Before::

    tile[k] = T.exp(x[row, k])

After::

    tile[k] = T.tilex.exp(x[row, k])

The operators, their errors and their lowering are :mod:`tvm_tilex.tirx.elementary`'s. What stays as
it is: a function that carries ``tilex.requires_precise_math`` (an ordered policy states every bit
up to the elementary functions, and those remain the C library's), other element types, and
everything where the processor has no fused multiply-add, which the polynomials are made of.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    Call,
    IRModule,
    Op,
    PrimFunc,
    call,
    fused_multiply_add,
    has_scalef,
    structural_map,
)
from tvm_tilex.tirx.elementary import FUNCTIONS, SCALEF
from tvm_tilex.transform.common import is_stage, tilex_pass

__all__ = ["ElementaryFunctions"]


@tilex_pass("ElementaryFunctions")
class ElementaryFunctions:
    """Use the polynomials in every reference function that leaves its order open."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the calls of a reference function."""
        if not is_stage(func, "reference") or attrs.PRECISE in func.attrs:
            return func
        if not fused_multiply_add(self.target):
            return func
        at_once = SCALEF if has_scalef(self.target) else {}

        def replace(found: Any) -> Any:
            name = found.op.name if isinstance(found.op, Op) else ""
            if name not in FUNCTIONS or str(found.ty.dtype) != "float32":
                return found
            op = FUNCTIONS[name]
            return call(at_once.get(op, op), *found.args, dtype="float32")

        return func.with_body(structural_map(func.body, (Call, replace), order="post"))

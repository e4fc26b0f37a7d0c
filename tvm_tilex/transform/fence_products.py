"""Keeps LLVM from fusing a product into a sum where an order was asked for.

Before::

    carry[0] = carry[0] + x * y

After::

    carry[0] = carry[0] + fence(x * y)

TVM's LLVM code generator allows contraction for the whole module, which changes the last digit of
an ordered reduction on a machine with fused multiply-add. A fused operation always swallows a
product, so fencing every floating-point product (``llvm.arithmetic.fence``) rules all of them out
on any target description. Acts on functions that carry ``tilex.requires_precise_math``; an
explicit ``tx.fma`` stays fused.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, call, structural_map, tirx
from tvm_tilex.tirx.register import FENCE
from tvm_tilex.transform.common import tilex_pass

__all__ = ["FenceProducts"]


@tilex_pass("FenceProducts")
class FenceProducts:
    """Fence every floating-point product of a function that needs precise math."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the function if it needs precise math and has not been fenced."""
        if attrs.PRECISE not in (func.attrs or {}) or attrs.FENCED in func.attrs:
            return func
        body = structural_map(func.body, (tirx.Mul, _fence), order="post")
        return func.with_body(body).with_attr(attrs.FENCED, True)


def _fence(product: Any) -> Any:
    dtype = str(product.ty.dtype)
    return call(FENCE, product, dtype=dtype) if "float" in dtype else product

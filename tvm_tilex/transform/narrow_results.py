"""Uses the hardware's exponential and root where every result is rounded to 16 bits.

Before::

    tile[k] = T.exp(x[row, k])               # a function that stores float16 or bfloat16 only

After::

    tile[k] = T.tilex.exp_approximate(x[row, k])

``exp`` is two units in the last place of FP32 for about eight instructions, the approximation
2**-22 + abs(x) * 2**-24, relative, for two (:mod:`tvm_tilex.tirx.register`), where a result keeps
2**-9 or 2**-12. ``1 / sqrt(x)`` becomes ``rsqrt(x)``, within two units of FP32, which needs no
branch for what is rare. What stays: a function that carries ``tilex.requires_precise_math``, or
that stores anything wider.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.widening import stores_narrow
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import Call, IRModule, Op, PrimFunc, call, structural_map, tirx
from tvm_tilex.tirx.register import EXP_APPROXIMATE
from tvm_tilex.transform.common import is_stage, tilex_pass

__all__ = ["NarrowResults"]


@tilex_pass("NarrowResults")
class NarrowResults:
    """Replace such calls in a reference function that stores 16-bit floats only."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the calls of a reference function."""
        if not is_stage(func, "reference") or attrs.PRECISE in func.attrs:
            return func
        if not stores_narrow(func.body):
            return func
        rules = [(Call, _replace), (tirx.Div, _reciprocal_root)]
        return func.with_body(structural_map(func.body, rules, order="post"))


def _reciprocal_root(division: Any) -> Any:
    one, root = division.a, division.b
    if not isinstance(one, tirx.FloatImm) or one.value != 1.0 or not isinstance(root, Call):
        return division
    square = isinstance(root.op, Op) and root.op.name == "tirx.sqrt"
    if not square or str(root.ty.dtype) != "float32":
        return division
    return tirx.call_intrin(root.ty, "tirx.rsqrt", *root.args)


def _replace(found: Any) -> Any:
    exponential = isinstance(found.op, Op) and found.op.name == "tirx.exp"
    if not exponential or str(found.ty.dtype) != "float32":
        return found
    return call(EXP_APPROXIMATE, *found.args, dtype="float32")

"""Makes the host function refuse dynamic extents outside the ranges it was proved for.

Before::

    def softmax(input: (P, N), output: (P, N)):  # tilex.dimensions {"N": [1, 300], ...}
        body

After::

    def softmax(input: (P, N), output: (P, N)):
        assert 1 <= N and N <= 300, "softmax: the extent N is outside 1..300, ..."
        body

Runs on scheduled functions, just before TVM lowers them; removes ``tilex.dimensions``.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.dimensions import dimension_ranges
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, assertion, tirx
from tvm_tilex.transform.common import is_stage, sequence, tilex_pass

__all__ = ["GuardDimensions"]


@tilex_pass("GuardDimensions")
class GuardDimensions:
    """Assert the range of every dynamic extent."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Put the assertions in front of the body."""
        if not is_stage(func, "scheduled") or attrs.DIMENSIONS not in func.attrs:
            return func
        name = func.attrs["global_symbol"]
        guards = [
            assertion(
                within(var, least, greatest),
                f"{name}: the extent {var.name} is outside "
                f"{least}..{greatest}, for which the kernel was compiled",
            )
            for var, (least, greatest) in dimension_ranges(func).items()
        ]
        return func.with_body(sequence(*guards, func.body)).without_attr(attrs.DIMENSIONS)


def within(var: Any, least: int, greatest: int) -> Any:
    """``least <= var <= greatest``."""
    dtype = str(var.ty.dtype)
    above = var >= tirx.IntImm(dtype, least)
    return tirx.And(above, var <= tirx.IntImm(dtype, greatest))

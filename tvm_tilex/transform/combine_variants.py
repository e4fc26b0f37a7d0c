"""One function of several realizations of one kernel, chosen when it is launched.

Before, scheduled functions with equal parameters, each right for its ranges of the extents::

    def softmax(input: (P, 512), output: (P, 512)):  # P in 1..128
        launch few
    def softmax(input: (P, 512), output: (P, 512)):  # P in 129..2147483647
        launch many

After, with the ranges of the whole::

    def softmax(input: (P, 512), output: (P, 512)):  # P in 0..2147483647
        if 1 <= P and P <= 128: launch few
        if 129 <= P and P <= 2147483647: launch many

No launch happens where no range holds, which is an empty one: everything else that is outside of
all ranges is refused by :class:`.GuardDimensions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_tilex.analysis.dimensions import dimension_ranges
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import PrimFunc, tirx
from tvm_tilex.transform.common import sequence, substitute
from tvm_tilex.transform.guard_dimensions import within

__all__ = ["combine_variants"]


def combine_variants(variants: Sequence[PrimFunc], whole: PrimFunc) -> PrimFunc:
    """Return a scheduled function that runs the variant whose ranges the extents are in.

    Parameters
    ----------
    variants
        Scheduled functions with ``tilex.dimensions``; their ranges are disjoint.
    whole
        The reference function whose parameters and ranges the result has.
    """
    extents = {var.name: (var, span) for var, span in dimension_ranges(whole).items()}
    bodies = []
    alignment: dict[str, int] = {}
    for variant in variants:
        names = dict(zip(variant.params, whole.params, strict=True))
        condition: Any = None
        for var, span in dimension_ranges(variant).items():
            own, full = extents[var.name]
            names[var] = own
            if span == full:
                continue
            test = within(own, *span)
            condition = test if condition is None else tirx.And(condition, test)
        body = substitute(variant.body, names)
        bodies.append(body if condition is None else tirx.IfThenElse(condition, body, None))
        for name, size in variant.attrs.get(attrs.ALIGNMENT, {}).items():
            alignment[name] = max(int(size), alignment.get(name, 1))
    combined = whole.with_body(sequence(*bodies)).with_attr(attrs.STAGE, "scheduled")
    if all(attrs.OVERLAPS in variant.attrs for variant in variants):
        combined = combined.with_attr(attrs.OVERLAPS, True)
    return combined.with_attr(attrs.ALIGNMENT, alignment) if alignment else combined

"""``cosize``: the width of the image, of CuTe layouts and of maps onto one axis."""

from __future__ import annotations

from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.cute_layout import ComposedLayout, CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.operators.derived import Derived, LayoutLike
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import image

__all__ = ["cosize"]


def cosize(layout: LayoutLike | LayoutMap, *, budget: int = DEFAULT_BUDGET) -> int:
    """Return ``1 + max - min`` of the values; 0 where the layout is empty.

    Strides of any sign, zero and swizzles included: 4 for ``4:-1``, 64 for
    ``S<3,0,3> o 0 o (6,10):(10,1)``. An allocation that starts at the least value needs this much.

    Raises
    ------
    OperatorError
        For a map with several codomain axes, or whose image is not known exactly.
    """
    found = layout.layout if isinstance(layout, Derived) else layout
    if isinstance(found, (CuteLayout, ComposedLayout)):
        return found.cosize()
    if found.codomain.rank != 1:
        raise OperatorError(f"cosize: the map has the codomain axes {found.codomain.names}")
    answer = image(found, budget)
    if answer.value is None:
        raise OperatorError(f"cosize: {answer.verdict.reason}")
    if not answer.value.size:
        return 0
    low, high = answer.value.intervals[0]
    return high - low + 1

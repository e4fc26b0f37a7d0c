"""The complement: what a layout leaves free below a bound."""

from __future__ import annotations

from tvm_tilex.layout.cute_layout import CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.int_tuple import IntTuple, size_of
from tvm_tilex.layout.operators.coalesce import merged
from tvm_tilex.layout.operators.derived import (
    Derived,
    LayoutLike,
    discharge,
    is_empty,
    of_digits,
    unwrap,
)
from tvm_tilex.layout.proof import prove
from tvm_tilex.layout.verdict import Verdict, proven, unknown

__all__ = ["complement"]

Digits = list[tuple[int, int]]


def complement(
    layout: LayoutLike, cotarget: IntTuple, *, round_up: bool = False
) -> Derived[CuteLayout]:
    """Return the layout R such that ``(A, R)`` takes every index below ``cotarget`` once.

    Parameters
    ----------
    layout
        A: an injective layout up to modes of stride 0, which do not change its image. Negative
        strides are refused: their values lie below 0.
    cotarget
        M, an integer or a shape (its size is meant).
    round_up
        Where no R ends exactly at M, take the least multiple of the last step: ``(A, R)`` then
        takes every index of ``[0, M')`` once, with ``M' >= M``. CuTe always does this.

    Returns
    -------
    Derived
        Obligations: disjoint and covering (``(filter(A), R)`` is a bijection onto ``[0, M)``), and
        ordered (strides of R are positive and each passes the reach of the faster modes).

    Raises
    ------
    OperatorError
        Where there is no such R, with the reason: two points of A collide, A leaves holes that no
        layout fills, or M is not a multiple of the last step.
    """
    source = unwrap(layout)
    if not isinstance(source, CuteLayout):
        raise OperatorError(f"complement: the image of {source} is not a sum of strides")
    target = size_of(cotarget)
    if target < 1 or is_empty(source):
        raise OperatorError(f"complement of {source} in [0, {target}): an empty side")
    kept = [(n, step) for n, step in merged(source) if step]
    if any(step < 0 for _, step in kept):
        raise OperatorError(
            f"complement of {source}: a negative stride puts values below 0, outside [0, {target})"
        )
    free, reach = _gaps(source, kept, target)
    count = -(-target // reach)
    if count * reach != target and not round_up:
        raise OperatorError(
            f"complement of {source} in [0, {target}): {target} is not a multiple of {reach};"
            f" round_up=True covers [0, {count * reach})"
        )
    if count > 1:
        free.append((count, reach))
    result = of_digits(merged(of_digits(free)))
    covers = f"(filter(A), R) is a bijection onto [0, {count * reach})"
    both = of_digits(kept + list(result.digits))
    found = (
        discharge("complement", covers, _bijective(both, count * reach)),
        discharge("complement", "R is ordered", ordered(result)),
    )
    return Derived(result, found)


def _gaps(source: CuteLayout, kept: Digits, target: int) -> tuple[Digits, int]:
    """Return the free digits below each stride, and the least index past the last one."""
    free: Digits = []
    reach = 1
    for extent, step in sorted(kept, key=lambda digit: digit[1]):
        if step % reach:
            raise OperatorError(f"complement of {source} in [0, {target}): {_why(kept, step)}")
        if step > reach:
            free.append((step // reach, reach))
        reach = extent * step
    return free, reach


def _why(kept: Digits, step: int) -> str:
    injective = prove(of_digits(kept).to_map(linear=True)).injectivity
    if injective.disproven:
        return f"not injective, {injective.reason}"
    return f"the faster modes do not tile below the stride {step}, no layout fills the holes"


def _bijective(both: CuteLayout, target: int) -> Verdict:
    if both.index_range() != (0, target - 1) or both.size() != target:
        return unknown(f"{both} does not end at {target}")
    for _, verdict in (proof := prove(both.to_map(linear=True))).items():
        if not verdict.proven:
            return verdict
    return proof.injectivity


def ordered(layout: CuteLayout) -> Verdict:
    """Return whether the values increase with the index."""
    reach = 0
    for extent, step in layout.digits:
        if extent == 1:
            continue
        if step <= reach:
            return unknown(f"the stride {step} does not pass the reach {reach}")
        reach += step * (extent - 1)
    return proven("each stride passes the reach of the faster modes")

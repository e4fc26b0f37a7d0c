"""Emits a maximum and a sum of exponentials with one exchange between SIMD groups.

Two exchanges, one a reduction, become one::

    peak[0] = subgroup_max(fold of e)                     # of this SIMD group's elements
    base[0] = peak[0], or 0 where that is infinite
    total[0] = subgroup_add(fold of f(e - base[0]))
    exchange of peak[0] and total[0]
    peak[0] = subgroup_max(peaks[lane])
    total[0] = subgroup_add(totals[lane] * f(peaks[lane] - c))

Where a group's maximum is -inf its sum is 0 and stays so, or is NaN where c is -inf too; where it
is +inf the sum is +inf and ``f(inf - c)`` is +inf, or NaN where c is +inf too, as in the sum that
was written; NaN is a NaN's. One case differs: where c is -inf though the whole maximum is not, the
sum that was written is +inf, and NaN once an element is -inf. Parts of sums no longer show such an
element, and a group without elements looks like one of them, so that either may come out.
:mod:`tvm_tilex.analysis.rescaling` proves what this needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_tilex.analysis.rescaling import RescaledSum, rescaled_sums
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import sequence
from tvm_tilex.transform.distributed_reductions import DistributedReductions, identity

__all__ = ["emit_rescaled_sum", "with_rescaled_sums"]


def with_rescaled_sums(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """The statements of a block, each pair that may share an exchange as one of them."""
    found: list[Any] = []
    position = 0
    for pair in rescaled_sums(body):
        found += [*body[position : pair.first], pair]
        position = pair.last + 1
    return (*found, *body[position:])


def emit_rescaled_sum(
    reductions: DistributedReductions, pair: RescaledSum, node: Callable[[Any], Any]
) -> Any:
    """The statements of ``pair``; ``node`` maps those between its loops."""
    maximum, total = pair.maximum, pair.total
    peak, zero = reductions.carry(maximum), tirx.IntImm("int32", 0)
    base = tirx.decl_buffer((1,), "float32", f"base_{total.value}", scope="local", layout=None)
    finite = tirx.Select(_infinite(peak), tirx.FloatImm("float32", 0.0), peak)
    exchange, (peaks, totals) = reductions.exchange.publish(peak, reductions.carry(total))

    def rescaled(at: Any) -> Any:
        return totals[at] * pair.exponential(peaks[at], pair.shift)

    read = reductions.exchange.read
    return sequence(
        reductions.fold(maximum, maximum.contribution),
        reductions.collective(maximum, peak),
        tirx.AllocBuffer(base),
        tirx.BufferStore(base, finite, [zero]),
        *map(node, pair.before),
        reductions.fold(total, pair.exponential(pair.element, base[zero])),
        reductions.collective(total, reductions.carry(total)),
        exchange,
        reductions.gather(maximum, read(peaks.__getitem__, identity(maximum))),
        *map(node, pair.after),
        reductions.gather(total, read(rescaled, identity(total))),
    )


def _infinite(value: Any) -> Any:
    """Whether an FP32 value is infinite, by its bits: fast math takes a comparison for false."""
    magnitude = tirx.bitwise_and(tirx.reinterpret("int32", value), tirx.IntImm("int32", 0x7FFFFFFF))
    return tirx.EQ(magnitude, tirx.IntImm("int32", 0x7F800000))

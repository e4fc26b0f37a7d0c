"""Whether the elements of a domain store to distinct addresses.

Sufficient condition, exact for dense row-major outputs: every loop variable of extent above 1 is,
alone in its own index, at most shifted by an expression without loop variables. Then two elements
that store to one address have equal variables. The variable of a repeated loop around the domain
may also be absent: then the same worker stores the same address once more, in the source's order.
Anything else is unknown.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import mentions
from tvm_tilex.analysis.structure import Domain
from tvm_tilex.tirx.compat import Var, tirx

__all__ = ["store_is_injective"]


def store_is_injective(domain: Domain, repeated: tuple[Any, ...] = ()) -> bool:
    """Whether the condition holds for the domain's store; False means it is not known.

    ``repeated`` are the loops around the domain that run more than once.
    """
    own = [loop.loop_var for loop in domain.loops if int(loop.extent.value) > 1]
    variables = own + [loop.loop_var for loop in repeated]
    found: list[Any] = []
    for index in domain.store.indices:
        inside = [var for var in variables if mentions(index, var)]
        if not inside:
            continue
        if len(inside) > 1 or not _shifted(index, inside[0]):
            return False
        found.append(inside[0])
    times = [sum(var.same_as(other) for other in found) for var in variables]
    return all(n == 1 for n in times[: len(own)]) and all(n <= 1 for n in times[len(own) :])


def _shifted(index: Any, var: Any) -> bool:
    if isinstance(index, Var):
        return bool(index.same_as(var))
    if isinstance(index, tirx.Add):
        if mentions(index.a, var):
            return _shifted(index.a, var) and not mentions(index.b, var)
        return _shifted(index.b, var)
    if isinstance(index, tirx.Sub) and not mentions(index.b, var):
        return _shifted(index.a, var)
    return False

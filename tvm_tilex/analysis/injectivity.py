"""Whether the elements of a domain store to distinct addresses.

Sufficient condition, exact for dense row-major outputs: every loop variable of extent above 1 is,
alone in its own index, at most shifted by an expression without loop variables. Then two elements
that store to one address have equal variables. Anything else is unknown.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import mentions
from tvm_tilex.analysis.structure import Domain
from tvm_tilex.tirx.compat import Var, tirx

__all__ = ["store_is_injective"]


def store_is_injective(domain: Domain) -> bool:
    """Whether the condition holds for the domain's store; False means it is not known."""
    variables = [loop.loop_var for loop in domain.loops if int(loop.extent.value) > 1]
    found: list[Any] = []
    for index in domain.store.indices:
        inside = [var for var in variables if mentions(index, var)]
        if not inside:
            continue
        if len(inside) > 1 or not _shifted(index, inside[0]):
            return False
        found.append(inside[0])
    return len(found) == len(variables) and all(
        sum(var.same_as(other) for other in found) == 1 for var in variables
    )


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

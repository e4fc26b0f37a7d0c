"""Starts the loads of a program's scalar results before its first reduction.

Before::

    reductions
    out[row] = g(carry[0]) - x[row, label[row]]

After::

    early[0] = x[row, label[row]]
    reductions
    out[row] = g(carry[0]) - early[0]

The loads depend on each other and on nothing that the reductions compute, so that their latency is
spent while the row is on its way. Legal because the program may read its views at any time: they
are read only in the function and written by nobody else (the noalias contract), and the loads keep
their lazy guards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import calls, impure_call, loads
from tvm_tilex.analysis.structure import Domain, Node, ReductionLoop
from tvm_tilex.tirx.compat import IF_THEN_ELSE, Call, TensorLoad, structural_map, tirx
from tvm_tilex.transform.common import substitute

__all__ = ["EarlyLoads", "early_loads"]


@dataclass(frozen=True)
class EarlyLoads:
    """Statements for in front of the first reduction, and the body that uses their results."""

    statements: tuple[Any, ...]
    first_reduction: int
    body: tuple[Node, ...]


def early_loads(body: tuple[Node, ...], written: frozenset[Any]) -> EarlyLoads | None:
    """Move loads of one-element results in front of the first reduction; None where none moves.

    ``written`` are the buffers that the function stores to.
    """
    first = next((i for i, node in enumerate(body) if isinstance(node, ReductionLoop)), None)
    if first is None:
        return None
    statements: list[Any] = []
    changed = list(body)
    for position in range(first + 1, len(body)):
        node = body[position]
        if isinstance(node, Domain) and node.count == 1 and node.condition is None:
            changed[position] = _without_loads(node, written, statements)
    return EarlyLoads(tuple(statements), first, tuple(changed)) if statements else None


def _without_loads(domain: Domain, written: frozenset[Any], statements: list[Any]) -> Domain:
    """The domain with its movable loads replaced by scalars, which ``statements`` store."""
    zeros = {loop.loop_var: tirx.IntImm(str(loop.loop_var.ty.dtype), 0) for loop in domain.loops}
    store = domain.store
    value = substitute(store.value, zeros)

    def moved(expression: Any) -> Any:
        if not _movable(expression, written):
            return expression
        dtype = str(expression.ty.dtype)
        name = f"early{len(statements) // 2}"
        scalar = tirx.decl_buffer((1,), dtype, name, scope="local", layout=None)
        zero = tirx.IntImm("int32", 0)
        statements.append(tirx.AllocBuffer(scalar))
        statements.append(tirx.BufferStore(scalar, expression, [zero]))
        return scalar[zero]

    value = _outermost(value, moved)
    return Domain(domain.loops, tirx.BufferStore(store.buffer, value, list(store.indices)), None)


def _outermost(value: Any, moved: Any) -> Any:
    """Apply ``moved`` to lazy selections first, then to loads outside any."""
    guarded = structural_map(value, (Call, lambda c: moved(c) if _selects(c) else c), order="pre")
    if IF_THEN_ELSE in calls(guarded):
        return guarded
    return structural_map(guarded, (TensorLoad, moved), order="post")


def _selects(call: Any) -> bool:
    return getattr(call.op, "name", None) == IF_THEN_ELSE


def _movable(expression: Any, written: frozenset[Any]) -> bool:
    found = loads(expression)
    if not found or impure_call(expression) is not None:
        return False
    return all(load.source.scope() == "global" and load.source not in written for load in found)

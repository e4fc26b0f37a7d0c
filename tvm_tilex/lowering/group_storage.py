"""Which values of a group need storage because of what groups do with them."""

from __future__ import annotations

from collections.abc import Iterable

from tvm_tilex.ir import Coordinate, Dot, Full, Pipeline, Read, Statement, Value, Write
from tvm_tilex.ir.walk import is_definition, values_used

__all__ = ["group_storage"]


def group_storage(everything: Iterable[Statement]) -> frozenset[int]:
    """Numbers of the values that a group must keep, given its statements in program order.

    The factors of a product, which many threads read; what a pipeline carries on, since the state
    changes all at once; what an iteration would compute again from outside; and a read of memory
    that is written later.
    """
    statements = tuple(everything)
    found: set[int] = set()
    for position, statement in enumerate(statements):
        if isinstance(statement, Dot):
            found.update((statement.a.number, statement.b.number))
        if isinstance(statement, Pipeline):
            found.update(o.number for o in statement.next if isinstance(o, Value))
            found.update(_hoisted(statements[:position], statement))
        if isinstance(statement, Read):
            later = (s for s in statements[position:] if isinstance(s, Write))
            if any(write.number == statement.number for write in later):
                found.add(statement.result.number)
    return frozenset(found)


def _hoisted(before: tuple[Statement, ...], pipeline: Pipeline) -> set[int]:
    """Values computed outside of ``pipeline`` that its body uses."""
    outside = {
        s.result.number
        for s in before
        if is_definition(s) and not isinstance(s, Full | Coordinate | Read)
    }
    return outside & {value.number for s in _inside(pipeline.body) for value in values_used(s)}


def _inside(body: tuple[Statement, ...]) -> Iterable[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Pipeline):
            yield from _inside(statement.body)

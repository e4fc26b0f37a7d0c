"""Which stripes hold a value at the same time.

A stripe lives from the domain that stores it to the last node that reads it. A domain that reads
one stripe and stores another needs one place for both: each worker reads the element that it then
stores, so that the value may take the place of the one it came from. A loop around several nodes is
taken as one: what it mentions lives through all of it.
"""

from __future__ import annotations

from tvm_tilex.analysis.buffers import element_count
from tvm_tilex.analysis.purity import mentions
from tvm_tilex.analysis.structure import Allocate, Enclosing, statements_of
from tvm_tilex.analysis.subject import Subject

__all__ = ["live_stripes"]


def live_stripes(subject: Subject) -> tuple[tuple[int, ...], ...]:
    """Element counts of the stripes that live together, each set of them once."""
    statements = statements_of(subject.row.root.body)
    steps = [
        (node, statement)
        for node, statement in zip(subject.row.body, statements, strict=True)
        if not isinstance(node, Allocate)
    ]
    spans = []
    for buffer in subject.distributed_locals:
        at = [i for i, (_, statement) in enumerate(steps) if mentions(statement, buffer)]
        loop = any(isinstance(steps[i][0], Enclosing) for i in at)
        spans.append((at[0], at[-1] + loop, element_count(buffer) or 0))
    found: dict[tuple[int, ...], None] = {}
    for step in range(len(steps)):
        live = tuple(count for begin, end, count in spans if begin == step or begin < step < end)
        found.setdefault(live)
    return tuple(live for live in found if live)

"""Which stripes hold a value at the same time.

A stripe lives from the domain that stores it to the last node that reads it. A domain that reads
one stripe and stores another needs one place for both: each worker reads the element that it then
stores, so that the value may take the place of the one it came from. A loop around several nodes is
taken as one: what it mentions lives through all of it.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.buffers import element_count
from tvm_tilex.analysis.purity import mentions
from tvm_tilex.analysis.structure import Allocate, Enclosing, statements_of
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.analysis.widening import stored_type, viewed
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.facts import Stripe

__all__ = ["live_stripes", "view_stripes"]


def live_stripes(subject: Subject) -> tuple[tuple[Stripe, ...], ...]:
    """The stripes that live together, each set of them once."""
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
        stripe = _stripe(subject, buffer)
        spans.append((at[0], at[-1] + loop, stripe))
    found: dict[tuple[Stripe, ...], None] = {}
    for step in range(len(steps)):
        live = tuple(stripe for begin, end, stripe in spans if begin == step or begin < step < end)
        found.setdefault(live)
    return tuple(live for live in found if live)


def view_stripes(subject: Subject) -> tuple[Stripe, ...]:
    """The stripes that hold elements of a view as they stand in memory."""
    found = (_stripe(subject, buffer) for buffer in subject.distributed_locals)
    return tuple(stripe for stripe in found if stripe.view)


def _stripe(subject: Subject, buffer: Any) -> Stripe:
    store = next(d.store for d in subject.domains if d.store.buffer.same_as(buffer))
    dtype = dtype_of(stored_type(store))
    view = viewed(store, subject.row.root.loop_var)
    return Stripe(element_count(buffer) or 0, dtype.bytes, view, dtype.name)

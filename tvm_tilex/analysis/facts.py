"""The integers that an admitted program gives to the planner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tvm_tilex.analysis.buffers import element_count
from tvm_tilex.analysis.effects import reads_what_it_writes
from tvm_tilex.analysis.liveness import live_stripes, view_stripes
from tvm_tilex.analysis.purity import loads, reads_own
from tvm_tilex.analysis.rescaling import count_rescaled
from tvm_tilex.analysis.row_alignment import RowPlace, row_alignment
from tvm_tilex.analysis.structure import Domain, Enclosing, OrderedLoop, ReductionLoop, nodes
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.analysis.work import instructions
from tvm_tilex.plan.facts import ProgramFacts
from tvm_tilex.tirx.compat import element_bytes

__all__ = ["program_facts"]


def program_facts(subject: Subject) -> ProgramFacts:
    """Facts of an admitted program (every row PROVEN)."""
    enclosing = [node for node in nodes(subject.row.body) if isinstance(node, Enclosing)]
    stripes = tuple(element_count(buffer) or 0 for buffer in subject.distributed_locals)
    outputs = [d for d in subject.domains if d.store.buffer.scope() == "global"]
    inputs = tuple(_global_loads(subject))
    root = subject.row.root.loop_var
    own = [(count, load) for count, load, _ in inputs if reads_own(load, root)]
    width, row = row_alignment(subject) or (1, RowPlace(0, 0))
    reads = sum(count for count, _, _ in inputs)
    read = sum(count * element_bytes(load.source) for count, load, _ in inputs)
    return ProgramFacts(
        programs=subject.row.programs,
        least_programs=subject.row.least_programs,
        reductions=tuple(r.update.extent for r in subject.reductions),
        kinds=tuple(r.update.combiner for r in subject.reductions),
        domains=tuple(domain.count for domain in subject.domains),
        stripes=stripes,
        live_stripes=live_stripes(subject),
        views=view_stripes(subject),
        instructions=_instructions(subject),
        rescaled=count_rescaled(subject.row.body),
        late_reads=sum(count for count, _, late in inputs if late),
        unit_enclosing=all(loop.unit for loop in enclosing),
        reads_what_it_writes=reads_what_it_writes(subject),
        index_limit=2 ** (int(subject.row.index_dtype.removeprefix("int")) - 1) - 1,
        vector_width=math.gcd(subject.vector_elements, *subject.widths),
        peeled_width=width,
        row_pitch=row.pitch,
        row_offset=row.offset,
        reads=reads,
        cached_bytes=read - sum(count * element_bytes(load.source) for count, load in own),
        common_reads=reads - sum(count for count, _ in own),
        repeated_bytes=_repeated_bytes(own),
        repartitions=tuple(d.count for d in subject.domains if d.repartition),
        writes=sum(d.count for d in outputs),
        bytes=read + sum(d.count * element_bytes(d.store.buffer) for d in outputs),
    )


def _repeated_bytes(own: list[tuple[int, Any]]) -> int:
    """Bytes of a program's rows that it loads again, beyond their first whole reading."""
    read: dict[Any, list[int]] = {}
    for count, load in own:
        read.setdefault(load.source, []).append(count * element_bytes(load.source))
    return sum(sum(sizes) - max(sizes) for sizes in read.values())


def _instructions(subject: Subject) -> int:
    return sum(
        _times(node) * instructions(part)
        for _, expressions, node in subject.contexts()
        for part in expressions
    )


def _times(node: Any) -> int:
    """How often a node's expressions are evaluated in a program."""
    if isinstance(node, Domain):
        return node.count
    if isinstance(node, ReductionLoop):
        return int(node.update.extent)
    return int(node.loop.extent.value) if isinstance(node, OrderedLoop) else 1


def _global_loads(subject: Subject) -> Iterator[tuple[int, Any, bool]]:
    """Global loads of a program: how often each runs, and whether in a domain behind a reduction.

    A load runs once an element of its node.
    """
    reduced = False
    for _, expressions, node in subject.contexts():
        count, late = _times(node), reduced and isinstance(node, Domain)
        for part in expressions:
            for load in loads(part):
                if load.source.scope() == "global":
                    yield count, load, late
        reduced = reduced or isinstance(node, ReductionLoop)

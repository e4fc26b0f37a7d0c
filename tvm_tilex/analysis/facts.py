"""The integers that an admitted program gives to the planner."""

from __future__ import annotations

import math

from tvm_tilex.analysis.effects import reads_what_it_writes
from tvm_tilex.analysis.purity import loads
from tvm_tilex.analysis.structure import Domain, Enclosing, nodes
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.facts import ProgramFacts
from tvm_tilex.tirx.compat import tirx

__all__ = ["element_count", "program_facts"]


def element_count(buffer: object) -> int | None:
    """Number of elements of a buffer of constant shape, or None."""
    count = 1
    for extent in buffer.ty.shape:  # type: ignore[attr-defined]
        if not isinstance(extent, tirx.IntImm):
            return None
        count *= int(extent.value)
    return count


def program_facts(subject: Subject) -> ProgramFacts:
    """Facts of an admitted program (every row PROVEN)."""
    enclosing = [node for node in nodes(subject.row.body) if isinstance(node, Enclosing)]
    stripes = tuple(element_count(buffer) or 0 for buffer in subject.distributed_locals)
    return ProgramFacts(
        programs=subject.row.programs,
        reductions=tuple(r.update.extent for r in subject.reductions),
        kinds=tuple(r.update.combiner for r in subject.reductions),
        domains=tuple(domain.count for domain in subject.domains),
        stripes=stripes,
        unit_enclosing=all(loop.unit for loop in enclosing),
        reads_what_it_writes=reads_what_it_writes(subject),
        index_limit=2 ** (int(subject.row.index_dtype.removeprefix("int")) - 1) - 1,
        vector_width=_vector_width(subject),
        reads=_global_reads(subject),
        repartitions=tuple(d.count for d in subject.domains if d.repartition),
        writes=sum(d.count for d in subject.domains if d.store.buffer.scope() == "global"),
    )


def _vector_width(subject: Subject) -> int:
    """Elements of a 16-byte vector of the narrowest storage, as far as every width allows."""
    widths = [r.update.extent for r in subject.reductions]
    widths += [domain.count for domain in subject.domains if domain.count > 1]
    storage = [dtype_of(str(b.ty.dtype)).bytes for b in subject.uses if b.scope() == "global"]
    fitting = 16 // min(storage, default=16)
    return math.gcd(fitting, *widths)


def _global_reads(subject: Subject) -> int:
    """Global elements that a program loads, each load of a domain or reduction once an element."""
    total = 0
    for _, expressions, node in subject.contexts():
        count = 1
        if isinstance(node, Domain):
            count = node.count
        elif hasattr(node, "update"):
            count = node.update.extent
        found = sum(load.source.scope() == "global" for part in expressions for load in loads(part))
        total += count * found
    return total

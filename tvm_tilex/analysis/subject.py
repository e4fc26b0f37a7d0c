"""What the rows of the admission table look at."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.buffers import BufferUses
from tvm_tilex.analysis.structure import (
    Domain,
    Enclosing,
    OrderedLoop,
    ReductionLoop,
    Replicated,
    RowProgram,
    nodes,
)
from tvm_tilex.plan.resources import VECTOR_ELEMENTS
from tvm_tilex.tirx.compat import PrimFunc, element_bytes

__all__ = ["Subject"]

_VECTOR_BYTES = 16


@dataclass(frozen=True, eq=False)
class Subject:
    """A function with its row program (None where it could not be read) and its buffers' uses."""

    function: PrimFunc
    program: RowProgram | None
    uses: dict[Any, BufferUses]
    lanes: int
    kind: str

    @property
    def row(self) -> RowProgram:
        """The row program, which must have been read."""
        assert self.program is not None
        return self.program

    @functools.cached_property
    def reductions(self) -> tuple[ReductionLoop, ...]:
        """Every reduction, in order."""
        return tuple(n for n in nodes(self.row.body) if isinstance(n, ReductionLoop))

    @functools.cached_property
    def ordered(self) -> tuple[OrderedLoop, ...]:
        """Every reduction whose policy fixes its order."""
        return tuple(n for n in nodes(self.row.body) if isinstance(n, OrderedLoop))

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        """Every element domain, in order."""
        return tuple(n for n in nodes(self.row.body) if isinstance(n, Domain))

    @functools.cached_property
    def distributed_locals(self) -> tuple[Any, ...]:
        """Local buffers stored by an element domain, each once, in order of definition."""
        found: dict[Any, None] = {}
        for domain in self.domains:
            if domain.store.buffer.scope() == "local":
                found.setdefault(domain.store.buffer)
        return tuple(found)

    @functools.cached_property
    def widths(self) -> frozenset[int]:
        """The element counts of reductions, and of domains of more than one element."""
        domains = (domain.count for domain in self.domains if domain.count > 1)
        return frozenset((*(r.update.extent for r in self.reductions), *domains))

    @property
    def vector_elements(self) -> int:
        """Elements of a 16-byte vector of the narrowest storage, as many as a worker can own."""
        storage = (element_bytes(b) for b in self.uses if b.scope() == "global")
        return min(VECTOR_ELEMENTS, _VECTOR_BYTES // min(storage, default=_VECTOR_BYTES))

    def repartitions(self, buffer: Any) -> bool:
        """Whether ``buffer`` is the storage of a repartition."""
        return any(d.repartition and d.store.buffer.same_as(buffer) for d in self.domains)

    def contexts(self) -> Iterator[tuple[Any | None, tuple[Any, ...], Any]]:
        """(owner coordinate or None where replicated, expressions, node) of every statement.

        The owner coordinate of a reduction is its loop variable, that of an element domain the
        row-major linear coordinate over its loops.
        """
        dtype = self.row.index_dtype
        for node in nodes(self.row.body):
            if isinstance(node, Replicated):
                yield None, (*node.store.indices, node.store.value), node
            elif isinstance(node, OrderedLoop):
                stored = [part for s in node.stores for part in (*s.indices, s.value)]
                yield None, (*stored, *node.conditions), node
            elif isinstance(node, ReductionLoop):
                yield node.update.loop.loop_var, (node.update.contribution,), node
            elif isinstance(node, Domain):
                parts = (*node.store.indices, node.store.value)
                if node.condition is not None:
                    parts = (*parts, node.condition)
                yield node.coordinate(dtype), parts, node
            elif isinstance(node, Enclosing):
                continue

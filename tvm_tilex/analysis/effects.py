"""Who stores each element of global memory, once programs are distributed over workers.

Obligation, for every global buffer that element domains store::

    two accesses of one address, at least one of them a store, belong to one worker

Then the order of a worker's own statements is the order of the source. A worker owns the linear
element of a domain, whatever the iterations of the enclosing loops, so it suffices that

- the buffer is compact and every index is a function of coordinates alone (loads in it read
  memory that nothing writes),
- the elements of a domain, and the iterations of loops around it, store at distinct addresses or
  at the same address by the same worker (:mod:`.injectivity`),
- all accesses of the buffer use one and the same index expressions over equally shaped domains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_tilex.analysis.injectivity import store_is_injective
from tvm_tilex.analysis.purity import loads
from tvm_tilex.analysis.structure import Domain, Enclosing, Node
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.tirx.compat import Var, structural_equal, structural_map

__all__ = ["global_store_problem", "is_compact", "reads_what_it_writes"]


def global_store_problem(subject: Subject) -> str | None:
    """What leaves an element of global memory without one owner, or None."""
    for domain, repeated in _placed(subject.row.body, ()):
        buffer = domain.store.buffer
        if buffer.scope() == "local":
            continue
        if not is_compact(buffer):
            return f"{buffer.name} is not compact: its elements may share addresses"
        if not all(_lasts(subject, index) for index in domain.store.indices):
            return f"{buffer.name} is stored at an index that reads changing memory"
        if not store_is_injective(domain, repeated):
            return f"elements of {buffer.name} may be stored more than once"
        problem = _touched_elsewhere(subject, domain)
        if problem is not None:
            return problem
    return None


def is_compact(buffer: Any) -> bool:
    """Whether a buffer's elements stand densely in row-major order from its own beginning."""
    kind = buffer.ty
    offset = getattr(kind.elem_offset, "value", kind.elem_offset)
    return len(kind.strides) == 0 and kind.layout is None and offset in (0, None)


def reads_what_it_writes(subject: Subject) -> bool:
    """Whether the program loads a global buffer that it also stores."""
    return any(
        bool(subject.uses[domain.store.buffer].loads)
        for domain in subject.domains
        if domain.store.buffer.scope() == "global"
    )


def _placed(
    body: tuple[Node, ...], outer: tuple[Any, ...]
) -> Iterator[tuple[Domain, tuple[Any, ...]]]:
    """Every domain with the loops around it that run more than once."""
    for node in body:
        if isinstance(node, Enclosing):
            yield from _placed(node.body, outer if node.unit else (*outer, node.loop))
        elif isinstance(node, Domain):
            yield node, outer


def _lasts(subject: Subject, index: Any) -> bool:
    """Whether an index has one value wherever its coordinates have one value."""
    return all(
        load.source.scope() == "global"
        and not subject.uses[load.source].stores
        and not subject.uses[load.source].escapes
        for load in loads(index)
    )


def _touched_elsewhere(subject: Subject, domain: Domain) -> str | None:
    """Another access of the stored buffer that is not at the domain's own element, or None."""
    buffer, written = domain.store.buffer, list(domain.store.indices)
    for other in subject.domains:
        if other is domain or not other.store.buffer.same_as(buffer):
            continue
        if not _same_element(written, domain, list(other.store.indices), other):
            return f"{buffer.name} is stored by two domains at different elements"
    if not subject.uses[buffer].loads:
        return None
    for _, expressions, node in subject.contexts():
        for load in (found for part in expressions for found in loads(part)):
            if not load.source.same_as(buffer):
                continue
            if not _same_element(written, domain, list(load.indices), node):
                return f"{buffer.name} is written, and read at another element ({load})"
    return None


def _same_element(written: list[Any], domain: Domain, other: list[Any], node: Any) -> bool:
    """Whether two accesses of equally shaped iteration spaces use the same index expressions."""
    if not isinstance(node, Domain) or node.extents != domain.extents:
        return False

    def rename(var: Any) -> Any:
        for old, new in zip(node.loops, domain.loops, strict=True):
            if var.same_as(old.loop_var):
                return new.loop_var
        return var

    renamed = [structural_map(index, (Var, rename), order="post") for index in other]
    return len(renamed) == len(written) and all(map(structural_equal, renamed, written))

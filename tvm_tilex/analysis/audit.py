"""The distributed-local audit: the fail-closed correctness boundary of private storage.

Obligation, for every nonscalar local buffer T that an element domain stores::

    one allocation, compact storage, no escape, stored whole by one element domain, and for every
    observed load and store in its enclosing domain:  flatten(indices) == owner coordinate

where the owner coordinate is the linear element of the enclosing domain or reduction. Then each
worker reads only elements that it stored itself, and T may shrink to the worker's stripe. The
audit does not know whether some forwarding tried to make it pass. A repartition whose producer and
consumers have the same owners is such a stripe; one that would move elements between workers is
declined by that name. An access without a provable
owner (replicated, fixed, permuted, shifted, data-dependent) declines the whole map; it is never
redirected to another worker's slot.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.buffers import element_count
from tvm_tilex.analysis.effects import is_compact
from tvm_tilex.analysis.purity import loads
from tvm_tilex.analysis.structure import Domain, OrderedLoop, ReductionLoop, Replicated
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.layout.verdict import Verdict, disproven, proven, unknown
from tvm_tilex.tirx.compat import Analyzer, Range, structural_equal

__all__ = ["audit_local_storage"]


def audit_local_storage(subject: Subject) -> Verdict:
    """Audit every distributed local buffer of the program."""
    distributed = subject.distributed_locals
    for buffer in distributed:
        problem = _storage_problem(subject, buffer)
        if problem is not None:
            return disproven(problem)
    for owner, expressions, node in subject.contexts():
        problem = _access_problem(subject, owner, expressions, node)
        if problem is not None:
            return unknown(problem)
    names = ", ".join(buffer.name for buffer in distributed) or "none"
    return proven(f"owner-only access of {names}")


def _storage_problem(subject: Subject, buffer: Any) -> str | None:
    uses = subject.uses[buffer]
    if uses.allocations != 1:
        return f"{buffer.name} has {uses.allocations} allocations"
    if uses.escapes:
        return f"{buffer.name} escapes through its variable"
    if not is_compact(buffer):
        return f"{buffer.name} is not compact"
    if str(buffer.ty.dtype) not in ("float32", "int32"):
        return f"{buffer.name} is {buffer.ty.dtype}, not a 32-bit scalar"
    if element_count(buffer) is None:
        return f"{buffer.name} has no constant size"
    defining = [d for d in subject.domains if d.store.buffer.same_as(buffer)]
    if len(defining) != 1 or len(uses.stores) != 1:
        return f"{buffer.name} has {len(uses.stores)} defining stores"
    if defining[0].condition is not None:
        return f"{buffer.name} is stored conditionally"
    if defining[0].count != element_count(buffer):
        return f"{buffer.name} is not stored whole"
    if not uses.loads:
        return f"{buffer.name} is never read"
    if any(load.source.same_as(buffer) for load in loads(defining[0].store.value)):
        return f"{buffer.name} is read by its own definition"
    return None


def _access_problem(
    subject: Subject, owner: Any | None, expressions: tuple[Any, ...], node: Any
) -> str | None:
    distributed = subject.distributed_locals
    accesses = [
        (load.source, load.indices)
        for part in expressions
        for load in loads(part)
        if any(load.source.same_as(buffer) for buffer in distributed)
    ]
    for store in _replicated_stores(node):
        if any(store.buffer.same_as(buffer) for buffer in distributed):
            return f"{store.buffer.name} is also stored outside its domain"
    if isinstance(node, Domain) and node.store.buffer.scope() == "local":
        accesses.append((node.store.buffer, node.store.indices))
    for buffer, indices in accesses:
        at = ", ".join(map(str, indices))
        if owner is None:
            problem = f"{buffer.name}[{at}] is read outside any element domain"
            return problem + _exchange(subject, buffer)
        if not _is_owner(buffer, indices, owner, node):
            problem = f"{buffer.name}[{at}] is not proved to be the worker's own element"
            return problem + _exchange(subject, buffer)
    return None


def _exchange(subject: Subject, buffer: Any) -> str:
    """What a repartition would need, for a problem with its buffer."""
    if not subject.repartitions(buffer):
        return ""
    return (
        f"; no exchange between workers realizes the repartition {buffer.name} of a row program"
        " (a cooperative group, tx.group, does)"
    )


def _replicated_stores(node: Any) -> tuple[Any, ...]:
    if isinstance(node, Replicated):
        return (node.store,)
    return node.stores if isinstance(node, OrderedLoop) else ()


def _is_owner(buffer: Any, indices: Any, owner: Any, node: Any) -> bool:
    """Whether the row-major linear index equals the owner coordinate for every iteration."""
    linear: Any = None
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        linear = index if linear is None else linear * extent + index
    if str(linear.ty.dtype) != str(owner.ty.dtype):
        return False
    if structural_equal(linear, owner):
        return True
    analyzer = Analyzer()
    loops = node.loops if isinstance(node, Domain) else ()
    if isinstance(node, ReductionLoop):
        loops = (node.update.loop,)
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    return bool(analyzer.can_prove_equal(linear, owner))

"""The rows of the admission table (spec section 3), one check each.

Every check states what it establishes. PROVEN means established for the current TIRx; DISPROVEN
carries the offending node as witness; UNKNOWN means that the fragment it understands was left.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.audit import audit_local_storage
from tvm_tilex.analysis.guards import is_data_dependent, statement_loads
from tvm_tilex.analysis.injectivity import store_is_injective
from tvm_tilex.analysis.purity import impure_call, loads
from tvm_tilex.analysis.state import carry_protocol
from tvm_tilex.analysis.structure import Allocate, Domain, Enclosing, nodes
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.layout.verdict import Verdict, disproven, proven, unknown
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    TensorLoad,
    Var,
    structural_equal,
    structural_map,
    structural_walk,
    tirx,
)

SUBGROUP_LANES = 32
MAPPED_KINDS = ("metal",)


def target_and_binding(subject: Subject) -> Verdict:
    """The target has SIMD groups of 32 lanes; the root is outermost, automatic or 'subgroup'."""
    if subject.kind not in MAPPED_KINDS:
        return disproven(f"target kind {subject.kind} has no SIMD-group realization")
    if subject.lanes != SUBGROUP_LANES:
        return disproven(
            f"the target says thread_warp_size {subject.lanes}, not {SUBGROUP_LANES}; "
            "state thread_warp_size=32 in the target"
        )
    if subject.program is not None:
        binding = attrs.annotation(subject.row.root, attrs.BINDING)
        if binding not in (None, "auto", "subgroup"):
            return disproven(f"the root's binding is {binding!r}")
    return proven("32-lane SIMD groups, outermost root")


def kernel_abi(subject: Subject) -> Verdict:
    """Arguments do not alias: the function carries ``tirx.noalias``."""
    if "tirx.noalias" not in subject.function.attrs:
        return disproven("arguments may alias (tirx.noalias is not set)")
    return proven("noalias arguments")


def reduction_type(subject: Subject) -> Verdict:
    """Every marked reduction is add, maximum or minimum on FP32 state."""
    if not subject.reductions and not subject.ordered:
        return disproven("the program has no reduction")
    for reduction in subject.reductions:
        if reduction.update.dtype != "float32":
            return disproven(f"{reduction.update.carry.name} is {reduction.update.dtype} state")
    return proven("FP32 " + ", ".join(r.update.combiner for r in subject.reductions))


def numerical_permission(subject: Subject) -> Verdict:
    """The policy of each distributed reduction permits any order (spec section 1).

    A reduction whose policy fixes the order is not distributed: every worker folds it serially.
    """
    for reduction in subject.reductions:
        if reduction.update.policy != ReductionPolicy.unordered_tree.value:
            return disproven(
                f"{reduction.update.carry.name} has the policy {reduction.update.policy}"
            )
    if not subject.reductions:
        return disproven(f"every reduction is ordered ({subject.ordered[0].policy})")
    folded = f"; {len(subject.ordered)} ordered are folded serially" if subject.ordered else ""
    return proven(f"unordered_tree permits reassociation and permutation{folded}")


def canonical_state(subject: Subject) -> Verdict:
    """One local scalar carry, exact identity, one update, no other observation in between."""
    for reduction in subject.reductions:
        problem = carry_protocol(subject, reduction)
        if problem is not None:
            return disproven(problem)
    return proven("identity, one update, read only afterwards")


def contribution(subject: Subject) -> Verdict:
    """Contributions and domain values are pure, and only read memory."""
    for _, expressions, _ in subject.contexts():
        for expression in expressions:
            impure = impure_call(expression)
            if impure is not None:
                return disproven(f"{impure} is not known to be pure")
    for buffer, uses in subject.uses.items():
        if uses.escapes:
            return disproven(f"{buffer.name} escapes through its variable")
    return proven("pure typed expressions")


def control(subject: Subject) -> Verdict:
    """Source loops are static, serial and unit-step, and no reduction is conditional.

    A program that was read has this shape; conditions only guard single stores.
    """
    return proven(f"{len(subject.reductions)} static loops, none conditional")


def execution_nesting(subject: Subject) -> Verdict:
    """No parallel nest inside the mapped program; one root from 0."""
    root = subject.row.root
    if not isinstance(root.min, tirx.IntImm):
        return unknown(f"the root begins at {root.min}")
    if root.step is not None and getattr(root.step, "value", 0) != 1:
        return disproven(f"the root's step is {root.step}")
    return proven("one root, no nested parallel")


def global_effects(subject: Subject) -> Verdict:
    """Stores to global memory happen only in element domains, at most once an element.

    A buffer that is both read and written must be accessed at one and the same address by all
    its accesses of an element: then its owner alone touches it.
    """
    for domain in subject.domains:
        if domain.store.buffer.scope() != "global":
            continue
        if not store_is_injective(domain):
            return unknown(f"elements of {domain.store.buffer.name} may be stored more than once")
        problem = _read_elsewhere(subject, domain)
        if problem is not None:
            return unknown(problem)
    return proven("stores only in element domains")


def _read_elsewhere(subject: Subject, domain: Any) -> str | None:
    """A load of the stored buffer that is not at its own domain's element, or None."""
    buffer = domain.store.buffer
    if not subject.uses[buffer].loads:
        return None
    written = list(domain.store.indices)
    for _, expressions, node in subject.contexts():
        for load in (found for part in expressions for found in loads(part)):
            if not load.source.same_as(buffer):
                continue
            if not _same_element(written, domain, list(load.indices), node):
                return f"{buffer.name} is written, and read at another element ({load})"
    return None


def _same_element(written: list[Any], domain: Any, read: list[Any], node: Any) -> bool:
    """Whether two accesses of equally shaped iteration spaces use the same index expressions."""
    if not isinstance(node, Domain) or node.extents != domain.extents:
        return False

    def rename(var: Any) -> Any:
        for old, new in zip(node.loops, domain.loops, strict=True):
            if var.same_as(old.loop_var):
                return new.loop_var
        return var

    renamed = [structural_map(index, (Var, rename), order="post") for index in read]
    return len(renamed) == len(written) and all(map(structural_equal, renamed, written))


def distributed_private_storage(subject: Subject) -> Verdict:
    """Every nonscalar local buffer with a distributed store is accessed by its owner alone."""
    return audit_local_storage(subject)


def guarded_input_views(subject: Subject) -> Verdict:
    """Data-dependent loads read immutable memory, inside its bounds on every path."""
    root = subject.row.root
    try:
        found = list(statement_loads(root))
    except LookupError as error:
        return unknown(f"a {error} statement may load")
    seen = 0
    for load in found:
        seen += 1
        if load.load.source.scope() != "global":
            continue
        for position, index in enumerate(load.load.indices):
            if not is_data_dependent(index):
                continue
            name = load.load.source.name
            if subject.uses[load.load.source].stores:
                return disproven(f"{name} is read at a data-dependent index and written")
            if not load.in_bounds(position):
                return unknown(f"{load.load} is not proved inside {name}")
    total: list[Any] = []
    structural_walk(root, (TensorLoad, total.append))
    if len(total) != seen:
        return unknown("a load stands where its path is not known")
    return proven("delayed sources are immutable and in bounds")


def manual_resources(subject: Subject) -> Verdict:
    """The program allocates nothing but private memory of constant size."""
    for node in nodes(subject.row.body):
        if not isinstance(node, Allocate):
            continue
        if node.buffer.scope() != "local":
            return disproven(f"{node.buffer.name} is placed in {node.buffer.scope()} memory")
        if not all(isinstance(extent, tirx.IntImm) for extent in node.buffer.ty.shape):
            return disproven(f"{node.buffer.name} has no constant size")
        if len(node.buffer.ty.strides) > 0:
            return disproven(f"{node.buffer.name} has explicit strides")
    return proven("private memory only")


def dynamic_control(subject: Subject) -> Verdict:
    """No while, break, continue, return, assert or opaque tile primitive.

    A program that was read holds none of these.
    """
    for node in nodes(subject.row.body):
        if isinstance(node, Enclosing) and not node.body:
            return unknown("an empty enclosing loop")
    return proven("structured control only")

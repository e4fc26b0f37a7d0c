"""The rows of the admission table (spec section 3), one check each.

Every check states what it establishes. PROVEN means established for the current TIRx; DISPROVEN
carries the offending node as witness; UNKNOWN means that the fragment it understands was left.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.audit import audit_local_storage
from tvm_tilex.analysis.effects import global_store_problem, is_compact
from tvm_tilex.analysis.guards import is_data_dependent, statement_loads
from tvm_tilex.analysis.purity import impure_call
from tvm_tilex.analysis.state import carry_protocol
from tvm_tilex.analysis.structure import Allocate, Enclosing, nodes
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.layout.verdict import Verdict, disproven, proven, unknown
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import TensorLoad, structural_walk, tirx
from tvm_tilex.tirx.register import MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE

SUBGROUP_LANES = 32
MAPPED_KINDS = ("metal", "cuda")


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
        if _bound_inside(subject.row.root.body):
            return disproven("a subgroup binding stands on a loop that is not outermost")
    return proven("32-lane SIMD groups, outermost root")


def kernel_abi(subject: Subject) -> Verdict:
    """Arguments do not alias: the function carries ``tirx.noalias``."""
    if not attrs.noalias(subject.function):
        return disproven("arguments may alias (tirx.noalias is not set)")
    return proven("noalias arguments")


def _bound_inside(body: Any) -> bool:
    found: list[bool] = []

    def visit(loop: Any) -> None:
        found.append(attrs.annotation(loop, attrs.BINDING) == "subgroup")

    structural_walk(body, (tirx.For, visit))
    return any(found)


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
        if not reduction.update.reorders:
            return disproven(
                f"{reduction.update.carry.name} has the policy {reduction.update.policy}"
            )
    for reduction in subject.reductions:
        propagates = reduction.update.operator in (MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE)
        if propagates and subject.kind == "metal":  # simd_max and simd_min may drop a NaN
            return disproven(
                f"{reduction.update.carry.name} propagates NaN; Metal's collectives do not"
            )
    if not subject.reductions and not subject.ordered:
        return disproven("the program has no reduction")
    if not subject.reductions:
        return disproven(f"every reduction is ordered ({subject.ordered[0].policy})")
    folded = f"; {len(subject.ordered)} ordered are folded serially" if subject.ordered else ""
    stated = " and ".join(sorted({r.update.policy for r in subject.reductions}, reverse=True))
    permit = "permit" if " and " in stated else "permits"
    return proven(f"{stated} {permit} reassociation and permutation{folded}")


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
    if root.kind != tirx.ForKind.PARALLEL:
        return disproven("the root loop is marked parallel, but is not")
    if not isinstance(root.min, tirx.IntImm):
        return unknown(f"the root begins at {root.min}")
    if root.step is not None and getattr(root.step, "value", 0) != 1:
        return disproven(f"the root's step is {root.step}")
    return proven("one root, no nested parallel")


def global_effects(subject: Subject) -> Verdict:
    """Global memory is stored by element domains only, each element by one worker."""
    problem = global_store_problem(subject)
    return proven("stores only in element domains") if problem is None else unknown(problem)


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
            if subject.uses[load.load.source].stores or subject.uses[load.load.source].escapes:
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
        if not is_compact(node.buffer):
            return disproven(f"{node.buffer.name} is not compact row-major storage")
    for buffer, uses in subject.uses.items():
        outside = buffer.scope() if uses.allocations == 0 else "global"
        if outside != "global":
            return disproven(f"{buffer.name} is {outside} memory from elsewhere")
    return proven("private memory only")


def dynamic_control(subject: Subject) -> Verdict:
    """No while, break, continue, return, assert or opaque tile primitive.

    A program that was read holds none of these.
    """
    for node in nodes(subject.row.body):
        if isinstance(node, Enclosing) and not node.body:
            return unknown("an empty enclosing loop")
    return proven("structured control only")

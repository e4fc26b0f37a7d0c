"""Maps the programs of a function whose roots hold cooperative groups onto threadgroups.

Before::

    for program in T.parallel(P, annotations={"tilex.group": ...}):
        phases over whole tiles in local memory

After::

    launch blockIdx.x = P, threadIdx.x = T
        arena: shared memory of all tiles, shared out by lifetime
        phase, each over the threads;  fence;  phase;  ...

Every phase is run by all threads of the group; a fence stands in front of a phase that touches
shared memory which an earlier phase, or the iteration before, touches in conflict
(:mod:`tvm_tilex.plan.group_memory`). Other roots of the function run one program a thread.

Reads the markers (as claims), ``tilex.options`` and the target; adds ``tilex.group_plans``. Where a
group cannot be read or no thread count fits it adds ``tilex.group_refusal``, and every program of
that root runs on one thread; a requested thread count that does not fit is an error. Moves the
function to the stage ``scheduled``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm_tilex.analysis.group_facts import GroupSubject, read_group
from tvm_tilex.analysis.statements import Decline
from tvm_tilex.analysis.structure import statements_of
from tvm_tilex.errors import MappingError
from tvm_tilex.plan.cooperative import plan_cooperative
from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_cost import group_cost
from tvm_tilex.plan.group_facts import GroupRequest
from tvm_tilex.plan.group_products import MatrixAtom
from tvm_tilex.plan.planner import PlanRefusal
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, Target, tirx
from tvm_tilex.transform.common import is_stage, sequence, tilex_pass
from tvm_tilex.transform.group_emitter import GroupEmitter
from tvm_tilex.transform.map_programs import MapPrograms
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.realization import Realization, opt_in_bytes, realization_of

__all__ = ["MapGroups"]

_ATOMS = {
    "cuda": (
        MatrixAtom("mma_m16n8k16_f16_f32", 16, 8, 16, "float16", registers=True),
        MatrixAtom("mma_m16n8k16_bf16_f32", 16, 8, 16, "bfloat16", registers=True),
    ),
    "metal": (
        MatrixAtom("simdgroup_8x8_f32", 8, 8, 8, "float32", registers=False),
        # The atom of half has a half accumulator, and a product's state is float32.
    ),
}


@tilex_pass("MapGroups")
class MapGroups:
    """Map every root with a cooperative group, and the other roots of its function.

    Parameters
    ----------
    target, options
        Default to the function's own attributes.
    threads
        Threads of a threadgroup for programs that run on one thread each.
    """

    def __init__(
        self, target: Any = None, options: CompileOptions | None = None, threads: int = 256
    ) -> None:
        self.target = target
        self.options = options
        self.threads = threads

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Map a reference function that holds a group; others pass through."""
        if not is_stage(func, "reference"):
            return func
        roots = statements_of(func.body)
        if not any(_is_group(root) for root in roots):
            return func
        wanted = realization_of(func, self.target, self.options)
        target = self.target or func.attrs.get("target", None) or Target.current()
        mapped: list[Any] = []
        plans: list[str] = []
        refusals: list[str] = []
        alignment: dict[str, int] = {}
        for root in roots:
            found = _map(func, root, wanted, target) if _is_group(root) else None
            if isinstance(found, GroupEmitter):
                plans.append(found.plan.to_json())
                mapped.append(found.emit())
                alignment |= found.alignment
            else:
                refusals += [found] if found else []
                mapped.append(MapPrograms(self.threads).map_root(func, root))
        body = sequence(*mapped) if any(mapped) else tirx.Evaluate(tirx.IntImm("int32", 0))
        func = func.with_body(body).with_attr(attrs.STAGE, "scheduled")
        if plans:
            func = func.with_attr(attrs.GROUP_PLANS, f"[{', '.join(plans)}]")
        if alignment:
            func = func.with_attr(attrs.ALIGNMENT, alignment)
        if refusals:
            func = func.with_attr(attrs.GROUP_REFUSAL, "; ".join(refusals))
        return func


def _is_group(root: Any) -> bool:
    return isinstance(root, tirx.For) and attrs.annotation(root, attrs.GROUP) is not None


def _map(func: PrimFunc, root: Any, wanted: Realization, target: Any) -> GroupEmitter | str:
    """A planned group, or why its programs run on one thread each."""
    name = str(func.attrs["global_symbol"])
    subject = _subject(func, root, wanted)
    if isinstance(subject, str):
        if wanted.options.group_threads or wanted.options.explicit_request:
            raise MappingError(f"{name}: threads were requested for its group, but {subject}")
        return subject
    if subject.facts.programs == 0:
        return "no program runs"
    request = _request(wanted)
    try:
        plan = plan_cooperative(
            subject.facts,
            _limits(wanted, target),
            request,
            _ATOMS.get(wanted.kind, ()) if wanted.matrices else (),
            group_cost(wanted.options.cost_policy, wanted.kind),
        )
    except PlanRefusal as refusal:
        if request.threads:
            raise MappingError(f"{name}: the requested group does not fit: {refusal}") from None
        return str(refusal)
    return GroupEmitter(subject, plan, wanted.kind, dict(wanted.vectors))


def _subject(func: PrimFunc, root: Any, wanted: Realization) -> GroupSubject | str:
    if not attrs.noalias(func):
        return "its arguments may overlap, so phases may not be shared out"
    found = read_group(root, wanted.kind)
    return f"{found.rule}: {found.reason}" if isinstance(found, Decline) else found


def _limits(wanted: Realization, target: Any) -> TargetFacts:
    """The target's facts with the shared memory that a launch may ask for."""
    granted = opt_in_bytes(target) if wanted.kind == "cuda" else 0
    more = max(wanted.target.shared_bytes, granted)
    return dataclasses.replace(wanted.target, shared_bytes=more)


def _request(wanted: Realization) -> GroupRequest:
    options = wanted.options
    on = (
        options.metal_subgroup_reductions if wanted.kind == "metal" else options.subgroup_reductions
    )
    return GroupRequest(
        threads=options.group_threads or options.threads_per_group,
        collectives=on is not False,
        reductions=options.group_reductions,
        products=options.group_products,
        kind=wanted.kind,
        copies=wanted.copies,
    )

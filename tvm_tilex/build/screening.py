"""What the planner says of many options for one program, without compiling for each of them.

A program is lowered and proved once for each way of lowering it; what tells most candidates of a
tuner apart is then a request to the planner, which is integers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.materializations import Materialization, materializations
from tvm_tilex.build.pipeline import before_planning, register_pipeline
from tvm_tilex.build.schedule import lowered
from tvm_tilex.errors import MappingError, TilexError
from tvm_tilex.ir import Program
from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.plan.cost import CostFacts, CostPolicy, cost_policy
from tvm_tilex.plan.facts import ProgramFacts
from tvm_tilex.plan.planner import PlanRefusal, plan_groups
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import PrimFunc, tvm
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.plan_groups import misfit
from tvm_tilex.transform.realization import has_clusters, realization_of

__all__ = ["Screened", "has_clusters", "screen"]

# Options that the planner alone reads.
_REQUEST: dict[str, Any] = {
    "threads_per_group": 0,
    "reduction_programs_per_group": 0,
    "reduction_lane_elements": 0,
    "reduction_blocks_per_program": 0,
    "reduction_programs_per_subgroup": 0,
    "reduction_stripe_storage": None,
    "reduction_peeled_rows": None,
    "reduction_early_views": None,
    "max_reduction_striped_scalars_per_worker": 64,
    "max_thread_candidates": 256,
    "cost_policy": "default",
    "reduction_unroll": 1,
}


@dataclass(frozen=True)
class Screened:
    """The planner's refusal, the one that compiling would raise, or the plan's score.

    Neither says nothing: automatic options, a program that no plan is made for, a cost policy of
    somebody's own and whatever another part of the compiler would refuse are left to compilation.
    """

    refusal: MappingError | None = None
    score: float | None = None


def screen(
    program: Program, target: Any, candidates: Sequence[CompileOptions]
) -> tuple[Screened, ...]:
    """What the planner says of each candidate."""
    if target.kind.name == "llvm" or dimensions_of(program.views):
        return (Screened(),) * len(candidates)
    register_pipeline()
    proved: dict[tuple[CompileOptions, Any], tuple[PrimFunc, ProgramFacts] | None] = {}
    found: list[Screened] = []
    for options in candidates:
        if not options.explicit_request:
            found.append(Screened())
            continue
        (choices,), _ = materializations(program, target.kind.name, options)
        answers = []
        for choice in choices:
            lowering = replace(options, **_REQUEST, shared_tile_materialization=choice.tiles)
            key = (lowering, choice)
            if key not in proved:
                proved[key] = _proved(program, target, lowering, choice)
            answers.append(_screened(program, target, options, proved[key]))
        found.append(_best(answers))
    return tuple(found)


def _best(answers: Sequence[Screened]) -> Screened:
    """What compiling does with several materializations: the cheapest, if any fits."""
    fitting = [answer for answer in answers if answer.refusal is None]
    scored = [answer for answer in fitting if answer.score is not None]
    if scored:
        return min(scored, key=lambda answer: answer.score or 0.0)
    return fitting[0] if fitting else answers[0]


def _proved(
    program: Program, target: Any, options: CompileOptions, choice: Materialization
) -> tuple[PrimFunc, ProgramFacts] | None:
    """The admitted function and its facts; None where there is no plan to make."""
    proving = before_planning(target, keep_views=choice.keep_views, early_views=choice.early_views)
    passes = tvm.ir.transform.Sequential(proving)
    try:
        function = passes(lowered(program, options))[program.name]
    except TilexError:
        return None
    if attrs.PROOF not in function.attrs:
        return None
    if not ProofRecord.from_json(str(function.attrs[attrs.PROOF])).admitted:
        return None
    wanted = realization_of(function, target, options)
    facts = admit(function, lanes=wanted.target.lanes, kind=wanted.kind).facts
    return None if facts is None or facts.programs == 0 else (function, facts)


def _screened(
    program: Program,
    target: Any,
    options: CompileOptions,
    proved: tuple[PrimFunc, ProgramFacts] | None,
) -> Screened:
    if proved is None:
        return Screened()
    function, facts = proved
    wanted = realization_of(function, target, options)
    ours = options.cost_policy == "default"
    policy: CostPolicy = _unscored
    if ours:
        policy = cost_policy(wanted.cost_policy, wanted.kind, wanted.family)
    try:
        plan = plan_groups(facts, wanted.target, wanted.request, policy)
    except PlanRefusal as refusal:
        text = str(misfit(program.name, refusal))
        return Screened(MappingError(text, location=program.body[0].location))
    except TilexError:
        return Screened()
    return Screened(score=plan.score if ours else None)


def _unscored(facts: CostFacts) -> float:
    """A policy: what is legal does not depend on it."""
    return 0.0

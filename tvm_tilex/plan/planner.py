"""Exhaustive search over the legal candidates.

On 1024 threads there are at most 39 automatic ones, of regular groups at most 144: 38 of S and Q,
each with two V, those with Q = 1 staged or not, and 12 clusters so. Rows that may be peeled have a
third V, but only powers of two S.
"""

from __future__ import annotations

from tvm_tilex.errors import OptionError, TilexError
from tvm_tilex.plan.candidates import enumerate_shapes, rejection
from tvm_tilex.plan.cost import CostFacts, CostPolicy, score
from tvm_tilex.plan.dependent import launches_dependently
from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
from tvm_tilex.plan.group_plan import Candidate, GroupPlan
from tvm_tilex.plan.resources import (
    MapShape,
    private_scalars,
    rounds,
    shared_bytes,
    staged_bytes,
    stripe_length,
)

__all__ = ["PlanRefusal", "cost_facts", "plan_groups", "stale"]


_ANY = Request()


class PlanRefusal(TilexError):
    """No candidate fits the target's resources and the request."""


def plan_groups(
    facts: ProgramFacts, target: TargetFacts, request: Request, policy: CostPolicy
) -> GroupPlan:
    """Choose the legal candidate with the lowest score; ties keep what is simpler.

    That is stripes in registers, rows that are not peeled, the smaller C, R, then S.

    Raises
    ------
    PlanRefusal
        If nothing is legal; the message names the first resource that ruled out the last.
    OptionError
        If the search budget does not hold the whole family, or the policy's score is no number.
    """
    if facts.programs <= 0:
        raise PlanRefusal("no program runs")
    shapes = tuple(enumerate_shapes(facts, target, request))
    if len(shapes) > request.max_candidates:
        raise OptionError(
            f"max_thread_candidates={request.max_candidates} does not hold the family of "
            f"{len(shapes)} candidates"
        )
    candidates = tuple(_judge(shape, facts, target, request, policy) for shape in shapes)
    legal = [c for c in candidates if c.score is not None]
    if not legal:
        raise PlanRefusal(candidates[-1].rejection or "no candidate")
    return _plan(min(legal, key=_preference), facts, target, request, candidates)


def _preference(candidate: Candidate) -> tuple[float, bool, bool, int, int, int]:
    """The score, then what is simpler."""
    assert candidate.score is not None
    _, _, _, blocks, staged, sharing, peeled = candidate.shape
    return candidate.score, staged, peeled, blocks, sharing, candidate.subgroups


def stale(plan: GroupPlan, facts: ProgramFacts, target: TargetFacts) -> str | None:
    """Why ``plan`` is not a plan of these facts, or None; bounds and scores are not compared."""
    shape = plan.shape
    if min(*shape[:4], shape.programs_per_subgroup) < 1:
        return f"S, Q, V, C = {tuple(shape[:4])}, R = {shape.programs_per_subgroup}"
    unbounded = Request(max_striped_scalars=plan.stripe_scalars)
    reason = rejection(shape, facts, target, unbounded)
    if reason is not None:
        return reason
    asked = Request(dependent=plan.dependent)
    same = _plan(_candidate(shape, plan.score, None), facts, target, asked, plan.candidates)
    return None if same == plan else "it was made for another program"


def _candidate(shape: MapShape, score: float | None, rejection: str | None) -> Candidate:
    subgroups, packed, elements, blocks, staged, sharing, peeled = shape
    return Candidate(subgroups, packed, elements, score, rejection, blocks, staged, sharing, peeled)


def _judge(
    shape: MapShape,
    facts: ProgramFacts,
    target: TargetFacts,
    request: Request,
    policy: CostPolicy,
) -> Candidate:
    reason = rejection(shape, facts, target, request)
    value = None if reason else score(policy, cost_facts(shape, facts, target, request))
    return _candidate(shape, value, reason)


def cost_facts(
    shape: MapShape | tuple[int, int, int],
    facts: ProgramFacts,
    target: TargetFacts,
    request: Request = _ANY,
) -> CostFacts:
    """What a policy is told of a candidate."""
    shape = MapShape(*shape)
    subgroups, packed, elements, blocks, staged, sharing, peeled = shape
    workers = shape.workers(target.lanes)
    programs = facts.typical_programs
    groups = -(-programs // packed)
    work = rounds(facts, workers, elements, peeled=peeled)
    useful = sum(facts.domains) + sum(facts.reductions)
    return CostFacts(
        subgroups=subgroups,
        programs_per_group=packed,
        lane_elements=elements,
        workers=workers,
        rounds=work,
        reductions=len(facts.reductions),
        exchanges=facts.exchanges,
        physical_groups=groups * blocks,
        blocks_per_program=blocks,
        elements=useful,
        useful_lane_work=useful / (work * workers) if work else 0.0,
        shared_bytes=shared_bytes(facts, subgroups, packed, blocks),
        stripe_scalars=private_scalars(facts, shape, target),
        reads=facts.reads,
        writes=facts.writes,
        widest=stripe_length(facts.longest, workers, elements, peeled=peeled),
        vector_width=max(facts.vector_width, facts.peeled_width),
        bytes=facts.bytes,
        cached_bytes=facts.cached_bytes,
        repeated_bytes=facts.repeated_bytes,
        instructions=facts.instructions,
        late_reads=facts.late_reads,
        staged_bytes=staged_bytes(facts, workers, elements, shape.threads(target.lanes))
        if staged
        else 0,
        repartitioned=sum(facts.repartitions),
        # A packed tail of cooperating programs replays the last row: it reads, but never writes.
        read_slots=programs if shape.whole_subgroup else groups * packed,
        write_slots=programs,
        programs_per_subgroup=sharing,
        peeled=peeled,
        shifted_reads=facts.common_reads if peeled else 0,
        dependent=launches_dependently(shape, facts, target, request),
    )


def _plan(
    best: Candidate,
    facts: ProgramFacts,
    target: TargetFacts,
    request: Request,
    candidates: tuple[Candidate, ...],
) -> GroupPlan:
    subgroups, packed, elements, blocks, staged, sharing, peeled = best.shape
    threads, workers = best.shape.threads(target.lanes), best.shape.workers(target.lanes)
    assert best.score is not None
    return GroupPlan(
        programs=facts.programs,
        least_programs=facts.least_programs,
        reduction_subgroups_per_program=subgroups,
        programs_per_group=packed,
        lane_elements=elements,
        lanes=target.lanes,
        threads=threads,
        staged_bytes=staged_bytes(facts, workers, elements, threads) if staged else 0,
        blocks=-(-facts.programs // packed) * blocks,
        shared_bytes=shared_bytes(facts, subgroups, packed, blocks),
        stripe_scalars=private_scalars(facts, best.shape, target),
        stripes=tuple(
            stripe_length(count, workers, elements, peeled=peeled) for count in facts.stripes
        ),
        barrier_sites=0 if best.shape.independent else facts.exchanges,
        collectives=facts.kinds,
        repartitions=facts.repartitions,
        blocks_per_program=blocks,
        programs_per_subgroup=sharing,
        peeled=peeled,
        dependent=launches_dependently(best.shape, facts, target, request),
        independent_subgroups=best.shape.independent,
        score=best.score,
        rounds=rounds(facts, workers, elements, peeled=peeled),
        candidates=candidates,
    )

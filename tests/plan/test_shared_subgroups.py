"""Programs that share a SIMD group, as the planner sees them: which, how many, and when not."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.plan import (
    AnalyticCost,
    GroupPlan,
    PlanRefusal,
    ProgramFacts,
    Request,
    Stripe,
    TargetFacts,
    plan_groups,
)
from tvm_tilex.plan.candidates import enumerate_shapes, rejection
from tvm_tilex.plan.cost import OccupancyCost, ServiceCost
from tvm_tilex.plan.planner import cost_facts, stale
from tvm_tilex.plan.resources import MapShape

CUDA = TargetFacts(
    1024,
    49152,
    lane_elements=(1, 2, 4, 8),
    cluster_blocks=8,
    reuses_stripes=True,
    staging_bytes=232448,
    regular_groups=True,
    programs_per_subgroup=(1, 2, 4),
)
METAL = TargetFacts(1024, 32768)


def rows(programs=4096, columns=256, **changed):
    """Facts of a softmax of FP32 rows."""
    view, exponentials = Stripe(columns, 4, True), Stripe(columns)
    facts = ProgramFacts(
        programs=programs,
        reductions=(columns, columns),
        kinds=("maximum", "add"),
        domains=(columns,) * 3,
        stripes=(columns,) * 2,
        live_stripes=((view, exponentials), (exponentials,)),
        views=(view,),
        reads=columns,
        writes=columns,
        bytes=8 * columns,
        instructions=14 * columns,
        vector_width=next(v for v in (4, 2, 1) if columns % v == 0),
    )
    return dataclasses.replace(facts, **changed)


def shared(facts, target=CUDA, **request):
    """The candidates of shared SIMD groups: threads, Q, V and R."""
    return [
        (shape.threads(target.lanes), *shape[1:3], shape.programs_per_subgroup)
        for shape in enumerate_shapes(facts, target, Request(**request))
        if shape.programs_per_subgroup > 1
    ]


def planned(facts, target=CUDA, policy=None, **request):
    return plan_groups(facts, target, Request(**request), policy or OccupancyCost())


def refusal(facts, target=CUDA, **request):
    with pytest.raises(PlanRefusal) as caught:
        planned(facts, target, **request)
    assert len(str(caught.value)) < 110
    return str(caught.value)


# What is enumerated


@pytest.mark.parametrize("sharing", [2, 4])
def test_a_stated_number_of_programs_fills_one_to_eight_simd_groups(sharing):
    found = shared(rows(), programs_per_subgroup=sharing, lane_elements=4)
    assert found == [(32 * n, sharing * n, 4, sharing) for n in (1, 2, 4, 8)]
    facts = rows()
    for shape in enumerate_shapes(facts, CUDA, Request(programs_per_subgroup=sharing)):
        assert (shape.subgroups, shape.blocks, shape.staged) == (1, 1, False)
        assert shape.lane_elements in (1, 4) and shape.workers(32) * sharing == 32
        assert rejection(shape, facts, CUDA, Request(max_striped_scalars=255)) is None


def test_threads_or_programs_fix_the_other():
    assert shared(rows(), programs_per_subgroup=2, threads=128, lane_elements=4) == [(128, 8, 4, 2)]
    asked = dict(programs_per_subgroup=4, programs_per_group=12, lane_elements=1)
    assert shared(rows(), **asked) == [(96, 12, 1, 4)]
    plan = planned(rows(), programs_per_subgroup=4, programs_per_group=12, threads=96)
    assert (plan.threads, plan.programs_per_group, plan.workers) == (96, 12, 8)


def test_few_programs_still_fill_a_simd_group():
    for programs in (1, 3):
        asked = shared(rows(programs), programs_per_subgroup=4, lane_elements=1)
        assert asked == [(32, 4, 1, 4)]
    assert [q for _, q, *_ in shared(rows(9), programs_per_subgroup=4, lane_elements=1)] == [4, 8]


def test_whole_simd_groups_are_a_request_too():
    assert shared(rows(), programs_per_subgroup=1) == []
    assert Request(programs_per_subgroup=1).explicit
    assert planned(rows(), programs_per_subgroup=1).programs_per_subgroup == 1


def test_the_target_decides_what_automatic_planning_considers():
    assert shared(rows(), dataclasses.replace(CUDA, programs_per_subgroup=(1,))) == []
    fours = dataclasses.replace(CUDA, programs_per_subgroup=(1, 4))
    assert {r for *_, r in shared(rows(), fours)} == {4}


def test_automatic_sharing_is_for_narrow_rows():
    def found(columns, programs=4096):
        return {r for *_, r in shared(rows(programs, columns))}

    assert found(1) == found(7) == found(256) == {2, 4}
    assert found(257) == found(512) == {2}
    assert found(513) == found(4096) == set()
    assert found(256, programs=1) == set() and found(256, programs=3) == {2}
    assert shared(rows(), METAL) == []
    for exact in (
        {"threads": 64},
        {"staged": True},
        {"blocks_per_program": 2},
        {"programs_per_subgroup": 1},
    ):
        assert shared(rows(), **exact) == []
    assert {(q, r) for _, q, _, r in shared(rows(), programs_per_group=6)} == {(6, 2)}
    every = list(enumerate_shapes(rows(), CUDA, Request()))
    assert len(set(every)) == len(every) <= Request().max_candidates
    plain = list(enumerate_shapes(rows(), CUDA, Request(programs_per_subgroup=1)))
    assert [shape for shape in every if shape.programs_per_subgroup == 1] == plain


def test_a_tie_keeps_whole_simd_groups():
    plan = planned(rows(), policy=lambda facts: 1.0)
    assert plan.programs_per_subgroup == plan.reduction_subgroups_per_program == 1
    assert {c.programs_per_subgroup for c in plan.candidates} == {1, 2, 4}


# Resources and cost facts


def test_a_worker_owns_more_and_a_threadgroup_serves_more():
    facts = rows()
    one, two, four = (
        planned(
            facts,
            threads=64,
            programs_per_group=2 * r,
            programs_per_subgroup=r,
            lane_elements=4,
        )
        for r in (1, 2, 4)
    )
    assert [p.workers for p in (one, two, four)] == [32, 16, 8]
    assert [p.threads for p in (one, two, four)] == [64] * 3
    assert [p.blocks for p in (one, two, four)] == [2048, 1024, 512]
    assert [p.stripe_scalars for p in (one, two, four)] == [16, 32, 64]
    assert all(p.shared_bytes == p.barrier_sites == 0 for p in (one, two, four))
    told = cost_facts(four.shape, facts, CUDA)
    assert (told.workers, told.programs_per_subgroup, told.physical_groups) == (8, 4, 512)
    assert told.rounds == 5 * 32 and told.useful_lane_work == 1


def test_a_policy_sees_the_slots_that_a_shared_tail_reads_again():
    shape = MapShape(1, 8, 1, programs_per_subgroup=2)
    told = cost_facts(shape, rows(9), CUDA)
    assert (told.read_slots, told.write_slots) == (16, 9)
    guarded = cost_facts(shape._replace(programs_per_subgroup=1), rows(9), CUDA)
    assert (guarded.read_slots, guarded.write_slots) == (9, 9)
    assert ServiceCost()(told) > 0 and OccupancyCost()(told) > 0


# Refusals


def test_what_shares_no_simd_group_is_refused_for_a_reason():
    facts = rows()
    assert refusal(facts, METAL, programs_per_subgroup=2) == (
        "R=2 programs a SIMD group: the target's collectives reduce whole SIMD groups"
    )
    assert "collectives allow R of (1, 2, 4)" in refusal(facts, programs_per_subgroup=8)
    assert refusal(facts, programs_per_subgroup=2, threads=128, programs_per_group=4) == (
        "R=2 programs a SIMD group: none of them has S=2 SIMD groups of C=1 threadgroups"
    )
    clustered = refusal(facts, programs_per_subgroup=2, blocks_per_program=2)
    assert clustered.endswith("none of them has S=1 SIMD groups of C=2 threadgroups")
    staged = refusal(facts, programs_per_subgroup=2, staged=True)
    assert staged.endswith("their stripes are not kept in shared memory")
    assert refusal(facts, programs_per_subgroup=4, programs_per_group=6) == (
        "Q=6 is no multiple of R=4 programs a SIMD group"
    )
    assert refusal(facts, programs_per_subgroup=2, threads=96, programs_per_group=4) == (
        "threads_per_group=96 is not 32*S*Q/R for Q=4, R=2 and a whole S"
    )
    wide = refusal(rows(columns=1024), programs_per_subgroup=4)
    assert wide.startswith("256 striped scalars a worker exceed")


def test_a_tail_that_would_read_what_its_owner_stores_is_refused():
    asked = dict(programs_per_subgroup=2, programs_per_group=2, lane_elements=4)
    text = "a packed tail replays the last row, whose elements its owner overwrites"
    assert refusal(rows(9, reads_what_it_writes=True), **asked) == text
    assert planned(rows(8, reads_what_it_writes=True), **asked).replays is False
    unknown = rows(8, reads_what_it_writes=True, least_programs=0)
    assert refusal(unknown, **asked) == text
    asked["programs_per_subgroup"] = 1
    assert planned(rows(9, reads_what_it_writes=True), **asked).ragged


def test_a_shared_tail_replays_where_a_whole_one_is_guarded():
    asked = dict(programs_per_group=4, lane_elements=4)
    for sharing, replays in ((1, False), (2, True)):
        plan = planned(rows(9), programs_per_subgroup=sharing, **asked)
        assert plan.ragged and plan.replays is replays
    full = planned(rows(8), programs_per_subgroup=2, **asked)
    assert not full.ragged and not full.replays


# Records


@given(
    programs=st.sampled_from((1, 3, 5, 8, 4096)),
    columns=st.integers(1, 600),
    request_=st.fixed_dictionaries(
        {
            "programs_per_subgroup": st.sampled_from((2, 4)),
            "threads": st.sampled_from((0, 0, 32, 96, 256)),
            "programs_per_group": st.sampled_from((0, 0, 2, 4, 12)),
            "lane_elements": st.sampled_from((0, 1, 2, 8)),
            "max_striped_scalars": st.sampled_from((64, 255)),
        }
    ),
)
@settings(max_examples=100, deadline=None)
def test_what_is_chosen_is_as_asked_and_recorded(programs, columns, request_):
    facts, request = rows(programs, columns), Request(**request_)
    assert request.explicit
    try:
        plan = plan_groups(facts, CUDA, request, AnalyticCost())
    except PlanRefusal:
        found = list(enumerate_shapes(facts, CUDA, request))
        assert found and all(rejection(shape, facts, CUDA, request) for shape in found)
        return
    sharing = request.programs_per_subgroup
    assert plan.workers == 32 // sharing and plan.threads == plan.workers * plan.programs_per_group
    assert plan.threads % 32 == 0 and plan.programs_per_group % sharing == 0
    assert plan.blocks == -(-programs // plan.programs_per_group)
    for name in ("threads", "programs_per_group", "lane_elements"):
        asked = getattr(request, name)
        assert not asked or getattr(plan, name) == asked
    assert GroupPlan.from_json(plan.to_json()) == plan
    assert stale(plan, facts, CUDA) is None
    assert f"R={sharing} programs a SIMD group, Q=" in plan.describe()


def test_a_record_without_the_field_has_whole_simd_groups():
    plan = planned(rows(), programs_per_subgroup=1)
    values = json.loads(plan.to_json())
    del values["programs_per_subgroup"]
    for candidate in values["candidates"]:
        del candidate["programs_per_subgroup"]
    assert GroupPlan.from_json(json.dumps(values)) == plan
    assert "R=" not in plan.describe()


def test_a_plan_of_another_sharing_is_stale():
    facts = rows()
    plan = planned(facts, programs_per_subgroup=2, programs_per_group=4, lane_elements=4)
    assert stale(plan, facts, CUDA) is None
    assert "whole SIMD groups" in stale(plan, facts, METAL)
    whole = dataclasses.replace(plan, programs_per_subgroup=1)
    assert stale(whole, facts, CUDA) == "it was made for another program"
    nothing = dataclasses.replace(plan, programs_per_subgroup=0)
    assert stale(nothing, facts, CUDA) == "S, Q, V, C = (1, 4, 4, 1), R = 0"

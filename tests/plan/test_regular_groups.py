"""What a CUDA planner considers of a width, what it refuses, and that it chooses nothing else."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import OptionError
from tvm_tilex.plan import (
    GroupPlan,
    PlanRefusal,
    ProgramFacts,
    Request,
    Stripe,
    TargetFacts,
    plan_groups,
)
from tvm_tilex.plan.candidates import enumerate_shapes, rejection
from tvm_tilex.plan.cost import OccupancyCost
from tvm_tilex.plan.planner import cost_facts, stale
from tvm_tilex.plan.resources import MapShape, staged_bytes, stripe_packs, stripe_scalars

HOPPER = TargetFacts(
    1024,
    49152,
    lane_elements=(1, 2, 4, 8),
    cluster_blocks=8,
    reuses_stripes=True,
    staging_bytes=232448,
    regular_groups=True,
)
AMPERE = dataclasses.replace(HOPPER, cluster_blocks=1, staging_bytes=166912)


def vector(columns, width=2):
    """The most elements of a vector that divide a width, a power of two up to 16 bytes."""
    return next(v for v in (8, 4, 2, 1) if v * width <= 16 and columns % v == 0)


def softmax(programs, columns, width=2, kept=2):
    """Facts of a softmax of 16-bit floats that keeps its row, and its exponentials."""
    view, exponentials = Stripe(columns, width, True, "bfloat16"), Stripe(columns)
    return ProgramFacts(
        programs=programs,
        reductions=(columns, columns),
        kinds=("maximum", "add"),
        domains=(columns,) * (kept + 1),
        stripes=(columns,) * kept,
        live_stripes=((view, exponentials)[:kept], (exponentials,)) if kept > 1 else ((view,),),
        views=(view,),
        reads=columns,
        writes=columns,
        bytes=2 * width * columns,
        instructions=14 * columns,
        vector_width=vector(columns, width),
    )


def shapes(columns, programs=4096, target=HOPPER, **request):
    return list(enumerate_shapes(softmax(programs, columns), target, Request(**request)))


POWERS = {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("columns", [1, 255, 4096, 32000, 50257, 131072])
def test_the_widths_of_a_group_are_powers_of_two_or_divide_the_row(columns):
    found = shapes(columns)
    v = vector(columns)
    single = {s.subgroups for s in found if s.blocks == 1}
    exact = {s for s in range(1, 33) if columns > 1 and columns % (32 * s * v) == 0}
    assert single == POWERS | exact
    assert {s.lane_elements for s in found} == {1, v}
    for s in found:
        if s.programs_per_group > 1:
            assert s.subgroups * s.programs_per_group in (2, 4, 8) and s.subgroups in POWERS
            assert s.blocks == 1 and not s.staged
    assert len(set(found)) == len(found) <= Request().max_candidates


def test_divisors_of_known_widths():
    exact = {s.subgroups for s in shapes(32000) if s.blocks == 1} - POWERS
    assert exact == {5, 25}  # 32000 = 125 chunks of 32 * 8
    assert {s.subgroups for s in shapes(50257)} == POWERS
    assert {s.subgroups for s in shapes(255)} == POWERS


def test_the_largest_family_is_as_documented():
    """Every S divides the row: 38 pairs of S and Q, 12 clusters, two V, 16 bytes staged."""
    columns = 32 * 8 * 5354228880  # the least common multiple of 1 to 24
    columns *= 25 * 13 * 29 * 31 * 3
    facts = softmax(4096, columns)
    found = list(enumerate_shapes(facts, HOPPER, Request()))
    assert len({(s.subgroups, s.programs_per_group) for s in found if s.blocks == 1}) == 38
    assert len(found) == 2 * (38 + 12) + 32 + 12


def test_clusters_are_for_wide_rows():
    assert not [s for s in shapes(4096) if s.blocks > 1]
    assert {s.blocks for s in shapes(8192)} == {1, 2}
    assert {s.blocks for s in shapes(16384)} == {1, 2, 4}
    assert {s.blocks for s in shapes(32768)} == {1, 2, 4, 8}
    assert {s.subgroups for s in shapes(65536) if s.blocks > 1} == {4, 8, 16, 32}
    asked = shapes(4096, blocks_per_program=4)
    assert asked and {s.blocks for s in asked} == {4}


def test_long_stripes_of_views_are_considered_staged():
    staged = {s[:4] for s in shapes(32000) if s.staged}
    for s in shapes(32000):
        workers = 32 * s.subgroups * s.blocks
        registers = stripe_packs(32000, workers, s.lane_elements) * s.lane_elements * 2 // 4
        vectors = s.programs_per_group == 1 and s.lane_elements * 2 == 16
        assert (s[:4] in staged) == (vectors and registers >= 16) or s.staged
    assert not any(s.staged for s in shapes(255, threads=256))
    assert not any(s.staged for s in shapes(32000, staged=False))
    assert all(s.staged for s in shapes(32000, staged=True))
    assert all(s.staged for s in shapes(255, staged=True))
    assert not any(s.staged for s in shapes(4088))  # shorter rows
    without = dataclasses.replace(HOPPER, staging_bytes=0)
    assert not any(s.staged for s in shapes(32000, target=without))


def test_few_programs_of_wide_rows_are_spread_over_clusters():
    plan = plan_groups(softmax(1, 131072), HOPPER, Request(), OccupancyCost())
    assert plan.blocks_per_program > 1 and plan.programs_per_group == 1
    many = plan_groups(softmax(65536, 256), HOPPER, Request(), OccupancyCost())
    assert many.blocks_per_program == 1 and many.programs_per_group > 1


def test_a_width_of_bytes_keeps_a_vector():
    """The most that a worker owns is 8 elements, whatever 16 bytes would hold."""
    facts = dataclasses.replace(softmax(64, 4096), vector_width=8)
    assert {s.lane_elements for s in enumerate_shapes(facts, HOPPER, Request())} == {1, 8}


@given(
    programs=st.sampled_from((1, 2, 7, 132, 4096, 2**20)),
    columns=st.one_of(st.integers(1, 3000), st.integers(1, 140).map(lambda n: 1024 * n)),
    width=st.sampled_from((2, 4)),
    kept=st.integers(1, 2),
    target=st.sampled_from((HOPPER, AMPERE)),
    request_=st.fixed_dictionaries(
        {
            "threads": st.sampled_from((0, 0, 64, 96, 1024)),
            "programs_per_group": st.sampled_from((0, 0, 2, 3)),
            "lane_elements": st.sampled_from((0, 0, 1, 2, 8)),
            "staged": st.sampled_from((None, True, False)),
            "max_striped_scalars": st.sampled_from((16, 64, 255)),
        }
    ),
)
@settings(max_examples=200, deadline=None)
def test_what_is_chosen_is_legal_and_cheapest(programs, columns, width, kept, target, request_):
    facts, request = softmax(programs, columns, width, kept), Request(**request_)
    policy = OccupancyCost()
    try:
        plan = plan_groups(facts, target, request, policy)
    except PlanRefusal:
        found = enumerate_shapes(facts, target, request)
        assert all(rejection(shape, facts, target, request) for shape in found)
        return
    assert rejection(plan.shape, facts, target, request) is None
    assert stale(plan, facts, target) is None
    scores = [c.score for c in plan.candidates if c.score is not None]
    assert plan.score == min(scores) == policy(cost_facts(plan.shape, facts, target))
    assert plan.shared_bytes + plan.staged_bytes <= max(target.staging_bytes, target.shared_bytes)
    assert GroupPlan.from_json(plan.to_json()) == plan
    for name in ("threads", "programs_per_group", "lane_elements"):
        asked = getattr(request, name)
        assert not asked or getattr(plan, name) == asked
    if request.staged is not None:
        assert (plan.staged_bytes > 0) == request.staged


# Refusals


def refusal(facts, shape=None, target=HOPPER, **request):
    asked = Request(**request)
    if shape is not None:
        return rejection(shape, facts, target, asked)
    with pytest.raises(PlanRefusal) as caught:
        plan_groups(facts, target, asked, OccupancyCost())
    return str(caught.value)


def test_staging_is_refused_for_a_reason():
    facts = softmax(64, 65536)
    alone = dict(threads=1024, staged=True, max_striped_scalars=1000)
    bare = dataclasses.replace(HOPPER, staging_bytes=0)
    assert 'reduction_stripe_storage="shared"' in refusal(facts, target=bare, **alone)
    computed = dataclasses.replace(facts, views=())
    assert refusal(computed, **alone).startswith("no stripe holds a view's own elements")
    mixed = dataclasses.replace(facts, views=(Stripe(64), Stripe(64, 2, True, "float16")))
    assert refusal(mixed, **alone) == (
        "views of float16 and float32 cannot share one allocation of shared memory"
    )
    same_width = dataclasses.replace(
        facts, views=(Stripe(64, 4, True), Stripe(64, 4, True, "int32"))
    )
    assert "views of float32 and int32" in refusal(same_width, **alone)
    twice = dataclasses.replace(facts, views=facts.views * 2)
    assert refusal(twice, **alone) == "262400 staged bytes exceed the target's 232448"


def test_bytes_are_of_whole_packs():
    facts = softmax(64, 257)
    assert stripe_packs(257, 64, 4) == 2
    assert staged_bytes(facts, 64, 4, 64) == 2 * 4 * 2 * 64
    fits = 2 * 4 * 2 * 64 + 16  # and two reductions' partials of two SIMD groups
    shape = MapShape(2, 1, 4, 1, staged=True)
    enough = dataclasses.replace(HOPPER, staging_bytes=fits)
    assert refusal(facts, shape=shape, target=enough) is None
    less = dataclasses.replace(HOPPER, staging_bytes=fits - 1)
    assert refusal(facts, shape=shape, target=less) == (
        f"{fits} staged bytes exceed the target's {fits - 1}"
    )


def test_staged_stripes_take_no_scalars_and_narrow_ones_half():
    facts = softmax(64, 4096)
    assert stripe_scalars(facts, 128, 8, reused=True) == 16 + 32
    assert stripe_scalars(facts, 128, 8, reused=True, staged=True) == 32
    assert stripe_scalars(facts, 128, 8) == 64  # nothing is narrow where nothing is packed


def test_the_family_must_fit_the_budget():
    with pytest.raises(OptionError, match="max_thread_candidates=10 does not hold"):
        plan_groups(softmax(64, 4096), HOPPER, Request(max_candidates=10), OccupancyCost())


# Records


def test_a_record_from_before_staging_is_read():
    plan = plan_groups(softmax(64, 4096), HOPPER, Request(staged=False), OccupancyCost())
    values = json.loads(plan.to_json())
    for name in ("staged_bytes", "least_programs", "repartitions", "blocks_per_program"):
        del values[name]
    for candidate in values["candidates"]:
        del candidate["staged"], candidate["blocks_per_program"]
    old = GroupPlan.from_json(json.dumps(values))
    assert old.staged_bytes == 0 and old.shape == plan.shape
    assert "for stripes" not in old.describe()


def test_a_report_states_the_staged_bytes():
    plan = plan_groups(softmax(64, 4096), HOPPER, Request(staged=True), OccupancyCost())
    assert f"shared bytes and {plan.staged_bytes} for stripes, " in plan.describe()


def test_a_plan_of_other_bytes_is_stale():
    facts = softmax(64, 4096)
    plan = plan_groups(facts, HOPPER, Request(staged=True), OccupancyCost())
    assert stale(plan, facts, HOPPER) is None
    assert stale(dataclasses.replace(plan, staged_bytes=4), facts, HOPPER) is not None
    wider = softmax(64, 4096, width=4)
    assert stale(plan, wider, HOPPER) is not None
    assert "no stripe holds" in stale(plan, dataclasses.replace(facts, views=()), HOPPER)

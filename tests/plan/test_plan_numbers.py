"""Plans of known programs, against the specification's numbers and a formula written here again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import OptionError
from tvm_tilex.plan import (
    AnalyticCost,
    GroupPlan,
    PlanRefusal,
    ProgramFacts,
    Request,
    TargetFacts,
    cost_policy,
    plan_groups,
)
from tvm_tilex.plan.resources import stripe_length

M1024 = TargetFacts(1024, 32768)


def row_sum(programs, columns):
    return ProgramFacts(programs, (columns,), ("add",), (1,), ())


def softmax(programs, columns):
    return ProgramFacts(
        programs, (columns, columns), ("maximum", "add"), (columns, columns), (columns,)
    )


def residual_layernorm(programs, columns):
    return ProgramFacts(
        programs, (columns, columns), ("add", "add"), (columns,) * 3, (columns, columns)
    )


def plan(facts, target=M1024, policy=None, **request):
    return plan_groups(facts, target, Request(**request), policy or AnalyticCost())


def cost(facts, s, q, v=1):
    """The score of section 6, from its text."""
    w = 32 * s

    def rounds(n):
        return n // (w * v) * v + min(n % (w * v), v)

    work = sum(rounds(n) for n in facts.domains) + sum(rounds(n) for n in facts.reductions)
    return work + 2 * len(facts.reductions) * s + 16 / q


def cheapest(facts, threads=1024, stripes=64, shared=32768):
    best = None
    for s in range(1, min(32, threads // 32) + 1):
        for q in range(1, min(facts.programs, 8, threads // 32) + 1) if s == 1 else (1,):
            if sum(math.ceil(n / (32 * s)) for n in facts.stripes) > stripes:
                continue
            if s > 1 and len(facts.reductions) * s * 4 * q > shared:
                continue
            found = cost(facts, s, q), s, q
            best = found if best is None or found[0] < best[0] else best
    return best


@pytest.mark.parametrize(("columns", "subgroups"), [(127, 1), (257, 1), (1024, 4), (4096, 8)])
def test_row_sums_choose_the_published_widths(columns, subgroups):
    assert plan(row_sum(8, columns)).reduction_subgroups_per_program == subgroups


def test_seventeen_rows_of_257_pack_eight_programs():
    found = plan(row_sum(17, 257))
    assert (found.reduction_subgroups_per_program, found.programs_per_group) == (1, 8)
    assert (found.threads, found.blocks, found.shared_bytes, found.barrier_sites) == (256, 3, 0, 0)
    assert found.independent_subgroups


@pytest.mark.parametrize(("programs", "count"), [(8, 39), (300, 39), (3, 34), (1, 32)])
def test_the_automatic_family_on_1024_threads(programs, count):
    found = plan(row_sum(programs, 4096))
    assert len(found.candidates) == count
    shapes = [(c.subgroups, c.programs_per_group) for c in found.candidates]
    assert len(set(shapes)) == count and {s for s, _ in shapes} == set(range(1, 33))


def test_softmax_3x4096_ties_keep_the_smaller_width():
    found = plan(softmax(3, 4096))
    scores = {c.subgroups: c.score for c in found.candidates if c.programs_per_group == 1}
    best = min(score for score in scores.values() if score is not None)
    assert [s for s, score in scores.items() if score == best] == [10, 11, 12, 13]
    assert (found.reduction_subgroups_per_program, found.stripes, found.threads) == (10, (13,), 320)
    assert (found.shared_bytes, found.barrier_sites, found.collectives) == (
        2 * 10 * 4,
        2,
        ("maximum", "add"),
    )
    assert not found.independent_subgroups
    assert plan(softmax(3, 4096), TargetFacts(256, 32768)).reduction_subgroups_per_program == 8


@pytest.mark.parametrize("make", [row_sum, softmax, residual_layernorm])
@pytest.mark.parametrize("programs", [1, 3, 8, 300])
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 127, 257, 1000, 1024, 4095, 4097, 8192])
@pytest.mark.parametrize("threads", [256, 896, 1024])
def test_the_minimum_agrees_with_an_enumeration_of_its_own(make, programs, columns, threads):
    facts = make(programs, columns)
    wanted = cheapest(facts, threads)
    if wanted is None:
        with pytest.raises(PlanRefusal, match="striped scalars"):
            plan(facts, TargetFacts(threads, 32768))
        return
    found = plan(facts, TargetFacts(threads, 32768))
    got = found.score, found.reduction_subgroups_per_program, found.programs_per_group
    assert got == pytest.approx(wanted)


@pytest.mark.parametrize(("threads", "scalars"), [(32, 256), (64, 128)])
def test_residual_layernorm_rejects_narrow_maps(threads, scalars):
    with pytest.raises(PlanRefusal, match=f"^{scalars} striped scalars"):
        plan(residual_layernorm(3, 4096), threads=threads)


@pytest.mark.parametrize(("threads", "scalars"), [(128, 64), (256, 32)])
def test_residual_layernorm_accepts_wider_maps(threads, scalars):
    found = plan(residual_layernorm(3, 4096), threads=threads)
    assert (found.threads, found.stripe_scalars) == (threads, scalars)


REFUSED = {
    "not a multiple of 32": (row_sum(9, 257), M1024, {"threads": 48}, "48 is not"),
    "over 256": (row_sum(9, 257), TargetFacts(256, 32768), {"threads": 512}, "512 threads exceed"),
    "over 896": (
        row_sum(9, 257),
        TargetFacts(896, 32768),
        {"threads": 1024},
        "1024 threads exceed",
    ),
    "more than 32 subgroups": (
        row_sum(9, 257),
        TargetFacts(2048, 32768),
        {"threads": 2048},
        "S=64",
    ),
    "threads without a whole S": (
        row_sum(9, 257),
        M1024,
        {"threads": 96, "programs_per_group": 2},
        "96 is not",
    ),
    "Q wider than the threads": (row_sum(9, 257), M1024, {"programs_per_group": 33}, "exceed"),
    "shared memory": (
        softmax(3, 4096),
        TargetFacts(1024, 79),
        {"threads": 320},
        "80 shared bytes exceed",
    ),
    "packed shared memory": (
        softmax(4, 512),
        TargetFacts(1024, 63),
        {"threads": 256, "programs_per_group": 2},
        "64 shared bytes",
    ),
    "stripes": (softmax(3, 4096), M1024, {"threads": 32}, "128 striped scalars"),
    "repeated loop": (
        ProgramFacts(3, (64,), ("add",), (64,), (), unit_enclosing=False),
        M1024,
        {"threads": 64},
        "repeated loop",
    ),
    "replay of rows in place": (
        ProgramFacts(3, (64,), ("add",), (64,), (), reads_what_it_writes=True),
        M1024,
        {"threads": 128, "programs_per_group": 2},
        "replays the last row",
    ),
    "coordinates": (row_sum(1, 2**31 - 1), M1024, {"threads": 96}, "exceeds the index type"),
    "grid": (
        ProgramFacts(2**40, (64,), ("add",), (1,), (), index_limit=2**63 - 1),
        M1024,
        {"threads": 64},
        "32-bit grid",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_rejection_names_its_resource(name):
    facts, target, request, reason = REFUSED[name]
    with pytest.raises(PlanRefusal, match=reason):
        plan(facts, target, **request)


def test_neighbours_of_the_refused_are_accepted():
    assert plan(row_sum(1, 2**31 - 1), threads=128).blocks == 1
    repeated = ProgramFacts(3, (64,), ("add",), (64,), (), unit_enclosing=False)
    assert plan(repeated).reduction_subgroups_per_program == 1
    in_place = ProgramFacts(4, (64,), ("add",), (64,), (), reads_what_it_writes=True)
    assert plan(in_place, threads=128, programs_per_group=2).blocks == 2
    assert plan(softmax(3, 4096), TargetFacts(1024, 80), threads=320).shared_bytes == 80


def test_rejected_candidates_keep_their_reason_in_the_plan():
    found = plan(residual_layernorm(3, 4096))
    rejected = {c.subgroups: c.rejection for c in found.candidates if c.score is None}
    assert set(rejected) == {1, 2, 3} and all("striped scalars" in r for r in rejected.values())
    assert all((c.score is None) != (c.rejection is None) for c in found.candidates)


def test_automatic_planning_stays_inside_896_threads():
    found = plan(row_sum(8, 4096), TargetFacts(896, 32768))
    assert max(c.subgroups for c in found.candidates) == 28


def test_a_budget_below_the_family_is_an_error():
    with pytest.raises(OptionError, match=r"max_thread_candidates=38 .* 39"):
        plan(row_sum(8, 64), max_candidates=38)
    assert len(plan(row_sum(8, 64), max_candidates=39).candidates) == 39


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_policy_must_answer_with_a_number(bad):
    with pytest.raises(OptionError, match="cost policy gave"):
        plan(row_sum(8, 64), policy=lambda facts: bad)
    with pytest.raises(OptionError, match="beta"):
        AnalyticCost(beta=bad)


def test_a_policy_sees_every_legal_candidate_with_its_facts():
    seen = []

    def policy(facts):
        seen.append(facts)
        return float(facts.physical_groups)

    facts = residual_layernorm(3, 4096)
    found = plan(facts, policy=policy)
    assert len(seen) == sum(c.score is not None for c in found.candidates) == 29
    for one in seen:
        w, s = one.workers, one.subgroups
        assert w == 32 * s and one.physical_groups == math.ceil(3 / one.programs_per_group)
        assert one.elements == 5 * 4096 and one.lane_elements == 1
        assert one.rounds == 5 * math.ceil(4096 / w)
        assert one.useful_lane_work == pytest.approx(one.elements / (one.rounds * w))
        assert (one.read_slots, one.write_slots) == (3, 3)
    assert found.reduction_subgroups_per_program == 4  # all scores tie


def test_a_packed_tail_reads_for_inactive_programs_but_never_writes():
    seen = []

    def policy(facts):
        seen.append(facts)
        return 1.0

    plan(row_sum(5, 64), policy=policy, threads=128, programs_per_group=2)
    (one,) = seen
    assert (one.read_slots, one.write_slots) == (6, 5)


def test_an_explicit_q_is_not_clamped():
    found = plan(row_sum(3, 64), programs_per_group=16)
    assert found.programs_per_group == 16 and found.blocks == 1
    exact = plan(row_sum(3, 64), programs_per_group=16, threads=1024)
    assert (exact.reduction_subgroups_per_program, exact.threads) == (2, 1024)
    assert exact.shared_bytes == 1 * 16 * 2 * 4


def test_no_program_is_refused_and_unknown_policies_too():
    with pytest.raises(PlanRefusal, match="no program"):
        plan(row_sum(0, 64))
    with pytest.raises(OptionError, match="analytic"):
        cost_policy("no such policy")


@given(
    n=st.integers(1, 3000),
    s=st.integers(1, 32),
    v=st.sampled_from([1, 2, 4, 8]),
)
@settings(max_examples=200, deadline=None)
def test_the_stripe_formula_is_the_largest_ownership(n, s, v):
    owned = [0] * (32 * s)
    for e in range(n):
        owned[e // v % (32 * s)] += 1
    assert stripe_length(n, 32 * s, v) == max(owned)


@given(
    programs=st.integers(1, 400),
    reductions=st.lists(st.integers(1, 6000), min_size=1, max_size=4),
    domains=st.lists(st.integers(1, 6000), max_size=4),
    stripes=st.lists(st.integers(1, 6000), max_size=2),
    threads=st.sampled_from([32, 64, 256, 896, 1024]),
    q=st.sampled_from([0, 1, 2, 5, 9]),
    v=st.sampled_from([0, 1, 2, 4, 8]),
)
@settings(max_examples=150, deadline=None)
def test_every_plan_is_within_its_limits(programs, reductions, domains, stripes, threads, q, v):
    kinds = ("add",) * len(reductions)
    facts = ProgramFacts(programs, tuple(reductions), kinds, tuple(domains), tuple(stripes))
    try:
        found = plan(facts, TargetFacts(threads, 400), programs_per_group=q, lane_elements=v)
    except PlanRefusal:
        return
    s = found.reduction_subgroups_per_program
    assert found.threads == 32 * s * found.programs_per_group <= threads
    assert found.workers == 32 * s and 1 <= s <= 32
    assert found.blocks * found.programs_per_group >= programs
    assert (found.blocks - 1) * found.programs_per_group < programs
    assert not q or found.programs_per_group == q
    assert found.lane_elements == (v or 1)
    assert found.stripe_scalars == sum(found.stripes) <= 64
    wide = s > 1
    assert found.shared_bytes == wide * len(reductions) * 4 * s * found.programs_per_group <= 400
    assert found.barrier_sites == wide * len(reductions)
    assert found.independent_subgroups is not wide
    legal = [c for c in found.candidates if c.score is not None]
    assert found.score == min(c.score for c in legal)
    assert s == min(c.subgroups for c in legal if c.score == found.score)
    assert found.score == pytest.approx(cost(facts, s, found.programs_per_group, v or 1))
    assert GroupPlan.from_json(found.to_json()) == found
    assert found.describe()

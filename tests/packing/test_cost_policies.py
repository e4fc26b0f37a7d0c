"""Cost policies: immutable facts of every legal candidate in, one finite score out."""

import dataclasses
import itertools
import math

import pytest
from packing_runs import compiled, entry

import tvm_tilex as tx
from tvm_tilex.errors import OptionError
from tvm_tilex.plan import (
    AnalyticCost,
    CostFacts,
    ProgramFacts,
    Request,
    ServiceCost,
    TargetFacts,
    cost_policy,
    plan_groups,
    register_cost_policy,
)
from tvm_tilex.plan.planner import cost_facts

APPLE = TargetFacts(max_threads=1024, shared_bytes=32768)
_NUMBER = itertools.count()


def registered(policy, kind=None) -> str:
    """Register a policy object under a name of its own."""
    name = f"test-{next(_NUMBER)}"
    register_cost_policy(name, lambda: policy, kind=kind)
    return name


def compile_softmax(rows=17, columns=4096, **options):
    found = entry("softmax")
    return tx.compile(
        found.kernel, *found.specs(rows, columns), target="metal",
        options=tx.CompileOptions(**options),
    )  # fmt: skip


class Recorder:
    """Remembers what it was told and answers with ``score``."""

    def __init__(self, score=lambda facts: 1.0):
        self.seen: list[CostFacts] = []
        self.score = score

    def __call__(self, facts: CostFacts) -> float:
        self.seen.append(facts)
        return self.score(facts)


def test_every_legal_candidate_reaches_a_registered_policy():
    recorder = Recorder(lambda facts: 100 - facts.subgroups)
    plan = compile_softmax(cost_policy=registered(recorder)).plan
    legal = [c for c in plan.candidates if c.rejection is None]
    shapes = [(f.subgroups, f.programs_per_group, f.lane_elements) for f in recorder.seen]
    assert shapes == [(c.subgroups, c.programs_per_group, c.lane_elements) for c in legal]
    assert len(plan.candidates) == 39 and 0 < len(legal) < 39  # S = 1 exceeds the stripe bound
    assert [c.score for c in legal] == [100.0 - c.subgroups for c in legal]
    assert plan.reduction_subgroups_per_program == 32  # the policy's choice
    assert compile_softmax().plan.reduction_subgroups_per_program != 32


@pytest.mark.parametrize("elements", [1, 4])
def test_the_policy_is_told_lane_elements_and_layout_dependent_rounds(elements):
    recorder = Recorder()
    name = registered(recorder)
    compile_softmax(columns=1003, cost_policy=name, reduction_lane_elements=elements)
    assert {f.lane_elements for f in recorder.seen} == {elements}
    for facts in recorder.seen:
        pack = facts.workers * elements
        share = 1003 // pack * elements + min(1003 % pack, elements)
        assert facts.rounds == 4 * share and facts.stripe_scalars == share
        assert facts.elements == 4 * 1003
        assert facts.useful_lane_work == facts.elements / (facts.rounds * facts.workers)
        assert facts.physical_groups == -(-17 // facts.programs_per_group)


def test_ties_keep_the_smaller_width():
    plan = compile_softmax(columns=512, cost_policy=registered(Recorder())).plan
    assert plan.reduction_subgroups_per_program == 1
    assert plan.programs_per_group == 1


def test_facts_cannot_be_changed():
    recorder = Recorder()
    compile_softmax(columns=64, cost_policy=registered(recorder))
    with pytest.raises(dataclasses.FrozenInstanceError):
        recorder.seen[0].rounds = 0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -1e-9, None, "cheap"])
def test_scores_that_are_no_cost_are_refused(score):
    with pytest.raises(OptionError, match="finite, not negative"):
        compile_softmax(columns=96, cost_policy=registered(Recorder(lambda facts: score)))


def test_one_bad_score_among_good_ones_is_refused():
    policy = Recorder(lambda facts: math.nan if facts.subgroups == 7 else 1.0)
    with pytest.raises(OptionError, match="S=7"):
        compile_softmax(columns=96, cost_policy=registered(policy))


@pytest.mark.parametrize("budget", [1, 38])
def test_a_budget_that_does_not_hold_the_family_is_an_error(budget):
    with pytest.raises(OptionError, match=f"max_thread_candidates={budget}.*39 candidates"):
        compile_softmax(max_thread_candidates=budget)


def test_a_budget_that_just_holds_it_changes_nothing():
    assert compile_softmax(max_thread_candidates=39).plan == compile_softmax().plan


def test_an_exact_request_needs_room_for_one_candidate():
    plan = compile_softmax(threads_per_group=256, max_thread_candidates=1).plan
    assert len(plan.candidates) == 1


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_coefficients_are_finite_and_not_negative(name, value):
    with pytest.raises(OptionError, match=name):
        AnalyticCost(**{name: value})
    with pytest.raises(OptionError, match="read"):
        ServiceCost(read=value)


def test_an_unknown_policy_names_the_registered_ones():
    with pytest.raises(OptionError, match=r"'guess'.*analytic.*service"):
        compile_softmax(columns=96, cost_policy="guess")


def test_a_name_keeps_its_meaning():
    register_cost_policy("test-once", AnalyticCost)
    register_cost_policy("test-once", AnalyticCost)
    with pytest.raises(OptionError, match="another name"):
        register_cost_policy("test-once", ServiceCost)
    with pytest.raises(OptionError, match="another name"):
        register_cost_policy("analytic", ServiceCost)


def test_a_policy_can_belong_to_one_target_kind():
    name = registered(Recorder(), kind="cuda")
    assert isinstance(cost_policy(name, "cuda"), Recorder)
    with pytest.raises(OptionError, match="registered are"):
        compile_softmax(columns=96, cost_policy=name)
    general = registered(AnalyticCost())
    register_cost_policy(general, ServiceCost, kind="metal")
    assert isinstance(cost_policy(general, "metal"), ServiceCost)
    assert isinstance(cost_policy(general, "cuda"), AnalyticCost)


# Arithmetic of the two policies

SOFTMAX = ProgramFacts(
    programs=5,
    peeled_width=4,
    row_pitch=1,
    reductions=(257, 257),
    kinds=("maximum", "add"),
    domains=(257, 257),
    stripes=(257,),
    reads=2 * 257,
    writes=257,
    bytes=3 * 257 * 4,
    repeated_bytes=257 * 4,
    late_reads=257,  # the row, read again behind its maximum
    instructions=257 * (1 + 9 + 6),  # a difference, an exponential, a quotient
)


def test_the_analytic_prior():
    facts = cost_facts((2, 2, 1), SOFTMAX, APPLE)
    assert facts.rounds == 4 * 5  # ceil(257 / 64), each domain rounded on its own
    assert AnalyticCost()(facts) == 20 + 2 * 2 * 2 + 16 / 2
    assert AnalyticCost(alpha=3, beta=5, gamma=7)(facts) == 3 * 20 + 5 * 2 * 2 + 7 / 2


def test_replayed_slots_read_and_active_programs_write():
    packed = cost_facts((2, 2, 1), SOFTMAX, APPLE)  # three groups of two slots, five programs
    assert (packed.physical_groups, packed.read_slots, packed.write_slots) == (3, 6, 5)
    threads = 3 * 128
    wanted = 36 + (0.5 * 514 * 6 + 0.5 * 257 * 5) / threads
    assert ServiceCost()(packed) == wanted
    assert ServiceCost(read=2, write=0)(packed) == 36 + 2 * 514 * 6 / threads
    assert ServiceCost(read=0, write=2)(packed) == 36 + 2 * 257 * 5 / threads
    # A spatial tail (S = 1) is guarded, so that its empty slots do not even read.
    spatial = cost_facts((1, 2, 1), SOFTMAX, APPLE)
    assert (spatial.read_slots, spatial.write_slots) == (5, 5)
    # Without a tail the slots are the programs.
    whole = cost_facts((2, 5, 1), SOFTMAX, APPLE)
    assert (whole.physical_groups, whole.read_slots, whole.write_slots) == (1, 5, 5)


def test_the_payload_of_a_program_is_never_padded():
    for shape in ((2, 2, 1), (2, 5, 1), (7, 3, 4)):
        facts = cost_facts(shape, SOFTMAX, APPLE)
        assert (facts.reads, facts.writes, facts.elements) == (514, 257, 4 * 257)


def test_only_the_service_policy_sees_a_tail_that_replays():
    """Q = 3 for 4 programs replays two rows; the analytic score of 3 and 4 programs is equal."""
    whole = dataclasses.replace(SOFTMAX, programs=6)
    tail = dataclasses.replace(SOFTMAX, programs=4)
    request = Request(threads=192, programs_per_group=3)
    analytic = [plan_groups(p, APPLE, request, AnalyticCost()).score for p in (whole, tail)]
    service = [plan_groups(p, APPLE, request, ServiceCost(write=0)).score for p in (whole, tail)]
    assert analytic[0] == analytic[1]
    assert service[0] == service[1]  # six slots read for six programs, and for four
    writes = [plan_groups(p, APPLE, request, ServiceCost(read=0)).score for p in (whole, tail)]
    assert writes[0] > writes[1]


def test_the_service_policy_through_the_whole_path():
    facts = []
    name = registered(Recorder(lambda f: facts.append(f) or 1.0))
    options = {"threads_per_group": 128, "reduction_programs_per_group": 2}
    compile_softmax(rows=5, columns=257, cost_policy=name, **options)
    plan = compiled("softmax", 5, 257, cost_policy="service", **options).plan
    assert plan.score == ServiceCost()(facts[0])
    assert dataclasses.asdict(facts[0]) == dataclasses.asdict(cost_facts((2, 2, 1), SOFTMAX, APPLE))

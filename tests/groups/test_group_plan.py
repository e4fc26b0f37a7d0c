"""The planner of groups on integers alone: work, fences, lifetimes, versions, prices."""

import dataclasses

import pytest

from tvm_tilex.plan.cooperative import CooperativePlan, plan_cooperative, work_threads
from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_facts import (
    GroupFacts,
    GroupRequest,
    LoopFacts,
    PhaseFacts,
    PhaseKind,
    TileFacts,
)
from tvm_tilex.plan.group_memory import Touch, fences, lifetimes, offsets
from tvm_tilex.plan.group_products import MatrixAtom, arrange
from tvm_tilex.plan.group_registers import live_words, register_words
from tvm_tilex.plan.planner import PlanRefusal

TARGET = TargetFacts(max_threads=1024, shared_bytes=32768, lanes=32)
ELEMENTS, REDUCTION = PhaseKind.elements, PhaseKind.reduction


def group(phases, tiles, loops=(), programs=4, independent=1):
    return GroupFacts(programs, independent, tuple(phases), tuple(tiles), tuple(loops))


def touch(reads=(), writes=()):
    return Touch(frozenset(reads), frozenset(writes))


def never(a, b):
    return False


def elements(**facts):
    return PhaseFacts(ELEMENTS, 64, **facts)


# Work


def test_a_scalar_reduction_is_a_whole_subgroup_of_work():
    one = PhaseFacts(REDUCTION, 1, depth=4096, collective=True)
    assert work_threads(group([one], []), TARGET) == 32
    three = dataclasses.replace(one, count=3)
    assert work_threads(group([three], []), TARGET) == 96
    many = dataclasses.replace(one, count=100)
    assert work_threads(group([many], []), TARGET) == 1024  # the target's limit
    ordered = dataclasses.replace(many, collective=False)
    assert (
        work_threads(group([ordered], []), TARGET) == 128
    )  # one thread an output, whole subgroups


def test_work_counts_elements_and_the_domain():
    assert work_threads(group([elements()], []), TARGET) == 64
    assert work_threads(group([elements()], [], independent=200), TARGET) == 224


# Fences


def test_fences_stand_between_a_write_and_a_read_of_another_phase():
    facts = group([elements(), elements(), elements()], [])
    pairs = (touch(writes=[(0, 0)]), touch(reads=[(1, 0)]), touch(reads=[(0, 0)]))
    assert fences(facts, pairs, never) == {2}
    assert fences(facts, pairs, lambda a, b: True) == {1}  # then what stands in 1 is overwritten


def test_a_write_waits_for_earlier_reads_and_writes():
    facts = group([elements(), elements()], [])
    assert fences(facts, (touch(reads=[(0, 0)]), touch(writes=[(0, 0)])), never) == {1}
    assert fences(facts, (touch(writes=[(0, 0)]), touch(writes=[(0, 0)])), never) == {1}
    assert fences(facts, (touch(reads=[(0, 0)]), touch(reads=[(0, 0)])), never) == set()


def test_an_iteration_waits_for_the_one_before():
    inside = elements(loops=(0,))
    facts = group([inside, inside], [], [LoopFacts(5, 0, 2)])
    pairs = (touch(writes=[(0, 0)]), touch(reads=[(0, 0)]))
    assert fences(facts, pairs, never) == {0, 1}


def test_two_versions_save_the_fence_between_iterations():
    fill = elements(loops=(0,), store=0)
    facts = group([fill, elements(loops=(0,))], [], [LoopFacts(5, 0, 2)])
    pairs = (touch(writes=[(0, 1)]), touch(reads=[(0, 0)]))
    # One fence an iteration orders both: the fill after the reads of its version, and the reads
    # after the fill of theirs.
    assert fences(facts, pairs, never) == {0}
    assert fences(facts, pairs, never, asynchronous=True) == {0}


def test_a_loop_that_may_not_run_orders_nothing():
    before, inside, after = elements(), elements(loops=(0,)), elements()
    facts = group([before, inside, after], [], [LoopFacts(5, 1, 2)])
    pairs = (touch(writes=[(0, 0)]), touch(reads=[(1, 0)]), touch(reads=[(0, 0)]))
    assert fences(facts, pairs, never) == {2}
    inner = (touch(writes=[(0, 0)]), touch(reads=[(0, 0)]), touch(reads=[(0, 0)]))
    # The fence in front of the loop's phase may never be met.
    assert fences(facts, inner, never) == {1, 2}


# Memory


def test_tiles_of_disjoint_lives_share_memory():
    facts = group([elements()] * 4, [])
    pairs = (
        touch(writes=[(0, 0)]),
        touch(reads=[(0, 0)], writes=[(1, 0)]),
        touch(reads=[(1, 0)], writes=[(2, 0)]),
        touch(reads=[(2, 0)]),
    )
    lives = lifetimes(facts, pairs)
    assert lives == {0: (0, 1), 1: (1, 2), 2: (2, 3)}
    placed, size = offsets({0: 64, 1: 64, 2: 64}, lives)
    assert size == 128 and placed[0] == placed[2] != placed[1]


def test_a_tile_that_outlives_a_loop_or_an_iteration_lives_through_it():
    inside = elements(loops=(0,))
    facts = group([elements(), inside, inside, inside], [], [LoopFacts(3, 1, 4)])
    used = touch(reads=[(0, 0)])
    lives = lifetimes(facts, (touch(writes=[(0, 0)]), used, touch(), touch()))
    assert lives == {0: (0, 3)}
    carried = (touch(), touch(), touch(reads=[(1, 0)]), touch(writes=[(1, 0)]))
    assert lifetimes(facts, carried) == {1: (1, 3)}
    within = (touch(), touch(writes=[(1, 0)]), touch(reads=[(1, 0)]), touch())
    assert lifetimes(facts, within) == {1: (1, 2)}


# Plans


def summing(count=64, depth=64, stride=1):
    tile = TileFacts("tile", count * depth, 4)
    result = TileFacts("sums", count, 4)
    fill = PhaseFacts(ELEMENTS, count * depth, store=0, global_loads=1)
    sums = PhaseFacts(
        REDUCTION, count, depth=depth, loads=(0,), store=1, collective=True, stride=stride
    )
    last = PhaseFacts(ELEMENTS, count, loads=(1,))
    return group([fill, sums, last], [tile, result])


def test_explicit_threads_win_and_a_partial_subgroup_is_serial():
    for threads in (32, 48, 64, 1000):
        plan = plan_cooperative(summing(), TARGET, GroupRequest(threads=threads, kind="metal"))
        assert plan.threads == threads
        assert ("collective" in plan.realizations) <= (threads % 32 == 0)
    for wanted in ("collective", "serial"):
        request = GroupRequest(threads=64, reductions=wanted, kind="metal")
        assert plan_cooperative(summing(), TARGET, request).realizations[1] == wanted
    off = GroupRequest(threads=64, reductions="collective", collectives=False, kind="metal")
    plan = plan_cooperative(summing(), TARGET, off)
    assert plan.realizations[1] == "serial" and "the option is off" in plan.notes[0]


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(PlanRefusal, match="2048 threads exceed the target's 1024"):
        plan_cooperative(summing(), TARGET, GroupRequest(threads=2048))
    with pytest.raises(PlanRefusal, match="65792 shared bytes exceed the target's 32768"):
        plan_cooperative(summing(count=64, depth=256), TARGET, GroupRequest(threads=64))


def test_the_price_prefers_collectives_along_memory_and_threads_across_it():
    along = plan_cooperative(
        group([PhaseFacts(REDUCTION, 8, 4096, collective=True, global_loads=1)], []),
        TARGET,
        GroupRequest(threads=256),
    )
    across = plan_cooperative(
        group([PhaseFacts(REDUCTION, 256, 64, collective=True, global_loads=1, stride=256)], []),
        TARGET,
        GroupRequest(threads=256),
    )
    assert along.realizations == ("collective",)
    assert across.realizations == ("serial",)
    assert "serial is the cheapest" in across.notes[0]


def test_a_plan_reads_back_from_its_text():
    plan = plan_cooperative(summing(), TARGET, GroupRequest())
    assert CooperativePlan.from_json(plan.to_json()) == plan
    assert len(plan.candidates) >= 10
    assert plan.score == min(c.score for c in plan.candidates if c.score is not None)
    assert "groups of" in plan.describe()


# Registers


def test_a_carried_tile_and_its_next_value_share_registers():
    # state 0; loop { 1 = f(state); 2 = g(1); state = 2 }; out = state
    phases = [
        elements(store=0),
        elements(own_loads=(0,), store=1, loops=(0,)),
        elements(own_loads=(1,), store=2, loops=(0,)),
        elements(own_loads=(2,), store=0, loops=(0,)),
        elements(own_loads=(0,)),
    ]
    tiles = [TileFacts(name, 64, 4) for name in "abc"]
    facts = group(phases, tiles, [LoopFacts(8, 1, 4)])
    assert live_words(facts, {0: 64, 1: 64, 2: 64}) == 64
    late = dataclasses.replace(phases[3], own_loads=(0, 2))  # the old value is needed to the end
    facts = dataclasses.replace(facts, phases=(*phases[:3], late, phases[4]))
    assert live_words(facts, {0: 64, 1: 64, 2: 64}) == 128
    assert live_words(facts, {1: 64, 2: 64}) == 64


def test_a_value_lives_around_the_loop_that_reads_it():
    phases = [
        elements(store=0),
        elements(own_loads=(0,), store=1, loops=(0,)),
        elements(own_loads=(1,), loops=(0,)),
        elements(store=2, loops=(0,)),
        elements(own_loads=(2,), loops=(0,)),
    ]
    facts = group(phases, [TileFacts(n, 64, 4) for n in "abc"], [LoopFacts(8, 1, 5)])
    assert live_words(facts, {0: 10, 1: 20, 2: 40}) == 50
    assert live_words(facts, {}) == 0


def test_what_a_thread_may_hold_falls_with_the_threads():
    assert register_words(128, "cuda", 256) == 215
    assert register_words(1024, "cuda", 256) == 24
    assert register_words(1024, "metal", 256) == 256


@pytest.mark.parametrize(("used", "grid"), [(False, (2, 2)), (True, (4, 1))])
def test_fragments_are_square_unless_their_rows_are_used(used, grid):
    atom = MatrixAtom("m16n8k16", 16, 8, 16, "float16", registers=True)
    product = PhaseFacts(
        PhaseKind.product, 128 * 128, 32, rows=128, columns=128, factor="float16", aligned=0,
        store=0, own_loads=(0,),
    )  # fmt: skip
    fold = PhaseFacts(
        REDUCTION, 128, 128, collective=True, loads=(0,), row_loads=(0,), row_aligned=0
    )
    tile = TileFacts("c", 128 * 128, 4, aligned=0, row=128)
    facts = group([product, *([fold] if used else [])], [tile])
    found = arrange(facts, product, 128, 32, GroupRequest(), (atom,))
    assert (found.down, found.across) == grid
    assert found.slots == 128

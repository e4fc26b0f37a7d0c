"""The occupancy policy is finite and positive, and moves the way that its terms say."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.target_config import target_configs
from tvm_tilex.plan import CostFacts
from tvm_tilex.plan.cost import OccupancyCost, cost_policy

POLICY = OccupancyCost()
FACTS = CostFacts(
    subgroups=4,
    programs_per_group=1,
    lane_elements=8,
    workers=128,
    rounds=160,
    reductions=2,
    exchanges=2,
    physical_groups=4096,
    elements=16384,
    useful_lane_work=0.8,
    shared_bytes=32,
    stripe_scalars=48,
    reads=4096,
    writes=4096,
    widest=32,
    vector_width=8,
    read_slots=4096,
    write_slots=4096,
    bytes=16384,
    instructions=60000,
)

counts = st.one_of(st.integers(0, 10), st.integers(0, 2**31 - 1), st.just(2**40))


@given(
    st.builds(
        CostFacts,
        subgroups=st.integers(1, 32),
        programs_per_group=st.integers(1, 32),
        lane_elements=st.sampled_from((1, 2, 4, 8)),
        workers=st.integers(1, 32).map(lambda s: 32 * s),
        rounds=counts,
        reductions=st.integers(0, 64),
        physical_groups=st.integers(1, 2**31 - 1),
        elements=counts,
        useful_lane_work=st.floats(0, 1),
        shared_bytes=counts,
        stripe_scalars=counts,
        reads=counts,
        writes=counts,
        widest=counts,
        vector_width=st.sampled_from((1, 2, 4, 8)),
        read_slots=counts,
        write_slots=counts,
        blocks_per_program=st.sampled_from((1, 2, 4, 8)),
        bytes=counts,
        repartitioned=counts,
        staged_bytes=counts,
        instructions=counts,
        cached_bytes=st.just(0),
    )
)
@settings(max_examples=300, deadline=None)
def test_a_score_is_finite_and_positive(facts):
    facts = dataclasses.replace(facts, workers=facts.workers * facts.blocks_per_program)
    score = POLICY(facts)
    assert math.isfinite(score) and score > 0
    cached = POLICY(dataclasses.replace(facts, cached_bytes=facts.bytes))
    assert math.isfinite(cached) and cached > 0


@pytest.mark.parametrize(
    "change",
    [
        {"bytes": 32768},
        {"instructions": 600000},
        {"rounds": 1600},
        {"exchanges": 8},
        {"stripe_scalars": 200},
        {"lane_elements": 1},
        {"reads": 40960},
    ],
    ids=str,
)
def test_more_of_anything_costs_more(change):
    assert POLICY(dataclasses.replace(FACTS, **change)) > POLICY(FACTS)


def test_shared_memory_bounds_the_resident_groups():
    some = dataclasses.replace(FACTS, staged_bytes=8192)
    most = dataclasses.replace(FACTS, staged_bytes=200_000)
    assert POLICY(FACTS) < POLICY(some) < POLICY(most)
    assert POLICY._resident(most, 128) == 1
    assert POLICY._resident(some, 128) == 233472 // (8192 + 32 + 1024) or (
        POLICY._resident(some, 128) == POLICY._resident(FACTS, 128)
    )


def test_no_more_groups_are_resident_than_there_are():
    few = dataclasses.replace(FACTS, physical_groups=100)
    assert POLICY._resident(few, 128) == 1 < POLICY._resident(FACTS, 128)


def test_bytes_that_every_program_reads_count_as_stated():
    shared = dataclasses.replace(FACTS, cached_bytes=8192)
    free = dataclasses.replace(POLICY, cached=0.0)
    plain = dataclasses.replace(POLICY, cached=1.0)
    assert plain(shared) == plain(FACTS) and free(shared) < free(FACTS)


def test_the_configured_coefficients_are_the_class_s():
    """The H200's file states the fit that the class has as its defaults, each value of it."""
    stated = target_configs()["h200"].coefficients
    assert OccupancyCost(**stated) == OccupancyCost()
    assert set(stated) == {field.name for field in dataclasses.fields(OccupancyCost)}


NAMES = ("occupancy", "occupancy_in_turn")
ADA = {"kind": "cuda", "arch": "sm_89", "max_num_threads": 1024, "thread_warp_size": 32}


@pytest.mark.parametrize(
    ("target", "dependent", "name"),
    [
        ("h200", None, "occupancy"),
        ("h200", False, "occupancy_in_turn"),
        ("cuda", None, "occupancy"),
        (ADA, None, "occupancy_in_turn"),
        ("a100", None, "occupancy_in_turn"),
    ],
    ids=str,
)
def test_launches_in_turn_have_a_policy_of_their_own(target, dependent, name):
    entry = kernels.catalog()["layernorm"]

    def plan(policy):
        options = tx.CompileOptions(dependent_launch=dependent, cost_policy=policy)
        return tx.compile(
            entry.kernel, *entry.specs(2048, 8192), target=target, options=options
        ).plan

    (other,) = set(NAMES) - {name}
    assert plan("default") == plan(name)
    assert plan("default").score != plan(other).score


def test_the_a100_keeps_the_fit_to_launches_in_turn():
    config, fitted = target_configs()["a100"], cost_policy("occupancy_in_turn")
    assert config.policy == "occupancy_in_turn"
    assert config.coefficients["start"] == fitted.start != OccupancyCost().start

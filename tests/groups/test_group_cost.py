"""The costs of cooperative groups: the prior and the queue, on integers alone."""

import dataclasses
import math

import pytest

from tvm_tilex.errors import OptionError
from tvm_tilex.plan.cooperative import plan_cooperative
from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_columns import column_share
from tvm_tilex.plan.group_cost import PlannedGroup, PriorCost, group_cost, register_group_cost
from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, LoopFacts, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement
from tvm_tilex.plan.group_queue import QueueCost

COSTS = (PriorCost(), QueueCost())
ALONG = PhaseFacts(
    PhaseKind.reduction, 8, 4096, collective=True, any_order=True, global_loads=1, view_bytes=4
)
ACROSS = dataclasses.replace(ALONG, count=256, depth=512, stride=256, adjacent=4)
PRODUCT = PhaseFacts(
    PhaseKind.product, 64 * 64, 32, rows=64, columns=64, factor="float16", loops=(0,)
)


def planned(phase, realization, **changes):
    facts = GroupFacts(1000, 1, (phase,), (), (LoopFacts(4, 0, 1),))
    share = column_share(0, phase, 128) if realization == "columns" else None
    arrangement = Arrangement("matrix", 2, 2, 32) if realization == "matrix" else None
    group = PlannedGroup(
        facts, 128, 32, (realization,), (arrangement,), fenced=frozenset(), ahead=frozenset(),
        owned=frozenset(), private=frozenset(), slots={-1: 8},
        shares={0: share} if share else {}, shared_bytes=4096, private_scalars=32, kind="cuda",
    )  # fmt: skip
    return dataclasses.replace(group, **changes)


def score(cost, group):
    return cost.score(group, cost.prices(group))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(
    ("phase", "realization"),
    [(ALONG, "serial"), (ALONG, "collective"), (ACROSS, "columns"), (PRODUCT, "matrix"),
     (ALONG, "fragment"), (PhaseFacts(PhaseKind.elements, 100, global_loads=1), "elements")],
)  # fmt: skip
def test_every_price_is_finite_and_grows_with_programs_and_fences(cost, phase, realization):
    group = planned(phase, realization)
    assert math.isfinite(score(cost, group)) and score(cost, group) > 0
    more = dataclasses.replace(group.facts, programs=4000)
    assert score(cost, dataclasses.replace(group, facts=more)) > score(cost, group)
    assert cost.prices(dataclasses.replace(group, fenced=frozenset({0}))) > cost.prices(group)


@pytest.mark.parametrize("cost", COSTS)
def test_collectives_win_along_memory_and_columns_across_it(cost):
    along = cost.reductions(ALONG, None, 256, 32)
    assert along["collective"] < along["serial"] and "columns" not in along
    across = cost.reductions(ACROSS, column_share(0, ACROSS, 256), 256, 32)
    assert min(across, key=across.get) == "columns"
    ordered = dataclasses.replace(ACROSS, collective=False)
    assert "collective" not in cost.reductions(ordered, None, 256, 32)


def test_fewer_resident_groups_hide_less():
    group = planned(PRODUCT, "matrix")
    full = dataclasses.replace(group, shared_bytes=200_000)
    assert score(QueueCost(), full) > score(QueueCost(), group)


def test_a_square_of_fragments_costs_fewer_loads_than_a_row():
    group = planned(PRODUCT, "matrix")
    row = dataclasses.replace(group, arrangements=(Arrangement("matrix", 4, 1, 32),))
    assert QueueCost().prices(row) > QueueCost().prices(group)


def test_columns_wait_once_for_each_batch_of_rows():
    cost = QueueCost(wait=1e9)
    few, many = (
        cost.prices(planned(dataclasses.replace(ACROSS, depth=depth), "columns"))[0]
        for depth in (8, 16)
    )
    slices = column_share(0, ACROSS, 128).slices
    assert slices == 2 and round(few / 1e9) == 1 and round(many / 1e9) == 2


def test_each_kind_of_target_has_its_own_cost():
    assert isinstance(group_cost("default", "cuda"), QueueCost)
    assert isinstance(group_cost("default", "metal"), PriorCost)
    assert isinstance(group_cost("occupancy", "cuda"), QueueCost)  # a name of row kernels
    assert isinstance(group_cost("analytic", "cuda"), PriorCost)


def test_a_cost_is_chosen_by_name_and_a_name_keeps_its_meaning():
    class Widest:
        def reductions(self, phase, share, threads, lanes):
            return PriorCost().reductions(phase, share, threads, lanes)

        def prices(self, group):
            return (0.0,) * len(group.facts.phases)

        def score(self, group, prices):
            return 1.0 / group.threads

    register_group_cost("widest", Widest)
    with pytest.raises(OptionError, match="group cost 'widest' is registered already"):
        register_group_cost("widest", PriorCost)
    target = TargetFacts(max_threads=1024, shared_bytes=32768, lanes=32)
    facts = GroupFacts(4, 1, (ALONG,), (), ())
    cost = group_cost("widest", "cuda")
    assert plan_cooperative(facts, target, GroupRequest(), cost=cost).threads == 1024

"""Orders and ends of searches, on tables of values; no candidate is compiled here."""

import itertools
import random

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import OptionError
from tvm_tilex.tune import Dimension, Space
from tvm_tilex.tune.search import (
    DEFAULT_SEARCH,
    SEARCHES,
    Exhaustive,
    ModelOrder,
    Neighbours,
    OptunaSearch,
    make_strategy,
)

SPACE = Space(
    tx.CompileOptions(),
    (
        Dimension("threads_per_group", (32, 64, 128, 256, 512, 1024)),
        Dimension("reduction_lane_elements", (1, 2, 4, 8)),
        Dimension("reduction_unroll", (1, 2, 4)),
    ),
)
CANDIDATES = SPACE.candidates()


def value(candidate):
    """Smooth with one minimum, at 256 threads, V = 4, unroll 2."""
    if not candidate.choices:
        return 10.0
    threads, elements, unroll = candidate.choices.values()
    return (
        1
        + abs(threads.bit_length() - 9)
        + 0.5 * abs(elements.bit_length() - 3)
        + 0.1 * abs(unroll.bit_length() - 2)
    )


def spend(strategy, values, most=1000):
    """Candidates in the order in which they are tried."""
    tried = []
    while len(tried) < most and (index := strategy.next()) is not None:
        tried.append(index)
        strategy.tell(index, values[index])
    return tried


VALUES = {c.index: value(c) for c in CANDIDATES}


def test_exhaustive_tries_everything_in_order():
    order = [3, 1, 2, 0]
    assert spend(Exhaustive(order), VALUES) == order


def test_the_models_order_ends_after_fruitless_trials():
    scores = {c.index: VALUES[c.index] + 3 for c in CANDIDATES}  # a perfect model
    strategy = ModelOrder([c.index for c in CANDIDATES], scores, patience=5)
    tried = spend(strategy, VALUES)
    assert VALUES[tried[0]] == min(VALUES.values())
    assert len(tried) == 6  # the best, and five that brought nothing


def test_progress_renews_the_patience_and_a_failure_does_not():
    values = {0: 9.0, 1: None, 2: 5.0, 3: None, 4: 4.99, 5: 3.0, 6: 8.0, 7: 8.0, 8: 1.0}
    strategy = ModelOrder(range(9), {i: float(i) for i in range(9)}, patience=2, gain=0.01)
    # 4.99 is no progress of one percent over 5.0: with the failure before it, patience ends.
    assert spend(strategy, values) == [0, 1, 2, 3, 4]
    patient = ModelOrder(range(9), {i: float(i) for i in range(9)}, patience=3)
    assert spend(patient, values) == list(range(9))


def test_candidates_of_equal_score_keep_the_rotated_order():
    strategy = ModelOrder([2, 3, 0, 1], {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.5}, patience=9)
    assert spend(strategy, dict.fromkeys(range(4), 1.0)) == [3, 2, 0, 1]


def test_candidates_without_a_score_come_last():
    strategy = ModelOrder([0, 1, 2], {1: 7.0}, patience=9)
    assert spend(strategy, dict.fromkeys(range(3), 1.0)) == [1, 0, 2]


def test_what_an_earlier_run_tried_is_not_tried_again():
    for strategy in (Exhaustive(range(4)), ModelOrder(range(4), {}, patience=9)):
        strategy.tell(2, 1.0)
        assert 2 not in spend(strategy, VALUES)


def test_neighbours_walk_to_the_minimum_where_the_model_is_wrong():
    """The model looks at threads alone and prefers the fewest."""
    wrong = {c.index: float(c.choices.get("threads_per_group", 9999)) for c in CANDIDATES}
    order = [c.index for c in CANDIDATES]
    tried = spend(Neighbours(CANDIDATES, order, wrong, patience=5), VALUES)
    assert len(tried) == len(set(tried)) < 45
    assert min(VALUES[i] for i in tried) == min(VALUES.values())
    blind = spend(ModelOrder(order, wrong, patience=5), VALUES)
    assert min(VALUES[i] for i in blind) > min(VALUES.values())


def test_neighbours_begin_with_the_models_choices_and_prefer_them_among_equals():
    space = Space(
        tx.CompileOptions(), (Dimension("threads_per_group", (32, 64, 128, 256, 512)),)
    ).candidates()
    scores = {1: 9.0, 2: 8.0, 3: 1.0, 4: 2.0, 5: 3.0, 0: 99.0}
    values = {0: 50.0, 1: 1.0, 2: 5.0, 3: 7.0, 4: 8.0, 5: 9.0}
    strategy = Neighbours(space, range(6), scores, first=1, patience=99)
    # 128; its neighbours 64 and 256, the better scored first; nothing better than 64 then but 32.
    assert [i for i in spend(strategy, values) if i] == [3, 4, 2, 1, 5]


def test_neighbours_take_failures_and_what_was_tried_before():
    order = [c.index for c in CANDIDATES]
    values = {i: None if i % 2 else VALUES[i] for i in order}
    strategy = Neighbours(CANDIDATES, order, VALUES, patience=99)
    for index in (2, 3, 4):
        strategy.tell(index, values[index])
    tried = spend(strategy, values)
    assert sorted(tried) == sorted(set(order) - {2, 3, 4})
    nothing = Neighbours(CANDIDATES, order, VALUES, patience=5)
    assert len(spend(nothing, dict.fromkeys(order))) == 5


# Optuna.


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="needs the tune extra")


def test_optuna_tries_distinct_candidates_and_keeps_its_bound(optuna):
    tried = spend(OptunaSearch(CANDIDATES, trials=20, seed=0), VALUES)
    assert len(tried) == len(set(tried)) == 20
    assert tried == spend(OptunaSearch(CANDIDATES, trials=20, seed=0), VALUES)
    assert tried != spend(OptunaSearch(CANDIDATES, trials=20, seed=1), VALUES)


def test_optuna_learns(optuna):
    """Better than random order in the mean of six seeds, on a table with one minimum."""

    def until_best(tried):
        best = min(VALUES[c.index] for c in CANDIDATES)
        return next((n for n, i in enumerate(tried, 1) if VALUES[i] == best), len(CANDIDATES))

    def shuffled(seed):
        order = [c.index for c in CANDIDATES[1:]]
        random.Random(seed).shuffle(order)
        return order

    guided = [
        until_best(spend(OptunaSearch(CANDIDATES, trials=45, seed=seed), VALUES))
        for seed in range(6)
    ]
    blind = [until_best(spend(Exhaustive(shuffled(seed)), VALUES)) for seed in range(200)]
    assert sum(guided) / 6 < sum(blind) / 200


def test_optuna_takes_failures_and_a_space_with_holes(optuna):
    some = [c for c in CANDIDATES if c.index % 3 == 1]
    values = {c.index: None if c.index % 2 else VALUES[c.index] for c in some}
    tried = spend(OptunaSearch(some, trials=100, seed=3), values)
    assert sorted(tried) == sorted(c.index for c in some)


def test_optuna_goes_on_from_earlier_trials(optuna):
    strategy = OptunaSearch(CANDIDATES, trials=10, seed=0)
    for index in range(6):
        strategy.tell(index, VALUES[index])
    tried = spend(strategy, VALUES)
    assert len(tried) == 4 and not set(tried) & set(range(6))


def test_optuna_begins_with_the_models_choices(optuna):
    first = [40, 7, 19]
    tried = spend(OptunaSearch(CANDIDATES, trials=5, seed=0, first=first), VALUES)
    assert set(tried[:3]) == set(first)


def test_several_devices_ask_before_they_tell(optuna):
    strategy = OptunaSearch(CANDIDATES, trials=12, seed=0)
    asked = [strategy.next() for _ in range(4)]
    assert len(set(asked)) == 4
    for index in asked:
        strategy.tell(index, VALUES[index])
    assert not set(asked) & set(spend(strategy, VALUES))


def test_optuna_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(OptionError, match=r"tvm-tilex\[tune\]"):
        OptunaSearch(CANDIDATES, trials=3)


def test_strategies_by_name(optuna):
    assert DEFAULT_SEARCH in SEARCHES
    for name in SEARCHES:
        strategy = make_strategy(
            name, CANDIDATES, range(len(CANDIDATES)), {}, trials=3, patience=3, seed=0
        )
        assert len(list(itertools.islice(iter(strategy.next, None), 2))) == 2
    with pytest.raises(OptionError, match="'luck': use one of"):
        make_strategy("luck", CANDIDATES, [], {}, trials=1, patience=1, seed=0)

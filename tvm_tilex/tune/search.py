"""In which order candidates are tried, and when a search ends.

A strategy is asked for candidates and told their values; it sees numbers only. None is told for a
trial that gave no value (refused, wrong, crashed, ...), which costs a trial all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tvm_tilex.errors import OptionError
from tvm_tilex.tune.space import Candidate

__all__ = [
    "DEFAULT_SEARCH",
    "SEARCHES",
    "Exhaustive",
    "ModelOrder",
    "OptunaSearch",
    "Strategy",
    "make_strategy",
]

# Suggestions of a sampler that bring nothing new before it is given a candidate.
_REPEATS = 20

SEARCHES = ("neighbours", "model", "exhaustive", "optuna")
# Those that ask the cost model before anything is measured.
MODELLED = ("neighbours", "model")
DEFAULT_SEARCH = "neighbours"


class Strategy(Protocol):
    """Chooses candidates by index."""

    def next(self) -> int | None:
        """The next candidate, or None where the search has ended."""
        ...

    def tell(self, candidate: int, value: float | None) -> None:
        """Take the value of a candidate (lower is better), or None if it has none."""
        ...


class Exhaustive:
    """Every candidate, in the given order."""

    def __init__(self, order: Sequence[int]) -> None:
        self._left = list(order)

    def next(self) -> int | None:
        """The next one."""
        return self._left.pop(0) if self._left else None

    def tell(self, candidate: int, value: float | None) -> None:
        """Every candidate is tried whatever the values are."""
        if candidate in self._left:
            self._left.remove(candidate)


class ModelOrder:
    """The cost model's order, until ``patience`` trials in succession brought nothing better.

    Candidates of equal score keep their order in ``order``. ``gain`` is the fraction by which a
    value must be better to count as progress.
    """

    def __init__(
        self,
        order: Sequence[int],
        scores: Mapping[int, float],
        *,
        patience: int = 8,
        gain: float = 0.01,
    ) -> None:
        self._left = sorted(order, key=lambda candidate: scores.get(candidate, math.inf))
        self._patience, self._gain = patience, gain
        self._best, self._fruitless = math.inf, 0

    def next(self) -> int | None:
        """The best-scored candidate that is left."""
        if not self._left or self._fruitless >= self._patience:
            return None
        return self._left.pop(0)

    def tell(self, candidate: int, value: float | None) -> None:
        """Count what brought nothing."""
        if candidate in self._left:
            self._left.remove(candidate)
        if value is not None and value < self._best * (1 - self._gain):
            self._best, self._fruitless = value, 0
            return
        self._fruitless += 1


class Neighbours:
    """The model's first choices, then always what is nearest to the best so far.

    The distance of two candidates is the number of steps between their values, summed over the
    dimensions; among the nearest the model's order decides. Ends as :class:`ModelOrder` does.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        order: Sequence[int],
        scores: Mapping[int, float],
        *,
        first: int = 3,
        patience: int = 8,
        gain: float = 0.01,
    ) -> None:
        self._left = sorted(order, key=lambda candidate: scores.get(candidate, math.inf))
        steps = _categories(candidates)
        self._places = {
            candidate.index: tuple(
                values.index(candidate.choices[name]) for name, values in steps.items()
            )
            for candidate in candidates
            if candidate.choices
        }
        self._first, self._patience, self._gain = first, patience, gain
        self._centre: int | None = None
        self._best, self._fruitless = math.inf, 0

    def next(self) -> int | None:
        """The nearest candidate that is left, by the model's order among equals."""
        if not self._left or self._fruitless >= self._patience:
            return None
        if self._first > 0 or self._centre is None:
            self._first -= 1
            return self._left.pop(0)
        # min keeps the first of equals, and what is left is in the model's order.
        nearest = min(self._left, key=self._distance)
        self._left.remove(nearest)
        return nearest

    def tell(self, candidate: int, value: float | None) -> None:
        """Move to a better candidate; count what brought nothing."""
        if candidate in self._left:
            self._left.remove(candidate)
        if value is not None and value < self._best * (1 - self._gain):
            self._fruitless = 0
        else:
            self._fruitless += 1
        if value is not None and value < self._best:
            self._best = value
            self._centre = candidate if candidate in self._places else self._centre

    def _distance(self, candidate: int) -> int:
        if candidate not in self._places or self._centre is None:
            return 0  # the default is tried in any case
        pair = zip(self._places[candidate], self._places[self._centre], strict=True)
        return sum(abs(a - b) for a, b in pair)


class OptunaSearch:
    """Optuna's tree-structured Parzen estimator over the dimensions as categories.

    ``known`` scores, if given, are the first guesses, best first. A point that is suggested again
    is answered from memory and costs no trial.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        trials: int,
        seed: int = 0,
        first: Sequence[int] = (),
    ) -> None:
        try:
            import optuna
        except ImportError:
            raise OptionError(
                "--search optuna needs optuna (pip install 'tvm-tilex[tune]')"
            ) from None

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._states, self._create = optuna.trial.TrialState, optuna.trial.create_trial
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._index = {_point(candidate.choices): candidate.index for candidate in candidates}
        self._distributions: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in _categories(candidates).items()
        }
        for candidate in candidates:
            if candidate.index in first and candidate.choices:
                self._study.enqueue_trial(dict(candidate.choices))
        self._left = min(trials, len(candidates))
        self._known: dict[int, float | None] = {}
        self._open: dict[int, list[Any]] = {}

    def next(self) -> int | None:
        """The sampler's next suggestion that has not been tried.

        A sampler that only repeats itself is given the first candidate that is left.
        """
        left = [i for i in self._index.values() if i not in self._known and i not in self._open]
        if self._left <= 0 or not left:
            return None
        for _ in range(_REPEATS):
            trial = self._study.ask(self._distributions)
            candidate = self._index.get(_point(trial.params))
            if candidate is None:  # a combination that is no candidate
                self._study.tell(trial, state=self._states.FAIL)
            elif candidate in self._known:
                self._answer(trial, self._known[candidate])
            elif candidate in self._open:
                self._open[candidate].append(trial)
            else:
                return self._begin(candidate, trial)
        choices = next(dict(point) for point, i in self._index.items() if i == left[0])
        if not choices:
            return self._begin(left[0])
        self._study.enqueue_trial(choices)
        return self._begin(left[0], self._study.ask(self._distributions))

    def _begin(self, candidate: int, *trials: Any) -> int:
        self._open[candidate] = list(trials)
        self._left -= 1
        return candidate

    def tell(self, candidate: int, value: float | None) -> None:
        """Pass the value on to the sampler."""
        if candidate in self._known:
            return
        self._known[candidate] = value
        if candidate not in self._open:  # of an earlier run, or the default
            self._left -= 1
            self._remember(candidate, value)
        for trial in self._open.pop(candidate, ()):
            self._answer(trial, value)

    def _remember(self, candidate: int, value: float | None) -> None:
        choices = next(dict(point) for point, i in self._index.items() if i == candidate)
        if choices and value is not None:
            frozen = self._create(params=choices, distributions=self._distributions, value=value)
            self._study.add_trial(frozen)

    def _answer(self, trial: Any, value: float | None) -> None:
        if value is None:
            self._study.tell(trial, state=self._states.FAIL)
            return
        self._study.tell(trial, value)


def make_strategy(
    name: str,
    candidates: Sequence[Candidate],
    order: Sequence[int],
    scores: Mapping[int, float],
    *,
    trials: int,
    patience: int,
    seed: int,
) -> Strategy:
    """The strategy of that name.

    Raises
    ------
    OptionError
        If there is none, or it needs a package that is not installed.
    """
    if name == "exhaustive":
        return Exhaustive(order)
    if name == "model":
        return ModelOrder(order, scores, patience=patience)
    if name == "neighbours":
        return Neighbours(candidates, order, scores, patience=patience)
    if name == "optuna":
        return OptunaSearch(candidates, trials=trials, seed=seed)
    raise OptionError(f"search {name!r}: use one of {', '.join(SEARCHES)}")


def _point(choices: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(choices.items()))


def _categories(candidates: Sequence[Candidate]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for candidate in candidates:
        for name, value in candidate.choices.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return found

"""Which plan an automatic thread count takes, for every tile that was measured and any cost.

All thread counts that the planner considers are candidates, measured or not; each is planned with
the realizations that the cost takes. ``Choices`` keeps the candidates' features, so that another
cost is asked in less than a millisecond.
"""

import dataclasses
import operator
from unittest import mock

import numpy
from group_features import group_features, reduction_features, reduction_prices, scores
from measured_groups import extents_of, same_plan

import tvm_tilex as tx
from tvm_tilex.kernels import composed
from tvm_tilex.plan.cooperative import plan_cooperative
from tvm_tilex.plan.planner import PlanRefusal
from tvm_tilex.transform import map_groups


class _Decided:
    """A cost that takes the realizations that it is told, and keeps what it is asked."""

    def __init__(self, decisions=()):
        self.decisions, self.asked, self.group = decisions, [], None

    def reductions(self, phase, share, threads, lanes):
        names = ["serial"]
        names += ["collective"] if phase.collective else []
        names += ["columns"] if share is not None else []
        at = len(self.asked)
        chosen = names[self.decisions[at] if at < len(self.decisions) else 0]
        self.asked.append([(phase, share, threads, name) for name in names])
        return {name: float(name != chosen) for name in names}

    def prices(self, group):
        return ()

    def score(self, group, prices):
        self.group = group
        return 1.0


class _Candidate:
    """One thread count of one launch: planned for the decisions that a cost makes."""

    def __init__(self, tile, launch, arguments, threads):
        facts, limits, request, atoms = arguments
        request = dataclasses.replace(request, threads=threads)
        self.tile, self.launch, self.threads = tile, launch, threads
        self._arguments = facts, limits, request, atoms
        self._plans = {}
        decided = _Decided()
        plan_cooperative(*self._arguments, cost=decided)
        self.asked = decided.asked

    def plan(self, decisions):
        """(features, planned group), or None where those decisions do not fit."""
        if decisions not in self._plans:
            decided = _Decided(decisions)
            try:
                plan_cooperative(*self._arguments, cost=decided)
                self._plans[decisions] = group_features(decided.group), decided.group
            except PlanRefusal:
                self._plans[decisions] = None
        return self._plans[decisions]


class Choices:
    """The candidates of every tile of ``problems`` (:func:`measured_groups.read_groups`)."""

    def __init__(self, problems):
        self.tiles, self._candidates, self._times = [], [], {}
        for problem, plans in problems.items():
            tiles = {}
            for plan in plans:
                key = (*plan.row["constants"].values(), plan.row.get("slices"))
                tiles.setdefault(key, []).append(plan)
            for key, members in tiles.items():
                self._read(len(self.tiles), members)
                self.tiles.append((problem, key, members))
        self.best = [min(plan.microseconds for plan in members) for *_, members in self.tiles]
        options, self._options = {}, []
        for candidate in self._candidates:
            for names in candidate.asked:
                self._options.append([options.setdefault(name, len(options)) for name in names])
        self._prices = numpy.array(
            [reduction_features(*option) for option in options] or [[0] * 21]
        )
        self._options = numpy.array([(o + [-1] * 3)[:3] for o in self._options] or [[0, -1, -1]])
        self._rows, self._groups = None, None
        self._decided = None
        self._launches = {}
        for number, candidate in enumerate(self._candidates):
            self._launches.setdefault((candidate.tile, candidate.launch), []).append(number)
        self._launches = {key: numpy.array(found) for key, found in self._launches.items()}

    def _read(self, tile, members):
        row, calls = members[0].row, []
        entry = composed.catalog()[row.get("kernel", "attention")]

        def recorded(facts, limits, request, atoms, cost):
            calls.append((facts, limits, request, atoms))
            return plan_cooperative(facts, limits, request, atoms, cost)

        with mock.patch.object(map_groups, "plan_cooperative", recorded):
            artifact = tx.compile(
                entry.kernel,
                *entry.specs(extents_of(row), row["dtype"]),
                target="h200",
                options=tx.CompileOptions(cost_policy="analytic"),
                **row["constants"],
            )
        for launch, plan in enumerate(artifact.group_plans):
            for found in plan.candidates:
                if found.score is not None:
                    self._candidates.append(_Candidate(tile, launch, calls[launch], found.threads))

    def taken(self, cost):
        """Per tile the (weight of the price, candidates) of each launch, cheapest first."""
        self._decide(cost)
        fits = self._rows[:, 21] > 0
        prices = numpy.where(fits, scores(self._rows, cost), numpy.inf)
        found = [[] for _ in self.tiles]
        for (tile, _), numbers in self._launches.items():
            order = numbers[numpy.argsort(prices[numbers], kind="stable")]
            found[tile].append((prices[order], order))
        return found

    def _decide(self, cost):
        prices = reduction_prices(self._prices, cost)
        taken = numpy.where(self._options >= 0, prices[self._options], numpy.inf).argmin(1)
        if self._decided is not None and (taken == self._decided).all():
            return
        self._decided, rows, self._groups, at = taken, [], [], 0
        for candidate in self._candidates:
            count = len(candidate.asked)
            plan = candidate.plan(tuple(int(n) for n in taken[at : at + count]))
            at += count
            rows.append(plan[0] if plan else None)
            self._groups.append(plan[1] if plan else None)
        unfit = [1.0] * 21 + [0.0] + [1.0] * (len(next(filter(None, rows))) - 22)
        self._rows = numpy.array([row or unfit for row in rows], float)

    def threads(self, numbers):
        """Thread counts of candidates, one a launch."""
        return tuple(self._candidates[number].threads for number in numbers)

    def time(self, tile, numbers):
        """Microseconds of a tile with those candidates, None where they were not measured."""
        groups = tuple(self._groups[number] for number in numbers)
        key = tile, tuple(map(id, groups))
        if key not in self._times:
            found = [
                plan.microseconds
                for plan in self.tiles[tile][2]
                if len(plan.groups) == len(groups) and all(map(same_plan, plan.groups, groups))
            ]
            self._times[key] = min(found, default=None)
        return self._times[key]

    def regrets(self, cost):
        """(tile, threads, slowdown against the fastest of the tile, or None) of every tile."""
        found = []
        for tile, launches in enumerate(self.taken(cost)):
            numbers = [order[0] for _, order in launches]
            us = self.time(tile, numbers)
            slower = None if us is None else us / self.best[tile] - 1
            found.append((tile, self.threads(numbers), slower))
        return found

    def risk(self, cost, unmeasured, spread, kept):
        """Mean slowdown of the cheapest plans, those within ``spread`` of the least price weighed.

        ``unmeasured`` is what a plan counts that nobody has measured, ``kept`` tells which tiles.
        """
        total = []
        for tile, launches in enumerate(self.taken(cost)):
            if not kept[tile]:
                continue
            alone = len(launches) == 1
            prices, order = launches[0]
            within = [1.0]
            for price in prices[1:] if alone else ():
                if (near := (price / prices[0]) ** (-1 / spread)) < 1e-3:
                    break
                within.append(near)
            tried = order[: len(within)]
            slower = []
            for number in tried:
                numbers = [number] if alone else [found[0] for _, found in launches]
                us = self.time(tile, numbers)
                slower.append(unmeasured if us is None else min(us / self.best[tile] - 1, 1.0))
            total.append(sum(map(operator.mul, slower, within)) / sum(within))
        return sum(total) / len(total)

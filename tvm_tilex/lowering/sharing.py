"""Which tiles become one definition in storage, and which are recomputed by each consumer.

Erasing sharing is irreversible and deprives later analyses of a legal choice, so PRESERVE is the
structural default (spec section 5.1). Neither mode changes what a program means.
"""

from __future__ import annotations

import enum
from collections import Counter

from tvm_tilex.ir import (
    Coordinate,
    Dot,
    ElementOp,
    Elementwise,
    Full,
    Gather,
    Load,
    Pipeline,
    Program,
    Read,
    Reduce,
    Repartition,
    Statement,
    Store,
)
from tvm_tilex.ir.walk import defined, is_definition, values_used, walk
from tvm_tilex.lowering.group_storage import group_storage

__all__ = ["SharedTileMaterialization", "shared_values"]

# Recomputing more than this many operations over all uses is never cheap.
_RECOMPUTE_LIMIT = 64


class SharedTileMaterialization(enum.Enum):
    """Which pure multi-consumer tiles keep their definition in storage.

    ``PRESERVE``
        Every one.
    ``EXPENSIVE_ONLY``
        Those that hold a transcendental operation; cheap arithmetic and loads are repeated.
    ``LOADED``
        Those that are loaded from a view, converted or not; what is computed from them is
        computed again.
    ``RECOMPUTE``
        None with more than one element: every consumer reads its views again. This is the map
        beyond the stripe bound, where no worker could keep its part of a row.
    """

    PRESERVE = "preserve"
    EXPENSIVE_ONLY = "expensive-only"
    LOADED = "loaded"
    RECOMPUTE = "recompute"


def shared_values(
    program: Program, mode: SharedTileMaterialization, *, noalias: bool
) -> frozenset[int]:
    """Numbers of the values that get storage (reductions always do, and are not listed).

    A repartition is storage in every mode.

    Without ``noalias`` any store may change any view, so every load is a snapshot.
    """
    everything = tuple(walk(program))
    uses, widest = _uses(everything)
    changing = _changing_loads(program, noalias)
    shared: set[int] = set()
    cost: dict[int, int] = {}  # operations repeated by one more use, without stored operands
    expensive: dict[int, bool] = {}
    loaded = _loaded(everything) if mode is SharedTileMaterialization.LOADED else frozenset()
    forced = group_storage(everything)
    for statement in everything:
        for value in defined(statement):
            cost[value.number], expensive[value.number] = 1, False
        if isinstance(statement, Pipeline):
            shared.update(value.number for value in defined(statement))
        if not is_definition(statement):
            continue
        number = statement.result.number
        operands = [v.number for v in values_used(statement) if v.number not in shared]
        own = isinstance(statement, Elementwise) and statement.op.transcendental
        cost[number] = 1 + sum(cost[n] for n in operands)
        expensive[number] = own or any(expensive[n] for n in operands)
        if isinstance(statement, Reduce | Dot):
            cost[number], expensive[number] = 1, False
            continue
        if isinstance(statement, Full | Read) and number not in forced:
            continue  # a number, or memory that holds it already
        if number in forced:
            shared.add(number)
        elif isinstance(statement, Repartition):
            shared.add(number)  # its consumers read it under another distribution
        elif number in changing:
            shared.add(number)  # a later store must not change what was loaded
        elif isinstance(statement, (Elementwise, Gather)) and widest[number]:
            shared.add(number)  # computed once, not once per element of a wider consumer
        elif number in loaded:
            shared.add(number)
        elif uses[number] > 1 and not isinstance(statement, Coordinate):
            scalar = statement.result.type.elements == 1 and not isinstance(statement, Load)
            repeated = cost[number] * uses[number] > _RECOMPUTE_LIMIT
            worth_keeping = {
                SharedTileMaterialization.PRESERVE: True,
                SharedTileMaterialization.EXPENSIVE_ONLY: expensive[number] or repeated,
                SharedTileMaterialization.LOADED: False,
                SharedTileMaterialization.RECOMPUTE: False,
            }
            if scalar or worth_keeping[mode]:
                shared.add(number)
        if number in shared:
            cost[number], expensive[number] = 1, False
    return frozenset(shared)


def _changing_loads(program: Program, noalias: bool) -> frozenset[int]:
    """Loads of views that may change while the nest of the load runs; nests run in order."""
    found: set[int] = set()
    for root in program.body:
        inside = tuple(walk((root,)))
        written = {s.view for s in inside if isinstance(s, Store)}
        found.update(
            s.result.number
            for s in inside
            if isinstance(s, Load) and (s.view in written or not noalias)
        )
    return frozenset(found)


def _loaded(everything: tuple[Statement, ...]) -> frozenset[int]:
    """Tiles loaded from a view, converted or not, that are needed more than once.

    Whatever is computed from them is computed for each of its consumers again, so that what counts
    is how often they are reached, not how many statements name them. A load that is only converted
    leaves its place to the conversion.
    """
    reached: Counter[int] = Counter()  # by reductions, stores and single numbers
    converted: Counter[int] = Counter()
    views: dict[int, bool] = {}
    for statement in everything:
        if not is_definition(statement):
            continue
        operands = [value.number for value in values_used(statement)]
        converts = isinstance(statement, Elementwise) and statement.op is ElementOp.cast
        load = isinstance(statement, Load) or (converts and all(views.get(n) for n in operands))
        views[statement.result.number] = load and statement.result.type.elements != 1
        if converts:
            converted.update(operands)
    uses: Counter[int] = Counter()
    for statement in reversed(everything):
        times = 1
        if isinstance(statement, Elementwise) and statement.result.type.elements != 1:
            times = reached[statement.result.number]
        for value in values_used(statement):
            reached[value.number] += times
            uses[value.number] += 1
    return frozenset(
        number
        for number, view in views.items()
        if view and reached[number] > 1 and uses[number] > converted[number]
    )


def _uses(everything: tuple[Statement, ...]) -> tuple[Counter[int], dict[int, bool]]:
    """Operand occurrences of each value, and whether a consumer ranges over more elements.

    What a pipeline carries is copied once an iteration, as is.
    """
    uses: Counter[int] = Counter()
    wider: dict[int, bool] = {}
    for statement in everything:
        for value in defined(statement):
            wider.setdefault(value.number, False)
        for operand in values_used(statement):
            uses[operand.number] += 1
            domain = operand.type.elements
            if isinstance(statement, Elementwise):
                domain = statement.result.type.elements
            if isinstance(statement, Gather) and operand == statement.index:
                domain = statement.result.type.elements
            known = wider.get(operand.number, False)
            wider[operand.number] = known or domain > operand.type.elements
    for view in (s for s in everything if isinstance(s, Load)):
        wider[view.result.number] = False
    return uses, wider

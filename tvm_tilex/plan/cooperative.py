"""The plan of a cooperative group: threads, realizations, placement, fences, price.

Every thread count of a bounded family is planned whole and priced; the cheapest wins. Legality
comes first: threads, shared bytes and private scalars are checked before any price.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_columns import ColumnShare, partial_tiles, shares_of
from tvm_tilex.plan.group_cost import GroupCost, PlannedGroup, group_cost
from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseKind
from tvm_tilex.plan.group_memory import (
    Touch,
    fences,
    lifetimes,
    offsets,
    paddings,
    version_bytes,
)
from tvm_tilex.plan.group_ownership import factor_owned, folding_owned, row_owned
from tvm_tilex.plan.group_placement import (
    class_slots,
    doubled_tiles,
    private_slots,
    private_words,
    shared_touches,
)
from tvm_tilex.plan.group_products import Arrangement, MatrixAtom, arrange
from tvm_tilex.plan.group_realizations import realize
from tvm_tilex.plan.group_registers import live_words
from tvm_tilex.plan.planner import PlanRefusal

__all__ = ["CooperativePlan", "GroupCandidate", "Placement", "plan_cooperative", "work_threads"]

_WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Placement:
    """Where a tile stands.

    In every thread (``replicated``), in ``private`` slots of the thread that owns an element, at
    ``offset`` of shared memory in ``versions`` copies (-1 is nowhere), or in the last two.
    ``padding`` elements follow each row of a two-dimensional tile.
    """

    tile: str
    replicated: bool = False
    private: int = 0
    offset: int = -1
    versions: int = 1
    padding: int = 0


@dataclass(frozen=True)
class GroupCandidate:
    """One thread count: priced, or rejected with its reason."""

    threads: int
    score: float | None
    rejection: str | None


@dataclass(frozen=True)
class CooperativePlan:
    """How one group runs: ``threads`` in ``subgroups`` SIMD groups of ``lanes``.

    ``realizations`` names each phase's realization: ``elements``, ``collective`` (one SIMD group
    an output), ``fragment`` (the four lanes that own an output's row), ``columns`` (neighbouring
    outputs a thread, shared out as ``columns`` says), ``serial`` (one thread an output),
    ``scalar``, ``fma`` or ``matrix``. ``fences``
    are the phases that a publication fence stands before (-1 - n is the loop n, whose tiles of
    two versions are filled before it). ``independent_subgroups`` is whether
    the group is one SIMD group, so that a fence need only order its lanes.
    Where ``asynchronous``, tiles of two versions are filled by copies that are waited for at the
    end of an iteration. ``private_scalars`` are the most words of a thread's private slots that are
    live at once. ``prices`` are the phases' prices in thread rounds, times their repeats.
    """

    programs: int
    threads: int
    lanes: int
    subgroups: int
    independent_subgroups: bool
    realizations: tuple[str, ...]
    arrangements: tuple[Arrangement | None, ...]
    placements: tuple[Placement, ...]
    fences: tuple[int, ...]
    shared_bytes: int
    private_scalars: int
    work_threads: int
    score: float
    row_classes: tuple[int, ...] = ()
    owned_factors: tuple[int, ...] = ()
    asynchronous: bool = False
    columns: tuple[ColumnShare, ...] = ()
    prices: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    candidates: tuple[GroupCandidate, ...] = ()

    @property
    def barrier_sites(self) -> int:
        """Fences in the emitted text."""
        return len(self.fences) + sum(share.fenced for share in self.columns)

    def describe(self) -> str:
        """The plan in one line."""
        kinds = {name: self.realizations.count(name) for name in dict.fromkeys(self.realizations)}
        parts = ", ".join(f"{count} {name}" for name, count in kinds.items())
        return (
            f"{self.programs} groups of {self.threads} threads; phases: {parts}; "
            f"{self.barrier_sites} fences; {self.shared_bytes} shared bytes; score {self.score:.4g}"
        )

    def to_json(self) -> str:
        """Stable text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CooperativePlan:
        """The plan of :meth:`to_json`'s text."""
        found: dict[str, Any] = json.loads(text)
        found["arrangements"] = tuple(
            None if a is None else Arrangement(**a) for a in found["arrangements"]
        )
        found["placements"] = tuple(Placement(**p) for p in found["placements"])
        found["candidates"] = tuple(GroupCandidate(**c) for c in found["candidates"])
        found["columns"] = tuple(ColumnShare(**share) for share in found["columns"])
        for name in ("realizations", "fences", "prices", "notes", "row_classes", "owned_factors"):
            found[name] = tuple(found[name])
        return cls(**found)


def work_threads(facts: GroupFacts, target: TargetFacts) -> int:
    """Threads that the group's work can use: its reference binding.

    One thread an element; one whole SIMD group for each output of a reduction that may be a
    collective, so that a scalar result is not mistaken for one lane of work; at most the target's
    threads, in whole SIMD groups.
    """
    widest = facts.independent
    for phase in facts.phases:
        collective = phase.kind is PhaseKind.reduction and phase.collective
        widest = max(widest, phase.count * (target.lanes if collective else 1))
    whole = -(-widest // target.lanes) * target.lanes
    return min(whole, target.max_threads // target.lanes * target.lanes)


def plan_cooperative(
    facts: GroupFacts,
    target: TargetFacts,
    request: GroupRequest,
    atoms: tuple[MatrixAtom, ...] = (),
    cost: GroupCost | None = None,
) -> CooperativePlan:
    """Plan a group for the requested thread count, or for the cheapest one.

    ``cost`` defaults to that of the request's target kind.

    Raises
    ------
    PlanRefusal
        If no thread count fits the resources; names why the requested, or the last one, does not.
    """
    cost = cost or group_cost("default", request.kind)
    reference = work_threads(facts, target)
    widths = [request.threads] if request.threads else sorted({*_WIDTHS, reference})
    candidates: list[GroupCandidate] = []
    plans: list[CooperativePlan] = []
    for threads in widths:
        found = _plan(facts, target, request, atoms, threads, reference, cost)
        if isinstance(found, str):
            candidates.append(GroupCandidate(threads, None, found))
        else:
            candidates.append(GroupCandidate(threads, found.score, None))
            plans.append(found)
    if not plans:
        fewest = candidates[0]
        raise PlanRefusal(f"{fewest.threads} threads: {fewest.rejection}")
    best = min(plans, key=lambda plan: (plan.score, plan.threads))
    return dataclasses.replace(best, candidates=tuple(candidates))


def _plan(
    facts: GroupFacts,
    target: TargetFacts,
    request: GroupRequest,
    atoms: tuple[MatrixAtom, ...],
    threads: int,
    reference: int,
    cost: GroupCost,
) -> CooperativePlan | str:
    if threads > target.max_threads:
        return f"{threads} threads exceed the target's {target.max_threads}"
    found = _placed(facts, target, request, atoms, threads, reference, cost)
    if isinstance(found, str) and request.products != "scalar":
        # Results that do not fit a thread's registers may stand in shared memory.
        plain = dataclasses.replace(request, products="scalar")
        return _placed(facts, target, plain, atoms, threads, reference, cost)
    return found


def _placed(
    facts: GroupFacts,
    target: TargetFacts,
    request: GroupRequest,
    atoms: tuple[MatrixAtom, ...],
    threads: int,
    reference: int,
    cost: GroupCost,
) -> CooperativePlan | str:
    whole = threads % target.lanes == 0
    arrangements = _arrangements(facts, target, request, atoms, threads)
    facts = folding_owned(facts, request, arrangements)
    facts, rows = row_owned(facts, arrangements)
    facts, owned_factors = factor_owned(facts, arrangements)
    realizations, notes = realize(facts, target, request, arrangements, threads, cost)
    slots = class_slots(facts, arrangements, threads)
    slots |= rows
    factors = frozenset(facts.phases[number].first_factor for number in owned_factors)
    private = private_slots(
        facts, realizations, arrangements, slots, threads, request, frozenset(rows), factors
    )
    if isinstance(private, str):
        return private
    shares = shares_of(facts, realizations, threads)
    partials = partial_tiles(facts, shares)
    numbers = {phase: len(facts.tiles) + n for n, phase in enumerate(partials)}
    held = dataclasses.replace(facts, tiles=(*facts.tiles, *partials.values()))

    def touched(doubled: frozenset[int]) -> tuple[Touch, ...]:
        return _with_partials(shared_touches(facts, realizations, private, doubled), numbers)

    doubled = doubled_tiles(facts, touched(frozenset())) if request.double_buffer else frozenset()
    padding = paddings(facts, realizations, arrangements)
    memory = _memory(held, touched(doubled), doubled, padding)
    if memory[1] > target.shared_bytes and padding:
        padding = {}
        memory = _memory(held, touched(doubled), doubled, padding)
    if memory[1] > target.shared_bytes and doubled:
        doubled = frozenset()
        memory = _memory(held, touched(doubled), doubled, padding)
    at, needed = memory
    if needed > target.shared_bytes:
        return f"{needed} shared bytes exceed the target's {target.shared_bytes}"
    touches = touched(doubled)
    sizes = _sizes(held, doubled, padding)
    shares = tuple(
        dataclasses.replace(share, offset=at.get(numbers.get(share.phase, -1), -1))
        for share in shares
    )
    share_of = {share.phase: share for share in shares}

    def overlap(a: int, b: int) -> bool:
        return at[a] < at[b] + sizes[b] and at[b] < at[a] + sizes[a]

    asynchronous = request.kind == "cuda" and request.copies and bool(doubled)
    stands = fences(facts, touches, overlap, asynchronous=asynchronous)
    scalars = live_words(facts, private_words(facts, private))
    ahead = {n for n, phase in enumerate(facts.phases) if phase.store in doubled}
    planned = PlannedGroup(
        facts,
        threads,
        target.lanes,
        realizations,
        arrangements,
        fenced=stands,
        ahead=frozenset(ahead),
        owned=frozenset(owned_factors),
        private=frozenset((*private, *(n for n, tile in enumerate(facts.tiles) if tile.scalar))),
        slots=slots,
        shares=share_of,
        shared_bytes=needed,
        private_scalars=scalars,
        kind=request.kind,
    )
    prices = cost.prices(planned)
    return CooperativePlan(
        programs=facts.programs,
        threads=threads,
        lanes=target.lanes,
        subgroups=max(1, threads // target.lanes),
        independent_subgroups=whole and threads == target.lanes,
        realizations=realizations,
        arrangements=arrangements,
        placements=tuple(
            Placement(
                tile.name,
                replicated=tile.scalar,
                private=private.get(n, 0),
                offset=at.get(n, -1),
                versions=2 if n in doubled else 1,
                padding=padding.get(n, 0),
            )
            for n, tile in enumerate(facts.tiles)
        ),
        fences=tuple(sorted(stands)),
        shared_bytes=needed,
        private_scalars=scalars,
        row_classes=tuple(sorted(rows)),
        owned_factors=owned_factors,
        work_threads=reference,
        score=cost.score(planned, prices),
        asynchronous=asynchronous,
        columns=shares,
        prices=prices,
        notes=notes,
    )


def _arrangements(
    facts: GroupFacts,
    target: TargetFacts,
    request: GroupRequest,
    atoms: tuple[MatrixAtom, ...],
    threads: int,
) -> tuple[Arrangement | None, ...]:
    """One arrangement a product; products whose results are aligned share one kind."""
    found = [
        arrange(facts, phase, threads, target.lanes, request, atoms)
        if phase.kind is PhaseKind.product
        else None
        for phase in facts.phases
    ]
    for number, phase in enumerate(facts.phases):
        mine = found[number]
        others = [
            other
            for other, at in zip(found, facts.phases, strict=True)
            if other is not None and at.aligned == phase.aligned
        ]
        if mine is not None and any(_layout(other) != _layout(mine) for other in others):
            plain = dataclasses.replace(request, products="fma")
            found[number] = arrange(facts, phase, threads, target.lanes, plain, ())
    return tuple(found)


def _layout(arrangement: Arrangement) -> tuple[str, int, int]:
    return arrangement.kind, arrangement.down, arrangement.across


def _with_partials(touches: tuple[Touch, ...], tiles: dict[int, int]) -> tuple[Touch, ...]:
    """The touches with the partial results that phases write, and read after their own fence."""
    return tuple(
        dataclasses.replace(touch, writes=touch.writes | {(tiles[number], 0)})
        if number in tiles
        else touch
        for number, touch in enumerate(touches)
    )


def _sizes(facts: GroupFacts, doubled: frozenset[int], padding: dict[int, int]) -> dict[int, int]:
    return {
        number: version_bytes(tile, padding.get(number, 0)) * (2 if number in doubled else 1)
        for number, tile in enumerate(facts.tiles)
    }


def _memory(
    facts: GroupFacts,
    touches: tuple[Touch, ...],
    doubled: frozenset[int],
    padding: dict[int, int],
) -> tuple[dict[int, int], int]:
    return offsets(_sizes(facts, doubled, padding), lifetimes(facts, touches))

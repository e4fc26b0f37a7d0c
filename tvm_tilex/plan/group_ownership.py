"""Reductions and vectors that stay with the lanes which own the rows of matrix fragments."""

from __future__ import annotations

import dataclasses

from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement

__all__ = ["factor_owned", "folding_owned", "row_owned"]

Arrangements = tuple[Arrangement | None, ...]


def _whole_rows(facts: GroupFacts, arrangements: Arrangements) -> dict[int, tuple[int, int]]:
    """(rows, SIMD groups along them) of each class whose rows a SIMD group owns whole."""
    return {
        phase.aligned: (phase.rows, arrangement.down)
        for phase, arrangement in zip(facts.phases, arrangements, strict=True)
        if arrangement is not None
        and arrangement.kind == "matrix"
        and arrangement.slots
        and arrangement.across == 1
    }


def folding_owned(
    facts: GroupFacts, request: GroupRequest, arrangements: Arrangements
) -> GroupFacts:
    """The facts where reductions over whole rows of fragments read what their owners hold."""
    whole = {
        phase.aligned
        for phase, arrangement in zip(facts.phases, arrangements, strict=True)
        if arrangement is not None
        and arrangement.kind == "matrix"
        and arrangement.slots
        and arrangement.across == 1
    }
    if request.reductions is not None or not request.collectives:
        return facts
    return dataclasses.replace(
        facts,
        phases=tuple(
            dataclasses.replace(
                phase,
                own_loads=phase.row_loads,
                loads=tuple(tile for tile in phase.loads if tile not in phase.row_loads),
                aligned=phase.row_aligned,
            )
            if phase.collective and phase.row_loads and phase.row_aligned in whole
            else phase
            for phase in facts.phases
        ),
    )


def row_owned(facts: GroupFacts, arrangements: Arrangements) -> tuple[GroupFacts, dict[int, int]]:
    """Classes of vectors over rows that only owners of those rows touch, with their slots.

    Obligation for every tile of such a class: it is stored and read at own coordinates of element
    phases of its class, published by a reduction that owners fold, or read at the row of a class
    of fragments. All these fragments have one distribution of rows, so that the four lanes which
    hold a row hold its element of the vector too, each a copy that it computed itself. Returns
    the facts with those reads among the owned ones.
    """
    whole = _whole_rows(facts, arrangements)
    if len(set(whole.values())) != 1:
        return facts, {}
    ((rows, down),) = set(whole.values())
    vectors = {
        tile.aligned
        for tile in facts.tiles
        if tile.aligned >= 0 and tile.row == 0 and tile.elements == rows and not tile.scalar
    } - set(whole)
    for number, tile in enumerate(facts.tiles):
        other = tile.elements != rows or tile.row or tile.placed
        if tile.aligned in vectors and (other or not _by_owners(facts, number, whole)):
            vectors.discard(tile.aligned)
    met = {facts.tiles[t].aligned for phase in facts.phases for t in phase.row_reads}
    vectors &= met
    slots = {aligned: 2 * (rows // 16 // down) for aligned in vectors}

    def owned(phase: PhaseFacts) -> PhaseFacts:
        moved = tuple(t for t in phase.row_reads if facts.tiles[t].aligned in vectors)
        if not moved:
            return phase
        rest = tuple(tile for tile in phase.loads if tile not in moved)
        return dataclasses.replace(phase, own_loads=(*phase.own_loads, *moved), loads=rest)

    return dataclasses.replace(facts, phases=tuple(map(owned, facts.phases))), slots


def factor_owned(
    facts: GroupFacts, arrangements: Arrangements
) -> tuple[GroupFacts, tuple[int, ...]]:
    """Products whose first factor is read from the registers of those who own it.

    Two neighbouring fragments of a result hold, lane by lane and slot by slot, what a fragment of
    a first factor must: (m16n8, m16n8) is m16k16. So it suffices that both products give a SIMD
    group the same whole rows. Returns the facts with those reads among the owned ones, and the
    numbers of the products.
    """
    whole = _whole_rows(facts, arrangements)
    found: list[int] = []
    phases = list(facts.phases)
    for number, (phase, arrangement) in enumerate(zip(facts.phases, arrangements, strict=True)):
        if phase.first_factor < 0 or phase.aligned not in whole or arrangement is None:
            continue
        tile = facts.tiles[phase.first_factor]
        of = next((p for p in facts.phases if p.aligned == tile.aligned and p.rows), None)
        same = tile.aligned in whole and whole[tile.aligned] == whole[phase.aligned]
        placed = tile.placed or tile.elements != phase.rows * phase.depth
        if not same or of is None or of.columns != phase.depth or placed:
            continue
        rest = tuple(t for t in phase.loads if t != phase.first_factor)
        phases[number] = dataclasses.replace(
            phase, loads=rest, own_loads=(*phase.own_loads, phase.first_factor)
        )
        found.append(number)
    return dataclasses.replace(facts, phases=tuple(phases)), tuple(found)


def _by_owners(facts: GroupFacts, tile: int, whole: dict[int, tuple[int, int]]) -> bool:
    """Whether every phase that touches a vector is one that owners of its rows run."""
    for phase in facts.phases:
        folds = phase.kind is PhaseKind.reduction and phase.aligned in whole
        fragments = phase.aligned in whole and phase.kind is not PhaseKind.product
        at_row = tile in phase.row_reads and (fragments or folds)
        if tile in phase.loads and not at_row:
            return False
        if phase.store == tile and phase.kind is PhaseKind.reduction and not folds:
            return False
        if phase.store == tile and phase.kind is PhaseKind.product:
            return False
    return True

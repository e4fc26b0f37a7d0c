"""Reductions whose outputs lie side by side: threads share out columns and slices of the rows.

    lane = thread % L     slice = thread // L     outputs V * lane .. V * lane + V - 1
    rows slice, slice + R, slice + 2 R, ..

A thread folds its rows for V neighbouring outputs; R slices of an output are combined through
shared memory by one thread. Where there are at least as many vectors of outputs as threads, R = 1
and the threads take them in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.plan.group_facts import GroupFacts, PhaseFacts, TileFacts

__all__ = ["BATCH_ROWS", "ColumnShare", "column_share", "partial_tiles", "shares_of"]

BATCH_ROWS = 4  # rows that a thread loads before it folds the first of them


@dataclass(frozen=True)
class ColumnShare:
    """How phase ``phase`` is shared out: V = ``vector``, L = ``lanes``, R = ``slices``.

    Its R x outputs partial results stand at ``offset`` of shared memory; none where R is 1.
    """

    phase: int
    vector: int
    lanes: int
    slices: int
    offset: int = -1

    @property
    def fenced(self) -> bool:
        """Whether a fence stands between the slices' results and their combination."""
        return self.slices > 1


def column_share(number: int, phase: PhaseFacts, threads: int) -> ColumnShare | None:
    """The share of a reduction, or None where its outputs do not lie side by side."""
    if not phase.adjacent or not phase.any_order:
        return None
    lanes = phase.count // phase.adjacent
    slices = min(max(1, threads // lanes), phase.depth)
    return ColumnShare(number, phase.adjacent, lanes, slices)


def shares_of(
    facts: GroupFacts, realizations: tuple[str, ...], threads: int
) -> tuple[ColumnShare, ...]:
    """The shares of all phases that are realized so."""
    found = [
        column_share(number, phase, threads)
        for number, phase in enumerate(facts.phases)
        if realizations[number] == "columns"
    ]
    return tuple(share for share in found if share is not None)


def partial_tiles(facts: GroupFacts, shares: tuple[ColumnShare, ...]) -> dict[int, TileFacts]:
    """The partial results of each fenced share as a tile of its phase, by phase."""
    return {
        share.phase: TileFacts("partial", share.slices * facts.phases[share.phase].count, 4)
        for share in shares
        if share.fenced
    }

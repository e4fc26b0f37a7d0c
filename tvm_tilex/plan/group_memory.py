"""Where the tiles of a group stand, how long they live, and where fences are needed.

Tiles that no two phases need at one time share memory. Phases are numbered in program order; a
loop is an interval of numbers. A tile lives from its first to its last access; an access inside a
loop that the tile also outlives, or reads before it is written there, stretches over the whole
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tvm_tilex.plan.group_facts import GroupFacts, TileFacts
from tvm_tilex.plan.group_products import Arrangement

__all__ = [
    "ALIGNMENT",
    "Touch",
    "fences",
    "lifetimes",
    "offsets",
    "paddings",
    "version_bytes",
]

ALIGNMENT = 16


@dataclass(frozen=True)
class Touch:
    """What a phase reads and writes of shared memory: (tile, version) pairs.

    A tile with two versions is read as version 0, the current one, and written as version 1, the
    next iteration's; the end of the loop exchanges them.
    """

    reads: frozenset[tuple[int, int]]
    writes: frozenset[tuple[int, int]]


def lifetimes(facts: GroupFacts, touches: tuple[Touch, ...]) -> dict[int, tuple[int, int]]:
    """First and last phase of each tile that stands in shared memory."""
    used: dict[int, list[tuple[int, bool]]] = {}
    for number, touch in enumerate(touches):
        for tile, _ in sorted(touch.reads):
            used.setdefault(tile, []).append((number, False))
        for tile, _ in sorted(touch.writes):
            used.setdefault(tile, []).append((number, True))
    versioned = {tile for touch in touches for tile, version in touch.writes if version}
    found = {}
    for tile, accesses in used.items():
        first, last = accesses[0][0], accesses[-1][0]
        for loop in facts.loops:
            inside = [a for a in accesses if loop.first <= a[0] < loop.end]
            if not inside:
                continue
            carried = not inside[0][1] or tile in versioned
            if carried or len(inside) < len(accesses):
                first, last = min(first, loop.first), max(last, loop.end - 1)
        found[tile] = (first, last)
    return found


def offsets(sizes: dict[int, int], lives: dict[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Byte offset of each tile and the bytes in all: largest first, each as low as it fits."""
    placed: dict[int, int] = {}
    for tile in sorted(lives, key=lambda t: (-sizes[t], t)):
        at = 0
        clashing = sorted(
            (placed[other], placed[other] + sizes[other])
            for other in placed
            if lives[other][0] <= lives[tile][1] and lives[tile][0] <= lives[other][1]
        )
        for begin, end in clashing:
            if at + sizes[tile] <= begin:
                break
            at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
        placed[tile] = at
    return placed, max((placed[tile] + sizes[tile] for tile in placed), default=0)


State = tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]
_EMPTY: State = (frozenset(), frozenset())


def version_bytes(tile: TileFacts, padding: int) -> int:
    """Bytes of one version of a tile whose rows are ``padding`` elements apart."""
    rows = tile.elements // tile.row if tile.row else 1
    size = (tile.elements + rows * padding) * tile.item_bytes
    return -(-size // ALIGNMENT) * ALIGNMENT


def paddings(
    facts: GroupFacts,
    realizations: tuple[str, ...],
    arrangements: tuple[Arrangement | None, ...],
) -> dict[int, int]:
    """Elements after each row, so that lanes of a SIMD group hit different memory banks.

    16 bytes where fragments of 16-bit factors are loaded, 8 elements where fragments of results
    are stored, one where the lanes of a collective read down a column of an even width.
    """
    found: dict[int, int] = {}
    fragments = set()
    for phase, arrangement in zip(facts.phases, arrangements, strict=True):
        if arrangement is not None and arrangement.kind == "matrix" and arrangement.slots:
            fragments.add(phase.aligned)
            found |= {tile: 8 for tile in phase.loads if facts.tiles[tile].row}
    for phase, realization in zip(facts.phases, realizations, strict=True):
        for tile in phase.loads:
            known = facts.tiles[tile]
            if not known.row or tile in found:
                continue
            if known.aligned in fragments:
                found[tile] = 8
            elif realization == "collective" and phase.stride > 1 and known.row % 2 == 0:
                found[tile] = 1
    return found


def fences(
    facts: GroupFacts,
    touches: tuple[Touch, ...],
    overlap: Callable[[int, int], bool],
    *,
    asynchronous: bool = False,
) -> frozenset[int]:
    """Numbers of the phases in front of which a fence stands; -1 - n is in front of loop n.

    A fence separates a phase from the earlier ones, and from those of the iteration before, whose
    writes it reads, or whose reads and writes it overwrites. A loop fills its tiles of two
    versions once before it begins, as a phase of its own; ``asynchronous`` says that what an
    iteration copies ahead arrives at its end. ``overlap`` says whether two tiles share memory.
    Nothing is assumed about which thread touches what.
    """
    needed: set[int] = set()

    def clash(a: Iterable[tuple[int, int]], b: Iterable[tuple[int, int]]) -> bool:
        other = tuple(b)
        return any(x == y or (x[0] != y[0] and overlap(x[0], y[0])) for x in a for y in other)

    def run(begin: int, end: int, state: State, depth: int) -> State:
        number = begin
        while number < end:
            loop = _loop_at(facts, number, depth)
            if loop is not None:
                state = iterate(loop, state, depth)
                number = facts.loops[loop].end
                continue
            state = step(number, state)
            number += 1
        return state

    def step(number: int, state: State) -> State:
        reads, writes = state
        touch = touches[number]
        conflict = clash(touch.reads, writes) or clash(touch.writes, reads | writes)
        if conflict:
            needed.add(number)
        if conflict or number in needed:
            reads, writes = _EMPTY
        return reads | touch.reads, writes | touch.writes

    versioned = {tile for touch in touches for tile, version in touch.writes if version}

    def filled_by(loop: int) -> frozenset[tuple[int, int]]:
        return frozenset(
            (phase.store, 0)
            for phase in facts.phases
            if phase.store in versioned and phase.loops[-1:] == (loop,)
        )

    def enter(loop: int, state: State) -> State:
        """Fill the loop's tiles of two versions."""
        filled = filled_by(loop)
        reads, writes = state
        if clash(filled, reads | writes):
            needed.add(-1 - loop)
        if -1 - loop in needed:
            reads, writes = _EMPTY
        return reads, writes | filled

    def iterate(loop: int, state: State, depth: int) -> State:
        facts_of = facts.loops[loop]
        state = enter(loop, state)
        known = entries.get(loop, _EMPTY)
        left = run(facts_of.first, facts_of.end, _join(state, known), depth + 1)
        if asynchronous:
            left = left[0], left[1] | {(tile, 1) for tile, _ in filled_by(loop)}
        entries[loop] = _join(known, _join(state, _exchange(left, versioned)))
        return _join(state, left)  # the loop may not run at all

    # What may be pending where a loop's body begins, grown until an iteration adds nothing: only
    # then are the fences of one run those of every iteration.
    entries: dict[int, State] = {}
    while True:
        before = dict(entries)
        needed.clear()
        run(0, len(facts.phases), _EMPTY, 0)
        if entries == before:
            return frozenset(needed)


def _join(a: State, b: State) -> State:
    return a[0] | b[0], a[1] | b[1]


def _exchange(state: State, versioned: set[int]) -> State:
    """The next iteration's versions become the current ones, and the other way round."""

    def exchanged(part: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
        return frozenset((t, 1 - v) if t in versioned else (t, v) for t, v in part)

    return exchanged(state[0]), exchanged(state[1])


def _loop_at(facts: GroupFacts, number: int, depth: int) -> int | None:
    """The loop at this nesting depth that begins with phase ``number``."""
    loops = facts.phases[number].loops
    return loops[depth] if len(loops) > depth else None

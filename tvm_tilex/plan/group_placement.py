"""Where the tiles of a group stand: in registers of their owners, in shared memory, in both."""

from __future__ import annotations

from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseKind
from tvm_tilex.plan.group_memory import Touch
from tvm_tilex.plan.group_products import Arrangement
from tvm_tilex.plan.group_registers import live_words, register_words

__all__ = ["class_slots", "doubled_tiles", "private_slots", "private_words", "shared_touches"]


def class_slots(
    facts: GroupFacts, arrangements: tuple[Arrangement | None, ...], threads: int
) -> dict[int, int]:
    """Private elements of a thread for the tiles of each aligned class."""
    found = {
        tile.aligned: -(-tile.elements // threads) for tile in facts.tiles if tile.aligned >= 0
    }
    for phase, arrangement in zip(facts.phases, arrangements, strict=True):
        if arrangement is not None and phase.aligned >= 0 and arrangement.slots:
            found[phase.aligned] = arrangement.slots
    return found


def private_slots(
    facts: GroupFacts,
    realizations: tuple[str, ...],
    arrangements: tuple[Arrangement | None, ...],
    slots: dict[int, int],
    threads: int,
    request: GroupRequest,
    rows: frozenset[int],
    factors: frozenset[int],
) -> dict[int, int] | str:
    """Private slots of each tile that its owners read, or why they do not fit."""
    shared_results = {
        phase.store
        for phase, arrangement in zip(facts.phases, arrangements, strict=True)
        if arrangement is not None and arrangement.kind == "matrix" and not arrangement.slots
    }
    published = {
        p.store
        for p in facts.phases
        if p.kind is PhaseKind.reduction
        and p.store >= 0
        and facts.tiles[p.store].aligned not in rows
    }
    must = {n for n, tile in enumerate(facts.tiles) if tile.aligned in rows} | factors
    wanted = {tile: slots[facts.tiles[tile].aligned] for tile in must}
    for number, phase in enumerate(facts.phases):
        for tile in phase.own_loads:
            known = facts.tiles[tile]
            if known.scalar or known.placed or tile in shared_results | published:
                continue
            wanted[tile] = slots[known.aligned]
        if realizations[number] in ("fma", "matrix") and phase.store not in shared_results:
            wanted[phase.store] = slots[phase.aligned]
            must.add(phase.store)
    for tile, known in enumerate(facts.tiles):
        if known.private and not known.scalar:
            exposed = any(tile in phase.loads for phase in facts.phases)
            if exposed or tile in shared_results | published:
                return f"{known.name} is placed in private memory, but read by other threads"
            must.add(tile)
            wanted.setdefault(tile, slots.get(known.aligned, known.elements))
    words = private_words(facts, wanted)
    most = register_words(threads, request.kind, request.max_private)
    needed = live_words(facts, {tile: words[tile] for tile in must})
    if needed > most:
        return f"{needed} private scalars a thread exceed {most}"
    if live_words(facts, words) <= most:
        return wanted
    kept = set(must)
    for tile in sorted(set(wanted) - must, key=lambda t: (wanted[t], t)):
        if live_words(facts, {t: words[t] for t in (*kept, tile)}) <= most:
            kept.add(tile)
    return {tile: slots for tile, slots in wanted.items() if tile in kept}


def private_words(facts: GroupFacts, slots: dict[int, int]) -> dict[int, int]:
    """Registers of a thread for each tile by its private slots."""
    return {tile: -(-count * facts.tiles[tile].item_bytes // 4) for tile, count in slots.items()}


def shared_touches(
    facts: GroupFacts,
    realizations: tuple[str, ...],
    private: dict[int, int],
    doubled: frozenset[int],
) -> tuple[Touch, ...]:
    """What each phase reads and writes of shared memory."""
    exposed = {tile for phase in facts.phases for tile in phase.loads}
    for phase in facts.phases:
        exposed.update(t for t in phase.own_loads if t not in private)
    for number, tile in enumerate(facts.tiles):
        if tile.placed:
            exposed.add(number)
        if tile.scalar:
            exposed.discard(number)
    found = []
    for phase in facts.phases:
        reads = {tile for tile in phase.loads if tile in exposed}
        reads |= {tile for tile in phase.own_loads if tile in exposed and tile not in private}
        writes = {phase.store} & exposed
        found.append(
            Touch(
                frozenset((tile, 0) for tile in reads),
                frozenset((tile, int(tile in doubled)) for tile in writes),
            )
        )
    return tuple(found)


def doubled_tiles(facts: GroupFacts, touches: tuple[Touch, ...]) -> frozenset[int]:
    """Tiles that may be filled one iteration ahead.

    One phase stores the tile, straight in a loop, from views that nothing writes; every other
    access is in the same loop, after it.
    """
    found: set[int] = set()
    for number, phase in enumerate(facts.phases):
        if not phase.prefetchable or not phase.loops or phase.store < 0:
            continue
        loop = facts.loops[phase.loops[-1]]
        touching = [
            n
            for n, touch in enumerate(touches)
            if any(phase.store == tile for tile, _ in touch.reads | touch.writes)
        ]
        stores = [n for n in touching if facts.phases[n].store == phase.store]
        inside = all(number <= n < loop.end for n in touching)
        if stores == [number] and inside and len(touching) > 1 and loop.iterations > 1:
            found.add(phase.store)
    return frozenset(found)

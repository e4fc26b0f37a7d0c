"""How many private words a thread of a group holds at once.

A tile in registers is live from a phase that stores it whole to the last phase that reads that
value, around the loops between them. An element of a phase's result may take the register of the
element that it is computed from, so that what counts is what is live between two phases.
"""

from __future__ import annotations

from tvm_tilex.plan.group_facts import GroupFacts

__all__ = ["live_words", "register_words"]

# Of the 65,536 registers of a CUDA multiprocessor, at most 255 a thread (CUDA C++ Programming
# Guide, specifications per compute capability); addresses and fragments of factors take some.
_FILE, _MOST, _OTHER = 65536, 255, 40


def register_words(threads: int, kind: str, bound: int) -> int:
    """Words that the private tiles of one thread may hold at once, at most ``bound``."""
    if kind != "cuda":
        return bound
    return min(bound, max(16, min(_FILE // threads, _MOST) - _OTHER))


def live_words(facts: GroupFacts, words: dict[int, int]) -> int:
    """The most words of the private tiles ``words`` (by number) that are live at once."""
    count = len(facts.phases)
    reads = [frozenset((*p.own_loads, *p.loads)) & words.keys() for p in facts.phases]
    stores = [frozenset((p.store,)) & words.keys() for p in facts.phases]
    following: list[set[int]] = [{n + 1} for n in range(count)]
    for loop in facts.loops:
        following[loop.end - 1].add(loop.first)
        if loop.first:
            following[loop.first - 1].add(loop.end)  # it may run no iteration
    before: list[frozenset[int]] = [frozenset()] * (count + 1)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(count)):
            after = frozenset[int]().union(*(before[n] for n in following[number]))
            found = reads[number] | (after - stores[number])
            changed |= found != before[number]
            before[number] = found
    # What is stored and never read holds its words while it is stored.
    held = [
        (before[n], frozenset[int]().union(*(before[m] for m in following[n])) | stores[n])
        for n in range(count)
    ]
    return max((sum(words[t] for t in live) for pair in held for live in pair), default=0)

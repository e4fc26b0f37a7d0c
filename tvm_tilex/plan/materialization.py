"""Whether a processor keeps cheap tiles that several consumers read, or computes them again.

Keeping a tile costs a store of it and a load by each consumer; computing it again costs a load of
each of its inputs by each consumer. What passes between a core and its caches decides: arithmetic
hides behind loads, and where a row is too wide for a cache its inputs are too wide as well
(``scripts/benchmark/cpu_materialization.py`` measures both, docs/performance.md has the figures).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MaterializationChoice", "MaterializationFacts", "choose_materialization"]


@dataclass(frozen=True)
class MaterializationFacts:
    """Bytes that one program moves for tiles with more than one element.

    ``kept`` if every tile with several consumers is kept: loads of views and of kept tiles, and
    stores of these; ``again`` the same if only those with a transcendental operation are.
    """

    kept: int
    again: int


@dataclass(frozen=True)
class MaterializationChoice:
    """Whether every shared tile is kept, and why."""

    keep: bool
    reason: str


def choose_materialization(facts: MaterializationFacts) -> MaterializationChoice:
    """Keep every shared tile where that moves fewer bytes; level means computing again."""
    keep = facts.kept < facts.again
    if facts.kept == facts.again:
        return MaterializationChoice(keep, f"moves {_size(facts.kept)} a program either way")
    less, more = sorted((facts.kept, facts.again))
    return MaterializationChoice(keep, f"moves {_size(less)} a program instead of {_size(more)}")


def _size(count: int) -> str:
    return f"{count / 1024:.1f} KiB" if count >= 1024 else f"{count} bytes"

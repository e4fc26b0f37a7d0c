"""What a planner knows of a cooperative group: its phases, tiles and loops, as integers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["GroupFacts", "GroupRequest", "LoopFacts", "PhaseFacts", "PhaseKind", "TileFacts"]


class PhaseKind(enum.Enum):
    """What a phase does with its elements."""

    elements = "elements"
    reduction = "reduction"
    product = "product"


@dataclass(frozen=True)
class TileFacts:
    """One tile: elements, bytes of one, whether each thread can hold it all (``scalar``).

    ``aligned`` numbers the class of tiles that phases access together at their own coordinates;
    -1 is none. ``placed`` and ``private`` are a person's placement. ``row`` is the length of a
    row of a two-dimensional tile, else 0.
    """

    name: str
    elements: int
    item_bytes: int
    scalar: bool = False
    placed: bool = False
    private: bool = False
    aligned: int = -1
    row: int = 0


@dataclass(frozen=True)
class PhaseFacts:
    """One phase.

    ``count`` elements or outputs; ``depth`` elements reduced or products summed for each;
    ``loops`` the numbers of the loops around it, outermost first. ``own_loads`` and ``loads`` are
    the tiles read at the phase's own coordinates and otherwise; ``store`` the tile written, -1 for
    a view. ``collective`` says that a reduction may be combined across lanes, else ``reason``.
    ``global_loads`` are view elements read for one element, of
    ``view_bytes`` in all. A plain matrix product has
    ``rows`` x ``columns`` results from factors of the element type ``factor``. ``prefetchable``:
    it reads views that nothing writes, and no tile; a copy moves ``vector`` elements at once.
    A reduction may read ``row_loads``, tiles of the class ``row_aligned``, at its output and its
    reduced coordinate, so that an owner of rows can fold what it owns. ``row_reads`` are tiles of
    one dimension read at the row of the phase's class, or of ``row_aligned``. ``first_factor``
    is the first factor of a plain product where its rows are the product's.
    ``stride`` is the distance in memory of two elements that are reduced one after the other.
    ``adjacent`` outputs read neighbouring elements that one thread may load at once, 0 where
    neighbouring outputs do not read neighbouring elements; ``any_order`` says that a reduction's
    elements may be folded in any order.
    """

    kind: PhaseKind
    count: int
    depth: int = 1
    loops: tuple[int, ...] = ()
    own_loads: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    store: int = -1
    aligned: int = -1
    collective: bool = False
    reason: str = ""
    global_loads: int = 0
    operations: int = 1
    rows: int = 0
    columns: int = 0
    factor: str = ""
    prefetchable: bool = False
    vector: int = 1
    row_loads: tuple[int, ...] = ()
    row_aligned: int = -1
    row_reads: tuple[int, ...] = ()
    first_factor: int = -1
    stride: int = 1
    adjacent: int = 0
    any_order: bool = False
    view_bytes: int = 0

    @property
    def half(self) -> bool:
        """Whether a product's factors have 16 bits."""
        return self.factor in ("float16", "bfloat16")


@dataclass(frozen=True)
class LoopFacts:
    """A pipeline: its iterations (the most, where it may stop earlier), its first phase and end."""

    iterations: int
    first: int
    end: int
    parent: int = -1


@dataclass(frozen=True)
class GroupFacts:
    """A group: phases in program order, tiles, loops, and how many programs run.

    ``independent`` is the number of elements of the group's domain.
    """

    programs: int
    independent: int
    phases: tuple[PhaseFacts, ...]
    tiles: tuple[TileFacts, ...]
    loops: tuple[LoopFacts, ...]

    def repeats(self, phase: PhaseFacts) -> int:
        """How often a program runs the phase."""
        count = 1
        for loop in phase.loops:
            count *= self.loops[loop].iterations
        return count


@dataclass(frozen=True)
class GroupRequest:
    """Explicit choices. ``threads`` 0 is automatic; the others None.

    ``collectives`` False keeps every reduction's ordered realization. ``reductions`` may demand
    ``"collective"`` or ``"serial"``, ``products`` ``"scalar"``, ``"fma"`` or ``"matrix"``: what a
    phase does not permit keeps its own realization. ``reductions`` may also be ``"columns"``.
    ``copies`` says that a CUDA device copies into shared memory by itself.
    """

    threads: int = 0
    collectives: bool = True
    reductions: str | None = None
    products: str | None = None
    kind: str = "cuda"
    copies: bool = True
    double_buffer: bool = True
    max_private: int = 256

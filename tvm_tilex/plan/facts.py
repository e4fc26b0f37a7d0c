"""What a planner knows of a program, of a target and of an explicit request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ProgramFacts", "Request", "Stripe", "TargetFacts"]

# What many programs are taken to be where their number is known at launch: enough that a GPU is
# full for several waves, as batches of tokens are.
TYPICAL_PROGRAMS = 4096


class Stripe(NamedTuple):
    """Elements of a tile that workers divide among their private storage.

    Each has ``bytes`` bytes of the type named ``dtype``; ``view`` says that they are elements of a
    view as they stand in memory.
    """

    elements: int
    bytes: int = 4
    view: bool = False
    dtype: str = "float32"


@dataclass(frozen=True)
class ProgramFacts:
    """Facts of one root loop, proved by analysis.

    ``programs`` is P, or the most where the count is known at launch, and ``least_programs`` then
    the least; None where it is P.
    ``reductions`` N_r and ``kinds`` the combiner of each collective reduction;
    ``domains`` I_d of each distributed element domain; ``stripes`` the element count of each
    local buffer that becomes a worker-private stripe. ``unit_enclosing`` says that no reduction
    stands in a repeated loop, without which partials of two iterations could race;
    ``reads_what_it_writes`` that some global buffer is both loaded and stored.
    ``index_limit`` is the largest value of the program's index type.
    ``reads`` and ``writes`` count global elements that a program loads and stores, ``bytes`` their
    bytes, of which ``cached_bytes``, of ``common_reads`` elements, are the same for every program
    and ``repeated_bytes`` those of rows that it has loaded before.
    ``vector_width`` is the most consecutive elements that can move as one vector: a power of two
    that divides every width and fits 16 bytes of the narrowest storage, at most 8.
    ``peeled_width`` is how many could where packs began at a row's first aligned element, 1 where
    that is not known to help: element (p, e) of each tensor that rows are moved from or to stands
    ``row_pitch`` * p + ``row_offset`` + e elements, modulo 8, behind its base.
    ``live_stripes`` are the stripes that hold a value at the same time, one entry for each set of
    them; ``views`` those that hold elements of a view; ``repartitions`` the element counts of the
    tiles that the source places anew, each also among ``domains`` and ``stripes``, which price its
    storing and its storage. ``instructions`` estimates the arithmetic of a program.
    ``late_reads`` are the global elements that are loaded after the first reduction; ``rescaled``
    counts the sums that are published together with their maximum.
    """

    programs: int
    reductions: tuple[int, ...]
    kinds: tuple[str, ...]
    domains: tuple[int, ...]
    stripes: tuple[int, ...]
    unit_enclosing: bool = True
    reads: int = 0
    writes: int = 0
    reads_what_it_writes: bool = False
    index_limit: int = 2**31 - 1
    vector_width: int = 1
    peeled_width: int = 1
    row_pitch: int = 0
    row_offset: int = 0
    repartitions: tuple[int, ...] = ()
    live_stripes: tuple[tuple[Stripe, ...], ...] = ()
    views: tuple[Stripe, ...] = ()
    instructions: int = 0
    late_reads: int = 0
    bytes: int = 0
    cached_bytes: int = 0
    common_reads: int = 0
    repeated_bytes: int = 0
    rescaled: int = 0
    least_programs: int | None = None

    @property
    def exchanges(self) -> int:
        """How often the SIMD groups of a program tell each other their partial results."""
        return len(self.reductions) - self.rescaled

    @property
    def longest(self) -> int:
        """The most elements of a domain or a reduction."""
        return max((*self.domains, *self.reductions), default=0)

    @property
    def typical_programs(self) -> int:
        """The number of programs that a cost is judged for; P where it is known."""
        if self.least_programs in (None, self.programs):
            return self.programs
        return min(self.programs, max(self.least_programs or 0, TYPICAL_PROGRAMS))

    def fills(self, packed: int) -> bool:
        """Whether groups of ``packed`` programs are full for certain."""
        known = self.least_programs in (None, self.programs)
        return packed == 1 or (known and self.programs % packed == 0)


@dataclass(frozen=True)
class TargetFacts:
    """Limits of a device: threads of a group, shared bytes of a group, lanes of a SIMD group.

    ``lane_elements`` are the V that automatic planning considers; ``cluster_blocks`` the most
    threadgroups that can serve one program and exchange partials, 1 where none can.
    ``reuses_stripes`` says that the device compiler keeps stripes in registers and gives those of a
    dead one to another, so that only live ones count, and that it packs narrow elements.
    ``staging_bytes`` is the shared memory that a group may ask for at its launch, 0 where none;
    ``regular_groups`` narrows what automatic planning considers. ``programs_per_subgroup`` are the
    R that collectives allow: 1 alone where they reduce whole SIMD groups. ``dependent_launches``
    says that a kernel can be launched before the one that it follows has ended.
    """

    max_threads: int
    shared_bytes: int
    lanes: int = 32
    lane_elements: tuple[int, ...] = (1,)
    cluster_blocks: int = 1
    reuses_stripes: bool = False
    staging_bytes: int = 0
    regular_groups: bool = False
    programs_per_subgroup: tuple[int, ...] = (1,)
    dependent_launches: bool = False


@dataclass(frozen=True)
class Request:
    """Explicit choices and bounds. 0 is automatic; anything else is met exactly or refused.

    ``staged`` asks for stripes of views in shared memory, or for none, ``peeled`` for packs that
    begin at a row's first aligned element, or for none; None is automatic. So is ``dependent``,
    whether the kernel is launched before the one that it follows has ended: no part of the map.
    """

    threads: int = 0
    programs_per_group: int = 0
    lane_elements: int = 0
    blocks_per_program: int = 0
    programs_per_subgroup: int = 0
    staged: bool | None = None
    peeled: bool | None = None
    dependent: bool | None = None
    max_striped_scalars: int = 64
    max_candidates: int = 256

    @property
    def explicit(self) -> bool:
        """Whether anything is asked for exactly."""
        return bool(
            self.threads
            or self.programs_per_group
            or self.lane_elements
            or self.blocks_per_program
            or self.programs_per_subgroup
            or self.staged
            or self.peeled
        )

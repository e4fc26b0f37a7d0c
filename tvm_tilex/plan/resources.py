"""What a candidate costs in threads, shared bytes and private scalars (spec sections 4 to 6).

W = lanes * S * C / R workers serve a program; a worker owns V consecutive elements of each chunk.

Rows of a width that V does not divide begin at addresses that no vector of V elements may begin at.
Where they are *peeled*, the packs of V elements begin at each row's first aligned element; the
elements before and after them belong to one worker each (as vectorizing compilers peel loops for
alignment). There are floor(N/V) - 1 packs wherever a row begins, and so N mod V + V such elements.
"""

from __future__ import annotations

from typing import NamedTuple

from tvm_tilex.plan.facts import ProgramFacts, Stripe, TargetFacts

__all__ = [
    "SCALAR_BYTES",
    "VECTOR_ELEMENTS",
    "MapShape",
    "largest_coordinate",
    "peeled_packs",
    "peels",
    "private_scalars",
    "rounds",
    "shared_bytes",
    "staged_bytes",
    "stripe_length",
    "stripe_packs",
    "stripe_scalars",
]

SCALAR_BYTES = 4
MAILBOX_BYTES = 8  # a transaction barrier
VECTOR_ELEMENTS = 8  # consecutive elements that a worker can own, at most


class MapShape(NamedTuple):
    """S, Q, V and C of a map, whether stripes of views stand in shared memory, R, and peeling.

    SIMD groups of a program in a threadgroup, programs of a threadgroup, consecutive elements of a
    worker, threadgroups that share a program, programs that share a SIMD group (S = C = 1; Q
    counts all of them and is a multiple of R), and whether packs begin at a row's first aligned
    element.
    """

    subgroups: int
    programs_per_group: int
    lane_elements: int
    blocks: int = 1
    staged: bool = False
    programs_per_subgroup: int = 1
    peeled: bool = False

    def workers(self, lanes: int) -> int:
        """W, the workers of one program."""
        return lanes * self.subgroups * self.blocks // self.programs_per_subgroup

    def threads(self, lanes: int) -> int:
        """The threads of one threadgroup."""
        return lanes * self.subgroups * self.programs_per_group // self.programs_per_subgroup

    @property
    def independent(self) -> bool:
        """Whether a program's only SIMD group needs no other."""
        return self.subgroups * self.blocks == 1

    @property
    def whole_subgroup(self) -> bool:
        """Whether one SIMD group serves a program and no other: S = R = 1."""
        return self.subgroups == self.programs_per_subgroup == 1


def peels(elements: int, lane_elements: int) -> bool:
    """Whether rows have a whole pack wherever they begin; shorter ones are not peeled."""
    return peeled_packs(elements, lane_elements) > 0


def peeled_packs(elements: int, lane_elements: int) -> int:
    """Whole packs of a peeled row, one less than fit.

    So that 2V elements from the beginning of the last pack's block on are inside the row.
    """
    return elements // lane_elements - 1


def stripe_length(elements: int, workers: int, lane_elements: int, *, peeled: bool = False) -> int:
    """The most elements one worker owns: floor(N/(W*V))*V + min(N mod (W*V), V).

    Of a peeled row, ceil((floor(N/V) - 1) / W) * V + 1: its packs, and an element beside them.
    """
    if peeled and peels(elements, lane_elements):
        return -(-peeled_packs(elements, lane_elements) // workers) * lane_elements + 1
    pack = workers * lane_elements
    return elements // pack * lane_elements + min(elements % pack, lane_elements)


def stripe_packs(elements: int, workers: int, lane_elements: int) -> int:
    """Packs of V slots that hold a worker's stripe, the last of them possibly partly used."""
    return -(-elements // (workers * lane_elements))


def stripe_scalars(
    facts: ProgramFacts,
    workers: int,
    lane_elements: int,
    *,
    reused: bool = False,
    staged: bool = False,
    peeled: bool = False,
) -> int:
    """Private scalars of a worker over all stripes, or over the most that live at once.

    A scalar is of 32 bits. Where registers are reused, narrower elements share one. Stripes of
    views that are ``staged`` take none.
    """

    def length(stripe: Stripe) -> int:
        elements = stripe_length(stripe.elements, workers, lane_elements, peeled=peeled)
        return -(-elements * stripe.bytes // SCALAR_BYTES)

    whole = (tuple(Stripe(count) for count in facts.stripes),)
    together = facts.live_stripes if reused and facts.live_stripes else whole
    return max(
        sum(length(stripe) for stripe in stripes if not (staged and stripe.view))
        for stripes in together
    )


def private_scalars(facts: ProgramFacts, shape: MapShape, target: TargetFacts) -> int:
    """:func:`stripe_scalars` of a candidate."""
    return stripe_scalars(
        facts,
        shape.workers(target.lanes),
        shape.lane_elements,
        reused=target.reuses_stripes,
        staged=shape.staged,
        peeled=shape.peeled,
    )


def shared_bytes(
    facts: ProgramFacts, subgroups: int, programs_per_group: int, blocks: int = 1
) -> int:
    """Bytes of partials: |R| * Q * S * C * 4, and none where one SIMD group serves a program.

    Each threadgroup of a cluster holds the partials of all of its program's, and a mailbox for each
    exchange.
    """
    if subgroups * blocks == 1:
        return 0
    partials = len(facts.reductions) * programs_per_group * subgroups * blocks * SCALAR_BYTES
    return partials + (facts.exchanges * MAILBOX_BYTES if blocks > 1 else 0)


def staged_bytes(facts: ProgramFacts, workers: int, lane_elements: int, threads: int) -> int:
    """Shared bytes of a group whose ``threads`` keep their stripes of views there.

    A thread has room for whole packs of V elements, so that each of them is aligned.
    """
    return sum(
        stripe_packs(stripe.elements, workers, lane_elements)
        * lane_elements
        * stripe.bytes
        * threads
        for stripe in facts.views
    )


def rounds(facts: ProgramFacts, workers: int, lane_elements: int, *, peeled: bool = False) -> int:
    """Scalar rounds of a worker: each domain and each reduction rounded up on its own."""
    return sum(
        stripe_length(count, workers, lane_elements, peeled=peeled)
        for count in (*facts.domains, *facts.reductions)
    )


def largest_coordinate(facts: ProgramFacts, shape: MapShape, lanes: int) -> int:
    """The largest element or program coordinate that is computed before its bound is tested."""
    packed = shape.programs_per_group
    pack = shape.workers(lanes) * shape.lane_elements
    counts = (*facts.domains, *facts.reductions)
    rounded = max((-(-count // pack) * pack for count in counts), default=1)
    rounded += shape.lane_elements * shape.peeled  # of elements before the first pack
    return max(rounded, -(-facts.programs // packed) * packed * shape.blocks) - 1

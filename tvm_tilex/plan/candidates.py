"""Enumerates (S, Q, V, C, R, peeling) and rejects what resources or a request rule out.

In a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
from tvm_tilex.plan.resources import (
    VECTOR_ELEMENTS,
    MapShape,
    largest_coordinate,
    private_scalars,
    shared_bytes,
    staged_bytes,
    stripe_length,
)

__all__ = ["MAX_GRID", "enumerate_shapes", "rejection", "replays"]

# One lane reads each subgroup's partial in the second collective (spec section 4).
MAX_SUBGROUPS = 32
MAX_AUTOMATIC_PACKING = 8
# Widths worth a whole cluster; between them the last chunk only changes its length.
CLUSTER_SUBGROUPS = (4, 8, 16, 32)
# Fewer elements a threadgroup are not worth a cluster.
CLUSTER_ELEMENTS = 4096
# Shorter rows and stripes are better off in registers, and so is what no vector moves.
STAGED_ELEMENTS, STAGED_BYTES = 4096, 16
STAGED_SCALARS = 16
# More elements a worker are not worth sharing a SIMD group.
SHARING_ELEMENTS = 32
# A launch extent is a 32-bit integer.
MAX_GRID = 2**31 - 1


def enumerate_shapes(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[MapShape]:
    """Every (S, Q, V, C, R) of the family that the request selects: C = 1 first, smaller S first.

    Automatic: S = 1 with Q up to min(P, 8, threads/32), and every wider S with Q = 1. An exact
    thread count T without Q fixes S = T/32; with Q it fixes S = T/(32*Q). An explicit Q is
    neither clamped by P nor by 8. Where the target has clusters and neither threads nor Q are
    stated, C = 2, 4, ... threadgroups a program are considered too, with Q = 1; an exact C
    replaces them all. Where the target has shared memory to ask for, each of them also with the
    stripes of views there. A target with ``regular_groups`` has fewer candidates of its own, those
    that proved fast: S a power of two or a divisor of every width's chunks, Q a power of two up to
    8/S, and V either 1 or the vector width, or, from a row's first aligned element on, the peeled
    width. Where collectives of a part of a SIMD group exist and
    rows are narrow, R programs share one, up to eight of which are in a threadgroup; an exact R
    replaces all of the above, with S = 1, and then an exact T without Q fixes Q = R*T/32.
    """
    for shape in _shapes(facts, target, request):
        if request.staged is not True:
            yield shape
        if request.staged or (request.staged is None and _stages(shape, facts, target)):
            yield shape._replace(staged=True)


def _stages(shape: MapShape, facts: ProgramFacts, target: TargetFacts) -> bool:
    """Whether staging is worth a candidate: registers would hold a long part of a view."""
    if not target.staging_bytes or shape.programs_per_group > 1 or shape.peeled:
        return False
    if any(view.elements < STAGED_ELEMENTS for view in facts.views):
        return False
    if any(view.bytes * shape.lane_elements != STAGED_BYTES for view in facts.views):
        return False
    workers = shape.workers(target.lanes)
    scalars = sum(
        stripe_length(view.elements, workers, shape.lane_elements) * view.bytes // 4
        for view in facts.views
    )
    return scalars >= STAGED_SCALARS


def _shapes(facts: ProgramFacts, target: TargetFacts, request: Request) -> Iterator[MapShape]:
    packs = tuple(_packs(facts, target, request))
    blocks = max(1, request.blocks_per_program)
    for subgroups, packed, sharing in _sharing(facts, target, request):
        for elements, peeled in packs:
            yield MapShape(subgroups, packed, elements, blocks, False, sharing, peeled)
    if request.programs_per_subgroup > 1:
        return
    if blocks == 1:
        for subgroups, packed in _groups(facts, target, request):
            for elements, peeled in packs:
                yield MapShape(subgroups, packed, elements, peeled=peeled)
    for subgroups, packed, blocks in _clusters(facts, target, request):
        for elements, peeled in packs:
            yield MapShape(subgroups, packed, elements, blocks, peeled=peeled)


def _packs(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, bool]]:
    """V, and whether packs of V elements begin at a row's first aligned element."""
    stated = request.lane_elements
    if request.peeled:
        yield stated or facts.peeled_width, True
        return
    for elements in (stated,) if stated else target.lane_elements:
        if stated or not target.regular_groups or elements in (1, facts.vector_width):
            yield elements, False
    wide = facts.peeled_width
    automatic = target.regular_groups and not stated and request.peeled is None
    if automatic and wide > facts.vector_width and facts.longest >= wide * target.lanes:
        yield wide, True


def _sharing(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int, int]]:
    """S, Q and R > 1; S is 1, or what an exact thread count makes of it."""
    asked = request.programs_per_subgroup
    if asked > 1:
        for subgroups, packed in _shared_groups(facts, target, request, asked):
            yield subgroups, packed, asked
        return
    if asked or request.threads or request.blocks_per_program > 1 or request.staged:
        return
    for sharing in target.programs_per_subgroup:
        if sharing == 1 or facts.longest * sharing > SHARING_ELEMENTS * target.lanes:
            continue
        for subgroups, packed in _shared_groups(facts, target, request, sharing):
            if packed <= facts.programs and packed % sharing == 0:
                yield subgroups, packed, sharing


def _shared_groups(
    facts: ProgramFacts, target: TargetFacts, request: Request, sharing: int
) -> Iterator[tuple[int, int]]:
    if request.threads:
        packed = request.programs_per_group or request.threads * sharing // target.lanes
        yield request.threads * sharing // (target.lanes * packed), packed
        return
    if request.programs_per_group:
        yield 1, request.programs_per_group
        return
    subgroups = 1
    while subgroups <= min(MAX_AUTOMATIC_PACKING, target.max_threads // target.lanes):
        if subgroups == 1 or subgroups * sharing <= facts.programs:
            yield 1, subgroups * sharing
        subgroups *= 2


def _clusters(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int, int]]:
    if request.blocks_per_program > 1:
        for subgroups, packed in _groups(facts, target, request):
            if packed == 1 or request.programs_per_group:
                yield subgroups, packed, request.blocks_per_program
        return
    if request.threads or request.programs_per_group or request.blocks_per_program:
        return
    blocks = 2
    while blocks <= target.cluster_blocks:
        wide = not target.regular_groups or facts.longest >= CLUSTER_ELEMENTS * blocks
        for subgroups in CLUSTER_SUBGROUPS if wide else ():
            if subgroups * target.lanes <= target.max_threads:
                yield subgroups, 1, blocks
        blocks *= 2


def _groups(
    facts: ProgramFacts, target: TargetFacts, request: Request
) -> Iterator[tuple[int, int]]:
    widest = min(MAX_SUBGROUPS, target.max_threads // target.lanes)
    if request.threads:
        packed = request.programs_per_group or 1
        yield request.threads // (target.lanes * packed), packed
        return
    if request.programs_per_group:
        for subgroups in range(1, widest + 1):
            yield subgroups, request.programs_per_group
        return
    if target.regular_groups:
        yield from _regular(facts, target, widest)
        return
    packing = min(facts.programs, MAX_AUTOMATIC_PACKING, target.max_threads // target.lanes)
    for packed in range(1, packing + 1):
        yield 1, packed
    for subgroups in range(2, widest + 1):
        yield subgroups, 1


def _regular(facts: ProgramFacts, target: TargetFacts, widest: int) -> Iterator[tuple[int, int]]:
    for subgroups in range(1, widest + 1):
        chunk = target.lanes * subgroups * facts.vector_width
        counts = [count for count in (*facts.domains, *facts.reductions) if count > 1]
        whole = counts and all(count % chunk == 0 for count in counts)
        if not whole and subgroups & (subgroups - 1):
            continue
        packed = 1
        while packed <= min(facts.programs, max(1, MAX_AUTOMATIC_PACKING // subgroups)):
            if subgroups * packed <= widest and (packed == 1 or not subgroups & (subgroups - 1)):
                yield subgroups, packed
            packed *= 2


def replays(shape: MapShape, facts: ProgramFacts) -> bool:
    """Whether inactive programs of the last group may repeat the last valid one (spec 4.3)."""
    return not shape.whole_subgroup and not facts.fills(shape.programs_per_group)


def rejection(
    shape: MapShape, facts: ProgramFacts, target: TargetFacts, request: Request
) -> str | None:
    """Why a candidate is illegal, or None; checked in the order of the specification."""
    subgroups, packed, _, blocks, staged, sharing, _ = shape
    problem = _sharing_problem(shape, target) or _peeling_problem(shape, facts, target)
    if problem is not None:
        return problem
    threads = shape.threads(target.lanes)
    if request.threads and threads != request.threads:
        formula, found = f"{target.lanes}*S*Q", f"Q={packed}"
        if sharing > 1:
            formula, found = f"{formula}/R", f"{found}, R={sharing}"
        return f"threads_per_group={request.threads} is not {formula} for {found} and a whole S"
    if threads > target.max_threads:
        return f"{threads} threads exceed the target's {target.max_threads}"
    if not 1 <= subgroups <= MAX_SUBGROUPS:
        return f"S={subgroups} is outside 1..{MAX_SUBGROUPS}"
    if blocks > max(1, target.cluster_blocks):
        return f"{blocks} threadgroups a program exceed the target's {target.cluster_blocks}"
    if blocks > 1 and packed > 1:
        return f"a program on {blocks} threadgroups leaves no room for Q={packed}"
    needed = shared_bytes(facts, subgroups, packed, blocks)
    if needed > target.shared_bytes:
        return f"{needed} shared bytes exceed the target's {target.shared_bytes}"
    if staged:
        problem = _staging_problem(shape, facts, target, needed)
        if problem is not None:
            return problem
    scalars = private_scalars(facts, shape, target)
    if scalars > request.max_striped_scalars:
        return (
            f"{scalars} striped scalars a worker exceed "
            f"max_reduction_striped_scalars_per_worker={request.max_striped_scalars}"
        )
    if not shape.independent and not facts.unit_enclosing:
        return "a reduction stands in a repeated loop: its partials could race"
    if replays(shape, facts) and facts.reads_what_it_writes:
        return "a packed tail replays the last row, whose elements its owner overwrites"
    groups = -(-facts.programs // packed) * blocks
    if groups > MAX_GRID:
        return f"{groups} threadgroups exceed a 32-bit grid"
    largest = largest_coordinate(facts, shape, target.lanes)
    if largest > facts.index_limit:
        return f"the coordinate {largest} of a bounded tail exceeds the index type"
    return None


def _sharing_problem(shape: MapShape, target: TargetFacts) -> str | None:
    sharing = shape.programs_per_subgroup
    allowed = target.programs_per_subgroup
    if sharing not in allowed:
        whole = "reduce whole SIMD groups" if allowed == (1,) else f"allow R of {allowed}"
        return f"R={sharing} programs a SIMD group: the target's collectives {whole}"
    if sharing == 1:
        return None
    if shape.subgroups > 1 or shape.blocks > 1:
        served = f"S={shape.subgroups} SIMD groups of C={shape.blocks} threadgroups"
        return f"R={sharing} programs a SIMD group: none of them has {served}"
    if shape.staged:
        return f"R={sharing} programs a SIMD group: their stripes are not kept in shared memory"
    if shape.programs_per_group % sharing:
        return f"Q={shape.programs_per_group} is no multiple of R={sharing} programs a SIMD group"
    return None


def _peeling_problem(shape: MapShape, facts: ProgramFacts, target: TargetFacts) -> str | None:
    if not shape.peeled:
        return None
    if facts.peeled_width == 1:
        return (
            "reduction_peeled_rows: every row begins aligned, is shorter than two vectors, or is "
            "not known to begin like the others"
        )
    width, beside = shape.lane_elements, 2 * shape.lane_elements - 1
    if not 1 < width <= facts.peeled_width:
        return f"V={width} from a row's first aligned element: it is 2 to {facts.peeled_width} here"
    if facts.programs * VECTOR_ELEMENTS > facts.index_limit:
        return f"where each of {facts.programs} rows begins does not fit the index type"
    workers = shape.workers(target.lanes)
    if workers < beside:
        return f"{workers} workers do not own {beside} elements beside a row's packs one by one"
    if shape.staged:
        return "rows whose packs begin at the first aligned element are not kept in shared memory"
    return None


def _staging_problem(
    shape: MapShape, facts: ProgramFacts, target: TargetFacts, partials: int
) -> str | None:
    if not target.staging_bytes:
        return 'reduction_stripe_storage="shared": a launch on the target asks for no shared memory'
    if not facts.views:
        return "no stripe holds a view's own elements, which shared memory could keep"
    types = sorted({view.dtype for view in facts.views})
    if len(types) > 1:
        return f"views of {' and '.join(types)} cannot share one allocation of shared memory"
    workers, threads = shape.workers(target.lanes), shape.threads(target.lanes)
    needed = partials + staged_bytes(facts, workers, shape.lane_elements, threads)
    if needed > target.staging_bytes:
        return f"{needed} staged bytes exceed the target's {target.staging_bytes}"
    return None

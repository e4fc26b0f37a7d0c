"""What the phases of a group cost: rounds of a thread, and what a round issues and waits for.

    elements     ceil(count / T) rounds of operations and loads
    serial       ceil(outputs / T) * N rounds
    collective   ceil(outputs / S) * ceil(N / 32) rounds, 5 exchanges and a publication each
    columns      ceil(N / R) rounds of V outputs, then a fence and R rounds for each output
    fragment     the results that a thread owns, and 2 exchanges for each of its rows
    scalar, fma  K rounds of the results of a thread and its factor loads
    matrix       the instructions of a SIMD group
    fence        a constant and a share for each SIMD group

each times its repeats. A round costs what it issues, times how many of the group's threads share
an issue slot (T / 128), and waits once for its views. A lane of a collective that reads a view with
a stride takes a transaction of its own; neighbouring lanes of a serial reduction over such an axis
share one. The score also counts how many groups run at once. Dimensionless priors, not time: no
coefficient was fitted to a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_columns import ColumnShare
from tvm_tilex.plan.group_facts import GroupFacts, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement

__all__ = ["PhasePrice", "phase_price", "program_price", "reduction_prices"]

_SHARED = 2.0  # a load of a tile against one operation
_GLOBAL = 4.0  # a load of a view
_WAIT = 24.0  # for the views of a round
_OVERLAP = 8  # rounds whose loads are in flight together
_SCATTERED = 8.0  # how much dearer a load is whose lanes do not share transactions
_STEP = 3.0  # one exchange of a collective
_PUBLISH = 2.0
_FENCE, _FENCE_SUBGROUP = 16.0, 1.0
_MATRIX = 16.0  # one matrix instruction with its fragment loads
_SETUP = 64.0
_ISSUE = 128  # threads that issue at once
_UNITS = {"cuda": 132, "metal": 32}
_RESIDENT_THREADS, _RESIDENT_BYTES, _RESIDENT_SCALARS = 2048, 229376, 65536


@dataclass(frozen=True)
class PhasePrice:
    """The price of one phase over a whole program: its rounds and the fence before it."""

    work: float
    fence: float

    @property
    def total(self) -> float:
        """Both."""
        return self.work + self.fence


def phase_price(
    facts: GroupFacts,
    phase: PhaseFacts,
    realization: str,
    arrangement: Arrangement | None,
    threads: int,
    target: TargetFacts,
    *,
    fenced: bool,
    slots: int = 0,
    share: ColumnShare | None = None,
) -> PhasePrice:
    """Price a phase as it is realized.

    ``slots`` are a thread's elements of its aligned class, ``share`` a share of columns.
    """
    repeats = facts.repeats(phase)
    subgroups = max(1, threads // target.lanes)
    fence = (_FENCE + _FENCE_SUBGROUP * subgroups) if fenced else 0.0
    if realization == "collective":
        work = _collective(phase, threads, target.lanes)
    elif share is not None:
        work = _columns(phase, share, threads)
    elif realization == "fragment":
        exchanges = 2 * _STEP * max(1, phase.count * target.lanes // (4 * threads))
        work = (slots * phase.operations + exchanges) * _crowd(threads)
    elif phase.kind is PhaseKind.product:
        assert arrangement is not None
        work = _product(phase, arrangement, threads, subgroups)
    elif realization == "serial":
        work = _serial(phase, threads)
    else:
        width = phase.vector if phase.prefetchable else 1
        rounds = -(-phase.count // (threads * width))
        work = _rounds(phase, rounds, threads, scattered=False)
    return PhasePrice(work * repeats, fence * repeats)


def reduction_prices(
    phase: PhaseFacts, share: ColumnShare | None, threads: int, target: TargetFacts
) -> dict[str, float]:
    """Prices of the realizations that a reduction's order permits, one run of the phase each."""
    found = {"serial": _serial(phase, threads)}
    if phase.collective:
        found["collective"] = _collective(phase, threads, target.lanes)
    if share is not None:
        found["columns"] = _columns(phase, share, threads)
    return found


def program_price(
    facts: GroupFacts,
    prices: tuple[float, ...],
    threads: int,
    shared_bytes: int,
    private_scalars: int,
    kind: str,
) -> float:
    """The sum of the phases' prices, times how many rounds of resident groups there are."""
    registers = threads * (32 + private_scalars)
    resident = max(
        1,
        min(
            _RESIDENT_THREADS // threads if threads <= _RESIDENT_THREADS else 1,
            _RESIDENT_BYTES // max(shared_bytes, 1024),
            _RESIDENT_SCALARS // registers if registers <= _RESIDENT_SCALARS else 1,
        ),
    )
    waiting = -(-facts.programs // _UNITS.get(kind, 1))  # groups for each unit
    together = min(resident, waiting)
    # Groups of one unit share its issue slots: more of them hide latency, up to a point.
    crowding = max(1.0, together * min(threads, _ISSUE) / 512)
    rounds = waiting / together
    return (sum(prices) + _SETUP) * rounds * crowding


def _crowd(threads: int) -> float:
    return max(1.0, threads / _ISSUE)


def _rounds(phase: PhaseFacts, rounds: int, threads: int, *, scattered: bool) -> float:
    """Independent rounds: their loads overlap, so several wait together."""
    dear = _SCATTERED if scattered else 1.0
    issued = phase.operations + phase.global_loads * _GLOBAL * dear + len(phase.loads) * _SHARED
    waits = _WAIT * -(-rounds // _OVERLAP) if phase.global_loads else 0.0
    return rounds * issued * _crowd(threads) + waits


def _serial(phase: PhaseFacts, threads: int) -> float:
    # Neighbouring threads hold neighbouring outputs: together only where the reduced axis is not
    # the contiguous one. Threads without an output issue nothing.
    scattered = phase.stride == 1 and phase.depth > 1
    active = min(threads, -(-phase.count // 32) * 32)
    return _rounds(phase, -(-phase.count // threads) * phase.depth, active, scattered=scattered)


def _collective(phase: PhaseFacts, threads: int, lanes: int) -> float:
    chunks = -(-phase.depth // lanes)
    fold = _rounds(phase, chunks, threads, scattered=phase.stride != 1)
    batches = -(-phase.count // max(1, threads // lanes))
    return batches * (fold + (5 * _STEP + _PUBLISH) * _crowd(threads))


def _columns(phase: PhaseFacts, share: ColumnShare, threads: int) -> float:
    active = min(threads, share.lanes * share.slices)
    rows = -(-phase.depth // share.slices) * -(-share.lanes // threads)
    reads = phase.global_loads * _GLOBAL + share.vector * len(phase.loads) * _SHARED
    issued = share.vector * phase.operations + reads
    waits = _WAIT * -(-rows // _OVERLAP) if phase.global_loads else 0.0
    work = rows * issued * _crowd(active) + waits
    if not share.fenced:
        return work
    combined = -(-phase.count // threads) * share.slices * (1 + _SHARED)
    publishing = share.vector * _PUBLISH * _crowd(active)
    return work + publishing + _FENCE + combined * _crowd(min(threads, phase.count))


def _product(phase: PhaseFacts, arrangement: Arrangement, threads: int, subgroups: int) -> float:
    crowd = _crowd(threads)
    if arrangement.kind == "matrix":
        # mma.m16n8k16, or 8x8x8 with its loads and stores of results
        size, depth = (128, 16) if phase.half else (64, 8)
        results = max(1.0, phase.rows * phase.columns / size / subgroups)
        return results * max(1, phase.depth // depth) * _MATRIX * crowd
    if arrangement.kind == "fma":
        rows, columns = phase.rows // arrangement.down, phase.columns // arrangement.across
        return phase.depth * (rows * columns + _SHARED * (rows + columns)) * crowd
    return -(-phase.count // threads) * phase.depth * (1 + 2 * _SHARED) * crowd

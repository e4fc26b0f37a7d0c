"""What the phases of a group cost: rounds of a thread times what a round does.

    elements     ceil(count / T) * (operations + loads)
    serial       ceil(outputs / T) * N * (operations + loads)
    collective   ceil(outputs / S) * (ceil(N / 32) * (operations + loads) + 5 steps + publication)
    scalar, fma  results of a thread * K * (multiply-add + factor loads)
    matrix       instructions of a SIMD group * price of one
    fence        a constant and a share for each SIMD group

each times its repeats. A lane of a collective that reads a view with a stride takes a transaction
of its own; neighbouring lanes of a serial reduction over such an axis share one. The price of a
program is the sum; the score also counts how many groups run at once. Dimensionless priors, not
time: no coefficient was fitted to a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.plan.facts import TargetFacts
from tvm_tilex.plan.group_facts import GroupFacts, PhaseFacts, PhaseKind
from tvm_tilex.plan.group_products import Arrangement

__all__ = ["PhasePrice", "phase_price", "program_price", "serial_is_cheaper"]

_GLOBAL = 8.0  # a load of a view against one operation
_SHARED = 2.0
_SCATTERED = 4.0  # how much dearer a load is whose lanes do not share transactions
_STEP = 3.0  # one exchange of a collective
_PUBLISH = 2.0
_FENCE, _FENCE_SUBGROUP = 16.0, 1.0
_MATRIX = 16.0  # one matrix instruction with its fragment loads
_SETUP = 64.0
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
    fenced: bool,
) -> PhasePrice:
    """Price a phase as it is realized."""
    repeats = facts.repeats(phase)
    subgroups = max(1, threads // target.lanes)
    fence = (_FENCE + _FENCE_SUBGROUP * subgroups) if fenced else 0.0
    if realization == "collective":
        work = _collective(phase, subgroups, target.lanes)
    elif phase.kind is PhaseKind.product:
        assert arrangement is not None
        work = _product(phase, arrangement, threads, subgroups)
    elif realization == "serial":
        work = _serial(phase, threads)
    else:
        work = -(-phase.count // threads) * _element(phase, scattered=False)
    return PhasePrice(work * repeats, fence * repeats)


def serial_is_cheaper(
    facts: GroupFacts, phase: PhaseFacts, threads: int, target: TargetFacts
) -> bool:
    """Whether one thread an output beats one SIMD group an output."""
    subgroups = max(1, threads // target.lanes)
    return _serial(phase, threads) < _collective(phase, subgroups, target.lanes)


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
    crowding = max(1.0, together * threads / 512)
    rounds = waiting / together
    return (sum(prices) + _SETUP) * rounds * crowding


def _element(phase: PhaseFacts, *, scattered: bool) -> float:
    dear = _SCATTERED if scattered else 1.0
    shared = len(phase.loads) * _SHARED
    return phase.operations + phase.global_loads * _GLOBAL * dear + shared


def _serial(phase: PhaseFacts, threads: int) -> float:
    # Neighbouring threads hold neighbouring outputs: together only where the reduced axis is not
    # the contiguous one.
    return -(-phase.count // threads) * phase.depth * _element(phase, scattered=phase.stride == 1)


def _collective(phase: PhaseFacts, subgroups: int, lanes: int) -> float:
    chunks = -(-phase.depth // lanes)
    fold = chunks * _element(phase, scattered=phase.stride != 1)
    return -(-phase.count // subgroups) * (fold + 5 * _STEP + _PUBLISH)


def _product(phase: PhaseFacts, arrangement: Arrangement, threads: int, subgroups: int) -> float:
    if arrangement.kind == "matrix":
        results = phase.rows * phase.columns / (256 if phase.half else 64) / subgroups
        return max(1.0, results) * phase.depth / (16 if phase.half else 8) * _MATRIX
    if arrangement.kind == "fma":
        rows, columns = phase.rows // arrangement.down, phase.columns // arrangement.across
        return phase.depth * (rows * columns + _SHARED * (rows + columns))
    return -(-phase.count // threads) * phase.depth * (1 + 2 * _SHARED)

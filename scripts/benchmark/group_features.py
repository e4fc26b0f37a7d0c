"""What the coefficients of plan.group_queue.QueueCost multiply, for many planned groups at once.

A fit scores some thousand groups at each of its steps. All that a group issues and waits for is
linear in most coefficients, so that a row of numbers a group, found by probing the cost itself,
gives every score as a few array operations. ``scores`` equals ``QueueCost.score``.
"""

import numpy

from tvm_tilex.plan.group_facts import PhaseKind
from tvm_tilex.plan.group_queue import QueueCost, Work

# Issue slots and latency are sums of these; a scattered view counts ``view`` times ``scattered``.
ISSUED = ("shared", "view", "scattered", "step", "publish", "matrix", "fragment")
WAITED = ("ahead", "fence", "fence_subgroup")
NONE = dict.fromkeys((*ISSUED, *WAITED, "wait", "start"), 0.0) | {"dependency": 1.0}
BATCHES = 8  # different numbers of rounds that a group waits for

_PLAIN = QueueCost(**NONE, overlap=1e18)
_PROBES = {name: QueueCost(**NONE | {name: 1.0}, overlap=1e18) for name in (*ISSUED, *WAITED)}
_PROBES["scattered"] = QueueCost(**NONE | {"view": 1.0, "scattered": 1.0}, overlap=1e18)


class _Overlap(float):
    """An overlap that notes the rounds it divides."""

    rounds = 0.0

    def __rtruediv__(self, rounds):
        self.rounds = float(rounds)
        return 1e-9


_OVERLAP = _Overlap(1e18)
_WAITING = QueueCost(**NONE | {"wait": 1.0}, overlap=_OVERLAP)


def linear(works):
    """Issue slots and latency without waits for views, by coefficient, and the latter's rest."""
    plain = works(_PLAIN)
    found = {name: works(probe) for name, probe in _PROBES.items()}
    bases = {name: found["view"] if name == "scattered" else plain for name in _PROBES}
    issue = [plain.issue, *(found[n].issue - bases[n].issue for n in ISSUED)]
    latency = [plain.latency, *(found[n].latency - bases[n].latency for n in ISSUED)]
    rest = [found[n].latency - plain.latency for n in WAITED]
    return [*issue, *latency, *rest], plain.bytes


def waits(works):
    """(rounds, times) that views are waited for; rounds 0+ where a batch is not ``overlap``."""
    _OVERLAP.rounds = 1e-9
    times = works(_WAITING).latency - works(_PLAIN).latency
    return (_OVERLAP.rounds, times) if times else (0.0, 0.0)


def group_features(group):
    """A planned group's row."""
    sums, moved = linear(lambda cost: sum(cost._works(group), Work(0.0, 0.0)))
    batches = {}
    for number, phase in enumerate(group.facts.phases):
        rounds, times = waits(lambda cost, n=number, p=phase: cost._work(group, n, p))
        batches[rounds] = batches.get(rounds, 0.0) + times * group.facts.repeats(phase)
    batches.pop(0.0, None)
    assert len(batches) <= BATCHES
    padding = [0.0] * (BATCHES - len(batches))
    products = any(phase.kind is PhaseKind.product for phase in group.facts.phases)
    facts = [moved, products, group.threads, group.private_scalars, group.shared_bytes]
    programs = group.facts.programs
    return [*sums, *facts, programs, *batches, *padding, *batches.values(), *padding]


def reduction_features(phase, share, threads, realization):
    """The row of one realization of a reduction, for ``reduction_prices``."""
    works = {
        "serial": lambda cost: cost._serial(phase, threads),
        "collective": lambda cost: cost._collective(phase, threads),
        "columns": lambda cost: cost._columns(phase, share, threads),
    }[realization]
    return [*linear(works)[0], *waits(works)]


def _slots(cost):
    dear = cost.view * cost.scattered
    rest = (cost.step, cost.publish, cost.matrix, cost.fragment)
    return numpy.array([1.0, cost.shared, cost.view, dear, *rest])


def _rest(cost):
    return numpy.array([cost.ahead, cost.fence, cost.fence_subgroup])


def reduction_prices(rows, cost):
    """``QueueCost.reductions`` of many realizations."""
    waited = cost.wait * numpy.ceil(rows[:, 19] / cost.overlap) * rows[:, 20]
    latency = cost.dependency * (rows[:, 8:16] @ _slots(cost)) + rows[:, 16:19] @ _rest(cost)
    return rows[:, :8] @ _slots(cost) + (latency + waited) / 8.0


def scores(rows, cost):
    """``QueueCost.score`` of many groups."""
    issue = rows[:, :8] @ _slots(cost)
    moved, products, threads, private, shared, programs = rows[:, 19:25].T
    rounds, times = rows[:, 25 : 25 + BATCHES], rows[:, 25 + BATCHES :]
    waited = cost.wait * (numpy.ceil(rounds / cost.overlap) * times).sum(1)
    latency = cost.dependency * (rows[:, 8:16] @ _slots(cost)) + rows[:, 16:19] @ _rest(cost)
    latency += waited + cost.start
    busiest = numpy.maximum(issue, moved * numpy.where(products > 0, cost.cached_byte, cost.byte))
    each = numpy.maximum(1.0, programs / cost.multiprocessors)
    most = numpy.minimum(255.0, cost.resident_registers / threads)
    registers = numpy.ceil(numpy.minimum(cost.registers + private, most) / 8) * 8
    bounds = (
        cost.resident_threads // threads,
        cost.resident_registers // (threads * registers),
        cost.resident_bytes // (shared + 1024),
    )
    resident = numpy.clip(numpy.minimum.reduce(bounds), 1.0, 32.0)
    resident = numpy.minimum(resident, each)
    waiting = (latency + busiest) / resident
    most = numpy.maximum(waiting, busiest)
    p = cost.sharpness
    period = most * ((waiting / most) ** p + (busiest / most) ** p) ** (1 / p)
    waves = each / resident
    return period * each * (1 + cost.tail * (numpy.ceil(waves) / waves - 1))

"""``Distribution``: which participant holds which element of a value, and in which slot.

    Distribution(v) : E x Slot -> Pa x LogicalCoord(v)
    owner preserving: project_Pa(Distribution(v)(e, slot)) = project_Pa(e)

``E`` are the coordinates of a participant where the value lives, ``Pa`` those that identify its
owner; the law says that holding an element never names another owner. It is an ordinary layout
map, so composition, proof and inversion are those of the layout algebra.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.correspondence import LayoutCorr, ReplicaKind, span
from tvm_tilex.layout.expr import Coordinate
from tvm_tilex.layout.finite import OracleFailure, _points, finite_size, oracle_value
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.inverse import try_inverse
from tvm_tilex.layout.nodes import Identity, IndexExpr, Project
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Answer, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.visitor import leaves

__all__ = ["Distribution", "exchange", "local_exchange"]

Point = tuple[int, ...]


@dataclass(frozen=True)
class Distribution:
    """A map from participant x slot to owner x logical coordinate.

    Parameters
    ----------
    map
        The map. Its codomain begins with the owner's axes, which have names of domain axes.
    participants
        The domain axes that say which participant; the others are its slots.
    owners
        How many leading codomain axes identify the owner; the rest is the logical coordinate.

    Raises
    ------
    LayoutError
        Where an owner's axis is not a participant's.
    """

    map: LayoutMap
    participants: tuple[str, ...]
    owners: int

    def __post_init__(self) -> None:
        for name in self.participants:
            if name not in self.map.domain.names:
                raise LayoutError(f"distribution: '{name}' is not one of {self.map.domain.names}")
        if not 0 <= self.owners < self.map.codomain.rank:
            raise LayoutError(
                f"distribution: {self.owners} owner axes of the codomain {self.map.codomain.names}"
            )
        for name in self.owner_axes:
            if name not in self.participants:
                raise LayoutError(f"distribution: the owner's axis '{name}' is no participant's")

    @staticmethod
    def owned(
        elements: LayoutMap, participants: tuple[str, ...], owners: tuple[str, ...] | None = None
    ) -> Distribution:
        """Return the distribution in which participants hold ``elements`` (E x Slot -> logical).

        ``owners`` names the participant axes that identify the owner, by default all of them.
        The map has a single branch.
        """
        domain = elements.domain
        chosen = participants if owners is None else owners
        known = dict(zip(domain.names, domain.axes, strict=True))
        for name in chosen:
            if name not in known:
                raise LayoutError(f"distribution: '{name}' is not one of {domain.names}")
        own = tuple(_fresh(known[n], elements.codomain.names) for n in chosen)
        codomain = IndexSet(
            own + elements.codomain.axes, elements.codomain.guards, elements.codomain.parameters
        )
        values = tuple(domain.coordinates[domain.names.index(n)] for n in chosen)
        built = normalize(IndexExpr(domain, codomain, values + elements.outputs))
        return Distribution(built, participants, len(chosen))

    @property
    def owner_axes(self) -> tuple[str, ...]:
        """The codomain axes that identify the owner."""
        return self.map.codomain.names[: self.owners]

    @property
    def logical_axes(self) -> tuple[str, ...]:
        """The codomain axes of the value's logical coordinate."""
        return self.map.codomain.names[self.owners :]

    @property
    def slots(self) -> tuple[str, ...]:
        """The domain axes of a participant's slots."""
        return tuple(n for n in self.map.domain.names if n not in self.participants)

    @cached_property
    def elements(self) -> LayoutMap:
        """E x Slot -> logical coordinate."""
        return normalize(Compose(Project(self.map.codomain, self.logical_axes), self.map))

    def owner_preserving(self, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide the law; a refutation's witness is a point whose element names another owner."""
        named = Compose(Project(self.map.codomain, self.owner_axes), self.map)
        own = Project(self.map.domain, self.owner_axes)
        verdict = equal_maps(named, own, budget)
        if verdict.disproven and verdict.witness is not None:
            (point,), (held, mine) = verdict.witness.points, verdict.witness.values
            reason = f"at {point} the element names the owner {held}, the participant is {mine}"
            return disproven(reason, verdict.witness)
        if verdict.proven:
            return proven(f"project_Pa o D = project_Pa by {verdict.reason}")
        return verdict

    def held_once(self, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide whether no element is held twice, by two participants or in two slots.

        A bit-linear distribution is decided by its rank also where its axes are ragged prefixes
        (:func:`tvm_tilex.layout.witness.prefix_pair`); the witness is a pair of points of the
        prefix.
        """
        return prove(self.elements, budget).injectivity

    def covers(self, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide whether every logical element is held by someone."""
        return prove(self.elements, budget).surjectivity

    def holders(self, *element: int, budget: int = DEFAULT_BUDGET) -> Answer[tuple[Point, ...]]:
        """Return every (participant, slot) point that holds a logical element: its replicas."""
        if len(element) != len(self.logical_axes):
            raise LayoutError(f"an element has the coordinates {self.logical_axes}")
        if prove(self.elements, 0).all_proven:
            inverse = try_inverse(self.elements, 0)
            if inverse.value is not None:
                place = inverse.value(*element)
                found = place if isinstance(place, tuple) else (place,)
                return Answer(proven("the inverse"), (found,))
        size = finite_size(self.elements)
        if size is None or self.map.domain.parameters or size > budget:
            return Answer(unknown("the holders are not enumerated within the budget"))
        try:
            held = tuple(
                point
                for point in _points(self.map.domain, {})
                if oracle_value(self.elements, point, {}) == element
            )
        except OracleFailure as failure:
            return Answer(unknown(f"the distribution has no value somewhere: {failure}"))
        return Answer(proven(f"exhaustive over {size} points"), held)

    def placement(self, kind: ReplicaKind = ReplicaKind.BROADCAST) -> LayoutCorr:
        """Return the distribution seen from the elements: where each one is placed.

        The occurrences are the (participant, slot) points, so every copy of an element is one.
        Axes that the element does not depend on number copies; those are of ``kind``.
        """
        outputs = tuple(
            o for piece in self.elements.pieces for o in (*piece.guards, *piece.outputs)
        )
        used = {leaf.name for leaf in leaves(outputs) if isinstance(leaf, Coordinate)}
        copies = {name: kind for name in self.map.domain.names if name not in used}
        return span(self.elements, Identity(self.map.domain), copies)

    def __str__(self) -> str:
        return (
            f"({', '.join(self.participants)}) x ({', '.join(self.slots)}) ->"
            f" ({', '.join(self.owner_axes)}) x ({', '.join(self.logical_axes)}): {self.map}"
        )


def _fresh(axis: Axis, taken: tuple[str, ...]) -> Axis:
    if axis.name in taken:
        raise LayoutError(f"distribution: '{axis.name}' names a participant and an element")
    return axis


def exchange(
    producer: Distribution, consumer: Distribution, budget: int = DEFAULT_BUDGET
) -> Answer[LayoutMap]:
    """Return where each slot of ``consumer`` finds its element under ``producer``.

    The map takes (participant, slot) of the consumer to (participant, slot) of the producer. It
    exists where the producer is proved to hold each element exactly once.
    """
    _require_one_value(producer, consumer)
    inverse = try_inverse(producer.elements, budget)
    if inverse.value is None:
        return Answer(inverse.verdict)
    try:
        moved = normalize(Compose(inverse.value, consumer.elements))
    except LayoutError as error:
        return Answer(unknown(str(error)))
    return Answer(proven(f"producer's inverse: {inverse.verdict.reason}"), moved)


def local_exchange(
    producer: Distribution, consumer: Distribution, budget: int = DEFAULT_BUDGET
) -> Verdict:
    """Decide whether every participant of ``consumer`` holds what it reads under ``producer``.

    PROVEN: the two fuse, at most slots are renamed. DISPROVEN, with a witness: an element has to
    move between participants, so that a repartition is needed. UNKNOWN is treated as a need.
    """
    _require_one_value(producer, consumer)
    if producer.participants != consumer.participants:
        return unknown(f"participants {producer.participants} and {consumer.participants}")
    moved = exchange(producer, consumer, budget)
    if moved.value is not None:
        source = Compose(Project(moved.value.codomain, producer.participants), moved.value)
        own = Project(consumer.map.domain, consumer.participants)
        verdict = equal_maps(source, own, budget)
        if not verdict.disproven or verdict.witness is None:
            return verdict
        (point,), (holder, reader) = verdict.witness.points, verdict.witness.values
        element = consumer.elements(*point)
        return disproven(f"{element} moves from {holder} to {reader}", verdict.witness)
    return _by_enumeration(producer, consumer, budget, moved.verdict)


def _by_enumeration(
    producer: Distribution, consumer: Distribution, budget: int, why: Verdict
) -> Verdict:
    """Decide with replicas: someone among the holders is the reader itself."""
    sizes = [finite_size(d.elements) for d in (producer, consumer)]
    if any(size is None or size > budget for size in sizes):
        return unknown(f"no inverse ({why.reason}), and beyond the budget")
    if producer.map.domain.parameters or consumer.map.domain.parameters:
        return unknown(f"no inverse ({why.reason}), and the maps have parameters")
    holders: dict[Point, set[Point]] = {}
    try:
        for point in _points(producer.map.domain, {}):
            element = oracle_value(producer.elements, point, {})
            holders.setdefault(element, set()).add(_part(producer, point))
        for point in _points(consumer.map.domain, {}):
            element = oracle_value(consumer.elements, point, {})
            held = holders.get(element, set())
            if _part(consumer, point) not in held:
                reader = _part(consumer, point)
                where = ", ".join(map(str, sorted(held))) or "nobody"
                reason = f"{element} is held by {where}, and read by {reader}"
                return disproven(reason, Witness((point,), (element,)))
    except OracleFailure as failure:
        return unknown(f"a distribution has no value somewhere: {failure}")
    return proven(f"exhaustive over {sizes[0]} and {sizes[1]} points")


def _part(distribution: Distribution, point: Point) -> Point:
    names = distribution.map.domain.names
    return tuple(point[names.index(name)] for name in distribution.participants)


def _require_one_value(producer: Distribution, consumer: Distribution) -> None:
    a, b = producer.elements.codomain, consumer.elements.codomain
    if a.axes != b.axes:
        raise LayoutError(f"the distributions are of different values: {a} and {b}")

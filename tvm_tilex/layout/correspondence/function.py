"""A correspondence as a function: only where it is total and single-valued."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.correspondence.base import LayoutCorr, Point
from tvm_tilex.layout.correspondence.simplify import has_legs, simplify
from tvm_tilex.layout.expr import Coordinate, ExprLike
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.inverse import try_inverse
from tvm_tilex.layout.nodes import FiniteTable, IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Answer, Verdict, Witness, disproven, proven, unknown

__all__ = ["as_function"]


def as_function(corr: LayoutCorr, budget: int = DEFAULT_BUDGET) -> Answer[LayoutMap]:
    """Return f with ``f(left(e)) = right(e)`` for every occurrence, defined on the whole source.

    Returns
    -------
    Answer
        PROVEN with the map. DISPROVEN with a witness: ``missing``, a source point that no
        occurrence has; or two ``points`` of the occurrence space with the same left value and the
        two different right ``values``. UNKNOWN where neither is established. Copies that agree are
        no obstacle; where they differ no owner is chosen (see ``LayoutCorr.select``).
    """
    short = simplify(corr, budget).corr
    ways = (_by_section, _by_enumeration) if has_legs(short) else (_by_enumeration,)
    for build in ways:
        answer = build(short, budget)
        if not answer.verdict.unknown:
            return answer
    return answer


def _by_section(corr: LayoutCorr, budget: int) -> Answer[LayoutMap]:
    """Build ``right o s`` from a section s of the left leg, and prove that it is the function."""
    onto = prove(corr.left, budget).surjectivity
    if onto.disproven:
        missing = onto.witness.missing if onto.witness is not None else None
        if missing is not None:
            return Answer(disproven(f"no occurrence over {missing}", Witness(missing=missing)))
    if not onto.proven:
        return Answer(unknown(f"totality: {onto.reason}"))
    section = _section(corr.left, budget)
    if section is None:
        return Answer(unknown("no section of the left leg is found"))
    try:
        function = Compose(corr.right, section)
        again = Compose(function, corr.left)
    except LayoutError as error:
        return Answer(unknown(str(error)))
    verdict = equal_maps(corr.right, again, budget)
    if verdict.proven:
        return Answer(proven(f"total ({onto.reason}), single-valued"), normalize(function))
    return Answer(_two_values(corr, section, verdict))


def _section(left: LayoutMap, budget: int) -> LayoutMap | None:
    """Return s with ``left o s = id``: the inverse, or the lowest copy of a projection."""
    inverse = try_inverse(left, budget).value
    if inverse is not None:
        return inverse
    space = left.domain
    if len(left.pieces) != 1 or space.guards or space.parameters:
        return None
    values: dict[str, ExprLike] = {}
    for output, y in zip(left.pieces[0].outputs, left.codomain.coordinates, strict=True):
        if not isinstance(output, Coordinate) or output.name in values:
            return None
        values[output.name] = y
    point = tuple(values.get(axis.name, axis.lower) for axis in space.axes)
    try:
        return IndexExpr(left.codomain, space, point)
    except LayoutError:
        return None


def _two_values(corr: LayoutCorr, section: LayoutMap, verdict: Verdict) -> Verdict:
    """Return the refutation with two occurrences of one source point, where they are known."""
    if not verdict.disproven or verdict.witness is None:
        return unknown(f"single-valuedness: {verdict.reason}")
    first = verdict.witness.points[0]
    chosen = section.apply(*_tuple(corr.left.apply(*first)))
    second = _tuple(chosen)
    values = (_tuple(corr.right.apply(*first)), _tuple(corr.right.apply(*second)))
    text = f"occurrences {first} and {second} of one source point have {values[0]} and {values[1]}"
    return disproven(text, Witness((first, second), values))


def _tuple(value: int | Point) -> Point:
    return value if isinstance(value, tuple) else (value,)


def _by_enumeration(corr: LayoutCorr, budget: int) -> Answer[LayoutMap]:
    seen: dict[Point, tuple[Point, Point]] = {}
    try:
        for e in corr.occurrences(budget):
            at, value = seen.setdefault(e.left, (e.at, e.right))
            if value != e.right:
                text = f"{e.left} has the values {value} and {e.right}"
                return Answer(disproven(text, Witness((at, e.at), (value, e.right))))
        source: IndexSet = corr.source
        if source.parameters or source.box_size is None or source.box_size > budget:
            return Answer(unknown(f"the source {source} is not enumerated"))
        for point in source.points():
            if point not in seen:
                return Answer(disproven(f"no occurrence over {point}", Witness(missing=point)))
    except LayoutError as error:
        return Answer(unknown(str(error)))
    fill = tuple(axis.lower for axis in corr.target.axes)
    box = source.unguarded()
    rows = tuple(seen[p][1] if p in seen else fill for p in box.points())
    table = FiniteTable(source, corr.target, rows)
    return Answer(proven(f"exhaustive over {len(seen)} source points"), table)

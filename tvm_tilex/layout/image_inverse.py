"""The inverse of an injective map on its image, where the map is not onto.

Candidates come from the digits (``y // s``, then ``y % s``) and from the GF(2) matrix; each is
returned only where ``g(f(x)) = x`` is proved. What neither gives is enumerated within the budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.expr import Expr, ExprLike, as_expr, constant, eq, le, lookup, lt
from tvm_tilex.layout.finite import OracleFailure, _points, finite_size, oracle_value
from tvm_tilex.layout.forms import DigitSystem, Variable
from tvm_tilex.layout.gf2 import bit_matrix
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.inverse import digit_system
from tvm_tilex.layout.nodes import BitLinear, FiniteTable, Identity, IndexExpr
from tvm_tilex.layout.preimage import open_guards
from tvm_tilex.layout.proof import DEFAULT_BUDGET
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Answer, proven, unknown
from tvm_tilex.layout.visitor import substitute

__all__ = ["inverse_by_table", "inverse_on_image"]

_NONE = "neither the digits nor the GF(2) matrix give an inverse"


def inverse_on_image(map: LayoutMap, budget: int = DEFAULT_BUDGET) -> Answer[LayoutMap]:
    """Return g on the image of ``map`` with ``g(map(x)) = x``, for a map proved injective.

    The domain of g is the image: the codomain points y for which ``map(g(y)) = y``.
    """
    for build in (_by_digits, _by_bits):
        values = build(map)
        if values is None:
            continue
        answer = _checked(map, values, budget)
        if answer.verdict.proven:
            return answer
    return inverse_by_table(map, budget)


def _checked(map: LayoutMap, values: tuple[Expr, ...], budget: int) -> Answer[LayoutMap]:
    try:
        whole = IndexExpr(map.codomain.unguarded(), map.domain.unguarded(), values)
        verdict = equal_maps(Compose(whole, map), Identity(map.domain), budget)
        if not verdict.proven:
            return Answer(unknown(f"g o f = id: {verdict}"))
        image = map.codomain.where(*_inside(map, values))
    except LayoutError as error:
        return Answer(unknown(str(error)))
    reason = "g o f = id, and f o g = id on the image by its guard"
    return Answer(proven(reason), IndexExpr(image, map.domain, values))


def inverse_by_table(map: LayoutMap, budget: int) -> Answer[LayoutMap]:
    """Return the inverse of an injective map as a table; UNKNOWN past the budget.

    Domain and codomain box may have at most ``budget`` points. The domain of the table is the
    codomain where the map is onto, else the image.
    """
    size, box = finite_size(map), map.codomain.unguarded()
    reach = box.box_size
    if size is None or reach is None or max(size, reach) > budget or map.domain.parameters:
        return Answer(unknown(f"{_NONE}, and a table exceeds the budget of {budget} points"))
    try:
        pairs = [(oracle_value(map, p, {}), p) for p in _points(map.domain, {})]
    except OracleFailure as failure:
        return Answer(unknown(str(failure)))
    points = dict(pairs)
    if len(points) != len(pairs):
        return Answer(unknown("two points have the same value"))
    fill = tuple(axis.lower for axis in map.domain.axes)
    everywhere = list(box.points())
    rows = tuple(points.get(y, fill) for y in everywhere)
    image = map.codomain
    if len(points) < sum(1 for _ in map.codomain.points()):
        image = image.where(_member(box, [y in points for y in everywhere]))
    return Answer(
        proven(f"exhaustive over {len(points)} points"), FiniteTable(image, map.domain, rows)
    )


def _member(box: IndexSet, inside: Sequence[bool]) -> Expr:
    index = tuple(
        c - a.lower if a.lower else c for c, a in zip(box.coordinates, box.axes, strict=True)
    )
    return eq(lookup(tuple(map(int, inside)), box.shape, index), 1)


def _inside(map: LayoutMap, values: tuple[Expr, ...]) -> list[Expr]:
    """Return the predicates of the image: g(y) is in the domain and is mapped to y."""
    found: list[Expr] = []
    for value, axis in zip(values, map.domain.axes, strict=True):
        found.extend((le(axis.lower, value), lt(value, axis.lower + axis.extent)))
    named = dict(zip(map.domain.names, values, strict=True))
    found.extend(substitute(map.domain.guards, named))
    back = substitute(map.pieces[0].outputs, named)
    found.extend(eq(y, z) for y, z in zip(map.codomain.coordinates, back, strict=True))
    return open_guards(map.codomain.unguarded(), found)


def _by_bits(map: LayoutMap) -> tuple[Expr, ...] | None:
    """Return ``L(y) XOR L(c)`` for ``map(x) = A x XOR c``, with ``L A = id``."""
    if len(map.pieces) != 1 or map.domain.guards or map.domain.box_size is None:
        return None
    if any(axis.lower or not isinstance(axis.extent, int) for axis in map.codomain.axes):
        return None
    matrix = bit_matrix(Context(map.domain), map.pieces[0].outputs)
    if matrix is None or matrix.rank < len(matrix.inputs):
        return None
    # Fully reduced: the leading bit of each vector is in no other, so L reads it off.
    reduced: dict[int, tuple[int, int]] = {}
    for i, column in enumerate(matrix.columns):
        vector, chosen = column, 1 << i
        for lead, (other, combination) in reduced.items():
            if vector >> lead & 1:
                vector, chosen = vector ^ other, chosen ^ combination
        top = vector.bit_length() - 1
        for lead, (other, combination) in reduced.items():
            if other >> top & 1:
                reduced[lead] = (other ^ vector, combination ^ chosen)
        reduced[top] = (vector, chosen)

    def read(pattern: int) -> tuple[int, ...]:
        total = 0
        for lead, (_, combination) in reduced.items():
            total ^= combination if pattern >> lead & 1 else 0
        point = matrix.point(total)
        return tuple(point + [0] * (map.domain.rank - len(point)))

    box = map.codomain.unguarded()
    basis = tuple(
        tuple(read(1 << (64 * row + bit)) for bit in range(max(axis.bounds()[1], 0).bit_length()))
        for row, axis in enumerate(box.axes)
    )
    moved = read(sum(form.const << (64 * row) for row, form in enumerate(matrix.forms)))
    return BitLinear(box, map.domain, basis, moved).expressions()


def _by_digits(map: LayoutMap) -> tuple[Expr, ...] | None:
    """Return the coordinates from the values, longest stride first: ``y // s``, then ``y % s``."""
    system = digit_system(map)
    if system is None:
        return None
    digits: dict[Variable, ExprLike] = {}
    for number, y in enumerate(map.codomain.coordinates):
        _read_row(system, number, y, digits)
    found: list[Expr] = []
    for c in map.domain.coordinates:
        const, weights = system._replaced.get(c, (0, {c: 1}))
        total: ExprLike = const
        for variable, weight in weights.items():
            low, high = system.variable_interval(variable)
            if low != high and variable not in digits:
                return None
            digit: ExprLike = low if low == high else digits[variable]
            term = digit if weight == 1 else digit * weight
            total = term if isinstance(total, int) and total == 0 else total + term
        found.append(as_expr(total))
    return tuple(found)


def _read_row(system: DigitSystem, number: int, y: Expr, digits: dict[Variable, ExprLike]) -> None:
    row = system.rows[number]
    least = system.row_interval(number)[0]
    rest: Expr = y - least if least > 0 else y + -least if least else y
    for variable, step in sorted(row.items(), key=lambda item: -abs(item[1])):
        first, last = system.variable_interval(variable)
        if first == last:
            continue
        size = abs(step)
        digit = rest // size if size > 1 else rest
        rest = rest % size if size > 1 else constant(0)
        digits.setdefault(variable, last - digit if step < 0 else digit + first if first else digit)

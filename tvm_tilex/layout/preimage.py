"""Fibers of a map, and its inverse on the image where the map is not onto."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap, Piece
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.errors import CodomainError
from tvm_tilex.layout.expr import Expr, ExprLike, as_expr, constant, eq, le, lt, ne
from tvm_tilex.layout.forms import DigitSystem, Variable
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.layout.verdict import Answer, proven, unknown
from tvm_tilex.layout.visitor import substitute

__all__ = ["inverse_on_image", "preimage", "value_guard"]


def preimage(map: LayoutMap, *point: int) -> IndexSet:
    """Return the fiber over a codomain point: the domain points with that value.

    It is the domain with a guard more, its box narrowed to what the guard allows; it may be empty.
    ``cardinality`` counts it and ``points`` enumerates it.

    Raises
    ------
    CodomainError
        Where the point is outside the codomain.
    LayoutError
        Where the map is not proved total, so that its values may not be compared.
    """
    names = map.codomain.names
    if len(point) != len(names):
        raise LayoutError(f"a point of {len(point)} coordinates for the codomain {map.codomain}")
    if not map.codomain.parameters and not map.codomain.contains(
        dict(zip(names, point, strict=True))
    ):
        raise CodomainError(f"{point} is outside the codomain {map.codomain}")
    verdict = prove(map).totality
    if not verdict.proven:
        raise LayoutError(f"the fiber needs a total map: {verdict}")
    guard = value_guard(map, tuple(constant(v) for v in point))
    return narrowed(map.domain.where(*guard))


def value_guard(map: LayoutMap, values: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return predicates that hold exactly where the map has the given values."""
    pieces = map.pieces
    if len(pieces) == 1 and not pieces[0].guards:
        return tuple(eq(o, v) for o, v in zip(pieces[0].outputs, values, strict=True))
    total = _piece_holds(pieces[0], values)
    for piece in pieces[1:]:
        total = total + _piece_holds(piece, values)
    return (total,)


def _piece_holds(piece: Piece, values: Sequence[Expr]) -> Expr:
    held: Expr | None = None
    equal = [eq(o, v) for o, v in zip(piece.outputs, values, strict=True)]
    for test in (*(ne(g, 0) for g in piece.guards), *equal):
        held = test if held is None else held & test
    return constant(1) if held is None else held


def narrowed(space: IndexSet) -> IndexSet:
    """Return the same set in the smallest box that the guards are known to allow."""
    if space.parameters or space.box_size is None:
        return space
    context = Context(space)
    if context.empty:
        return IndexSet(tuple(Axis(a.name, 0, a.lower) for a in space.axes))
    axes = []
    for axis, coordinate in zip(space.axes, space.coordinates, strict=True):
        low, high = context.bounds[coordinate]
        axes.append(Axis(axis.name, high - low + 1, low))
    return IndexSet(tuple(axes)).where(*_open(IndexSet(tuple(axes)), space.guards))


def _open(box: IndexSet, guards: Sequence[Expr]) -> list[Expr]:
    """Return the guards that the box alone does not decide."""
    context = Context(box)
    return [guard for guard in guards if context.decide(guard) is not True]


def inverse_on_image(map: LayoutMap, budget: int = DEFAULT_BUDGET) -> Answer[LayoutMap]:
    """Return g on the image of ``map`` with ``g(map(x)) = x``, for a map that is injective.

    The domain of g is the image: the codomain points y for which ``map(g(y)) = y``.
    """
    candidate = _read_off(map)
    if candidate is None:
        return Answer(unknown("the digits of the map are not read off one by one"))
    box, values = map.codomain.unguarded(), candidate
    whole = IndexExpr(box, map.domain.unguarded(), values)
    try:
        verdict = equal_maps(Compose(whole, map), Identity(map.domain), budget)
        if not verdict.proven:
            return Answer(unknown(f"g o f = id: {verdict}"))
        image = map.codomain.where(*_inside(map, values))
    except LayoutError as error:
        return Answer(unknown(str(error)))
    reason = "g o f = id, and f o g = id on the image by its guard"
    return Answer(proven(reason), IndexExpr(image, map.domain, values))


def _inside(map: LayoutMap, values: tuple[Expr, ...]) -> list[Expr]:
    """Return the predicates of the image: g(y) is in the domain and is mapped to y."""
    found: list[Expr] = []
    for value, axis in zip(values, map.domain.axes, strict=True):
        found.extend((le(axis.lower, value), lt(value, axis.lower + axis.extent)))
    named = dict(zip(map.domain.names, values, strict=True))
    found.extend(substitute(map.domain.guards, named))
    back = substitute(map.pieces[0].outputs, named)
    found.extend(eq(y, z) for y, z in zip(map.codomain.coordinates, back, strict=True))
    return _open(map.codomain.unguarded(), found)


def _read_off(map: LayoutMap) -> tuple[Expr, ...] | None:
    """Return the coordinates from the values, longest stride first: ``y // s``, then ``y % s``."""
    if len(map.pieces) != 1 or map.domain.parameters or map.domain.box_size is None:
        return None
    context = Context(map.domain.unguarded())
    try:
        forms = tuple(context.form(output) for output in map.pieces[0].outputs)
    except Unsafe:
        return None
    system = DigitSystem(forms, context.atom_interval, context.form_interval)
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

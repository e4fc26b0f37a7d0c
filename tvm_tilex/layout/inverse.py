"""``try_inverse``: a map and a proof, never a guess.

A candidate is built from the GF(2) matrix or from the mixed-radix digits; it is returned only
where both round trips are proved to be the identity. What neither gives is a finite table, within
the budget. A map that is not onto has an inverse on its image only, on request.
"""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Coordinate, Expr, ExprLike
from tvm_tilex.layout.forms import DigitSystem, Variable
from tvm_tilex.layout.gf2 import BitMatrix, bit_matrix
from tvm_tilex.layout.nodes import BitLinear, IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import verify_inverse
from tvm_tilex.layout.verdict import Answer, disproven, unknown

__all__ = ["digit_system", "try_inverse"]


def try_inverse(
    map: LayoutMap, budget: int = DEFAULT_BUDGET, *, on_image: bool = False
) -> Answer[LayoutMap]:
    """Return the two-sided inverse of a bijection with its proof.

    DISPROVEN where the map is refuted to be a bijection onto its codomain; UNKNOWN where it is
    not proved to be one, or no procedure builds the inverse.

    Parameters
    ----------
    on_image
        Accept a map that is not onto: the inverse is then defined on the image only, a guarded
        subset of the codomain.
    """
    from tvm_tilex.layout.image_inverse import inverse_by_table, inverse_on_image

    for name, verdict in prove(map, budget).items():
        if on_image and name == "surjectivity" and not verdict.proven:
            return inverse_on_image(map, budget)
        if verdict.disproven:
            return Answer(disproven(f"{name}: {verdict.reason}", verdict.witness))
        if not verdict.proven:
            return Answer(unknown(f"{name} is not proved: {verdict.reason}"))
    for build in (_by_digits, _by_bits):
        candidate = build(map)
        if candidate is None:
            continue
        verdict = verify_inverse(map, candidate, budget)
        if verdict.proven:
            return Answer(verdict, normalize(candidate))
    return inverse_by_table(map, budget)


def _by_bits(map: LayoutMap) -> LayoutMap | None:
    if len(map.pieces) != 1 or map.domain.guards or map.domain.box_size is None:
        return None
    matrix = bit_matrix(Context(map.domain), map.pieces[0].outputs)
    if matrix is None or any(a.lower for a in map.codomain.axes):
        return None
    basis = []
    for row, axis in enumerate(map.codomain.axes):
        vectors = []
        for bit in range(max(axis.bounds()[1], 0).bit_length()):
            point = _solve(matrix, 1 << (64 * row + bit), map.domain.rank)
            if point is None:
                return None
            vectors.append(point)
        basis.append(tuple(vectors))
    constant = sum(form.const << (64 * row) for row, form in enumerate(matrix.forms))
    moved = _solve(matrix, constant, map.domain.rank)
    if moved is None:
        return None
    try:
        return BitLinear(map.codomain, map.domain, tuple(basis), moved)
    except LayoutError:
        return None


def _solve(matrix: BitMatrix, target: int, rank: int) -> tuple[int, ...] | None:
    """Return the coordinates whose linear image is ``target``, or None."""
    pivots: dict[int, tuple[int, int]] = {}
    for i, column in enumerate(matrix.columns):
        vector, combination = column, 1 << i
        while vector and vector.bit_length() in pivots:
            base = pivots[vector.bit_length()]
            vector, combination = vector ^ base[0], combination ^ base[1]
        if vector:
            pivots[vector.bit_length()] = (vector, combination)
    chosen = 0
    while target:
        if target.bit_length() not in pivots:
            return None
        base = pivots[target.bit_length()]
        target, chosen = target ^ base[0], chosen ^ base[1]
    point = matrix.point(chosen)
    return tuple(point + [0] * (rank - len(point)))


def digit_system(map: LayoutMap) -> DigitSystem | None:
    """Return the digits of a map with one branch; None where symbolic or not safe."""
    if len(map.pieces) != 1 or map.domain.parameters or map.domain.box_size is None:
        return None
    context = Context(map.domain.unguarded())
    try:
        forms = tuple(context.form(output) for output in map.pieces[0].outputs)
    except Unsafe:
        return None
    return DigitSystem(forms, context.atom_interval, context.form_interval)


def _by_digits(map: LayoutMap) -> LayoutMap | None:
    """Invert each output that is a dense chain of digits: ``digit = (y - base) // step % n``."""
    system = digit_system(map)
    if system is None:
        return None
    values: dict[Variable, ExprLike] = {}
    for number, y in enumerate(map.codomain.coordinates):
        _read_digits(system, number, y, values)
    coordinates: list[ExprLike] = []
    for c, axis in zip(map.domain.coordinates, map.domain.axes, strict=True):
        built = _coordinate(system, c, axis.bounds(), values)
        if built is None:
            return None
        coordinates.append(built)
    try:
        return IndexExpr(map.codomain, map.domain, tuple(coordinates))
    except LayoutError:
        return None


def _read_digits(
    system: DigitSystem, number: int, y: Expr, values: dict[Variable, ExprLike]
) -> None:
    row = system.rows[number]
    low = system.row_interval(number)[0]
    rest = y - low if low else y
    ordered = sorted(row.items(), key=lambda item: abs(item[1]))
    for position, (variable, step) in enumerate(ordered):
        first, last = system.variable_interval(variable)
        upper = rest // abs(step) if abs(step) > 1 else rest
        digit = upper if position == len(ordered) - 1 else upper % (last - first + 1)
        values[variable] = last - digit if step < 0 else digit + first if first else digit


def _coordinate(
    system: DigitSystem, c: Coordinate, bounds: tuple[int, int], values: dict[Variable, ExprLike]
) -> ExprLike | None:
    const, weights = system._replaced.get(c, (0, {c: 1}))
    total: ExprLike = const
    for variable, weight in weights.items():
        low, high = system.variable_interval(variable)
        if low == high:
            total = total + low * weight
            continue
        if variable not in values:
            return bounds[0] if bounds[0] == bounds[1] else None
        total = total + values[variable] * weight
    return total

"""Concrete points against a fact; each is evaluated on the original DAG before it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.application import raw_value
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.evaluate import Evaluation
from tvm_tilex.layout.expr import Coordinate, Expr
from tvm_tilex.layout.forms import DigitSystem, Form, Variable
from tvm_tilex.layout.gf2 import BitMatrix
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.verdict import Witness

__all__ = [
    "bad_value",
    "collision",
    "kernel_pair",
    "parallel_columns",
    "prefix_pair",
    "probe_points",
    "repeated_value",
]

Point = tuple[int, ...]
_PIGEONHOLE_PROBES = 4096


def parameter_settings(space: IndexSet) -> list[dict[str, int]]:
    """Return the extreme parameter values: all least and all greatest."""
    low = {p.name: p.lower for p in space.parameters}
    high = {p.name: p.upper for p in space.parameters}
    return [low] if low == high else [low, high]


def probe_points(space: IndexSet, params: dict[str, int]) -> Iterator[Point]:
    """Yield the origin, both ends and the unit-bit points of each axis, and the far corner."""
    spans = [(a.lower, a.lower + a.extent_at(params) - 1) for a in space.axes]
    if any(low > high for low, high in spans):
        return
    origin = tuple(low for low, _ in spans)
    far = tuple(high for _, high in spans)
    seen = {origin}
    yield origin
    candidates = [far]
    for k, (low, high) in enumerate(spans):
        candidates.append((*origin[:k], high, *origin[k + 1 :]))
        candidates.append((*far[:k], low, *far[k + 1 :]))
        step = 1
        while low + step <= high:
            candidates.append((*origin[:k], low + step, *origin[k + 1 :]))
            step *= 2
    for point in candidates:
        if point not in seen:
            seen.add(point)
            yield point


def value_at(map: LayoutMap, point: Point, params: dict[str, int]) -> Point | LayoutError | None:
    """Return the outputs, the error that evaluation raised, or None outside the domain."""
    if not map.domain.contains(dict(zip(map.domain.names, point, strict=True)), params):
        return None
    run = Evaluation({**params, **dict(zip(map.domain.names, point, strict=True))})
    try:
        return raw_value(map, run, params)
    except LayoutError as error:
        return error


def bad_value(
    map: LayoutMap, points: Iterable[Point], params: dict[str, int]
) -> tuple[str, Witness, bool] | None:
    """Return the first point without a value (True) or with a value outside the codomain."""
    for point in points:
        value = value_at(map, point, params)
        if value is None:
            continue
        setting = tuple(sorted(params.items()))
        if isinstance(value, LayoutError):
            return str(value), Witness((point,), params=setting), True
        if not map.codomain.contains(dict(zip(map.codomain.names, value, strict=True)), params):
            witness = Witness((point,), (value,), params=setting)
            return f"value {value} at {point} is outside the codomain", witness, False
    return None


def collision(map: LayoutMap, a: Point, b: Point, params: dict[str, int]) -> Witness | None:
    """Return a witness where two distinct domain points have the same value."""
    if a == b:
        return None
    first, second = value_at(map, a, params), value_at(map, b, params)
    if first is None or isinstance(first, LayoutError) or first != second:
        return None
    return Witness((a, b), (first, first), params=tuple(sorted(params.items())))


def prefix_pair(delta: int, extent: int) -> tuple[int, int]:
    """Return two members of ``[0, extent)`` whose XOR is ``delta``, for extent > 1.

    With b = ceil(log2 extent) bits, every b-bit delta has such a pair: delta and 0 where delta is
    a member, else 2**(b-1) and delta ^ 2**(b-1), which is below 2**(b-1). So a GF(2) map that is
    not injective on the enclosing power of two is not injective on the ragged prefix either.
    """
    if delta < extent:
        return delta, 0
    top = 1 << ((extent - 1).bit_length() - 1)
    return top, delta ^ top


def kernel_pair(map: LayoutMap, matrix: BitMatrix) -> Witness | None:
    """Return two colliding in-domain points from a kernel vector of the GF(2) matrix."""
    if matrix.kernel is None:
        return None
    deltas = matrix.point(matrix.kernel)
    deltas += [0] * (map.domain.rank - len(deltas))
    left, right = [], []
    for axis, delta in zip(map.domain.axes, deltas, strict=True):
        a, b = prefix_pair(delta, axis.bounds()[1] + 1)
        left.append(a)
        right.append(b)
    params = parameter_settings(map.domain)[0]
    return collision(map, tuple(left), tuple(right), params)


def _place(system: DigitSystem, space: IndexSet) -> dict[Variable, tuple[int, int]]:
    """Return, per unknown, the axis it belongs to and its weight in that coordinate."""
    places: dict[Variable, tuple[int, int]] = {}
    for number, c in enumerate(space.coordinates):
        digits = system.coordinate_digits.get(c)
        if digits is None:
            places[c] = (number, 1)
            continue
        _, weights = system._replaced[c]
        for digit, weight in weights.items():
            places[digit] = (number, weight)
    return places


def parallel_columns(map: LayoutMap, context: Context, forms: tuple[Form, ...]) -> Witness | None:
    """Return a collision from a zero column, or from two parallel columns divided by their gcd."""
    space = map.domain
    system = DigitSystem(forms, context.atom_interval, context.form_interval)
    places = _place(system, space)
    columns: dict[Variable, list[int]] = {v: [0] * len(forms) for v in places}
    for number, row in enumerate(system.rows):
        for variable, coefficient in row.items():
            if variable in columns:
                columns[variable][number] = coefficient
            elif isinstance(variable, Coordinate) or not isinstance(variable, Expr):
                return None
    live = {}
    for v, column in columns.items():
        low, high = system.variable_interval(v)
        if high > low:
            live[v] = (column, high - low)
    items = list(live.items())
    params = parameter_settings(space)[0]
    for index, (v, (column, width)) in enumerate(items):
        if not any(column):
            found = _pair(map, places, {v: 1}, {}, params)
            if found is not None:
                return found
            continue
        for u, (other, other_width) in items[index + 1 :]:
            ratio = _ratio(column, other)
            if ratio is None or abs(ratio[0]) > width or abs(ratio[1]) > other_width:
                continue
            p, q = ratio
            found = (
                _pair(map, places, {v: p}, {u: q}, params)
                if q > 0
                else _pair(map, places, {v: p, u: -q}, {}, params)
            )
            if found is not None:
                return found
    return None


def _ratio(a: list[int], b: list[int]) -> tuple[int, int] | None:
    """Return the least p > 0 and q with ``p * a == q * b``, for parallel columns."""
    lead = next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x or y), None)
    if lead is None or a[lead] == 0 or b[lead] == 0:
        return None
    common = gcd(a[lead], b[lead])
    p, q = abs(b[lead]) // common, abs(a[lead]) // common
    if (a[lead] > 0) != (b[lead] > 0):
        q = -q
    if any(p * x != q * y for x, y in zip(a, b, strict=True)):
        return None
    return p, q


def _pair(
    map: LayoutMap,
    places: dict[Variable, tuple[int, int]],
    first: dict[Variable, int],
    second: dict[Variable, int],
    params: dict[str, int],
) -> Witness | None:
    spans = [(a.lower, a.bounds()[1]) for a in map.domain.axes]
    # Both points start from the same corner, so only the named unknowns differ.
    start = [low for low, _ in spans]
    if any(places[v][1] < 0 for v in (*first, *second)):
        start = [
            high if any(places[v][0] == k and places[v][1] < 0 for v in (*first, *second)) else low
            for k, (low, high) in enumerate(spans)
        ]
    points = []
    for moves in (first, second):
        point = list(start)
        for variable, amount in moves.items():
            axis, weight = places[variable]
            point[axis] += weight * amount
        points.append(tuple(point))
    return collision(map, points[0], points[1], params)


def repeated_value(map: LayoutMap, params: dict[str, int]) -> Witness | None:
    """Return a collision among a bounded number of spread domain points."""
    sizes = [a.extent_at(params) for a in map.domain.axes]
    seen: dict[Point, Point] = {}
    total = 1
    for size in sizes:
        total *= size
    for k in range(min(_PIGEONHOLE_PROBES, total)):
        flat = k if total <= _PIGEONHOLE_PROBES else (k * 0x9E3779B97F4A7C15) % total
        point = []
        for axis, size in zip(map.domain.axes, sizes, strict=True):
            flat, digit = divmod(flat, size)
            point.append(axis.lower + digit)
        value = value_at(map, tuple(point), params)
        if value is None or isinstance(value, LayoutError):
            continue
        first = seen.setdefault(value, tuple(point))
        if first != tuple(point):
            return Witness((first, tuple(point)), (value, value), params=tuple(params.items()))
    return None

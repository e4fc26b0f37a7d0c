"""The exhaustive oracle: an evaluator of its own, no normalizer, no flattening, no intervals.

It imports the map nodes only to read their fields. Every proof procedure is tested against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Piecewise, Product, Transform, Translate
from tvm_tilex.layout.expr import (
    Call,
    Constant,
    Coordinate,
    Expr,
    Lookup,
    Op,
    Operation,
    Parameter,
)
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import BitLinear, FiniteTable, Identity, IndexExpr, Permute, Project
from tvm_tilex.layout.radix import MixedRadix
from tvm_tilex.layout.recast import Recast
from tvm_tilex.layout.verdict import LayoutProof, Verdict, Witness, disproven, proven, unknown

__all__ = ["OracleFailure", "analyze_finite", "finite_size", "oracle_value"]

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
Point = tuple[int, ...]


class OracleFailure(Exception):
    """The map has no value at a point: overflow, zero divisor, or an intermediate bound."""


def _fit(value: int) -> int:
    if value < _LOW or value > _HIGH:
        raise OracleFailure(f"{value} is outside signed 64-bit range")
    return value


def _pattern(value: int) -> int:
    return value % (1 << 64)


def _from_pattern(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _binary(op: Op, a: int, b: int) -> int:
    symbol = op.value
    if symbol in ("//", "%"):
        if b == 0 or (a == _LOW and b == -1):
            raise OracleFailure(f"{a} {symbol} {b}")
        quotient, remainder = divmod(a, b)
        return quotient if symbol == "//" else remainder
    if symbol in ("<<", ">>"):
        if b < 0 or b > 63:
            raise OracleFailure(f"shift by {b}")
        scale = 1 << b
        bits = _pattern(a) * scale if symbol == "<<" else _pattern(a) // scale
        return _from_pattern(bits % (1 << 64))
    if symbol in ("^", "&"):
        x, y = _pattern(a), _pattern(b)
        return _from_pattern(x ^ y if symbol == "^" else x & y)
    if symbol in ("<", "<=", "==", "!="):
        held = {"<": a < b, "<=": a <= b, "==": a == b, "!=": a != b}[symbol]
        return 1 if held else 0
    return _fit({"+": a + b, "-": a - b, "*": a * b}[symbol])


def _operands(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Operation):
        return (expr.left, expr.right)
    if isinstance(expr, Lookup):
        return expr.indices
    return (expr.operand,) if isinstance(expr, Call) else ()


def _expression(expr: Expr, env: Mapping[str, int], memo: dict[Expr, int]) -> int:
    """Evaluate with an explicit stack, so that depth is not limited."""
    stack = [expr]
    while stack:
        node = stack[-1]
        missing = [e for e in _operands(node) if e not in memo]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if node not in memo:
            memo[node] = _node(node, env, memo)
    return memo[expr]


def _node(expr: Expr, env: Mapping[str, int], memo: dict[Expr, int]) -> int:
    if isinstance(expr, Constant):
        return expr.value
    if isinstance(expr, (Coordinate, Parameter)):
        return env[expr.name]
    if isinstance(expr, Operation):
        return _binary(expr.op, memo[expr.left], memo[expr.right])
    if isinstance(expr, Lookup):
        index = [memo[i] for i in expr.indices]
        if any(not 0 <= i < n for i, n in zip(index, expr.shape, strict=True)):
            raise OracleFailure(f"table index {index}")
        steps = [prod(expr.shape[k + 1 :]) for k in range(len(index))]
        return expr.values[sum(i * s for i, s in zip(index, steps, strict=True))]
    if isinstance(expr, Call):
        return _fit(expr.evaluator.evaluate(memo[expr.operand]))
    raise LayoutError(f"the oracle has no rule for {type(expr).__name__}")


def _member(space: IndexSet, point: Point, params: Mapping[str, int]) -> bool:
    for axis, x in zip(space.axes, point, strict=True):
        extent = axis.extent
        size = extent if isinstance(extent, int) else _expression(extent, params, {})
        if not axis.lower <= x < axis.lower + size:
            return False
    env = {**params, **dict(zip(space.names, point, strict=True))}
    return all(_expression(guard, env, {}) for guard in space.guards)


def _lexicographic(spans: list[range]) -> Iterator[Point]:
    """Yield the product of the ranges lazily (a codomain axis may be astronomically long)."""
    if not spans:
        yield ()
        return
    for x in spans[0]:
        for rest in _lexicographic(spans[1:]):
            yield (x, *rest)


def _points(space: IndexSet, params: Mapping[str, int]) -> Iterator[Point]:
    spans = []
    for axis in space.axes:
        extent = axis.extent
        size = extent if isinstance(extent, int) else _expression(extent, params, {})
        spans.append(range(axis.lower, axis.lower + size))
    for point in _lexicographic(spans):
        if not space.guards or _member(space, point, params):
            yield point


def _radix(map: MixedRadix, point: Point) -> Point:
    values = []
    for name in map.codomain.names:
        parts = []
        for x, mode in zip(point, map.digits, strict=True):
            size, below = prod(n for n, _ in mode), 1
            for extent, leaf in mode:
                step = map.component(leaf, name)
                if step and extent > 1 and size:
                    digit = x // below % extent
                    parts.append(_fit(digit * step))
                below *= extent
        total = 0
        for part in parts:
            total = _fit(total + part)
        values.append(_fit(total + map.component(map.offset, name)))
    return tuple(values)


def _bits(map: BitLinear, point: Point) -> Point:
    values = list(map.translation)
    for x, vectors in zip(point, map.basis, strict=True):
        for bit, vector in enumerate(vectors):
            if x & (1 << bit):
                values = [v ^ w for v, w in zip(values, vector, strict=True)]
    return tuple(values)


def _table(map: FiniteTable, point: Point) -> Point:
    row = 0
    for axis, x, extent in zip(map.domain.axes, point, map.domain.shape, strict=True):
        row = row * extent + (x - axis.lower)
    return map.values[row]


def _inner(map: LayoutMap, point: Point, params: Mapping[str, int]) -> Point:
    """Return the value of an inner map, which must lie in its own codomain."""
    value = oracle_value(map, point, params)
    if not _member(map.codomain, value, params):
        raise OracleFailure(f"intermediate value {value} leaves {map.codomain}")
    return value


def _recast(map: Recast, point: Point, params: Mapping[str, int]) -> Point:
    axis = map.domain.names.index(map.axis)
    coords = list(point)
    up, down = map.unit
    if up > 1:
        coords[axis] *= up
        return (_inner(map.map, tuple(coords), params)[0] // up,)
    coords[axis], rest = divmod(coords[axis], down)
    return (_fit(_inner(map.map, tuple(coords), params)[0] * down + rest),)


def _branch(map: Piecewise, point: Point, params: Mapping[str, int]) -> Point:
    env = {**params, **dict(zip(map.domain.names, point, strict=True))}
    for guards, branch in zip(map.guards, map.branches, strict=True):
        if all(_expression(guard, env, {}) for guard in guards):
            return oracle_value(branch, point, params)
    raise OracleFailure("no branch covers the point")


def oracle_value(map: LayoutMap, point: Point, params: Mapping[str, int]) -> Point:
    """Return the outputs at a domain point by structural recursion; the codomain isn't checked.

    Raises OracleFailure where the map has no value.
    """
    if isinstance(map, Identity):
        return point
    if isinstance(map, (Project, Permute)):
        return tuple(point[map.domain.names.index(name)] for name in map.axes)
    if isinstance(map, MixedRadix):
        return _radix(map, point)
    if isinstance(map, BitLinear):
        return _bits(map, point)
    if isinstance(map, FiniteTable):
        return _table(map, point)
    if isinstance(map, IndexExpr):
        env = {**params, **dict(zip(map.domain.names, point, strict=True))}
        memo: dict[Expr, int] = {}
        return tuple(_expression(value, env, memo) for value in map.expressions())
    if isinstance(map, Translate):
        inner = _inner(map.map, point, params)
        return tuple(_fit(v + d) for v, d in zip(inner, map.offset, strict=True))
    if isinstance(map, Compose):
        return oracle_value(map.outer, _inner(map.inner, point, params), params)
    if isinstance(map, Transform):
        return (_fit(map.bound.evaluate(_inner(map.map, point, params)[0])),)
    if isinstance(map, Product):
        values: list[int] = []
        start = 0
        for factor in map.maps:
            end = start + factor.domain.rank
            values.extend(oracle_value(factor, point[start:end], params))
            start = end
        return tuple(values)
    if isinstance(map, Piecewise):
        return _branch(map, point, params)
    if isinstance(map, Recast):
        return _recast(map, point, params)
    raise LayoutError(f"the oracle has no rule for {type(map).__name__}")


def finite_size(map: LayoutMap) -> int | None:
    """Return the enumeration cost (box points times parameter values); None where unbounded."""
    cost = prod(p.upper - p.lower + 1 for p in map.domain.parameters)
    for axis in map.domain.axes:
        cost *= max(axis.bounds()[1] - axis.lower + 1, 0)
    target = prod(max(a.bounds()[1] - a.lower + 1, 0) for a in map.codomain.axes)
    # Enumerating a guarded codomain is needed too; a plain box is only counted.
    return max(cost, target) if map.codomain.guards else cost


def analyze_finite(map: LayoutMap, limit: int = 1 << 20) -> LayoutProof:
    """Enumerate every parameter value and domain point; UNKNOWN only past ``limit`` points."""
    size = finite_size(map)
    if size is None or size > limit:
        verdict = unknown(f"{size} points exceed the exhaustive limit {limit}")
        return LayoutProof(verdict, verdict, verdict, verdict)
    facts: list[Verdict | None] = [None, None, None, None]
    names = [p.name for p in map.domain.parameters]
    spans = [range(p.lower, p.upper + 1) for p in map.domain.parameters]
    for chosen in product(*spans):
        _enumerate(map, dict(zip(names, chosen, strict=True)), facts)
    reason = f"exhaustive over {size} points"
    return LayoutProof(*(proven(reason) if fact is None else fact for fact in facts))


def _note(facts: list[Verdict | None], k: int, reason: str, witness: Witness) -> None:
    """Keep the first refutation of fact ``k``."""
    if facts[k] is None:
        facts[k] = disproven(reason, witness)


def _enumerate(map: LayoutMap, params: dict[str, int], facts: list[Verdict | None]) -> None:
    seen: dict[Point, Point] = {}
    inside: set[Point] = set()
    setting = tuple(sorted(params.items()))
    for point in _points(map.domain, params):
        try:
            value = oracle_value(map, point, params)
        except OracleFailure as failure:
            _note(facts, 0, str(failure), Witness((point,), params=setting))
            _note(facts, 1, f"no value: {failure}", Witness((point,), params=setting))
            continue
        if _member(map.codomain, value, params):
            inside.add(value)
        else:
            witness = Witness((point,), (value,), params=setting)
            _note(facts, 1, f"value {value} is outside the codomain", witness)
        first = seen.setdefault(value, point)
        if first is not point:
            witness = Witness((first, point), (value, value), params=setting)
            _note(facts, 2, "two points collide", witness)
    if facts[3] is None:
        facts[3] = _surjectivity(map, params, inside, setting)


def _surjectivity(
    map: LayoutMap, params: dict[str, int], inside: set[Point], setting: tuple[tuple[str, int], ...]
) -> Verdict | None:
    for target in _points(map.codomain, params):
        if target not in inside:
            witness = Witness(missing=target, params=setting)
            return disproven(f"{target} is not reached", witness)
    return None

"""Contiguity: the largest V such that aligned blocks of an axis are aligned runs of values."""

from __future__ import annotations

from math import gcd

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import (
    Coordinate,
    Expr,
    Op,
)
from tvm_tilex.layout.finite import OracleFailure, _points, finite_size, oracle_value
from tvm_tilex.layout.forms import Quotient
from tvm_tilex.layout.gf2 import BitForm, bit_matrix
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import output_number
from tvm_tilex.layout.verdict import Answer, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.visitor import leaves, substitute
from tvm_tilex.layout.witness import parameter_settings, probe_points, value_at

__all__ = ["contiguity"]

Point = tuple[int, ...]


def contiguity(
    map: LayoutMap,
    axis: str | None = None,
    output: str | None = None,
    budget: int = DEFAULT_BUDGET,
    at_most: int | None = None,
) -> Answer[int]:
    """Return the largest V such that aligned blocks of V along ``axis`` are aligned runs.

    For every block ``x = V*k .. V*k + V - 1`` of the axis that meets the domain, the whole block
    is in the domain and the value is ``b, b+1, .., b+V-1`` with V dividing ``b``. V divides the
    extent of the axis. By default the last axis. A guard ``e < N`` that cuts the last run makes V
    smaller; to ask for full packs only, restrict the domain by ``base + V <= N`` instead.
    """
    names = map.domain.names
    name = axis if axis is not None else names[-1] if names else ""
    if name not in names:
        raise LayoutError(f"'{name}' is not an axis of the domain {names}")
    number = output_number(map, output)
    extent = map.domain.axes[names.index(name)]
    if not isinstance(extent.extent, int) or extent.lower:
        return Answer(unknown(f"axis '{name}' is not static and zero-based"))
    if extent.extent == 0:
        return Answer(proven("no point"), 0)
    for v in _divisors(extent.extent if at_most is None else gcd(at_most, extent.extent)):
        verdict = _run_of(map, name, number, v, budget)
        if verdict.unknown:
            return Answer(verdict)
        if verdict.proven:
            return Answer(verdict, v)
    return Answer(proven("single elements"), 1)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)}, reverse=True)


def _run_of(map: LayoutMap, name: str, number: int, v: int, budget: int) -> Verdict:
    """Decide whether aligned blocks of ``v`` along the axis are aligned runs of ``v``."""
    if v == 1:
        return proven("single elements")
    found = _refuted_run(map, name, number, v)
    if found is not None:
        return found
    if prove(map, 0).totality.proven and all(
        _piece_run(map, k, name, number, v) for k in range(len(map.pieces))
    ):
        return proven("run and base of the linear form")
    size = finite_size(map)
    if map.domain.parameters or size is None or size > budget:
        return unknown(f"runs of {v} along '{name}' are not decided")
    return _enumerated_run(map, name, number, v)


def _blocks(map: LayoutMap, point: Point, name: str, v: int) -> list[Point]:
    k = map.domain.names.index(name)
    start = point[k] - point[k] % v
    return [(*point[:k], start + j, *point[k + 1 :]) for j in range(v)]


def _refuted_run(map: LayoutMap, name: str, number: int, v: int) -> Verdict | None:
    for params in parameter_settings(map.domain):
        probes = list(probe_points(map.domain, params))
        probes.extend(_tail_points(map, params))
        for point in probes:
            first = value_at(map, point, params)
            if not isinstance(first, tuple):
                continue
            for k in {0, 1, v // 2, v - 1}:
                other = (
                    _blocks(map, point, name, v)[k]
                    if v <= 64
                    else _block_point(map, point, name, v, k)
                )
                value = value_at(map, other, params)
                offset = point[map.domain.names.index(name)] % v
                base = first[number] - offset
                if not isinstance(value, tuple) or base % v or value[number] != base + k:
                    return disproven(f"no run of {v} at {point}", Witness((point, other)))
    return None


def _block_point(map: LayoutMap, point: Point, name: str, v: int, k: int) -> Point:
    axis = map.domain.names.index(name)
    return (*point[:axis], point[axis] - point[axis] % v + k, *point[axis + 1 :])


def _tail_points(map: LayoutMap, params: dict[str, int]) -> list[Point]:
    """Return a few members next to a guard's edge: the last ones along each axis."""
    found: list[Point] = []
    if not map.domain.guards:
        return found
    for start in list(probe_points(map.domain, params))[:1]:
        point = list(start)
        for k, axis in enumerate(map.domain.axes):
            low, high = point[k], axis.lower + axis.extent_at(params) - 1
            while low < high:
                middle = (low + high + 1) // 2
                trial = (*point[:k], middle, *point[k + 1 :])
                member = map.domain.contains(
                    dict(zip(map.domain.names, trial, strict=True)), params
                )
                low, high = (middle, high) if member else (low, middle - 1)
            point[k] = low
            found.append(tuple(point))
    return found


def _piece_run(map: LayoutMap, k: int, name: str, number: int, v: int) -> bool:
    """Substitute ``x = v * block + slot`` and compare with ``base + slot``, v dividing base."""
    piece = map.pieces[k]
    domain = map.domain
    axes = []
    block, slot = f"{name}_block", f"{name}_slot"
    while {block, slot} & set(domain.names):
        block, slot = block + "_", slot + "_"
    for axis in domain.axes:
        if axis.name == name:
            axes.extend([Axis(block, (axis.bounds()[1] + 1) // v), Axis(slot, v)])
        else:
            axes.append(axis)
    split = IndexSet(tuple(axes), (), domain.parameters)
    named = dict(zip(split.names, split.coordinates, strict=True))
    whole = {name: named[block] * v + named[slot]}
    guards = substitute(domain.guards + piece.guards, whole)
    (value,) = substitute((piece.outputs[number],), whole)
    context = Context(split, guards)
    if context.empty:
        return True
    try:
        run = context.form(value).add(context.form(named[slot]), -1)
    except Unsafe:
        return False
    if any(_uses(atom, slot) for atom in run.terms):
        matrix = bit_matrix(context, (value,))
        if guards or matrix is None or v & (v - 1):
            return False
        return _bit_run(matrix.forms[0], matrix.inputs, split.names.index(slot), v)
    if run.const % v or any(c % v for c in run.terms.values()):
        return False
    return all(_guard_by_blocks(context, split, guards, g, slot, v) for g in guards)


def _uses(atom: object, name: str) -> bool:
    if isinstance(atom, Quotient):
        return any(_uses(inner, name) for inner in atom.form.terms)
    return isinstance(atom, Expr) and any(
        isinstance(leaf, Coordinate) and leaf.name == name for leaf in leaves((atom,))
    )


def _bit_run(form: BitForm, inputs: list[tuple[int, int]], axis: int, v: int) -> bool:
    low = v - 1
    if form.const & low:
        return False
    patterns = dict(form.basis)
    for i, (number, bit) in enumerate(inputs):
        pattern = patterns.get(i, 0)
        if number == axis:
            if pattern != 1 << bit:
                return False
        elif pattern & low:
            return False
    return True


def _guard_by_blocks(
    context: Context, split: IndexSet, guards: tuple[Expr, ...], guard: Expr, slot: str, v: int
) -> bool:
    """Whether a guard holds for a whole block or for none of it."""
    box = Context(split)
    try:
        form = box.form(guard.left).add(box.form(guard.right), -1)  # type: ignore[attr-defined]
    except (Unsafe, AttributeError):
        return False
    step = sum(c for a, c in form.terms.items() if isinstance(a, Coordinate) and a.name == slot)
    others = [a for a in form.terms if not (isinstance(a, Coordinate) and a.name == slot)]
    if any(_uses(a, slot) for a in others):
        return False
    if step == 0:
        return True
    operation = guard.op  # type: ignore[attr-defined]
    if step != 1 or operation not in (Op.LT, Op.LE):
        return False
    # slot + v*q < -const keeps or drops whole blocks exactly where v divides both terms.
    limit = form.const if operation is Op.LT else form.const - 1
    return limit % v == 0 and all(form.terms[a] % v == 0 for a in others)


def _enumerated_run(map: LayoutMap, name: str, number: int, v: int) -> Verdict:
    members = set(_points(map.domain, {}))
    for point in members:
        block = _blocks(map, point, name, v)
        try:
            values = [oracle_value(map, p, {})[number] for p in block if p in members]
        except OracleFailure:
            return unknown("the map is not total")
        runs = list(range(values[0], values[0] + v)) if values else []
        if len(values) != v or values != runs or values[0] % v:
            return disproven(f"no run of {v} at {point}", Witness((point,)))
    return proven(f"exhaustive over {len(members)} points")

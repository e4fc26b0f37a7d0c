"""Normalization of index expressions into the strongest node that is proved equal.

Order: identity, permutation, projection, mixed radix, registered swizzle, bit-linear; anything
else stays an IndexExpr. Only a map whose every subexpression is proved safe is rewritten, so a
normal form never hides an overflow. No rule produces a FiniteTable.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Transform
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Coordinate, Op, Operation
from tvm_tilex.layout.forms import DigitSystem, Form, Variable
from tvm_tilex.layout.gf2 import BitMatrix, bit_matrix
from tvm_tilex.layout.nodes import BitLinear, Identity, IndexExpr, Permute, Project
from tvm_tilex.layout.radix import MixedRadix
from tvm_tilex.layout.transforms import bind_transform

__all__ = ["normalize"]


def normalize(map: LayoutMap) -> LayoutMap:
    """Return an equal map in the strongest node that is proved, or ``map`` itself.

    Domain and codomain are kept. Maps with several branches are returned as they are.
    """
    if len(map.pieces) != 1 or map.pieces[0].guards or map.domain.is_empty_box:
        return map
    piece = map.pieces[0]
    if piece.checks:
        from tvm_tilex.layout.bounds import safety_reason

        if safety_reason(Context(map.domain), piece) is not None:
            return map
    context = Context(map.domain.unguarded())
    try:
        forms = tuple(context.form(output) for output in piece.outputs)
    except Unsafe:
        return map
    selected = _selection(map, context, forms)
    if selected is not None:
        return selected
    radix = _mixed_radix(map, context, forms)
    if radix is not None:
        return radix
    swizzle = _swizzle(map, context)
    if swizzle is not None:
        return swizzle
    matrix = bit_matrix(context, piece.outputs)
    if matrix is not None:
        built = _bit_linear(map, matrix)
        if built is not None:
            return built
    if isinstance(map, IndexExpr):
        return map
    return IndexExpr(map.domain, map.codomain, piece.outputs)


def _selection(map: LayoutMap, context: Context, forms: tuple[Form, ...]) -> LayoutMap | None:
    """Recognize identity, permutation and projection: each output is one distinct coordinate."""
    names: list[str] = []
    for form in forms:
        if form.const or len(form.terms) != 1:
            return None
        ((atom, coefficient),) = form.terms.items()
        if not isinstance(atom, Coordinate) or coefficient != 1 or atom.name in names:
            return None
        names.append(atom.name)
    candidates: list[LayoutMap] = []
    if tuple(names) == map.domain.names:
        candidates.append(Identity(map.domain))
    elif len(names) == map.domain.rank:
        candidates.append(Permute(map.domain, tuple(names)))
    else:
        candidates.append(Project(map.domain, tuple(names)))
    for candidate in candidates:
        if _same_box(candidate, map):
            return candidate
    return None


def _same_box(candidate: LayoutMap, map: LayoutMap) -> bool:
    """Whether the node's own codomain is the declared one (names included)."""
    return candidate.codomain == map.codomain


def _digit_rows(
    map: LayoutMap, context: Context, forms: tuple[Form, ...]
) -> tuple[DigitSystem, dict[Coordinate, dict[Variable, int]]] | None:
    system = DigitSystem(forms, context.atom_interval, context.form_interval)
    if not system.exact or system.definitions:
        return None
    layout: dict[Coordinate, dict[Variable, int]] = {}
    known: set[Variable] = set()
    for c in map.domain.coordinates:
        replaced = system._replaced.get(c)
        layout[c] = {c: 1} if replaced is None else replaced[1]
        if replaced is not None and replaced[0]:
            return None
        known.update(layout[c])
    for row in system.rows:
        if any(variable not in known for variable in row):
            return None
    return system, layout


def _mixed_radix(map: LayoutMap, context: Context, forms: tuple[Form, ...]) -> LayoutMap | None:
    domain = map.domain
    if domain.parameters or domain.box_size is None or any(a.lower for a in domain.axes):
        return None
    found = _digit_rows(map, context, forms)
    if found is None:
        return None
    system, layout = found
    names = map.codomain.names
    vector = len(names) != 1
    modes: list[Any] = []
    strides: list[Any] = []
    for c in domain.coordinates:
        digits = sorted(layout[c].items(), key=lambda item: item[1])
        extents, steps = [], []
        for variable, _ in digits:
            low, high = system.variable_interval(variable)
            column = [row.get(variable, 0) for row in system.rows]
            extents.append(high - low + 1)
            steps.append(_leaf(column, names, vector))
        modes.append(extents[0] if len(extents) == 1 else tuple(extents))
        strides.append(steps[0] if len(steps) == 1 else tuple(steps))
    shape: Any = modes[0] if len(modes) == 1 else tuple(modes)
    stride: Any = strides[0] if len(strides) == 1 else tuple(strides)
    if len(modes) == 1 and isinstance(shape, tuple):
        # One axis with several digits stays one top-level mode.
        shape, stride = (shape,), (stride,)
    offset = _leaf(system.constants, names, vector)
    try:
        built = MixedRadix(shape, stride, offset, domain, map.codomain)
    except LayoutError:
        return None
    return built if _safe(built) else None


def _leaf(column: list[int], names: tuple[str, ...], vector: bool) -> Any:
    if not vector:
        return column[0] if column else 0
    pairs = tuple((n, v) for n, v in zip(names, column, strict=True) if v)
    return pairs if pairs else 0


def _safe(built: LayoutMap) -> bool:
    """Whether the normal form's own subexpressions are safe too (its sums may run differently)."""
    context = Context(built.domain)
    return all(context.intervals.safe_reason(o) is None for o in built.pieces[0].outputs)


def _swizzle(map: LayoutMap, context: Context) -> LayoutMap | None:
    """Recognize ``y ^ ((y & mask) >> s)`` over an affine ``y`` on one static axis."""
    outputs = map.pieces[0].outputs
    if len(outputs) != 1 or map.codomain.rank != 1 or map.codomain.guards:
        return None
    found = _swizzle_parts(outputs[0])
    if found is None:
        return None
    inner, arguments = found
    try:
        high = context.interval(inner)[1]
        domain = map.domain
        extent = map.codomain.box_size
        if extent is None or high >= extent or map.codomain.axes[0].lower:
            return None
        if bind_transform("xor_swizzle", arguments).image_extent(extent) != extent:
            return None
        base = normalize(IndexExpr(domain, map.codomain, (inner,)))
        if not isinstance(base, (MixedRadix, Identity)):
            return None
        return Transform("xor_swizzle", arguments, base)
    except (Unsafe, LayoutError):
        return None


def _swizzle_parts(expr: Any) -> tuple[Any, tuple[int, int, int]] | None:
    if not isinstance(expr, Operation) or expr.op is not Op.XOR:
        return None
    for inner, shifted in ((expr.left, expr.right), (expr.right, expr.left)):
        if not isinstance(shifted, Operation) or shifted.op not in (Op.SHR, Op.SHL):
            continue
        masked, amount = shifted.left, getattr(shifted.right, "value", None)
        if not isinstance(masked, Operation) or masked.op is not Op.AND or amount is None:
            continue
        mask = getattr(masked.right, "value", None)
        if masked.left is not inner or mask is None or mask <= 0:
            continue
        low = (mask & -mask).bit_length() - 1
        bits = mask.bit_length() - low
        if mask >> low != (1 << bits) - 1:
            continue
        right = shifted.op is Op.SHR
        base = low - amount if right else low
        shift = amount if right else -amount
        if base >= 0 and abs(shift) >= bits:
            return inner, (bits, base, shift)
    return None


def _bit_linear(map: LayoutMap, matrix: BitMatrix) -> LayoutMap | None:
    if any(form.support >> 63 for form in matrix.forms) or map.domain.parameters:
        return None
    if not matrix.forms:
        return None
    rows = [dict(form.basis) for form in matrix.forms]
    basis: list[list[tuple[int, ...]]] = [[] for _ in map.domain.axes]
    for i, (axis, _) in enumerate(matrix.inputs):
        basis[axis].append(tuple(row.get(i, 0) for row in rows))
    translation = tuple(form.const for form in matrix.forms)
    return BitLinear(map.domain, map.codomain, tuple(map_rows(basis)), translation)


def map_rows(basis: list[list[tuple[int, ...]]]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the nested basis as tuples."""
    return [tuple(vectors) for vectors in basis]

"""Three-valued queries: image, cardinality, alignment, contiguity, equality, inverse.

Each is exact for affine, GF(2) and registered maps; elsewhere it enumerates within a budget or
answers UNKNOWN.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Coordinate, Expr, Parameter
from tvm_tilex.layout.finite import OracleFailure, _points, finite_size, oracle_value
from tvm_tilex.layout.forms import Form, Quotient
from tvm_tilex.layout.gf2 import BitForm, bit_matrix
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.proof import DEFAULT_BUDGET, Prover, prove
from tvm_tilex.layout.sizes import cardinality_of
from tvm_tilex.layout.verdict import Answer, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.witness import parameter_settings, probe_points, value_at

__all__ = [
    "Image",
    "alignment",
    "cardinality",
    "equal_maps",
    "image",
    "verify_inverse",
]

Point = tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """An image: its number of points and, per codomain axis, the least and greatest value.

    ``full_box`` says that the image is exactly the box of these intervals.
    """

    size: int
    intervals: tuple[tuple[int, int], ...]

    @property
    def full_box(self) -> bool:
        """Whether every point between the extremes is reached."""
        box = 1
        for low, high in self.intervals:
            box *= high - low + 1
        return box == self.size


def _refuse_parameters(map: LayoutMap) -> Verdict | None:
    return unknown("the map has parameters") if map.domain.parameters else None


def image(map: LayoutMap, budget: int = DEFAULT_BUDGET) -> Answer[Image]:
    """Return size and per-axis extremes of the image, exactly, or UNKNOWN."""
    refused = _refuse_parameters(map)
    if refused is not None:
        return Answer(refused)
    facts = prove(map, 0)
    if facts.totality.proven:
        prover = _prepared(map)
        found = _exact_image(map, prover)
        if found is not None:
            return Answer(proven("exact affine or GF(2) image"), found)
    values = _values(map, budget)
    if values is None:
        return Answer(unknown("the image is neither affine nor GF(2), nor within the budget"))
    columns = list(zip(*values, strict=True))
    spans = tuple((min(c), max(c)) for c in columns) if values else ()
    return Answer(proven(f"exhaustive over {len(values)} values"), Image(len(values), spans))


def _prepared(map: LayoutMap) -> Prover:
    prover = Prover(map)
    prover.run(0)
    return prover


def _exact_image(map: LayoutMap, prover: Prover) -> Image | None:
    from tvm_tilex.layout.affine import image_size

    if len(prover.pieces) != 1:
        return None
    forms = prover.forms(0)
    affine = image_size(prover.contexts[0], forms) if forms is not None else None
    if affine is not None:
        return Image(affine.size, tuple(affine.intervals))
    matrix = prover.matrix(0)
    powers = all((a.bounds()[1] + 1) & a.bounds()[1] == 0 for a in map.domain.axes)
    if matrix is None or not powers or map.domain.guards:
        return None
    if any(form.support >> 63 for form in matrix.forms):
        return None
    spans = tuple(_bit_span(form, matrix.maximum(row)[0]) for row, form in enumerate(matrix.forms))
    return Image(1 << matrix.rank, spans)


def _bit_span(form: BitForm, high: int) -> tuple[int, int]:
    """Return the least and greatest value; the least is the XOR basis applied the other way."""
    pivots: dict[int, int] = {}
    for _, pattern in form.basis:
        vector = pattern
        while vector and vector.bit_length() in pivots:
            vector ^= pivots[vector.bit_length()]
        if vector:
            pivots[vector.bit_length()] = vector
    low = form.const
    for top in sorted(pivots, reverse=True):
        if low >> (top - 1) & 1:
            low ^= pivots[top]
    return (low, high)


def _values(map: LayoutMap, budget: int) -> set[Point] | None:
    size = finite_size(map)
    if size is None or size > budget:
        return None
    found: set[Point] = set()
    for point in _points(map.domain, {}):
        try:
            found.add(oracle_value(map, point, {}))
        except OracleFailure:
            return None
    return found


def cardinality(subject: LayoutMap | IndexSet, budget: int = DEFAULT_BUDGET) -> Answer[int]:
    """Return the number of points of an index set, or of distinct values of a map."""
    if isinstance(subject, IndexSet):
        size = cardinality_of(subject)
        if size is not None:
            return Answer(proven("counted from extents and a bijective guard"), size)
        if subject.parameters or (subject.box_size or 0) > budget:
            return Answer(unknown("symbolic, or beyond the budget"))
        return Answer(proven("exhaustive"), sum(1 for _ in subject.points()))
    facts = prove(subject, 0)
    if facts.injectivity.proven and facts.totality.proven:
        size = cardinality_of(subject.domain)
        if size is not None:
            return Answer(proven("injective: one value per point"), size)
    if facts.surjectivity.proven:
        size = cardinality_of(subject.codomain)
        if size is not None:
            return Answer(proven("onto: one value per codomain point"), size)
    whole = image(subject, budget)
    return Answer(whole.verdict, None if whole.value is None else whole.value.size)


def output_number(map: LayoutMap, axis: str | None) -> int:
    names = map.codomain.names
    """Return the position of a codomain axis; the only one by default."""
    if axis is None:
        if len(names) != 1:
            raise LayoutError(f"name one of the codomain axes {names}")
        return 0
    if axis not in names:
        raise LayoutError(f"'{axis}' is not a codomain axis of {names}")
    return names.index(axis)


def alignment(
    map: LayoutMap, output: str | None = None, budget: int = DEFAULT_BUDGET
) -> Answer[int]:
    """Return the greatest integer that divides every value along a codomain axis.

    Zero where every value is zero. The maximum is over the whole domain of the map.
    """
    number = output_number(map, output)
    if prove(map, 0).totality.proven:
        exact = _exact_alignment(map, number)
        if exact is not None:
            return exact
    refused = _refuse_parameters(map)
    values = _values(map, budget) if refused is None else None
    if values is None:
        return Answer(unknown("neither affine nor GF(2) nor within the budget"))
    return Answer(
        proven(f"exhaustive over {len(values)} values"), gcd(*(v[number] for v in values))
    )


def _exact_alignment(map: LayoutMap, number: int) -> Answer[int] | None:
    prover = _prepared(map)
    if len(prover.pieces) != 1:
        return None
    forms, matrix = prover.forms(0), prover.matrix(0)
    if forms is None:
        return None  # a subexpression that totality's rules admit has no safe linear form
    form = forms[number]
    context = prover.contexts[0]
    if all(isinstance(a, Coordinate) for a in form.terms) and not context.guards:
        low = sum(c * context.bounds[a][0] for a, c in form.terms.items() if isinstance(a, Expr))
        steps = [c for a, c in form.terms.items()]
        return Answer(proven("gcd of base and strides"), gcd(form.const + low, *steps))
    if matrix is not None and not context.guards:
        divisor = matrix.forms[number].support
        low_bit = divisor & -divisor
        # Only the power of two is exact: prove that no odd factor is common by two values.
        values = [value_at(map, p, {}) for p in probe_points(map.domain, {})]
        seen = [v[number] for v in values if isinstance(v, tuple)]
        if seen and gcd(*seen) == low_bit:
            return Answer(proven("lowest bit of the GF(2) image"), low_bit)
    if not all(isinstance(a, (Coordinate, Parameter, Quotient)) for a in form.terms):
        return None
    # With guards or parameters the gcd divides every value; it is exact if two values show it.
    divisor = gcd(form.const, *form.terms.values())
    seen = []
    for params in parameter_settings(map.domain):
        for point in probe_points(map.domain, params):
            value = value_at(map, point, params)
            if isinstance(value, tuple):
                seen.append(value[number])
    if seen and gcd(*seen) == divisor:
        return Answer(proven("gcd of the linear form, reached by evaluated values"), divisor)
    return None


def equal_maps(a: LayoutMap, b: LayoutMap, budget: int = DEFAULT_BUDGET) -> Verdict:
    """Decide whether two maps on the same domain give the same values everywhere."""
    if a.domain.axes != b.domain.axes:
        raise LayoutError(f"the maps have the domains {a.domain} and {b.domain}")
    if a.codomain.rank != b.codomain.rank:
        raise LayoutError(f"the maps have {a.codomain.rank} and {b.codomain.rank} codomain axes")
    domain = a.domain
    if set(a.domain.guards) != set(b.domain.guards):
        raise LayoutError("the maps have domains with different guards")
    if domain.is_empty_box:
        return proven("the domain is empty")
    reason = _same_forms(a, b, domain)
    if reason is not None:
        return proven(reason)
    differing = _difference(a, b)
    if differing is not None:
        return differing
    return _exhaustive_equality(a, b, budget)


def _difference(a: LayoutMap, b: LayoutMap) -> Verdict | None:
    for params in parameter_settings(a.domain):
        for point in probe_points(a.domain, params):
            x, y = value_at(a, point, params), value_at(b, point, params)
            if isinstance(x, tuple) and isinstance(y, tuple) and x != y:
                return disproven(f"at {point}: {x} and {y}", Witness((point,), (x, y)))
    return None


def _same_forms(a: LayoutMap, b: LayoutMap, domain: IndexSet) -> str | None:
    if not all(Prover(m).total() or prove(m, 0).totality.proven for m in (a, b)):
        return None
    how = "equal linear forms"
    for p in a.pieces:
        for q in b.pieces:
            context = Context(domain, p.guards + q.guards)
            if context.empty:
                continue
            if _equal_forms(context, p.outputs, q.outputs):
                continue
            x, y = bit_matrix(context, p.outputs), bit_matrix(context, q.outputs)
            if x is None or y is None or x.forms != y.forms:
                return None
            how = "equal GF(2) matrices"
    return how


def _equal_forms(context: Context, x: tuple[Expr, ...], y: tuple[Expr, ...]) -> bool:
    try:
        pairs: list[tuple[Form, Form]] = [
            (context.form(a), context.form(b)) for a, b in zip(x, y, strict=True)
        ]
    except Unsafe:
        return False
    return all(context.form_interval(a.add(b, -1)) == (0, 0) for a, b in pairs)


def _exhaustive_equality(a: LayoutMap, b: LayoutMap, budget: int) -> Verdict:
    size = finite_size(a)
    if a.domain.parameters or size is None or size > budget:
        return unknown("normal forms differ and the domain exceeds the budget")
    for point in _points(a.domain, {}):
        try:
            x, y = oracle_value(a, point, {}), oracle_value(b, point, {})
        except OracleFailure as failure:
            return unknown(f"a map has no value at {point}: {failure}")
        if x != y:
            return disproven(f"at {point}: {x} and {y}", Witness((point,), (x, y)))
    return proven(f"exhaustive over {size} points")


def verify_inverse(f: LayoutMap, g: LayoutMap, budget: int = DEFAULT_BUDGET) -> Verdict:
    """Decide whether ``g`` is the two-sided inverse of ``f``: g o f = id and f o g = id."""
    from tvm_tilex.layout.composite import Compose
    from tvm_tilex.layout.nodes import Identity

    for outer, inner in ((g, f), (f, g)):
        try:
            both = Compose(outer, inner)
        except LayoutError as error:
            return unknown(str(error))
        verdict = equal_maps(both, Identity(inner.domain), budget)
        if not verdict.proven:
            return verdict
    return proven("g o f = id and f o g = id by normal forms")

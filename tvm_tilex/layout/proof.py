"""``prove``: totality, bounds, injectivity and surjectivity of a map, in a fixed order.

1. checked affine normalization (with 2. range rules for mixed radix of any base), 3. structural
GF(2), 4. evaluated disproofs, 5. restriction of a bijection, 6. counting, structure of composites,
7. exhaustion within the budget, else UNKNOWN.
"""

from __future__ import annotations

from tvm_tilex.layout.affine import image_size, prove_injective
from tvm_tilex.layout.base import LayoutMap, Piece
from tvm_tilex.layout.bounds import bounds_reason, covers, safety_reason
from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.finite import analyze_finite, finite_size
from tvm_tilex.layout.forms import Form
from tvm_tilex.layout.gf2 import BitMatrix, bit_matrix
from tvm_tilex.layout.image_bound import most_values
from tvm_tilex.layout.restriction import is_restriction, same_symbolic_size
from tvm_tilex.layout.sizes import cardinality_of
from tvm_tilex.layout.verdict import LayoutProof, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.witness import (
    bad_value,
    kernel_pair,
    parallel_columns,
    parameter_settings,
    probe_points,
    repeated_value,
)

__all__ = ["DEFAULT_BUDGET", "Prover", "prove"]

DEFAULT_BUDGET = 1 << 16


def prove(map: LayoutMap, budget: int = DEFAULT_BUDGET) -> LayoutProof:
    """Return the verdicts on the four facts of ``map``.

    Parameters
    ----------
    map
        Any layout map.
    budget
        Greatest number of points for exhaustive enumeration; 0 turns exhaustion off.

    Returns
    -------
    LayoutProof
        A total map's checked ``apply`` succeeds on its whole domain; a bounded one lands in its
        codomain. With parameters, a fact is PROVEN for every value and DISPROVEN for some.
    """
    cache: dict[int, LayoutProof] = map.__dict__.setdefault("_proofs", {})
    found = cache.get(budget)
    if found is None:
        found = cache[budget] = Prover(map).run(budget)
    return found


class Prover:
    """One proof attempt: contexts, forms and matrices of each branch, derived once."""

    def __init__(self, map: LayoutMap) -> None:
        self.map = map
        self.pieces: list[Piece] = []
        self.contexts: list[Context] = []
        self._forms: dict[int, tuple[Form, ...] | None] = {}
        self._matrices: dict[int, BitMatrix | None] = {}

    def run(self, budget: int) -> LayoutProof:
        """Return the proof."""
        if self.map.domain.is_empty_box:
            return self._empty()
        base = self.prepare()
        if base.empty:
            return self._empty()
        totality = self._totality(base)
        bounds = self._bounds(totality)
        if totality.unknown or bounds.unknown:
            totality, bounds = self._probe(totality, bounds)
        injectivity = self._injectivity()
        surjectivity = self._surjectivity(totality, bounds, injectivity)
        injectivity = self._count_back(totality, bounds, injectivity, surjectivity)
        result = LayoutProof(totality, bounds, injectivity, surjectivity)
        if not any(v.unknown for _, v in result.items()):
            return result
        from tvm_tilex.layout.structure import by_structure

        result = by_structure(self.map, result)
        return _exhaust(self.map, result, budget)

    def total(self) -> bool:
        """Return whether totality alone is proved by ranges (cheaper than :meth:`run`)."""
        base = self.prepare()
        return base.empty or self._totality(base).proven

    def prepare(self) -> Context:
        """Return the domain's context; keep the branches that some point of it can reach."""
        base = Context(self.map.domain)
        if not base.empty:
            self._enter(base)
        return base

    def _enter(self, base: Context) -> None:
        for piece in self.map.pieces:
            context = Context(self.map.domain, piece.guards) if piece.guards else base
            if not context.empty:
                self.pieces.append(piece)
                self.contexts.append(context)

    def _empty(self) -> LayoutProof:
        fact = proven("the domain is empty")
        target = cardinality_of(self.map.codomain)
        if target is None:
            onto = unknown("the domain is empty and the codomain's size is not known")
        elif target == 0:
            onto = proven("domain and codomain are empty")
        else:
            onto = disproven("the domain is empty and the codomain is not")
        return LayoutProof(fact, fact, fact, onto)

    # -- derived data ----------------------------------------------------------------------

    def forms(self, k: int) -> tuple[Form, ...] | None:
        """Return the linear forms of branch ``k``; None where a subexpression is not safe."""
        if k not in self._forms:
            try:
                context = self.contexts[k]
                self._forms[k] = tuple(context.form(o) for o in self.pieces[k].outputs)
            except Unsafe:
                self._forms[k] = None
        return self._forms[k]

    def matrix(self, k: int) -> BitMatrix | None:
        """Return the GF(2) matrix of branch ``k``, or None."""
        if k not in self._matrices:
            self._matrices[k] = bit_matrix(self.contexts[k], self.pieces[k].outputs)
        return self._matrices[k]

    # -- totality and bounds ---------------------------------------------------------------

    def _totality(self, base: Context) -> Verdict:
        for piece, context in zip(self.pieces, self.contexts, strict=True):
            reason = safety_reason(context, piece)
            if reason is not None:
                return unknown(reason)
        guards = tuple(piece.guards for piece in self.pieces)
        if all(guards) and not covers(base, guards):
            return unknown("the branches are not proved to cover the domain")
        # A branch is chosen by evaluating guards of others too: all must be safe everywhere.
        for piece in self.map.pieces:
            for guard in piece.guards:
                reason = base.intervals.safe_reason(guard)
                if reason is not None:
                    return unknown(reason)
        return proven("every subexpression is safe in signed 64-bit range")

    def _bounds(self, totality: Verdict) -> Verdict:
        if not totality.proven:
            return unknown(f"totality is not proved: {totality.reason}")
        how = "interval range"
        for k, (piece, context) in enumerate(zip(self.pieces, self.contexts, strict=True)):
            found = bounds_reason(context, piece.outputs, self.map.codomain, None)
            if found is None:
                found = bounds_reason(context, piece.outputs, self.map.codomain, self.matrix(k))
            if found is None:
                return unknown("no range rule shows that every value is in the codomain")
            if found != "interval range":
                how = found
        return proven(how)

    def _probe(self, totality: Verdict, bounds: Verdict) -> tuple[Verdict, Verdict]:
        for params in parameter_settings(self.map.domain):
            points = list(probe_points(self.map.domain, params))
            if self.map.domain.rank and self.pieces and len(self.pieces) == 1:
                points.extend(self._maximum_points())
            found = bad_value(self.map, points, params)
            if found is None:
                continue
            reason, witness, partial = found
            refuted = disproven(reason, witness)
            if partial:
                return refuted, refuted
            return totality, refuted
        return totality, bounds

    def _maximum_points(self) -> list[tuple[int, ...]]:
        """Return points of the enclosing box where an output is greatest, if in the domain."""
        matrix = self.matrix(0)
        if matrix is None:
            return []
        found = []
        for row in range(len(matrix.forms)):
            point = matrix.maximum(row)[1]
            found.append(tuple(point + [0] * (self.map.domain.rank - len(point))))
        return found

    # -- injectivity -----------------------------------------------------------------------

    def _injectivity(self) -> Verdict:
        if not self.pieces:
            return proven("no point of the domain has a value")
        reasons = [self._branch_injective(k) for k in range(len(self.pieces))]
        if all(reasons) and (len(reasons) == 1 or self._images_disjoint()):
            how = sorted({r for r in reasons if r})
            return proven("; ".join(how) + ("; disjoint branch images" if len(reasons) > 1 else ""))
        witness = self._collision()
        if witness is not None:
            a, b = witness.points
            return disproven(f"{a} and {b} have the same value {witness.values[0]}", witness)
        return unknown("neither dominance, rank nor GF(2) structure separates the points")

    def _branch_injective(self, k: int) -> str | None:
        forms = self.forms(k)
        if forms is None:
            return None
        reason = prove_injective(self.contexts[k], forms)
        if reason is not None:
            return reason
        matrix = self.matrix(k)
        if matrix is not None and matrix.rank == len(matrix.inputs):
            return f"GF(2) rank {matrix.rank} of {len(matrix.inputs)} input bits"
        return None

    def _images_disjoint(self) -> bool:
        ranges = []
        for context, piece in zip(self.contexts, self.pieces, strict=True):
            try:
                ranges.append([context.interval(o) for o in piece.outputs])
            except Unsafe:
                return False
        return all(
            any(x[1] < y[0] or y[1] < x[0] for x, y in zip(a, b, strict=True))
            for i, a in enumerate(ranges)
            for b in ranges[i + 1 :]
        )

    def _collision(self) -> Witness | None:
        for k in range(len(self.pieces)):
            forms = self.forms(k)
            matrix = self.matrix(k)
            if matrix is not None:
                found = kernel_pair(self.map, matrix)
                if found is not None:
                    return found
            if forms is not None:
                found = parallel_columns(self.map, self.contexts[k], forms)
                if found is not None:
                    return found
        return self._probe_collision()

    def _probe_collision(self) -> Witness | None:
        from tvm_tilex.layout.witness import value_at

        for params in parameter_settings(self.map.domain):
            seen: dict[tuple[int, ...], tuple[int, ...]] = {}
            for point in probe_points(self.map.domain, params):
                value = value_at(self.map, point, params)
                if not isinstance(value, tuple):
                    continue
                first = seen.setdefault(value, point)
                if first != point:
                    setting = tuple(sorted(params.items()))
                    return Witness((first, point), (value, value), params=setting)
        return None

    # -- surjectivity and counting ---------------------------------------------------------

    def _surjectivity(self, totality: Verdict, bounds: Verdict, injectivity: Verdict) -> Verdict:
        target = cardinality_of(self.map.codomain)
        source = cardinality_of(self.map.domain)
        if target is not None and source is not None and source < target:
            return self._not_onto(f"{source} points cannot reach {target}")
        if totality.proven:
            missing = self._missing()
            if missing is not None:
                return disproven(f"no value reaches {missing}", Witness(missing=missing))
        if not (totality.proven and bounds.proven):
            return unknown("totality and bounds are not both proved")
        if target is not None and source is not None:
            if injectivity.proven and source == target:
                return proven(
                    f"restriction and counting: injective, {source} points each"
                    if self.map.domain.guards
                    else f"counting: injective, {source} points on both sides"
                )
            if injectivity.disproven and source == target:
                return self._not_onto(f"{source} points with a collision cannot reach {target}")
        if target is not None:
            size = self._image_size()
            if size is not None and size == target:
                return proven(f"the image has exactly {size} values")
            if size is not None:
                return self._not_onto(f"the image has {size} of {target} values")
            most = self.most_values()
            if most is not None and most < target:
                return self._not_onto(f"at most {most} values cannot reach {target}")
        if injectivity.proven and same_symbolic_size(self.map.domain, self.map.codomain):
            return proven("counting: injective, equal symbolic sizes")
        if injectivity.proven and is_restriction(self.map.domain, self.map.codomain, self.pieces):
            return proven("restriction of a bijection onto a longer interval")
        if len(self.pieces) > 1 and any(map(self._branch_onto, range(len(self.pieces)))):
            return proven("one branch alone reaches the codomain")
        return unknown("the image is not counted exactly")

    def _image_size(self) -> int | None:
        if len(self.pieces) != 1 or self.contexts[0].guards:
            return None
        forms = self.forms(0)
        image = image_size(self.contexts[0], forms) if forms is not None else None
        if image is not None:
            return image.size
        matrix = self.matrix(0)
        sizes = enumerate(a.bounds()[1] + 1 for a in self.map.domain.axes)
        if matrix is not None and all(matrix.spans(axis, size) for axis, size in sizes):
            return 1 << matrix.rank
        return None

    def most_values(self) -> int | None:
        """Return a number that the values do not exceed, or None."""
        total = 0
        for k, (piece, context) in enumerate(zip(self.pieces, self.contexts, strict=True)):
            most = most_values(context, piece, self.forms(k), self.matrix(k))
            if most is None:
                return None
            total += most
        return total

    def _not_onto(self, reason: str) -> Verdict:
        """Return the refutation by counting, with a missing codomain point where one is shown."""
        try:
            missing = self._missing()
        except Unsafe:
            missing = None
        return disproven(reason, Witness(missing=missing, text=reason))

    def _missing(self) -> tuple[int, ...] | None:
        """Return a codomain point outside the range of some output; the outputs must be safe."""
        codomain = self.map.codomain
        if codomain.guards or codomain.parameters or not codomain.box_size or not self.pieces:
            return None
        for number, axis in enumerate(codomain.axes):
            low, high = self._output_range(number)
            first, last = axis.bounds()
            if first < low or high < last:
                point = [a.lower for a in codomain.axes]
                point[number] = first if first < low else last
                return tuple(point)
        return None

    def _output_range(self, number: int) -> tuple[int, int]:
        spans = [
            context.interval(piece.outputs[number])
            for context, piece in zip(self.contexts, self.pieces, strict=True)
        ]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def _branch_onto(self, k: int) -> bool:
        """Whether branch ``k``, as a map of its own guarded domain, reaches the codomain."""
        from tvm_tilex.layout.nodes import IndexExpr

        domain = self.map.domain.where(*self.pieces[k].guards)
        alone = IndexExpr(domain, self.map.codomain, self.pieces[k].outputs)
        return prove(alone, budget=0).surjectivity.proven

    def _count_back(
        self, totality: Verdict, bounds: Verdict, injectivity: Verdict, surjectivity: Verdict
    ) -> Verdict:
        if not injectivity.unknown or not (totality.proven and bounds.proven):
            return injectivity
        source = cardinality_of(self.map.domain)
        target = cardinality_of(self.map.codomain)
        if source is None or target is None:
            return injectivity
        if surjectivity.proven and source == target:
            return proven(f"counting: onto, {source} points on both sides")
        size = self._image_size()
        if size == source:
            return proven(f"the image has {size} values, as many as there are points")
        known = [n for n in (target, size, self.most_values()) if n is not None]
        least = min(known)
        if source > least:
            params = parameter_settings(self.map.domain)[0]
            witness = repeated_value(self.map, params)
            reason = f"pigeonhole: {source} points, at most {least} values"
            return disproven(reason, witness or Witness(text=reason))
        return injectivity


def _exhaust(map: LayoutMap, result: LayoutProof, budget: int) -> LayoutProof:
    size = finite_size(map) if budget > 0 else None
    if size is None or size > budget:
        return result
    oracle = analyze_finite(map, budget)
    facts = [
        theirs if ours.unknown else ours
        for (_, ours), (_, theirs) in zip(result.items(), oracle.items(), strict=True)
    ]
    return LayoutProof(*facts)

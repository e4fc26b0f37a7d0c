"""Facts of composite maps from the facts of their parts, where flattening left them UNKNOWN."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.cases import by_cases
from tvm_tilex.layout.composite import Compose, Product, Transform
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr, Permute
from tvm_tilex.layout.sizes import cardinality_of
from tvm_tilex.layout.verdict import LayoutProof, Verdict, Witness, disproven, proven

__all__ = ["by_structure"]


def by_structure(map: LayoutMap, flat: LayoutProof) -> LayoutProof:
    """Return ``flat`` with UNKNOWN facts filled in from the structure of ``map``."""
    found = {name: proven(reason) for name, reason in _facts(map).items()}
    if any(verdict.unknown and name not in found for name, verdict in flat.items()):
        found.update(_refuted(map))
        found.update(by_cases(map, flat))
    merged = [
        found[name] if verdict.unknown and name in found else verdict
        for name, verdict in flat.items()
    ]
    return LayoutProof(*merged)


def _refuted(map: LayoutMap) -> dict[str, Verdict]:
    """Refute from the inner map: what collides inside collides, and few values stay few."""
    from tvm_tilex.layout.proof import prove

    if not isinstance(map, (Compose, Transform)):
        return {}
    inner = map.inner if isinstance(map, Compose) else map.map
    found: dict[str, Verdict] = {}
    collision = prove(inner, 0).injectivity
    if collision.disproven and collision.witness is not None:
        shown = _same_pair(map, collision.witness)
        if shown is not None:
            a, b = shown.points
            reason = f"{a} and {b} have the same value already in the inner map"
            found["injectivity"] = disproven(reason, shown)
    reached, target = _most_values(map), cardinality_of(map.codomain)
    if reached is not None and target is not None and reached < target:
        reason = f"the parts have at most {reached} values, the codomain {target} points"
        found["surjectivity"] = disproven(reason, Witness(text=reason))
    if isinstance(map, Compose):
        found.update(_refuted_outside(map))
    return found


def _most_values(map: LayoutMap) -> int | None:
    """Return a number that the values do not exceed: that of the part with the fewest."""
    from tvm_tilex.layout.proof import Prover
    from tvm_tilex.layout.queries import cardinality

    if isinstance(map, Compose):
        bounds = [_most_values(map.outer), _most_values(map.inner)]
    elif isinstance(map, Transform):
        bounds = [_most_values(map.map)]
    else:
        prover = Prover(map)
        prover.prepare()
        bounds = [cardinality(map, 0).value, prover.most_values()]
    return min((n for n in bounds if n is not None), default=None)


def _refuted_outside(map: Compose) -> dict[str, Verdict]:
    """Refute from the outer map where the inner one reaches its whole domain."""
    from tvm_tilex.layout.proof import prove

    if not (_same_space(map) and prove(map.inner, 0).surjectivity.proven):
        return {}
    outer = prove(map.outer, 0)
    found: dict[str, Verdict] = {}
    if outer.surjectivity.disproven:
        reason = f"the outer map is not onto: {outer.surjectivity.reason}"
        missing = outer.surjectivity.witness
        found["surjectivity"] = disproven(reason, missing or Witness(text=reason))
    collision = outer.injectivity.witness
    if outer.injectivity.disproven and collision is not None:
        shown = _same_pair(map, _pulled_back(map, collision))
        if shown is not None:
            a, b = shown.points
            found["injectivity"] = disproven(f"{a} and {b} meet in the outer map", shown)
    return found


def _pulled_back(map: Compose, witness: Witness) -> Witness:
    """Return a pair of points that the inner map takes to the pair of ``witness``, if found."""
    from tvm_tilex.layout.preimage import preimage

    try:
        points = tuple(next(preimage(map.inner, *point).points()) for point in witness.points)
    except (LayoutError, StopIteration):
        return Witness()
    return Witness(points)


def _same_space(map: Compose) -> bool:
    source, target = map.inner.codomain, map.outer.domain
    return source.axes == target.axes and source.guards == target.guards


def _same_pair(map: LayoutMap, witness: Witness) -> Witness | None:
    """Return the inner witness with the values of ``map`` itself, evaluated; None where partial."""
    from tvm_tilex.layout.witness import value_at

    if len(witness.points) != 2 or map.domain.parameters:
        return None
    values = [value_at(map, point, {}) for point in witness.points]
    if values[0] != values[1] or not isinstance(values[0], tuple):
        return None
    return Witness(witness.points, (values[0], values[0]))


def _facts(map: LayoutMap) -> dict[str, str]:
    if isinstance(map, (Identity, Permute)):
        return dict.fromkeys(_NAMES, "a permutation of axes")
    if isinstance(map, Compose):
        return _composition(map)
    if isinstance(map, Product):
        return _product(map)
    if isinstance(map, Transform):
        return _transform(map)
    return {}


_NAMES = ("totality", "bounds", "injectivity", "surjectivity")


def _all(name: str, proofs: list[LayoutProof]) -> bool:
    verdicts: list[Verdict] = [getattr(p, name) for p in proofs]
    return all(v.proven for v in verdicts)


def _composition(map: Compose) -> dict[str, str]:
    from tvm_tilex.layout.proof import prove

    parts = [prove(map.outer, 0), prove(map.inner, 0)]
    total = all(_all(name, [parts[1]]) for name in ("totality", "bounds"))
    if not total or not parts[0].totality.proven:
        return {}
    found = {"totality": "both parts are total"}
    if parts[0].bounds.proven:
        found["bounds"] = "the outer map stays in its codomain"
    if _all("injectivity", parts):
        found["injectivity"] = "both parts are injective"
    if _same_space(map) and _all("surjectivity", parts):
        found["surjectivity"] = "both parts are onto"
    return found


def _product(map: Product) -> dict[str, str]:
    from tvm_tilex.layout.proof import prove

    parts = [prove(factor, 0) for factor in map.maps]
    return {name: "proved for every factor" for name in _NAMES if _all(name, parts)}


def _transform(map: Transform) -> dict[str, str]:
    from tvm_tilex.layout.proof import prove

    inner = prove(map.map, 0)
    if not (inner.totality.proven and inner.bounds.proven):
        return {}
    found: dict[str, str] = {}
    extent = map.map.codomain.box_size or 0
    if map.checked_exhaustively:
        reason = f"hook of {map.bound}, checked on every point"
        found = {"totality": reason, "bounds": reason}
        if map.bound.claims_bijective(extent):
            found.update({n: reason for n in _NAMES[2:] if getattr(inner, n).proven})
    if inner.injectivity.proven and _injective_dag(map):
        found.setdefault("injectivity", f"{map.bound} is injective by its DAG, and so is the map")
    return found


def _injective_dag(map: Transform) -> bool:
    """Whether the DAG of the transform is injective on the whole declared image box."""
    from tvm_tilex.layout.proof import prove

    if map.bound.transform.expression is None:
        return False
    size = map.bound.image_extent(map.map.codomain.box_size or 0)
    box = IndexSet((Axis("x", size),))
    value = map.bound.expression(box.coordinates[0])
    return prove(IndexExpr(box, box, (value,)), 0).injectivity.proven

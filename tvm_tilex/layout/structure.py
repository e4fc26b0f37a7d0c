"""Facts of composite maps from the facts of their parts, where flattening left them UNKNOWN."""

from __future__ import annotations

from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Product, Transform
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr, Permute
from tvm_tilex.layout.verdict import LayoutProof, Verdict, proven

__all__ = ["by_structure"]


def by_structure(map: LayoutMap, flat: LayoutProof) -> LayoutProof:
    """Return ``flat`` with UNKNOWN facts filled in from the structure of ``map``."""
    found = _facts(map)
    if not found:
        return flat
    merged = [
        proven(found[name]) if verdict.unknown and name in found else verdict
        for name, verdict in flat.items()
    ]
    return LayoutProof(*merged)


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
    onto = map.inner.codomain.axes == map.outer.domain.axes and (
        map.inner.codomain.guards == map.outer.domain.guards
    )
    if onto and _all("surjectivity", parts):
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

"""Replication: a placement with explicit copies, each with a coordinate of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Product
from tvm_tilex.layout.correspondence.base import LayoutCorr, ReplicaKind, Span
from tvm_tilex.layout.expr import ExprLike, eq
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr

__all__ = ["Replica", "replicate", "select"]


@dataclass(frozen=True)
class Replica:
    """An axis of copies: copy r is placed ``r * step`` further.

    Parameters
    ----------
    axis
        Name of the occurrence axis.
    extent
        Number of copies, at least 1.
    step
        An integer (placements with one axis) or ``{target axis: step}``; 0 puts copies in place.
    kind
        What the copies mean.
    """

    axis: str
    extent: int
    step: int | Mapping[str, int]
    kind: ReplicaKind

    def __post_init__(self) -> None:
        if isinstance(self.step, Mapping):
            object.__setattr__(self, "step", MappingProxyType(dict(self.step)))

    def along(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the step along each target axis."""
        if isinstance(self.step, int):
            if len(names) != 1:
                raise LayoutError(f"replica '{self.axis}': name the target axes of {names}")
            return (self.step,)
        given = dict(self.step)
        if not set(given) <= set(names):
            raise LayoutError(f"replica '{self.axis}' steps along {sorted(given)}, not {names}")
        return tuple(given.get(name, 0) for name in names)


def replicate(placement: LayoutMap, replicas: Sequence[Replica]) -> Span:
    """Return the set-valued placement ``x -> placement(x) + sum_k r_k * step_k``.

    The occurrence space is ``Logical x Replica``, the left leg its projection to Logical: the
    specification's ``placement : F -> Physical = shard(Logical) + replica(Replica) + offset``.

    Raises
    ------
    LayoutError
        For an extent below 1, a name that clashes, or a step along an axis that is not there.
    """
    logical, physical = placement.domain, placement.codomain
    if physical.guards or any(not isinstance(a.extent, int) for a in physical.axes):
        raise LayoutError(f"replication needs a static box to place in, not {physical}")
    clash = {r.axis for r in replicas} & set(logical.names)
    if clash or any(r.extent < 1 for r in replicas):
        raise LayoutError(f"replica axes {[r.axis for r in replicas]} of {logical}: a name clashes"
                          " or an extent is below 1")  # fmt: skip
    copies = IndexSet(tuple(Axis(r.axis, r.extent) for r in replicas))
    space = IndexSet(logical.axes + copies.axes, logical.guards, logical.parameters)
    left = IndexExpr(space, logical, space.coordinates[: logical.rank])
    steps = [replica.along(physical.names) for replica in replicas]
    add = _adder(physical, copies, steps)
    right = Compose(add, _same_domain(Product((placement, Identity(copies))), space))
    return Span(left, right, tuple((r.axis, r.kind) for r in replicas))


def _adder(physical: IndexSet, copies: IndexSet, steps: list[tuple[int, ...]]) -> LayoutMap:
    """Return ``(y, r) -> y + sum_k r_k * step_k`` onto the least box that holds it."""
    both = Product((Identity(physical), Identity(copies))).codomain
    values: list[ExprLike] = []
    axes = []
    for number, axis in enumerate(physical.axes):
        total: ExprLike = both.coordinates[number]
        low, high = axis.bounds()
        for k, step in enumerate(steps):
            if not step[number]:
                continue
            total = total + both.coordinates[physical.rank + k] * step[number]
            reach = step[number] * (copies.shape[k] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        values.append(total)
        axes.append(Axis(axis.name, high - low + 1, low))
    return IndexExpr(both, IndexSet(tuple(axes)), tuple(values))


def _same_domain(map: LayoutMap, space: IndexSet) -> LayoutMap:
    """Return ``map`` on ``space``, whose axes are those of its domain in order."""
    if map.domain == space:
        return map
    return Compose(map, IndexExpr(space, map.domain, space.coordinates))


def select(corr: LayoutCorr, coordinates: Mapping[str, int]) -> Span:
    """Return the correspondence restricted to one copy along OWNERSHIP axes."""
    kinds = dict(corr.replicas)
    guards = []
    known = dict(zip(corr.space.names, corr.space.coordinates, strict=True))
    for name, value in coordinates.items():
        if kinds.get(name) is not ReplicaKind.OWNERSHIP:
            what = kinds[name].value if name in kinds else "no replica axis"
            raise LayoutError(f"'{name}' is {what}: an owner is chosen along an ownership axis")
        axis = next(a for a in corr.space.axes if a.name == name)
        low, high = axis.bounds()
        if not low <= value <= high:
            raise LayoutError(f"copy {value} of '{name}' is outside [{low}, {high}]")
        guards.append(eq(known[name], value))
    space = corr.space.where(*guards)
    into = IndexExpr(space, corr.space, space.coordinates)
    rest = tuple((n, k) for n, k in corr.replicas if n not in coordinates)
    return Span(Compose(corr.left, into), Compose(corr.right, into), rest)

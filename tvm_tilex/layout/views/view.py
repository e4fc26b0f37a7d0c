"""``TensorView``: a buffer seen through a layout, with its validity as explicit metadata.

A view owns nothing. Every operation returns another view of the same buffer object: it composes
the address map and intersects the validity, and neither allocates, copies nor chooses who
executes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.context import Context
from tvm_tilex.layout.errors import DomainError
from tvm_tilex.layout.evaluate import ArrayEvaluation, IntArray
from tvm_tilex.layout.expr import Expr, ExprLike, Parameter, constant, coordinate, le, lt
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity, IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.radix import MixedRadix
from tvm_tilex.layout.typing_rules import lands_in
from tvm_tilex.layout.verdict import LayoutProof, Verdict, Witness, disproven, proven, unknown
from tvm_tilex.layout.views.policy import BoundsPolicy
from tvm_tilex.layout.visitor import leaves, substitute
from tvm_tilex.layout.witness import parameter_settings, probe_points

__all__ = ["Buffer", "TensorView"]

Window = int | slice | tuple[ExprLike, int] | tuple[ExprLike, int, int]


@dataclass(frozen=True)
class Buffer:
    """Resource identity and storage: a name, an element type, and the places it has.

    ``space`` is one axis of elements for linear memory, or several named physical coordinates.
    """

    name: str
    dtype: str
    space: IndexSet

    @staticmethod
    def linear(name: str, dtype: str, elements: ExprLike) -> Buffer:
        """Return linear memory of ``elements`` elements (which may be symbolic)."""
        return Buffer(name, dtype, IndexSet((Axis("index", elements),)))


@dataclass(frozen=True)
class TensorView:
    """``(buffer, domain, address_map, validity, bounds)``.

    Parameters
    ----------
    buffer
        The resource; a view holds the object itself and never makes another.
    domain
        Coordinates of the view. Its guards say which coordinates exist at all.
    address_map
        A total map from the valid part of ``domain`` into ``buffer.space``: its own domain is
        ``domain`` with ``validity`` among the guards.
    validity
        Predicates over ``domain``'s coordinates; a point that fails one is invalid.
    bounds
        What an access at an invalid point means. No part of the address map depends on it.

    Raises
    ------
    LayoutError
        Where domain, validity, address map and buffer do not fit together.
    """

    buffer: Buffer
    domain: IndexSet
    address_map: LayoutMap
    validity: tuple[Expr, ...] = ()
    bounds: BoundsPolicy = BoundsPolicy.assume

    def __post_init__(self) -> None:
        mapped, space = self.address_map.domain, self.buffer.space
        if mapped.axes != self.domain.axes:
            raise LayoutError(
                f"view of {self.buffer.name}: the address map has the axes {mapped.names}, the"
                f" view {self.domain.names}"
            )
        if set(mapped.guards) != {*self.domain.guards, *self.validity}:
            raise LayoutError(
                f"view of {self.buffer.name}: the address map is defined on {mapped}, not on the"
                " valid part of the domain"
            )
        if self.address_map.codomain.rank != space.rank:
            raise LayoutError(
                f"view of {self.buffer.name}: addresses have {self.address_map.codomain.rank}"
                f" coordinates, the buffer {space.rank}"
            )

    # -- construction ----------------------------------------------------------------------

    @staticmethod
    def dense(
        buffer: Buffer, bounds: BoundsPolicy = BoundsPolicy.assume, /, **extents: int
    ) -> TensorView:
        """Return the row-major view of a linear buffer, last axis fastest."""
        shape, step, strides = tuple(extents.values()), 1, []
        for extent in reversed(shape):
            strides.append(step)
            step *= extent
        domain = IndexSet.box(extents)
        layout = MixedRadix(shape, tuple(reversed(strides)), 0, domain, buffer.space)
        return TensorView(buffer, domain, layout, (), bounds)

    @staticmethod
    def of(
        buffer: Buffer, layout: LayoutMap, bounds: BoundsPolicy = BoundsPolicy.assume
    ) -> TensorView:
        """Return the view whose every point is valid and lies at ``layout``'s address."""
        return TensorView(buffer, layout.domain, layout, (), bounds)

    # -- operations: the same buffer, another map ------------------------------------------

    def compose(self, inner: LayoutMap) -> TensorView:
        """Return the view over ``inner``'s domain: coordinates there select coordinates here.

        Where a value of ``inner`` is not proved to lie in this view's domain, the condition that
        it does is added to the validity.

        Raises
        ------
        LayoutError
            Where the axes do not fit, or a map with branches needs such a condition.
        """
        if inner.codomain.rank != self.domain.rank:
            raise LayoutError(
                f"view of {self.buffer.name}: {inner.codomain.rank} coordinates for the axes"
                f" {self.domain.names}"
            )
        needed = self._entering(inner)
        inside = inner.domain.where(*needed) if needed else inner.domain
        return TensorView(
            self.buffer,
            inner.domain,
            self._addresses(inner, inside),
            tuple(g for g in inside.guards if g not in inner.domain.guards),
            self.bounds,
        )

    def _entering(self, inner: LayoutMap) -> tuple[Expr, ...]:
        """Conditions, not proved, that values of ``inner`` are valid points of this view."""
        needed: list[Expr] = []
        for number, axis in enumerate(self.domain.axes):
            if lands_in(inner, IndexSet((axis,), (), self.domain.parameters), number):
                continue
            value = inner.outputs[number]
            upper = axis.extent + axis.lower if axis.lower else axis.extent
            needed += [le(constant(axis.lower), value), lt(value, upper)]
        guards = (*self.domain.guards, *self.validity)
        if guards:
            values = dict(zip(self.domain.names, inner.outputs, strict=True))
            needed += substitute(guards, values)
        context = Context(inner.domain)
        return tuple(g for g in needed if not _holds(context, g))

    def _addresses(self, inner: LayoutMap, inside: IndexSet) -> LayoutMap:
        limited = inner if inside is inner.domain else Compose(inner, Identity(inside))
        try:
            return normalize(Compose(self.address_map, limited))
        except LayoutError:
            # The guards say that values are in the domain, but no rule proves it from them.
            values = dict(zip(self.domain.names, inner.outputs, strict=True))
            outputs = substitute(self.address_map.outputs, values)
            return IndexExpr(inside, self.address_map.codomain, outputs)

    def slice(self, **windows: Window) -> TensorView:
        """Return the view of a window.

        Per axis: a coordinate, a slice, or ``(start, extent[, step])``. The window has exactly the
        extent that is asked for. Parts outside the view are invalid; coordinates are never counted
        from the end. A single coordinate takes its axis away. A slice with a negative step runs
        downwards, as in Python; a start or stop that is left out is the axis's own end.
        """
        for name in windows:
            if name not in self.domain.names:
                raise LayoutError(f"slice: '{name}' is not an axis of {self.domain.names}")
        axes: list[Axis] = []
        outputs: list[ExprLike] = []
        for axis in self.domain.axes:
            start, extent, step = _window(axis, windows.get(axis.name))
            if extent is None:
                outputs.append(start)
                continue
            axes.append(Axis(axis.name, extent))
            outputs.append(_affine(coordinate(axis.name), start, step))
        moved = leaves(tuple(o for o in outputs if isinstance(o, Expr)))
        parameters = tuple(leaf for leaf in moved if isinstance(leaf, Parameter))
        domain = IndexSet(tuple(axes), (), (*self.domain.parameters, *parameters))
        return self.compose(IndexExpr(domain, self.domain.unguarded(), tuple(outputs)))

    def permute(self, *axes: str) -> TensorView:
        """Return the view with its axes in another order."""
        known = {axis.name: axis for axis in self.domain.axes}
        if sorted(axes) != sorted(known):
            raise LayoutError(f"permute: {axes} is no order of the axes {self.domain.names}")
        domain = replace(self.domain, axes=tuple(known[name] for name in axes))
        outputs = tuple(domain.coordinates[axes.index(name)] for name in self.domain.names)
        return self.compose(IndexExpr(domain, self.domain.unguarded(), outputs))

    def where(self, *guards: ExprLike | Callable[..., ExprLike]) -> TensorView:
        """Return the view that is invalid also where a guard fails."""
        limited = self.domain.where(*guards)
        more = tuple(g for g in limited.guards if g not in self.domain.guards)
        validity = tuple(dict.fromkeys((*self.validity, *more)))
        inside = self.domain.where(*validity)
        address = normalize(Compose(self.address_map, Identity(inside)))
        return replace(self, address_map=address, validity=validity)

    def with_bounds(self, bounds: BoundsPolicy) -> TensorView:
        """Return the view with another policy for its invalid part."""
        return replace(self, bounds=bounds)

    # -- facts -----------------------------------------------------------------------------

    @cached_property
    def valid(self) -> IndexSet:
        """The valid part of the domain."""
        return self.address_map.domain

    def prove(self, budget: int = DEFAULT_BUDGET) -> LayoutProof:
        """Return the facts of the address map: bounds say that valid points are in the buffer."""
        return prove(self.address_map, budget)

    def always_valid(self, budget: int = DEFAULT_BUDGET) -> Verdict:
        """Decide whether every point is valid, so that no access needs a guard."""
        context = Context(self.domain)
        if context.empty or all(_holds(context, guard) for guard in self.validity):
            return proven("every validity predicate holds on the domain")
        for params in parameter_settings(self.domain):
            for point in probe_points(self.domain, params):
                named = dict(zip(self.domain.names, point, strict=True))
                if self.domain.contains(named, params) and not self.valid.contains(named, params):
                    setting = tuple(sorted(params.items()))
                    return disproven(f"{point} is invalid", Witness((point,), params=setting))
        size = self.domain.box_size
        if size is None or self.domain.parameters or size > budget:
            return unknown("a validity predicate is not decided, and the domain exceeds the budget")
        for point in self.domain.points():
            if not self.valid.contains(dict(zip(self.domain.names, point, strict=True))):
                return disproven(f"{point} is invalid", Witness((point,)))
        return proven(f"exhaustive over {size} points")

    def __str__(self) -> str:
        where = " and ".join(map(str, self.validity)) or "everywhere"
        return (
            f"{self.buffer.name}: {self.buffer.dtype} through {self.address_map}; valid {where};"
            f" {self.bounds.value}"
        )

    # -- reference evaluation --------------------------------------------------------------

    def places(self) -> tuple[tuple[IntArray, ...], Any]:
        """Return the addresses over the domain's box, and which points are valid (bool).

        Addresses of points that do not exist or are invalid are zero. The domain is static.
        """
        shape = self.domain.shape
        grid = [
            index + axis.lower
            for index, axis in zip(np.indices(shape, np.int64), self.domain.axes, strict=True)
        ]
        flat = {n: g.reshape(-1) for n, g in zip(self.domain.names, grid, strict=True)}
        count = int(np.prod(shape, dtype=np.int64))
        valid = np.ones(count, np.bool_)
        for guard in (*self.domain.guards, *self.validity):
            held = ArrayEvaluation(flat).visit(guard)
            valid &= np.broadcast_to(held, (count,)) != 0
        addresses = [np.zeros(count, np.int64) for _ in self.buffer.space.axes]
        if valid.any():  # without coordinates, no valid point can't be said by empty arrays
            found = self.address_map.apply_array(*(values[valid] for values in flat.values()))
            for full, column in zip(
                addresses, found if isinstance(found, tuple) else (found,), strict=True
            ):
                full[valid] = column
        return tuple(full.reshape(shape) for full in addresses), valid.reshape(shape)

    def read(self, memory: Any) -> tuple[Any, Any]:
        """Return ``(values, active)`` over the domain's box, as the policy says.

        ``memory`` has the shape of ``buffer.space``. Under ``predicate`` the inactive elements
        are those with ``active`` false; their values are zero and mean nothing.

        Raises
        ------
        DomainError
            Under ``assume``, at an invalid point: the promise is broken.
        """
        places, valid = self._checked_places(memory)
        values = np.where(valid, memory[places], memory.dtype.type(0))
        active = valid if self.bounds is BoundsPolicy.predicate else np.ones_like(valid)
        return values, active

    def write(self, memory: Any, values: Any) -> None:
        """Write ``values`` (of the domain's box) through the view; invalid points write nothing.

        Raises
        ------
        DomainError
            Under ``assume``, at an invalid point.
        LayoutError
            Where two points write one place.
        """
        places, valid = self._checked_places(memory)
        chosen = tuple(p[valid] for p in places)
        linear = np.ravel_multi_index(chosen, memory.shape)
        if np.unique(linear).size != linear.size:
            raise LayoutError(f"view of {self.buffer.name}: two points write one place")
        memory[chosen] = np.broadcast_to(values, valid.shape)[valid]

    def _checked_places(self, memory: Any) -> tuple[tuple[IntArray, ...], Any]:
        if tuple(memory.shape) != self.buffer.space.shape:
            raise LayoutError(
                f"buffer {self.buffer.name} has the shape {self.buffer.space.shape}, not"
                f" {tuple(memory.shape)}"
            )
        places, valid = self.places()
        if self.bounds is BoundsPolicy.assume and not valid.all():
            point = tuple(int(i) for i in np.argwhere(~valid)[0])
            raise DomainError(f"view of {self.buffer.name}: {point} is invalid, though assumed not")
        return places, valid


def _holds(context: Context, guard: Expr) -> bool:
    return context.decide(guard) is True


def _affine(x: Expr, start: ExprLike, step: int) -> ExprLike:
    scaled = x * step if step != 1 else x
    return scaled + start if not (isinstance(start, int) and start == 0) else scaled


def _window(axis: Axis, given: Window | None) -> tuple[ExprLike, int | None, int]:
    """Return start, extent (None: the axis goes) and step."""
    if given is None:
        if not isinstance(axis.extent, int):
            raise LayoutError(f"slice: axis '{axis.name}' has a symbolic extent; give a window")
        return axis.lower, axis.extent, 1
    if isinstance(given, slice):
        step = 1 if given.step is None else int(given.step)
        if step == 0:
            raise LayoutError(f"slice: '{axis.name}' has a step of 0")
        first, stop = _ends(axis, given, step)
        return first, len(range(first, stop, step)), step
    if isinstance(given, tuple):
        start, extent, step = given if len(given) == 3 else (*given, 1)
        if extent < 0:
            raise LayoutError(f"slice: '{axis.name}' has the extent {extent}")
        return start, int(extent), int(step)
    return given, None, 1


def _ends(axis: Axis, given: slice, step: int) -> tuple[int, int]:
    """Return start and stop; what is left out is the axis's own end."""
    if given.start is not None and given.stop is not None:
        return int(given.start), int(given.stop)
    if not isinstance(axis.extent, int):
        raise LayoutError(f"slice: '{axis.name}' has a symbolic extent; give start and stop")
    ends = (axis.lower, axis.lower + axis.extent)
    first, stop = ends if step > 0 else (ends[1] - 1, ends[0] - 1)
    return (
        first if given.start is None else int(given.start),
        stop if given.stop is None else int(given.stop),
    )

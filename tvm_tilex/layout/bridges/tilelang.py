"""TileLang's ``Layout`` and ``Fragment`` as plain data: forward expressions over a tile.

The direction is TileLang's: tile coordinates to thread and local index; nothing is inverted. A
replicated fragment keeps its replica as an axis of the occurrence space. TileLang itself is not
needed; ``from_native`` reads a real object by its forward expressions. TileLang evaluates in
int32; the map here is exact and raises where a value leaves 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.bridges.placement import Placement
from tvm_tilex.layout.bridges.prim_expr import constant_of, from_prim_expr
from tvm_tilex.layout.expr import Coordinate, Expr, constant, coordinate
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.interval import Interval, IntervalAnalysis, Unsafe
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.proof import prove
from tvm_tilex.layout.text import expr_text
from tvm_tilex.layout.visitor import leaves, substitute

__all__ = ["REPLICA", "TileLangFragment", "TileLangLayout", "axis_names"]

REPLICA = "rep"
_ENUMERATED = 65536


def axis_names(rank: int) -> tuple[str, ...]:
    """Return ``i, j, k, ...``, the names that TileLang prints."""
    return tuple("ijklmnopq"[:rank]) if rank <= 9 else tuple(f"i{k}" for k in range(rank))


def _named(values: tuple[Expr, ...]) -> dict[str, Expr]:
    if len(values) == 1:
        return {"index": values[0]}
    return {f"index{k}": value for k, value in enumerate(values)}


@dataclass(frozen=True)
class TileLangLayout:
    """``Layout(shape, forward)``: tile coordinates to a (possibly multi-dimensional) index.

    Parameters
    ----------
    shape
        Extents of the tile.
    index
        Forward expressions over the coordinates ``axes``.
    axes
        Names of the tile coordinates.
    """

    shape: tuple[int, ...]
    index: tuple[Expr, ...]
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.axes:
            object.__setattr__(self, "axes", axis_names(len(self.shape)))
        _check(self.shape, self.axes, self.index, 1)

    @property
    def domain(self) -> IndexSet:
        """The tile."""
        return IndexSet.box(tuple(zip(self.axes, self.shape, strict=True)))

    @cached_property
    def map(self) -> LayoutMap:
        """The forward map, normalized where it is in the grammar, else an IndexExpr."""
        return forward_map(self.domain, _named(self.index))

    @property
    def placement(self) -> Placement:
        """The occurrences: the elements of the tile, without copies."""
        return Placement(self.map)

    @staticmethod
    def from_native(native: Any) -> TileLangLayout:
        """Return the layout of a TileLang ``Layout`` object.

        Raises
        ------
        LayoutError
            For a Fragment, a symbolic shape, or an expression outside integer index arithmetic.
        """
        if hasattr(native, "forward_thread"):
            raise LayoutError("tilelang layout: this is a Fragment, not a Layout")
        shape, axes, known = _native_domain(native)
        index = tuple(from_prim_expr("tilelang", e, known) for e in native.get_forward_index())
        return TileLangLayout(shape, index, axes)

    @staticmethod
    def from_map(map: LayoutMap) -> TileLangLayout:
        """Export a map with one branch over a static zero-based box.

        Raises
        ------
        LayoutError
            For guards, parameters, several branches, or a finite table.
        """
        return TileLangLayout(_static_shape(map), tuple(map.outputs), map.domain.names)

    def __str__(self) -> str:
        """Return the constructor call, which :func:`parse_tilelang` and TileLang read."""
        return f"Layout({list(self.shape)}, {_lambda(self.axes, self.index)})"


@dataclass(frozen=True)
class TileLangFragment:
    """``Fragment(shape, forward_thread, forward_index, replicate)``.

    Parameters
    ----------
    shape
        Extents of the tile.
    thread
        Thread of an element, over the coordinates ``axes`` and, with copies, ``rep``.
    index
        Local index expressions over ``axes`` alone.
    replicate
        Number of copies of each element.
    axes
        Names of the tile coordinates.
    """

    shape: tuple[int, ...]
    thread: Expr
    index: tuple[Expr, ...] = ()
    replicate: int = 1
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.axes:
            object.__setattr__(self, "axes", axis_names(len(self.shape)))
        if REPLICA in self.axes:
            raise LayoutError(f"tilelang layout: '{REPLICA}' names the replica, not a coordinate")
        _check(self.shape, self.axes, (self.thread, *self.index), self.replicate)
        if any(REPLICA in _names(e) for e in self.index):
            raise LayoutError("tilelang layout: the local index depends on the replica")

    @property
    def domain(self) -> IndexSet:
        """The occurrence space: the tile and, with copies, the axis ``rep``."""
        axes = list(zip(self.axes, self.shape, strict=True))
        return IndexSet.box([*axes, (REPLICA, self.replicate)] if self.replicate > 1 else axes)

    @cached_property
    def map(self) -> LayoutMap:
        """The map ``(coordinates, rep) -> (thread, index)``."""
        values = {"thread": self.thread, **_named(self.index)}
        return forward_map(self.domain, values)

    @property
    def placement(self) -> Placement:
        """The occurrences; ``rep`` numbers the equal copies of one element."""
        return Placement(self.map, (REPLICA,) if self.replicate > 1 else ())

    @staticmethod
    def from_native(native: Any) -> TileLangFragment:
        """Return the layout of a TileLang ``Fragment`` object.

        Raises
        ------
        LayoutError
            For a PartialFragment (its replicas are addends, not equal copies), a symbolic shape,
            or an expression outside integer index arithmetic.
        """
        if hasattr(native, "combine") or "Partial" in type(native).__name__:
            raise LayoutError(
                "tilelang layout: a PartialFragment's replicas are addends, not equal copies"
            )
        shape, axes, known = _native_domain(native)
        known["_rep"] = coordinate(REPLICA)
        thread = from_prim_expr("tilelang", native.thread, known)
        index = tuple(from_prim_expr("tilelang", e, known) for e in native.index)
        return TileLangFragment(shape, thread, index, int(native.replicate_size), axes)

    @staticmethod
    def from_map(map: LayoutMap, replica: str | None = None) -> TileLangFragment:
        """Export a map whose first output is the thread and whose others are the local index.

        Raises
        ------
        LayoutError
            As :meth:`TileLangLayout.from_map`, and where the replica is not an axis.
        """
        names = map.domain.names
        if replica is not None and replica not in names:
            raise LayoutError(f"replica axis '{replica}' is not one of {names}")
        sizes = dict(zip(names, _static_shape(map), strict=True))
        outputs, copies = tuple(map.outputs), 1
        if replica is not None:
            copies = sizes.pop(replica)
            number = coordinate(REPLICA) if copies > 1 else constant(0)
            outputs = substitute(outputs, {replica: number})
        return TileLangFragment(
            tuple(sizes.values()), outputs[0], outputs[1:], copies, tuple(sizes)
        )

    def __str__(self) -> str:
        """Return the constructor call, which :func:`parse_tilelang` and TileLang read."""
        rep = (REPLICA,) if self.replicate > 1 else ()
        parts = [f"forward_thread_fn={_lambda(self.axes + rep, (self.thread,))}"]
        if rep:
            parts.append(f"replicate={self.replicate}")
        if self.index:
            parts.append(f"forward_index_fn={_lambda(self.axes, self.index)}")
        return f"Fragment({list(self.shape)}, {', '.join(parts)})"


def _native_domain(native: Any) -> tuple[tuple[int, ...], tuple[str, ...], dict[str, Expr]]:
    """Return shape and axis names of a native object, and its variables by their own names."""
    shape = tuple(constant_of("tilelang", n, "extent") for n in native.get_input_shape())
    axes = axis_names(len(shape))
    variables = [str(v.name) for v in native.get_forward_vars()]
    own = [v for v in variables if v != "_rep"]
    return shape, axes, {v: coordinate(n) for v, n in zip(own, axes, strict=True)}


def _names(expr: Expr) -> set[str]:
    return {leaf.name for leaf in leaves((expr,)) if isinstance(leaf, Coordinate)}


def _check(
    shape: tuple[int, ...], axes: tuple[str, ...], values: tuple[Expr, ...], replicate: int
) -> None:
    if len(shape) != len(axes) or len(set(axes)) != len(axes):
        raise LayoutError(f"tilelang layout: axes {axes} do not name the shape {shape}")
    if any(n < 1 for n in shape) or replicate < 1:
        raise LayoutError(f"tilelang layout: shape {shape} x {replicate} has no elements")
    known = {*axes, REPLICA} if replicate > 1 else set(axes)
    for value in values:
        extra = _names(value) - known
        if extra:
            raise LayoutError(f"tilelang layout: '{min(extra)}' is not an index variable")


def _static_shape(map: LayoutMap) -> tuple[int, ...]:
    if map.domain.guards or not map.domain.is_static or any(a.lower for a in map.domain.axes):
        raise LayoutError(
            f"tilelang layout: the domain {map.domain} is not a static zero-based box"
        )
    return map.domain.shape


def _lambda(axes: tuple[str, ...], values: tuple[Expr, ...]) -> str:
    texts = [expr_text(v) for v in values]
    if any("lookup(" in t or "call(" in t for t in texts):
        raise LayoutError("tilelang layout: a table or an opaque transform has no expression")
    body = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return f"lambda {', '.join(axes)}: {body}"


def forward_map(domain: IndexSet, values: dict[str, Expr]) -> LayoutMap:
    """Return the normalized map; the codomain is the hull of 0 and the values.

    The hull is exact on domains of at most 65,536 points where the exact bounds are also proved
    of the normal form; elsewhere it is the interval bound of the expressions, or, for a form that
    is linear over GF(2) on a ragged box, the next power of two.

    Raises
    ------
    LayoutError
        Where a subexpression is not safe in signed 64-bit range.
    """
    ranges = IntervalAnalysis(domain.leaf_bounds())
    try:
        bounds = [ranges.interval(value) for value in values.values()]
    except Unsafe as reason:
        raise LayoutError(f"tilelang layout: {reason}") from None
    raw = IndexExpr(domain, _hull(values, bounds), tuple(values.values()))
    hulls = [_measured(raw)] if prod(domain.shape) <= _ENUMERATED else []
    hulls += [bounds, [(low, (1 << max(high, 0).bit_length()) - 1) for low, high in bounds]]
    for hull in hulls:
        found = normalize(IndexExpr(domain, _hull(values, hull), raw.values))
        if prove(found, 0).bounds.proven:
            return found
    return raw


def _hull(values: dict[str, Expr], bounds: list[Interval]) -> IndexSet:
    axes = []
    for name, (low, high) in zip(values, bounds, strict=True):
        low, high = min(low, 0), max(high, 0)
        axes.append(Axis(name, high - low + 1, low))
    return IndexSet(tuple(axes))


def _measured(map: LayoutMap) -> list[Interval]:
    import numpy as np

    grids: Any = np.indices(map.domain.shape, dtype=np.int64) if map.domain.rank else []
    found = map.apply_array(*grids) if map.domain.rank else map.apply()
    rows = found if isinstance(found, tuple) else (found,)
    return [(int(np.min(row)), int(np.max(row))) for row in rows]

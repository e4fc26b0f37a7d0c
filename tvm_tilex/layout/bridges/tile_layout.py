"""TVM's ``TileLayout`` and ``ComposeLayout`` as plain data: shard, replica, offset, swizzle.

TVM itself is not needed; :mod:`tvm_tilex.tirx.tile_layout` reads and builds the native objects.
The domain is the product of the shard extents with row-major digits (the last shard iterator is
fastest), the opposite of CuTe's order, so each domain axis is a mixed-radix mode with its digits
reversed. Nothing is canonicalized: TVM's own canonical form loses an offset where two thread axes
fuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.algebra import flatten
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.bridges.placement import Placement
from tvm_tilex.layout.composite import Compose, Product, Transform
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Identity
from tvm_tilex.layout.radix import MixedRadix

__all__ = ["ComposeLayout", "Iter", "TileLayout"]

MEMORY = "m"


@dataclass(frozen=True)
class Iter:
    """One iterator: ``extent`` steps of ``stride`` along the named axis."""

    extent: int
    stride: int
    axis: str = MEMORY

    def __post_init__(self) -> None:
        if self.extent < 1:
            raise LayoutError(f"tvm layout: iterator extent {self.extent} is not positive")
        if not self.axis.isidentifier():
            raise LayoutError(f"tvm layout: '{self.axis}' cannot name an axis")


@dataclass(frozen=True)
class TileLayout:
    """``shard(x) + replica(r) + offset`` in named axes; axes that are absent are zero.

    Parameters
    ----------
    shard
        Iterators of the logical index, last one fastest.
    replica
        Iterators of the copies; every combination is one copy.
    offset
        Pairs of axis and value; their order has no meaning and is sorted.
    """

    shard: tuple[Iter, ...]
    replica: tuple[Iter, ...] = ()
    offset: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.offset]
        if len(set(names)) != len(names):
            raise LayoutError(f"tvm layout: the offset names an axis twice: {names}")
        object.__setattr__(self, "offset", tuple(sorted(self.offset)))

    @property
    def size(self) -> int:
        """Number of logical elements, exact."""
        return prod(it.extent for it in self.shard)

    @property
    def axes(self) -> tuple[str, ...]:
        """The named axes in order of appearance."""
        names = [it.axis for it in self.shard + self.replica] + [n for n, _ in self.offset]
        return tuple(dict.fromkeys(names))

    def group(self, shape: Sequence[int]) -> tuple[TileLayout, tuple[int, ...]]:
        """Split shard iterators so that each extent of ``shape`` owns whole ones.

        Returns
        -------
        tuple
            The layout and the positions where each logical axis starts, ending with the count.

        Raises
        ------
        LayoutError
            Where the sizes differ or an iterator would have to be split unevenly; use
            :meth:`map_over`, which needs no split.
        """
        if prod(shape) != self.size:
            raise LayoutError(f"tvm layout: shape {tuple(shape)} is not the size {self.size}")
        rest = list(reversed(self.shard))
        built: list[Iter] = []
        starts = [0]
        for extent in reversed(shape):
            left = extent
            while left > 1:
                left = _take(rest, built, left)
            starts.append(len(built))
        built.extend(rest)  # sizes agree, so only unit iterators are left
        if shape:
            starts[-1] = len(built)
        grouped = replace(self, shard=tuple(reversed(built)))
        return grouped, tuple(len(built) - s for s in reversed(starts))

    def _modes(self, iters: Sequence[Iter]) -> tuple[Any, Any]:
        """One domain axis of row-major digits: nested shape and stride, fastest first."""
        digits = list(reversed(iters)) or [Iter(1, 0, (self.axes or (MEMORY,))[0])]
        if len(digits) == 1:
            return digits[0].extent, self._step(digits[0])
        return tuple(it.extent for it in digits), tuple(self._step(it) for it in digits)

    def _step(self, it: Iter) -> Any:
        return ((it.axis, it.stride),) if self.axes else it.stride

    def _radix(self, groups: list[tuple[str, Sequence[Iter]]]) -> MixedRadix:
        modes = [self._modes(iters) for _, iters in groups]
        sizes = ((n, prod(it.extent for it in iters)) for n, iters in groups)
        offset = tuple(self.offset) or 0
        domain = IndexSet.box(tuple(sizes))
        shape, stride = tuple(m[0] for m in modes), tuple(m[1] for m in modes)
        if not self.axes:
            target = IndexSet((Axis(MEMORY, 1),))
            return MixedRadix(shape, stride, 0, domain, target)
        return MixedRadix(shape, stride, offset, domain)

    def _replica_groups(self) -> list[tuple[str, Sequence[Iter]]]:
        return [(f"r{k}", (it,)) for k, it in enumerate(self.replica)]

    @cached_property
    def map(self) -> MixedRadix:
        """The physical leg: one axis ``i0, i1, ...`` per shard and ``r0, ...`` per replica."""
        shard: list[tuple[str, Sequence[Iter]]] = [
            (f"i{k}", (it,)) for k, it in enumerate(self.shard)
        ]
        return self._radix(shard + self._replica_groups())

    @property
    def placement(self) -> Placement:
        """The occurrences: elements by shard digits, copies by replica digits."""
        return Placement(self.map, tuple(n for n, _ in self._replica_groups()))

    def map_over(self, shape: Sequence[int]) -> LayoutMap:
        """Return the physical leg over a logical shape: axes ``i0, ...`` and ``r0, ...``.

        Where the shape groups the shard, the result is mixed radix; otherwise the flattened
        index is split in a composition. Either way the value at every point is TVM's
        ``apply(*coordinates, shape=shape)`` plus the copy's steps.

        Raises
        ------
        LayoutError
            Where the product of ``shape`` is not the size of the layout.
        """
        names = [f"i{k}" for k in range(len(shape))]
        try:
            grouped, starts = self.group(shape)
        except LayoutError:
            if prod(shape) != self.size:
                raise
            return self._composed(names, shape)
        spans = zip(names, starts, starts[1:], strict=False)
        groups = [(n, grouped.shard[a:b]) for n, a, b in spans]
        return grouped._radix(groups + self._replica_groups())

    def _composed(self, names: list[str], shape: Sequence[int]) -> LayoutMap:
        whole = self._radix([("e", self.shard), *self._replica_groups()])
        logical = IndexSet.box(tuple(zip(names, shape, strict=True)))
        line = flatten(logical, name="e")
        copies = tuple(Axis(f"r{k}", it.extent) for k, it in enumerate(self.replica))
        if not copies:
            return Compose(whole, line)
        return Compose(whole, Product((line, Identity(IndexSet(copies)))))

    def placement_over(self, shape: Sequence[int]) -> Placement:
        """Return :meth:`map_over` as occurrences."""
        return Placement(self.map_over(shape), tuple(n for n, _ in self._replica_groups()))

    @staticmethod
    def from_map(map: LayoutMap, replica: Sequence[str] = ()) -> TileLayout:
        """Export a mixed-radix map (or the identity of one axis).

        Domain axes named in ``replica`` become replica iterators, the others shard iterators
        (their digits in row-major order). An unnamed stride goes to axis ``m``.

        Raises
        ------
        LayoutError
            For any other node, a guarded or symbolic domain, a stride along several axes, or a
            replica name that is not an axis.
        """
        if isinstance(map, Identity) and map.domain.rank == 1 and map.domain.is_static:
            map = MixedRadix(map.domain.shape, (1,), 0, map.domain, map.codomain)
        if not isinstance(map, MixedRadix):
            raise LayoutError(
                f"{type(map).__name__} is not in the shard/replica subset of TileLayout"
            )
        if map.domain.guards or map.domain.parameters:
            raise LayoutError("a TileLayout has no guards; restrict the view, not the layout")
        unknown = [n for n in replica if n not in map.domain.names]
        if unknown:
            raise LayoutError(f"replica axis '{unknown[0]}' is not one of {map.domain.names}")
        shard: list[Iter] = []
        copies: list[Iter] = []
        for axis, mode in zip(map.domain.names, map.digits, strict=True):
            made = [Iter(n, *_single(map, step)) for n, step in reversed(mode)]
            (copies if axis in replica else shard).extend(made)
        offset = tuple(
            (n if map.is_vector else MEMORY, map.component(map.offset, n))
            for n in map.codomain.names
            if map.component(map.offset, n)
        )
        return TileLayout(tuple(shard), tuple(copies), offset)

    def __str__(self) -> str:
        """Return TVM's spelling, which :func:`parse_tvm` reads back."""
        parts = [_spec("S", self.shard)]
        if self.replica:
            parts.append(_spec("R", self.replica))
        parts.extend(f"{v}" if n == MEMORY else f"{v}@{n}" for n, v in self.offset)
        return " + ".join(parts)


def _take(rest: list[Iter], built: list[Iter], left: int) -> int:
    """Move the fastest iterator, or the part of it that is needed; return what is still missing."""
    it = rest.pop(0)
    if it.extent <= left:
        if left % it.extent:
            raise LayoutError(f"tvm layout: {it.extent} does not divide {left}")
        built.append(it)
        return left // it.extent
    if it.extent % left:
        raise LayoutError(f"tvm layout: {left} does not divide {it.extent}")
    built.append(replace(it, extent=left))
    rest.insert(0, Iter(it.extent // left, it.stride * left, it.axis))
    return 1


def _single(map: MixedRadix, step: Any) -> tuple[int, str]:
    if isinstance(step, int):
        return step, map.codomain.names[0] if map.is_vector else MEMORY
    if len(step) != 1:
        raise LayoutError(f"a TileLayout iterator has one axis; the stride {step} names several")
    return step[0][1], step[0][0]


def _spec(letter: str, iters: tuple[Iter, ...]) -> str:
    steps = [f"{it.stride}" if it.axis == MEMORY else f"{it.stride}@{it.axis}" for it in iters]
    if len(iters) == 1:
        return f"{letter}[{iters[0].extent}:{steps[0]}]"
    extents = ", ".join(str(it.extent) for it in iters)
    return f"{letter}[({extents}):({', '.join(steps)})]"


@dataclass(frozen=True)
class ComposeLayout:
    """An XOR swizzle of the memory offset of ``tile``: CuTe's ``S<B,M,S> o tile``.

    ``B = swizzle_len``, ``M = per_element``, ``S = atom_len`` (negative with
    ``swizzle_inner=False``).

    Raises
    ------
    LayoutError
        For a replica (TVM never shows how it is swizzled), an axis other than ``m``, a negative
        offset, or ``atom_len < swizzle_len``.
    """

    per_element: int
    swizzle_len: int
    atom_len: int
    tile: TileLayout
    swizzle_inner: bool = True

    def __post_init__(self) -> None:
        if self.tile.replica:
            raise LayoutError("tvm layout: how a replica under a ComposeLayout swizzles is open")
        other = [n for n in self.tile.axes if n != MEMORY]
        if other:
            raise LayoutError(f"tvm layout: a swizzle moves axis m, not '{other[0]}'")
        if not self.atom_len >= self.swizzle_len >= 0 or self.per_element < 0:
            raise LayoutError("tvm layout: a swizzle needs atom_len >= swizzle_len >= 0")
        _ = self.map

    @property
    def swizzle(self) -> tuple[int, int, int]:
        """CuTe's ``(bits, base, shift)``."""
        shift = self.atom_len if self.swizzle_inner else -self.atom_len
        return (self.swizzle_len, self.per_element, shift)

    def _swizzled(self, inner: LayoutMap) -> LayoutMap:
        if self.swizzle_len == 0:
            return inner
        axis = inner.codomain.axes[0]
        if axis.lower:
            raise LayoutError(f"tvm layout: a swizzle of the negative offset {axis.lower}")
        return Transform("xor_swizzle", self.swizzle, inner)

    @cached_property
    def map(self) -> LayoutMap:
        """The map over the shard digits, as :attr:`TileLayout.map`, swizzled."""
        return self._swizzled(self.tile.map)

    def map_over(self, shape: Sequence[int]) -> LayoutMap:
        """Return the map over a logical shape, as :meth:`TileLayout.map_over`."""
        return self._swizzled(self.tile.map_over(shape))

    @property
    def size(self) -> int:
        """Number of logical elements."""
        return self.tile.size

    @property
    def placement(self) -> Placement:
        """The occurrences; there are no copies."""
        return Placement(self.map)

    @staticmethod
    def from_map(map: LayoutMap) -> ComposeLayout:
        """Export a registered ``xor_swizzle`` of a mixed-radix map.

        Raises
        ------
        LayoutError
            For any other node.
        """
        if not isinstance(map, Transform) or map.name != "xor_swizzle":
            raise LayoutError(f"{type(map).__name__} is not a swizzle of a TileLayout")
        bits, base, shift = map.arguments
        return ComposeLayout(base, bits, abs(shift), TileLayout.from_map(map.map), shift >= 0)

    def __str__(self) -> str:
        """Return TVM's spelling, which :func:`parse_tvm` reads back."""
        last = "" if self.swizzle_inner else ", swizzle_inner=False"
        head = f"{self.per_element}, {self.swizzle_len}, {self.atom_len}"
        return f"ComposeLayout({head}, {self.tile}{last})"

"""CuTe's layouts as values: hierarchical ``shape:stride``, swizzles, and compositions of them.

The order is CuTe's, colexicographic: an integer coordinate is split with the first mode fastest.
Unlike CuTe, evaluation checks the domain. Source of the rules: NVIDIA, "CuTe Layouts" and "CuTe
Layout Algebra" (cutlass, media/docs/cpp/cute/01_layout.md and 02_layout_algebra.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.expr import INT64_MAX, INT64_MIN
from tvm_tilex.layout.int_tuple import (
    IntTuple,
    compact_strides,
    congruent,
    coordinate_index,
    leaves_of,
    modes_of,
    size_of,
    with_leaves,
)
from tvm_tilex.layout.text import nest_text
from tvm_tilex.layout.transforms import bind_transform

__all__ = ["AnyCuteLayout", "ComposedLayout", "CuteLayout", "Swizzle", "parse_cute_layout"]


@dataclass(frozen=True)
class Swizzle:
    """``S<bits, base, shift>``: ``x ^ ((x & mask) >> shift)`` with ``bits`` ones in the mask.

    The mask starts at bit ``base + max(shift, 0)``; a negative shift goes left.

    Raises
    ------
    LayoutError
        Unless ``bits, base >= 0`` and ``|shift| >= bits`` (then it is its own inverse).
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        bind_transform("xor_swizzle", self.arguments)

    @property
    def arguments(self) -> tuple[int, int, int]:
        """The arguments of the registered transform ``xor_swizzle``."""
        return (self.bits, self.base, self.shift)

    @property
    def block(self) -> int:
        """The swizzle permutes every aligned block of this many indices."""
        return 1 << (self.bits + self.base + abs(self.shift)) if self.bits else 1

    def __call__(self, index: int) -> int:
        """Return the swizzled index."""
        low = self.base + max(self.shift, 0)
        selected = index & (((1 << self.bits) - 1) << low)
        return index ^ (selected >> self.shift if self.shift >= 0 else selected << -self.shift)

    def __str__(self) -> str:
        return f"S<{self.bits},{self.base},{self.shift}>"


class _Evaluated:
    """What layouts with a shape share: size, rank and checked evaluation."""

    shape: IntTuple

    def size(self) -> int:
        """Return the number of coordinates."""
        return size_of(self.shape)

    @property
    def rank(self) -> int:
        """Number of top-level modes; an integer shape has one."""
        return len(modes_of(self.shape))

    def value(self, index: int) -> int:
        """Return the value at a linear index, without a check of the domain."""
        raise NotImplementedError

    def values(self) -> Iterator[int]:
        """Yield the values in colexicographic order."""
        return (self.value(index) for index in range(self.size()))

    def __call__(self, *coord: Any) -> int:
        """Return the value at a linear index or at a hierarchical coordinate.

        ``layout(11)``, ``layout(3, 2)`` and ``layout((3, 2))`` are accepted, and any coordinate
        that is coarser than the shape.

        Raises
        ------
        DomainError
            Outside the layout's own shape.
        """
        return self.value(coordinate_index(coord[0] if len(coord) == 1 else coord, self.shape))


@dataclass(frozen=True)
class CuteLayout(_Evaluated):
    """``shape:stride`` with congruent nests of integers.

    Parameters
    ----------
    shape
        Extents, each at least 0.
    stride
        Strides, of any sign; by default compact and colexicographic (first mode fastest).

    Raises
    ------
    LayoutError
        Where the nests are not congruent, or the size or an index leaves signed 64-bit range.
    """

    shape: IntTuple
    stride: IntTuple = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _check_nest("shape", self.shape)
        if self.stride is None:
            object.__setattr__(self, "stride", compact_strides(self.shape))
        _check_nest("stride", self.stride)
        if not congruent(self.shape, self.stride):
            raise LayoutError(f"stride {self.stride} is not congruent with the shape {self.shape}")
        digits = tuple(zip(leaves_of(self.shape), leaves_of(self.stride), strict=True))
        object.__setattr__(self, "_digits", digits)
        if any(extent < 0 for extent, _ in digits):
            raise LayoutError(f"layout {self}: an extent is negative")
        low, high = self.index_range()
        if size_of(self.shape) > INT64_MAX or low < INT64_MIN or high > INT64_MAX:
            raise LayoutError(f"layout {self}: the size or an index leaves signed 64-bit range")

    @property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """The (extent, stride) pairs of the leaves, fastest first."""
        return self._digits  # type: ignore[attr-defined,no-any-return]

    def mode(self, number: int) -> CuteLayout:
        """Return one top-level mode."""
        return CuteLayout(modes_of(self.shape)[number], modes_of(self.stride)[number])

    @property
    def modes(self) -> tuple[CuteLayout, ...]:
        """The top-level modes; a layout with an integer shape is its own only mode."""
        return tuple(self.mode(k) for k in range(self.rank))

    def value(self, index: int) -> int:
        """Return the value at a linear index; past the size, the last mode goes on."""
        total, last = 0, len(self.digits) - 1
        for number, (extent, step) in enumerate(self.digits):
            if number == last:
                return total + index * step
            index, digit = divmod(index, extent)
            total += digit * step
        return total

    def index_range(self) -> tuple[int, int]:
        """Return the least and the greatest value; ``(0, -1)`` for an empty layout."""
        low = high = 0
        for extent, step in self.digits:
            if extent == 0:
                return (0, -1)
            reach = step * (extent - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return (low, high)

    def cosize(self) -> int:
        """Return ``1 + max - min`` of the values, the width of the image; 0 where it is empty."""
        low, high = self.index_range()
        return high - low + 1

    def extended(self, size: int) -> CuteLayout:
        """Return the layout with its last leaf long enough for ``size`` indices; values are kept.

        Raises
        ------
        LayoutError
            For an empty layout, which has no last value to go on from.
        """
        if self.size() >= size:
            return self
        if not self.size():
            raise LayoutError(f"the empty layout {self} has no extension")
        if not self.digits:
            return CuteLayout(size, 0)
        last = self.digits[-1][0]
        needed = -(-size // (self.size() // last))
        extents = (*(n for n, _ in self.digits[:-1]), needed)
        return CuteLayout(with_leaves(self.shape, extents), self.stride)

    def to_map(self, *, linear: bool = False) -> LayoutMap:
        """Return the layout as a ``MixedRadix``.

        Parameters
        ----------
        linear
            One domain axis of ``size()`` points in place of one axis per top-level mode.
        """
        from tvm_tilex.layout.radix import MixedRadix

        if not linear:
            return MixedRadix(self.shape, self.stride)
        pairs = self.digits or ((1, 0),)
        return MixedRadix((tuple(n for n, _ in pairs),), (tuple(s for _, s in pairs),))

    @staticmethod
    def from_map(map: LayoutMap) -> CuteLayout | ComposedLayout:
        """Return the CuTe layout that has the modes and values of ``map``.

        Raises
        ------
        LayoutError
            Where ``map`` does not normalize to shape:stride without an offset, or to a swizzle of
            shape:stride; the message names the node.
        """
        return _from_map(map)

    def __str__(self) -> str:
        return f"{nest_text(self.shape)}:{nest_text(self.stride)}"


@dataclass(frozen=True)
class ComposedLayout(_Evaluated):
    """``outer o offset o layout``: ``outer(offset + layout(x))``, on the coordinates of ``layout``.

    The form of a swizzled layout, and of every composition that no flat layout equals.
    """

    outer: Swizzle | CuteLayout
    offset: int
    layout: CuteLayout | ComposedLayout

    def __post_init__(self) -> None:
        if isinstance(self.outer, CuteLayout) and self.size():
            low, high = self._inner_range()
            if low < 0 or high >= self.outer.size():
                raise LayoutError(
                    f"composition past the domain: the inner values lie in [{low}, {high}], the"
                    f" outer layout {self.outer} has {self.outer.size()} points"
                )

    def _inner_range(self) -> tuple[int, int]:
        from tvm_tilex.layout.value_range import index_range

        low, high = index_range(self.layout)
        return low + self.offset, high + self.offset

    @property
    def shape(self) -> IntTuple:  # type: ignore[override]
        """The shape of the inner layout."""
        return self.layout.shape

    def value(self, index: int) -> int:
        """Return the value at a linear index."""
        inner = self.offset + self.layout.value(index)
        return self.outer(inner) if isinstance(self.outer, Swizzle) else self.outer.value(inner)

    def cosize(self) -> int:
        """Return ``1 + max - min`` of the values, exactly: 64 for ``S<3,0,3> o (6,10):(10,1)``."""
        from tvm_tilex.layout.value_range import index_range

        low, high = index_range(self)
        return high - low + 1

    def to_map(self, *, linear: bool = False) -> LayoutMap:
        """Return the layout as a map: a ``Transform`` or a ``Compose`` over the inner map.

        Raises
        ------
        LayoutError
            Where a swizzle would read a negative index.
        """
        from tvm_tilex.layout.composite import Compose, Transform, Translate
        from tvm_tilex.layout.radix import MixedRadix

        inner = self.layout.to_map(linear=linear)
        if self.offset and isinstance(inner, MixedRadix):
            inner = MixedRadix(inner.shape, inner.stride, self.offset, inner.domain)
        elif self.offset:
            inner = Translate((self.offset,), inner)
        if isinstance(self.outer, Swizzle):
            return Transform("xor_swizzle", self.outer.arguments, inner)
        # A swizzle declares whole blocks; the values past the outer layout are never taken.
        outer = self.outer.extended(inner.codomain.axes[0].bounds()[1] + 1)
        return Compose(outer.to_map(linear=True), inner)

    def __str__(self) -> str:
        return f"{self.outer} o {self.offset} o {self.layout}"


AnyCuteLayout = CuteLayout | ComposedLayout


def parse_cute_layout(text: str) -> AnyCuteLayout:
    """Return the layout of CuTe's text form.

    ``((4,2),8):((1,4),16)``, a shape alone (compact strides), ``S<3,0,3> o 0 o (8,8):(8,1)``;
    static integers may be written ``_4``, as CuTe C++ prints them.

    Raises
    ------
    LayoutTextError
        Where the text does not parse, naming the column, or describes no layout.
    """
    from tvm_tilex.layout.cute_text import parse

    return parse(text)


def _check_nest(what: str, nest: Any) -> None:
    if isinstance(nest, tuple):
        for entry in nest:
            _check_nest(what, entry)
    elif not isinstance(nest, int) or isinstance(nest, bool):
        raise LayoutError(f"{what}: {nest!r} is not an integer or a tuple of them")


def _from_map(map: LayoutMap) -> AnyCuteLayout:
    from tvm_tilex.layout.composite import Transform
    from tvm_tilex.layout.normalize import normalize
    from tvm_tilex.layout.radix import MixedRadix

    for candidate in (map, normalize(map)):
        if isinstance(candidate, Transform) and candidate.name == "xor_swizzle":
            base = _plain(normalize(candidate.map))
            if base is not None:
                bits, low, shift = candidate.arguments
                return ComposedLayout(Swizzle(bits, low, shift), base[1], base[0])
        plain = _plain(candidate)
        if plain is not None and not plain[1]:
            return plain[0]
    kind = type(normalize(map)).__name__
    moved = " with an offset" if isinstance(normalize(map), MixedRadix) else ""
    raise LayoutError(f"a {kind}{moved} is not a CuTe layout: {map.domain} -> {map.codomain}")


def _plain(map: LayoutMap) -> tuple[CuteLayout, int] | None:
    """Return shape:stride and the offset of a mixed-radix map with scalar strides."""
    from tvm_tilex.layout.radix import MixedRadix

    if not isinstance(map, MixedRadix) or map.is_vector or map.domain.guards:
        return None
    return CuteLayout(map.shape, map.stride), map.component(map.offset, map.codomain.names[0])

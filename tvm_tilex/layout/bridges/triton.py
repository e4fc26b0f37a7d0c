"""Triton's ``LinearLayout``: a map of hardware bits to logical bits, linear over GF(2).

Plain data; Triton itself is not needed. ``from_native`` reads a real ``LinearLayout`` by its
``bases`` and ``out_dims``, ``to_native`` builds one with its ``from_bases``. The direction is
Triton's: hardware location to tensor element (triton/include/triton/Tools/LinearLayout.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import xor
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.bridges.linear import bits_of_map, pack, solve
from tvm_tilex.layout.bridges.placement import Placement
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import BitLinear

__all__ = ["TritonLayout"]

Bases = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
Sizes = tuple[tuple[str, int], ...]


def _log2(what: str, size: int) -> int:
    if size < 1 or size & (size - 1):
        raise LayoutError(f"triton layout: {what} has size {size}, which is not a power of two")
    return size.bit_length() - 1


@dataclass(frozen=True)
class TritonLayout:
    """``out = XOR of bases[dim][bit]`` over the set bits of the input dimensions.

    Parameters
    ----------
    bases
        Input dimensions in order, each with one vector per bit, low bit first; a vector has one
        integer per output dimension. A dimension of size 1 has no vectors.
    out_dims
        Output dimensions in order with their sizes, powers of two.

    Raises
    ------
    LayoutError
        For a size that is not a power of two, a vector that leaves its dimension, or a name that
        occurs twice.
    """

    bases: Bases
    out_dims: Sizes

    def __post_init__(self) -> None:
        for name, size in self.out_dims:
            _log2(f"output dimension '{name}'", size)
        names = [n for n, _ in self.bases]
        outs = [n for n, _ in self.out_dims]
        if len(set(names)) != len(names) or len(set(outs)) != len(outs):
            raise LayoutError(f"triton layout: dimensions {names} -> {outs} are not distinct")
        for name, vectors in self.bases:
            for bit, vector in enumerate(vectors):
                self._check_vector(name, bit, vector)

    def _check_vector(self, name: str, bit: int, vector: tuple[int, ...]) -> None:
        where = f"triton layout: basis {name}={1 << bit}"
        if len(vector) != len(self.out_dims):
            raise LayoutError(f"{where} has {len(vector)} values for {len(self.out_dims)} outputs")
        for value, (out, size) in zip(vector, self.out_dims, strict=True):
            if not 0 <= value < size:
                raise LayoutError(f"{where}: {value} is outside '{out}' of size {size}")

    # -- import ------------------------------------------------------------------------------

    @staticmethod
    def from_bases(
        bases: Mapping[str, Any] | list[tuple[str, Any]],
        out_dims: Mapping[str, int] | list[Any] | None = None,
    ) -> TritonLayout:
        """Return the layout of lists of vectors, as ``LinearLayout.from_bases`` takes them.

        ``out_dims`` gives names with sizes, or names only; a size left out is the least power of
        two that holds the vectors, a name left out is ``dim0``, ``dim1``, ... A vector of one
        dimension may be a bare integer.
        """
        pairs = list(bases.items() if isinstance(bases, Mapping) else bases)
        rows = tuple(
            (str(n), tuple(tuple(v) if isinstance(v, (list, tuple)) else (v,) for v in vectors))
            for n, vectors in pairs
        )
        outs = list(out_dims.items() if isinstance(out_dims, Mapping) else out_dims or ())
        if not outs:
            rank = max((len(v) for _, vectors in rows for v in vectors), default=1)
            outs = [f"dim{k}" for k in range(rank)]
        sizes = []
        for k, out in enumerate(outs):
            if not isinstance(out, str):
                sizes.append((str(out[0]), int(out[1])))
                continue
            top = max((v[k] for _, vectors in rows for v in vectors if k < len(v)), default=0)
            sizes.append((out, 1 << max(top, 0).bit_length()))
        return TritonLayout(rows, tuple(sizes))

    @staticmethod
    def from_native(native: Any) -> TritonLayout:
        """Return the layout of a Triton ``LinearLayout`` object."""
        return TritonLayout.from_bases(list(native.bases), [tuple(p) for p in native.out_dims])

    @staticmethod
    def from_map(map: LayoutMap, budget: int = 65536) -> TritonLayout:
        """Export a map whose every extent is a power of two and which is linear over GF(2).

        Linearity is proved from the map's DAG, or by evaluating at most ``budget`` points.

        Raises
        ------
        LayoutError
            For a guarded or symbolic domain, an axis that is not ``[0, 2**k)``, a value that
            does not map 0 to 0, or a map that is not linear.
        """
        for what, space in (("domain", map.domain), ("codomain", map.codomain)):
            if space.guards or space.box_size is None:
                raise LayoutError(f"triton layout: the {what} {space} is guarded or symbolic")
            for axis in space.axes:
                if axis.lower:
                    raise LayoutError(f"triton layout: axis '{axis.name}' starts at {axis.lower}")
                _log2(f"{what} axis '{axis.name}'", axis.bounds()[1] + 1)
        bases = bits_of_map(map, budget)
        pairs = tuple(zip(map.domain.names, bases, strict=True))
        sizes = tuple(zip(map.codomain.names, map.codomain.shape, strict=True))
        return TritonLayout(pairs, sizes)

    # -- meaning -----------------------------------------------------------------------------

    @property
    def in_dims(self) -> Sizes:
        """Input dimensions with their sizes."""
        return tuple((name, 1 << len(vectors)) for name, vectors in self.bases)

    @cached_property
    def map(self) -> BitLinear:
        """The map ``hardware -> logical`` with the names of both sides.

        Triton masks an input that is out of range; this map raises DomainError there.
        """
        return BitLinear(
            IndexSet.box(self.in_dims),
            IndexSet.box(self.out_dims),
            tuple(vectors for _, vectors in self.bases),
        )

    @property
    def placement(self) -> Placement:
        """The layout as an occurrence space: hardware slots, each with its logical element."""
        return Placement(self.map)

    def apply(self, inputs: Mapping[str, int]) -> dict[str, int]:
        """Return the logical coordinates of one hardware location, both by name.

        Raises
        ------
        LayoutError
            For a missing or an unknown input, or one that is out of range.
        """
        if inputs.keys() != {name for name, _ in self.bases}:
            raise LayoutError(f"triton layout: inputs {list(inputs)} for {dict(self.in_dims)}")
        values = self.map.apply(*(inputs[name] for name, _ in self.bases))
        row = values if isinstance(values, tuple) else (values,)
        return dict(zip((n for n, _ in self.out_dims), row, strict=True))

    # -- operators ---------------------------------------------------------------------------

    def _columns(self) -> list[int]:
        return [pack(vector) for _, vectors in self.bases for vector in vectors]

    def invert_and_compose(self, other: TritonLayout) -> TritonLayout:
        """Return a layout ``C`` with ``other(C(x)) == self(x)`` for every ``x``.

        Not unique where ``other`` is not injective. A dimension that both have with the same
        vectors is kept as it is (so broadcast blocks stay with their block); every other bit is
        solved for over all of ``other``'s bits. Names and order of the outputs must agree; sizes
        need not.

        Raises
        ------
        LayoutError
            Where the outputs differ, or a value of ``self`` is not a value of ``other``.
        """
        mine, theirs = [n for n, _ in self.out_dims], [n for n, _ in other.out_dims]
        if mine != theirs:
            raise LayoutError(f"triton layout: outputs {mine} and {theirs} do not correspond")
        units, equal, columns = _units(other), dict(other.bases), other._columns()

        def image(name: str, bit: int, vector: tuple[int, ...]) -> tuple[int, ...]:
            if equal.get(name) == self_bases[name]:
                return units[name][bit]
            chosen = solve(columns, pack(vector))
            if chosen is None:
                raise LayoutError(f"triton layout: {name}={1 << bit} -> {vector} has no preimage")
            return _combined(units, chosen, len(other.bases))

        self_bases = dict(self.bases)
        built = tuple(
            (name, tuple(image(name, bit, vector) for bit, vector in enumerate(vectors)))
            for name, vectors in self.bases
        )
        return TritonLayout(built, other.in_dims)

    # -- export ------------------------------------------------------------------------------

    def to_native(self, linear_layout: Any) -> Any:
        """Build a native object with ``linear_layout.from_bases`` (Triton's class)."""
        bases = [(name, [list(v) for v in vectors]) for name, vectors in self.bases]
        names = [name for name, _ in self.out_dims]
        return linear_layout.from_bases(bases, names, [size for _, size in self.out_dims], False)

    def __str__(self) -> str:
        """Return the text that :func:`parse_triton` reads back."""
        bases = ", ".join(f"{name!r}: {[list(v) for v in vectors]}" for name, vectors in self.bases)
        outs = ", ".join(f"{name!r}: {size}" for name, size in self.out_dims)
        return f"LinearLayout({{{bases}}}, {{{outs}}})"


def _units(layout: TritonLayout) -> dict[str, list[tuple[int, ...]]]:
    """Per input dimension, the unit vectors of its bits in the space of all input dimensions."""
    rank = len(layout.bases)
    return {
        name: [tuple((1 << bit) if k == row else 0 for k in range(rank)) for bit in range(len(v))]
        for row, (name, v) in enumerate(layout.bases)
    }


def _combined(units: dict[str, list[tuple[int, ...]]], chosen: int, rank: int) -> tuple[int, ...]:
    flat = [unit for vectors in units.values() for unit in vectors]
    picked = [unit for k, unit in enumerate(flat) if chosen >> k & 1]
    return tuple(reduce(xor, (unit[k] for unit in picked), 0) for k in range(rank))

"""Elementary map nodes: identity, selection of axes, expressions, tables, bit-linear maps."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap, check_leaves
from tvm_tilex.layout.expr import Expr, ExprLike, as_expr, constant, lookup
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["BitLinear", "FiniteTable", "Identity", "IndexExpr", "Permute", "Project"]


@dataclass(frozen=True)
class Identity(LayoutMap):
    """The identity of ``domain``."""

    domain: IndexSet

    @property
    def codomain(self) -> IndexSet:
        """The domain itself."""
        return self.domain

    def expressions(self) -> tuple[Expr, ...]:
        """Return the coordinates."""
        return self.domain.coordinates


def _select(domain: IndexSet, axes: tuple[str, ...], what: str) -> None:
    for name in axes:
        if name not in domain.names:
            raise LayoutError(f"{what}: '{name}' is not an axis of the domain {domain.names}")
    if len(set(axes)) != len(axes):
        raise LayoutError(f"{what}: axes {axes} are not distinct")


@dataclass(frozen=True)
class Project(LayoutMap):
    """Keep the named axes, in the given order. Guards of the domain are not kept."""

    domain: IndexSet
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        _select(self.domain, self.axes, "project")

    @property
    def codomain(self) -> IndexSet:
        """The box of the kept axes."""
        kept = {axis.name: axis for axis in self.domain.axes}
        return IndexSet(tuple(kept[n] for n in self.axes), (), self.domain.parameters)

    def expressions(self) -> tuple[Expr, ...]:
        """Return the kept coordinates."""
        known = dict(zip(self.domain.names, self.domain.coordinates, strict=True))
        return tuple(known[name] for name in self.axes)


@dataclass(frozen=True)
class Permute(LayoutMap):
    """Reorder all axes; guards are kept, since axes keep their names."""

    domain: IndexSet
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        _select(self.domain, self.axes, "permute")
        if len(self.axes) != self.domain.rank:
            raise LayoutError(f"permute: {self.axes} leaves out axes of {self.domain.names}")

    @property
    def codomain(self) -> IndexSet:
        """The reordered set."""
        kept = {axis.name: axis for axis in self.domain.axes}
        axes = tuple(kept[n] for n in self.axes)
        return IndexSet(axes, self.domain.guards, self.domain.parameters)

    def expressions(self) -> tuple[Expr, ...]:
        """Return the coordinates in the new order."""
        known = dict(zip(self.domain.names, self.domain.coordinates, strict=True))
        return tuple(known[name] for name in self.axes)


@dataclass(frozen=True)
class IndexExpr(LayoutMap):
    """One pure integer expression per codomain axis."""

    domain: IndexSet
    codomain: IndexSet
    values: tuple[ExprLike, ...]

    def __post_init__(self) -> None:
        built = tuple(as_expr(value) for value in self.values)
        object.__setattr__(self, "values", built)
        if len(built) != self.codomain.rank:
            raise LayoutError(f"{len(built)} expressions for the codomain {self.codomain.names}")
        check_leaves("index expression", built, self.domain)

    def expressions(self) -> tuple[Expr, ...]:
        """Return the stored expressions."""
        return tuple(as_expr(value) for value in self.values)


@dataclass(frozen=True)
class FiniteTable(LayoutMap):
    """Every value listed, row-major over the static box of the domain (last axis fastest).

    The completeness escape hatch: legal, expensive, never produced by a normalizer.
    """

    domain: IndexSet
    codomain: IndexSet
    values: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = self.domain.box_size
        if size is None:
            raise LayoutError("a finite table needs a static domain")
        if len(self.values) != size:
            raise LayoutError(f"{len(self.values)} table rows for a domain box of {size} points")
        for row in self.values:
            if len(row) != self.codomain.rank:
                raise LayoutError(f"table row {row} does not fit the codomain's axes")
            for value in row:
                constant(value)

    def expressions(self) -> tuple[Expr, ...]:
        """Return one table read per codomain axis."""
        if not self.values:
            return tuple(constant(0) for _ in self.codomain.axes)
        index = tuple(
            c - a.lower if a.lower else c
            for c, a in zip(self.domain.coordinates, self.domain.axes, strict=True)
        )
        columns = zip(*self.values, strict=True)
        return tuple(lookup(tuple(column), self.domain.shape, index) for column in columns)


@dataclass(frozen=True)
class BitLinear(LayoutMap):
    """``translation XOR XOR(bit k of axis a ? basis[a][k])`` over GF(2).

    ``basis[a][k]`` has one non-negative integer per codomain axis. Axis ``a`` needs a zero-based
    extent of at most ``2**len(basis[a])``; a ragged prefix is allowed.
    """

    domain: IndexSet
    codomain: IndexSet
    basis: tuple[tuple[tuple[int, ...], ...], ...]
    translation: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.translation:
            object.__setattr__(self, "translation", (0,) * self.codomain.rank)
        if len(self.basis) != self.domain.rank:
            raise LayoutError(f"{len(self.basis)} bases for the axes {self.domain.names}")
        for axis, vectors in zip(self.domain.axes, self.basis, strict=True):
            if axis.lower or axis.bounds()[1] >= 1 << len(vectors):
                raise LayoutError(
                    f"axis '{axis.name}': {len(vectors)} basis vectors do not cover its extent"
                )
        rows = [v for vectors in self.basis for v in vectors] + [self.translation]
        for row in rows:
            if len(row) != self.codomain.rank or any(not 0 <= v < 2**63 for v in row):
                raise LayoutError(f"basis vector {row} does not fit the codomain's axes")

    def expressions(self) -> tuple[Expr, ...]:
        """Return the XOR of shifted and masked coordinates."""
        return tuple(self._output(column) for column in range(self.codomain.rank))

    def _output(self, column: int) -> Expr:
        terms: list[Expr] = []
        for x, vectors in zip(self.domain.coordinates, self.basis, strict=True):
            terms.extend(_bit_runs(x, [vector[column] for vector in vectors]))
        if self.translation[column] or not terms:
            terms.append(constant(self.translation[column]))
        result = terms[0]
        for term in terms[1:]:
            result = result ^ term
        return result


def _bit_runs(x: Expr, images: list[int]) -> list[Expr]:
    """Return terms for one axis; consecutive bits with consecutive one-bit images share one."""
    terms: list[Expr] = []
    bit = 0
    while bit < len(images):
        image = images[bit]
        if image == 0:
            bit += 1
            continue
        end = bit + 1
        if image & (image - 1) == 0:
            while end < len(images) and images[end] == image << (end - bit):
                end += 1
        whole = bit == 0 and end == len(images)
        low = x >> bit if bit else x
        masked = low if whole else low & ((1 << (end - bit)) - 1)
        if image & (image - 1) == 0:
            shift = image.bit_length() - 1
            terms.append(masked << shift if shift else masked)
        else:
            terms.append(masked * image)
        bit = end
    return terms

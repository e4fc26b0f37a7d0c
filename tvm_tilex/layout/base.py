"""The base of all map nodes: domain, codomain, flattened pieces and checked application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.expr import (
    Coordinate,
    Expr,
    Parameter,
)
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.visitor import leaves

if TYPE_CHECKING:
    from tvm_tilex.layout.evaluate import IntArray

__all__ = ["Check", "LayoutMap", "Piece"]

Value = int | tuple[int, ...]


@dataclass(frozen=True)
class Check:
    """An intermediate obligation: ``value`` lies on ``axis``, or (no axis) ``value`` is true."""

    value: Expr
    axis: Axis | None


@dataclass(frozen=True)
class Piece:
    """One branch of a flattened map: outputs where all guards hold, obligations on the way."""

    guards: tuple[Expr, ...]
    checks: tuple[Check, ...]
    outputs: tuple[Expr, ...]


class LayoutMap:
    """A total function from a domain to a codomain, both index sets.

    Subclasses are frozen dataclasses with a ``domain`` and a ``codomain``; they compare and hash
    by structure. ``pieces`` is the flattened index DAG that every analysis and lowering reads.
    """

    if TYPE_CHECKING:

        @property
        def domain(self) -> IndexSet:
            """The set on which the map is defined."""

        @property
        def codomain(self) -> IndexSet:
            """The declared target; surjectivity is relative to it."""

    def build_pieces(self) -> tuple[Piece, ...]:
        """Return the flattened branches; the default is one branch of :meth:`expressions`."""
        return (Piece((), (), self.expressions()),)

    def expressions(self) -> tuple[Expr, ...]:
        """Return one index expression per codomain axis (nodes with a single branch)."""
        raise NotImplementedError

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The flattened branches; their guards are disjoint on the domain."""
        return self.build_pieces()

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """The index DAG of a map with a single unguarded branch; LayoutError otherwise."""
        if len(self.pieces) != 1 or self.pieces[0].guards:
            raise LayoutError("a piecewise map has no single index expression")
        return self.pieces[0].outputs

    def apply(self, *point: int, params: Mapping[str, int] | None = None, **named: int) -> Value:
        """Return the value at one point: an integer, or a tuple for several codomain axes.

        Coordinates are given in axis order or by name.

        Raises
        ------
        DomainError, CodomainError
            Outside the domain or codomain, naming the axis.
        ArithmeticRangeError
            Where a subexpression overflows or divides by zero.
        """
        from tvm_tilex.layout.application import apply_scalar

        return apply_scalar(self, point, named, params or {})

    def apply_array(
        self, *point: IntArray, params: Mapping[str, int] | None = None, **named: IntArray
    ) -> IntArray | tuple[IntArray, ...]:
        """Return values over broadcast integer arrays; raises exactly where :meth:`apply` does."""
        from tvm_tilex.layout.application import apply_arrays

        return apply_arrays(self, point, named, params or {})

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without derived caches."""
        return {k: v for k, v in self.__dict__.items() if k not in ("pieces", "_proofs")}

    def __call__(self, *point: int, params: Mapping[str, int] | None = None) -> Value:
        """Return ``apply`` at the point."""
        return self.apply(*point, params=params)

    def __str__(self) -> str:
        from tvm_tilex.layout.text import map_text

        return map_text(self)


def check_leaves(what: str, expressions: tuple[Expr, ...], domain: IndexSet) -> None:
    """Raise LayoutError where an expression uses something that the domain doesn't declare."""
    declared = set(domain.parameters)
    for leaf in leaves(expressions):
        if isinstance(leaf, Coordinate) and leaf.name not in domain.names:
            raise LayoutError(f"{what}: '{leaf.name}' is not an axis of the domain {domain.names}")
        if isinstance(leaf, Parameter) and leaf not in declared:
            raise LayoutError(f"{what}: the domain does not declare parameter '{leaf.name}'")


def checks_of(values: tuple[Expr, ...], target: IndexSet) -> tuple[Check, ...]:
    """Return the obligations that ``values`` lie in ``target``."""
    from tvm_tilex.layout.visitor import substitute

    axes = tuple(Check(v, a) for v, a in zip(values, target.axes, strict=True))
    if not target.guards:
        return axes
    named = dict(zip(target.names, values, strict=True))
    return axes + tuple(Check(g, None) for g in substitute(target.guards, named))

"""The result of an operator: a layout with the laws that were verified of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.int_tuple import IntTuple, compact_strides, leaves_of, with_leaves
from tvm_tilex.layout.verdict import Verdict

__all__ = ["Derived", "LayoutLike", "Obligation", "Operand", "concatenated", "scaled", "unwrap"]

L = TypeVar("L", CuteLayout, AnyCuteLayout, LayoutMap, covariant=True)


@dataclass(frozen=True)
class Obligation:
    """A law of an operator and the verdict on it; in a result, always PROVEN."""

    law: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.law}: {self.verdict}"


@dataclass(frozen=True)
class Derived(Generic[L]):
    """A layout that an operator returned, with its discharged obligations.

    Operators accept a ``Derived`` wherever they accept a layout.
    """

    layout: L
    obligations: tuple[Obligation, ...]

    def __str__(self) -> str:
        return str(self.layout)


LayoutLike = CuteLayout | ComposedLayout | Derived[Any]
Operand = LayoutLike | LayoutMap


def unwrap(layout: Operand) -> AnyCuteLayout:
    """Return the layout itself.

    Raises
    ------
    OperatorError
        Where it is neither a ``CuteLayout`` nor a ``ComposedLayout``.
    """
    found = layout.layout if isinstance(layout, Derived) else layout
    if not isinstance(found, (CuteLayout, ComposedLayout)):
        raise OperatorError(f"{type(found).__name__} is not a CuTe layout; see CuteLayout.from_map")
    return found


def innermost(layout: AnyCuteLayout) -> CuteLayout:
    """Return the layout with modes that a composed layout ends in."""
    while isinstance(layout, ComposedLayout):
        layout = layout.layout
    return layout


def with_innermost(layout: AnyCuteLayout, inner: AnyCuteLayout) -> AnyCuteLayout:
    """Return ``layout`` with another innermost layout."""
    if isinstance(layout, CuteLayout):
        return inner
    return ComposedLayout(layout.outer, layout.offset, with_innermost(layout.layout, inner))


def map_of(layout: Any) -> LayoutMap | None:
    """Return the map where the operand is one, or a result that is one."""
    found = layout.layout if isinstance(layout, Derived) else layout
    return found if isinstance(found, LayoutMap) else None


def shape_of_map(operator: str, map: LayoutMap) -> CuteLayout:
    """Return the colexicographic layout of a map's domain, which must be a static box from 0.

    Raises
    ------
    OperatorError
        For guards, symbolic extents or a nonzero lower end, which no linear index runs over.
    """
    domain = map.domain
    if domain.guards or domain.box_size is None or any(axis.lower for axis in domain.axes):
        raise OperatorError(f"{operator}: the domain {domain} is not a static box from 0")
    return compact(domain.shape[0] if domain.rank == 1 else domain.shape)


def discharge(operator: str, law: str, verdict: Verdict) -> Obligation:
    """Return the obligation where ``verdict`` is PROVEN.

    Raises
    ------
    OperatorError
        Naming operator, law and verdict.
    """
    if not verdict.proven:
        raise OperatorError(f"{operator}: {law}: {verdict}")
    return Obligation(law, verdict)


def concatenated(layouts: Iterable[CuteLayout]) -> CuteLayout:
    """Return the layout whose top-level modes are the given layouts."""
    parts = tuple(layouts)
    return CuteLayout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def scaled(layout: CuteLayout, factor: int) -> CuteLayout:
    """Return ``factor * layout``."""
    steps = tuple(step * factor for _, step in layout.digits)
    return CuteLayout(layout.shape, with_leaves(layout.shape, steps))


def compact(shape: IntTuple, start: int = 1) -> CuteLayout:
    """Return the colexicographic layout of ``shape``, the identity on linear indices."""
    return CuteLayout(shape, compact_strides(shape, start))


def of_digits(digits: Iterable[tuple[int, int]]) -> CuteLayout:
    """Return the flat layout of (extent, stride) pairs: an integer shape where there is one."""
    pairs = tuple(digits)
    if len(pairs) == 1:
        return CuteLayout(*pairs[0])
    if not pairs:
        return CuteLayout(1, 0)
    return CuteLayout(tuple(n for n, _ in pairs), tuple(s for _, s in pairs))


def is_empty(layout: CuteLayout) -> bool:
    """Whether some extent is zero."""
    return 0 in leaves_of(layout.shape)

"""Index sets: boxes with named axes, optional guards, symbolic extents and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.errors import DomainError
from tvm_tilex.layout.evaluate import evaluate
from tvm_tilex.layout.expr import (
    INT64_MAX,
    INT64_MIN,
    Coordinate,
    Expr,
    ExprLike,
    Parameter,
    as_expr,
    coordinate,
    tracing,
)
from tvm_tilex.layout.interval import Interval, IntervalAnalysis, Unsafe
from tvm_tilex.layout.visitor import leaves

__all__ = ["Axis", "IndexSet"]


def _lexicographic(spans: list[range]) -> Iterator[tuple[int, ...]]:
    """Yield the product lazily; ``itertools.product`` would store every range."""
    if not spans:
        yield ()
        return
    for x in spans[0]:
        for rest in _lexicographic(spans[1:]):
            yield (x, *rest)


@dataclass(frozen=True)
class Axis:
    """A named axis: coordinates ``lower <= x < lower + extent``; ``extent`` may be symbolic."""

    name: str
    extent: ExprLike
    lower: int = 0

    def __post_init__(self) -> None:
        coordinate(self.name)
        if isinstance(self.extent, int):
            last = self.lower + self.extent - 1
            if self.extent < 0 or self.lower < INT64_MIN or last > INT64_MAX:
                raise LayoutError(f"axis '{self.name}': extent {self.extent} is not a valid size")

    def bounds(self) -> Interval:
        """Return the inclusive range of the coordinate over all parameter values."""
        if isinstance(self.extent, int):
            return (self.lower, self.lower + self.extent - 1)
        return (self.lower, self.lower + self.extent_range()[1] - 1)

    def extent_range(self) -> Interval:
        """Return the least and the greatest extent over all parameter values."""
        if isinstance(self.extent, int):
            return (self.extent, self.extent)
        return IntervalAnalysis({}).interval(self.extent)

    def extent_at(self, values: Mapping[str, int]) -> int:
        """Return the extent for the given parameter values."""
        return self.extent if isinstance(self.extent, int) else evaluate(self.extent, values)


@dataclass(frozen=True)
class IndexSet:
    """The points of a box that satisfy every guard.

    Parameters
    ----------
    axes
        Named axes in order; an extent is an integer or an expression over parameters.
    guards
        Predicates (nonzero is true) over coordinates and parameters. A guard must be safe on the
        whole box: membership is then always defined.
    parameters
        Declared parameters; those of extents and guards are added.

    Raises
    ------
    LayoutError
        For a repeated axis name, a parameter with two declarations, a coordinate that is not an
        axis, a possibly negative extent, or a guard that is not proved safe on the box.
    """

    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        names = tuple(axis.name for axis in self.axes)
        if len(set(names)) != len(names):
            raise LayoutError(f"axis names {names} are not distinct")
        object.__setattr__(self, "_names", names)
        symbolic = tuple(a.extent for a in self.axes if isinstance(a.extent, Expr))
        if not symbolic and not self.guards and not self.parameters:
            return
        self._declare(symbolic)
        self._check_extents()
        self._check_guards()

    def _declare(self, symbolic: tuple[Expr, ...]) -> None:
        declared = {p.name: p for p in self.parameters}
        for leaf in leaves(symbolic + self.guards):
            if isinstance(leaf, Parameter):
                if declared.setdefault(leaf.name, leaf) is not leaf:
                    raise LayoutError(f"parameter '{leaf.name}' is declared with two ranges")
            elif isinstance(leaf, Coordinate) and leaf.name not in self._names:
                raise LayoutError(f"a guard or extent uses '{leaf.name}', which is not an axis")
        clash = set(declared) & set(self._names)
        if clash:
            raise LayoutError(f"'{min(clash)}' names both an axis and a parameter")
        ordered = tuple(sorted(declared.values(), key=lambda p: p.name))
        object.__setattr__(self, "parameters", ordered)

    def _check_extents(self) -> None:
        for axis in self.axes:
            if isinstance(axis.extent, int):
                continue
            if any(isinstance(leaf, Coordinate) for leaf in leaves((axis.extent,))):
                raise LayoutError(f"axis '{axis.name}': the extent depends on a coordinate")
            try:
                low, high = axis.extent_range()
            except Unsafe as reason:
                raise LayoutError(f"axis '{axis.name}': {reason}") from None
            if low < 0 or axis.lower + high - 1 > INT64_MAX:
                raise LayoutError(f"axis '{axis.name}': extent ranges over [{low}, {high}]")

    def _check_guards(self) -> None:
        ranges = IntervalAnalysis(self.leaf_bounds())
        for guard in self.guards:
            reason = None if self.is_empty_box else ranges.safe_reason(guard)
            if reason is not None:
                raise LayoutError(f"guard '{guard}' is not safe on the box: {reason}")

    # -- construction ----------------------------------------------------------------------

    @staticmethod
    def box(
        axes: Mapping[str, ExprLike] | Iterable[tuple[str, ExprLike]] | None = None,
        /,
        *,
        parameters: Iterable[Parameter] = (),
        **extents: ExprLike,
    ) -> IndexSet:
        """Return the zero-based box with the given ``name=extent`` axes, in order."""
        pairs = list(axes.items() if isinstance(axes, Mapping) else axes or ())
        pairs.extend(extents.items())
        return IndexSet(tuple(Axis(n, e) for n, e in pairs), parameters=tuple(parameters))

    def where(self, *guards: ExprLike | Callable[..., ExprLike]) -> IndexSet:
        """Return the subset that satisfies ``guards``: predicates, or functions of the axes."""
        built = tuple(self._guard(guard) for guard in guards)
        extra = tuple(g for g in built if all(g is not h for h in self.guards))
        return IndexSet(self.axes, self.guards + extra, self.parameters)

    def _guard(self, guard: ExprLike | Callable[..., ExprLike]) -> Expr:
        if isinstance(guard, (Expr, int)):
            return as_expr(guard)
        with tracing:
            return as_expr(guard(*self.coordinates))

    # -- inspection ------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Axis names in order."""
        return self._names

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The symbolic coordinates, one per axis."""
        return tuple(coordinate(name) for name in self._names)

    @cached_property
    def is_static(self) -> bool:
        """Whether all extents are integers and no parameter is declared."""
        return not self.parameters and all(isinstance(a.extent, int) for a in self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Extents of a box; raise LayoutError where one is symbolic."""
        for axis in self.axes:
            if not isinstance(axis.extent, int):
                raise LayoutError(f"axis '{axis.name}' has the symbolic extent {axis.extent}")
        return tuple(axis.extent for axis in self.axes if isinstance(axis.extent, int))

    @cached_property
    def box_size(self) -> int | None:
        """Number of points of the box without guards, or None where an extent is symbolic."""
        return prod(self.shape) if all(isinstance(a.extent, int) for a in self.axes) else None

    @cached_property
    def is_empty_box(self) -> bool:
        """Whether some axis has extent zero for every parameter value."""
        return any(axis.extent_range()[1] == 0 for axis in self.axes)

    def unguarded(self) -> IndexSet:
        """Return the enclosing box."""
        return IndexSet(self.axes, (), self.parameters) if self.guards else self

    def leaf_bounds(self) -> dict[Expr, Interval]:
        """Return inclusive ranges of the coordinates and parameters, guards not used."""
        bounds: dict[Expr, Interval] = {
            c: a.bounds() for c, a in zip(self.coordinates, self.axes, strict=True)
        }
        for p in self.parameters:
            bounds[p] = (p.lower, p.upper)
        return bounds

    # -- membership and enumeration --------------------------------------------------------

    def check_parameters(self, values: Mapping[str, int]) -> None:
        """Raise DomainError unless every declared parameter has a value in its range."""
        for p in self.parameters:
            if p.name not in values:
                raise DomainError(f"parameter '{p.name}' has no value")
            if not p.lower <= values[p.name] <= p.upper:
                raise DomainError(
                    f"parameter '{p.name}' = {values[p.name]} is outside [{p.lower}, {p.upper}]"
                )

    def contains(self, point: Mapping[str, int], values: Mapping[str, int] | None = None) -> bool:
        """Whether ``point`` (axis name -> integer) belongs to the set."""
        known = dict(values or {})
        for axis in self.axes:
            if not axis.lower <= point[axis.name] < axis.lower + axis.extent_at(known):
                return False
        known.update(point)
        return all(evaluate(guard, known) for guard in self.guards)

    def points(self, values: Mapping[str, int] | None = None) -> Iterator[tuple[int, ...]]:
        """Enumerate the points, last axis fastest."""
        known = dict(values or {})
        spans = [range(a.lower, a.lower + a.extent_at(known)) for a in self.axes]
        for point in _lexicographic(spans):
            if not self.guards:
                yield point
                continue
            known.update(zip(self._names, point, strict=True))
            if all(evaluate(guard, known) for guard in self.guards):
                yield point

    def __str__(self) -> str:
        from tvm_tilex.layout.text import index_set_text

        return index_set_text(self)

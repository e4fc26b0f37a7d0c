"""MixedRadix: nested shape and stride, scalar or vector (named) strides, offset.

Each top-level mode of the shape is a domain axis. A nested mode splits its coordinate into
digits, first digit fastest (colexicographic, as in CuTe).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.expr import Coordinate, Expr, constant
from tvm_tilex.layout.index_set import Axis, IndexSet

__all__ = ["MixedRadix", "Nest", "StrideLeaf"]

StrideLeaf = int | tuple[tuple[str, int], ...]
Nest = int | tuple[Any, ...]


def _is_vector(stride: Any) -> bool:
    return (
        isinstance(stride, tuple)
        and len(stride) > 0
        and all(isinstance(s, tuple) and len(s) == 2 and isinstance(s[0], str) for s in stride)
    )


def flatten_shape(shape: Nest) -> tuple[int, ...]:
    """Return the leaves of a nested shape, left to right."""
    if isinstance(shape, int):
        return (shape,)
    return tuple(leaf for mode in shape for leaf in flatten_shape(mode))


def _pairs(shape: Nest, stride: Any, where: str) -> Iterator[tuple[int, StrideLeaf]]:
    if isinstance(shape, int):
        if isinstance(shape, bool) or shape < 0:
            raise LayoutError(f"{where}: extent {shape} is not a size")
        if not isinstance(stride, int) and not _is_vector(stride):
            raise LayoutError(f"{where}: stride {stride} is not congruent with the extent {shape}")
        yield shape, stride
        return
    if not isinstance(stride, tuple) or _is_vector(stride) or len(stride) != len(shape):
        raise LayoutError(f"{where}: stride {stride} is not congruent with the shape {shape}")
    for number, (inner, step) in enumerate(zip(shape, stride, strict=True)):
        yield from _pairs(inner, step, f"{where}.{number}")


def _as_tuple(nest: Nest) -> tuple[Any, ...]:
    return nest if isinstance(nest, tuple) else (nest,)


@dataclass(frozen=True)
class MixedRadix(LayoutMap):
    """``offset + sum_i digit_i * stride_i``.

    Parameters
    ----------
    shape, stride
        Congruent nests. A stride leaf is an integer, or ``(("axis", step), ...)`` for a vector.
    offset
        An integer, or ``(("axis", value), ...)``.
    domain
        By default axes ``i0, i1, ...``; its extents must be the sizes of the top-level modes.
    codomain
        By default, for each named axis, the smallest interval that contains 0 and every index:
        ``[0, cosize)`` for nonnegative strides. The unnamed axis is called ``index``.
    """

    shape: Nest
    stride: Any
    offset: StrideLeaf = 0
    domain: IndexSet = None  # type: ignore[assignment]
    codomain: IndexSet = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        modes, steps = _as_tuple(self.shape), self.stride
        if isinstance(self.shape, int):
            steps = (steps,)
        elif not isinstance(steps, tuple) or _is_vector(steps) or len(steps) != len(modes):
            raise LayoutError(f"stride {steps} is not congruent with the shape {self.shape}")
        digits = tuple(
            tuple(_pairs(mode, step, f"mode {number}"))
            for number, (mode, step) in enumerate(zip(modes, steps, strict=True))
        )
        object.__setattr__(self, "_digits", digits)
        sizes = tuple(prod(n for n, _ in mode) for mode in digits)
        if self.domain is None:
            names = (f"i{k}" for k in range(len(sizes)))
            box = IndexSet(tuple(Axis(n, s) for n, s in zip(names, sizes, strict=True)))
            object.__setattr__(self, "domain", box)
        elif self.domain.shape != sizes or any(a.lower for a in self.domain.axes):
            raise LayoutError(f"domain extents {self.domain.shape} are not the mode sizes {sizes}")
        if self.codomain is None:
            object.__setattr__(self, "codomain", self._hull())
        self._check_names()

    @property
    def digits(self) -> tuple[tuple[tuple[int, StrideLeaf], ...], ...]:
        """Per domain axis, its (extent, stride) digits, fastest first."""
        return self._digits  # type: ignore[attr-defined,no-any-return]

    @property
    def is_vector(self) -> bool:
        """Whether strides or the offset name their axes."""
        steps = [s for mode in self.digits for _, s in mode] + [self.offset]
        return any(not isinstance(s, int) for s in steps)

    def _vector_names(self) -> tuple[str, ...]:
        if not self.is_vector:
            return ("index",)
        names: dict[str, None] = {}
        for step in [s for mode in self.digits for _, s in mode] + [self.offset]:
            if isinstance(step, int):
                if step:
                    raise LayoutError(f"scalar stride {step} mixed with named strides")
                continue
            names.update((name, None) for name, _ in step)
        return tuple(names)

    def _check_names(self) -> None:
        names = self._vector_names()
        if not self.is_vector and self.codomain.rank != 1:
            raise LayoutError(f"scalar strides need a codomain of one axis, not {self.codomain}")
        for name in names if self.is_vector else ():
            if name not in self.codomain.names:
                raise LayoutError(f"stride names axis '{name}', not one of {self.codomain.names}")

    def component(self, step: StrideLeaf, name: str) -> int:
        """Return the part of a stride or of the offset along codomain axis ``name``."""
        if isinstance(step, int):
            return 0 if self.is_vector else step
        return sum(value for axis, value in step if axis == name)

    def _hull(self) -> IndexSet:
        axes = []
        for name in self._vector_names():
            low = high = self.component(self.offset, name)
            for extent, step in (digit for mode in self.digits for digit in mode):
                reach = self.component(step, name) * max(extent - 1, 0)
                low, high = low + min(reach, 0), high + max(reach, 0)
            low, high = min(low, 0), max(high, 0)
            axes.append(Axis(name, high - low + 1, low))
        return IndexSet(tuple(axes))

    def expressions(self) -> tuple[Expr, ...]:
        """Return the digit sums; a digit with a zero stride does not appear."""
        return tuple(self._sum(name) for name in self.codomain.names)

    def _sum(self, name: str) -> Expr:
        total: Expr | None = None
        for x, mode in zip(self.domain.coordinates, self.digits, strict=True):
            for digit, step in self._terms(x, mode, name):
                term = digit if step == 1 else digit * step
                total = term if total is None else total + term
        offset = self.component(self.offset, name)
        if total is None:
            return constant(offset)
        return total + offset if offset else total

    def _terms(
        self, x: Coordinate, mode: tuple[tuple[int, StrideLeaf], ...], name: str
    ) -> Iterator[tuple[Expr, int]]:
        below, size = 1, prod(n for n, _ in mode)
        for extent, leaf in mode:
            step = self.component(leaf, name)
            if step and extent > 1:
                upper = x // below if below > 1 else x
                yield (upper if below * extent == size else upper % extent), step
            below *= extent

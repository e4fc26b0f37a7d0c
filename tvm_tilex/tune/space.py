"""The candidates: a finite Cartesian product over compile options.

A candidate is nothing but a :class:`~tvm_tilex.transform.options.CompileOptions`. Whether it is
legal is decided where every compilation decides it; tuning only chooses among what was accepted.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import OptionError
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.errors import BudgetError

__all__ = [
    "Candidate",
    "Dimension",
    "Space",
    "default_space",
    "has_odd_rows",
    "require_budget",
    "rotated",
]

_VECTOR_BYTES = 16

# A promise about the arguments of every call: not a choice that a measurement may make.
_PROMISES = frozenset({"noalias"})
_TUNABLE = frozenset(field.name for field in dataclasses.fields(CompileOptions)) - _PROMISES


@dataclass(frozen=True)
class Dimension:
    """One compile option and the values to try, as JSON scalars (0 and None are automatic)."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Candidate:
    """One point of the space. ``choices`` are the options that it states; 0 is the default."""

    index: int
    choices: Mapping[str, Any]
    options: CompileOptions


@dataclass(frozen=True)
class Space:
    """The product of ``dimensions`` over ``base``, and ``base`` itself as candidate 0.

    Raises
    ------
    OptionError
        If a dimension is no compile option, is named twice, has no values, or a value is outside
        the option's domain.
    """

    base: CompileOptions
    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.dimensions]
        for dimension in self.dimensions:
            if dimension.name not in _TUNABLE:
                known = ", ".join(sorted(_TUNABLE))
                raise OptionError(f"{dimension.name!r} is no tunable option: use one of {known}")
            if names.count(dimension.name) > 1 or not dimension.values:
                raise OptionError(f"dimension {dimension.name!r}: named twice, or without values")
            for value in dimension.values:
                dataclasses.replace(self.base, **{dimension.name: value})

    @property
    def size(self) -> int:
        """An upper bound of the candidates, counted without listing them."""
        return 1 + math.prod(len(dimension.values) for dimension in self.dimensions)

    def candidates(self) -> tuple[Candidate, ...]:
        """Every distinct candidate, the default first, then in the product's order."""
        names = [dimension.name for dimension in self.dimensions]
        found = {self.base: Candidate(0, {}, self.base)}
        for values in itertools.product(*(d.values for d in self.dimensions)):
            choices = dict(zip(names, values, strict=True))
            options = dataclasses.replace(self.base, **choices)
            if options not in found:
                found[options] = Candidate(len(found), choices, options)
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """The space as JSON values."""
        return {
            "base": self.base.to_json(),
            "dimensions": [[d.name, list(d.values)] for d in self.dimensions],
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Space:
        """A space from :meth:`to_dict`'s values."""
        dimensions = (Dimension(name, tuple(values)) for name, values in found["dimensions"])
        return cls(CompileOptions.from_json(found["base"]), tuple(dimensions))


@dataclass(frozen=True)
class _Place:
    """What decides which dimensions there are: the target's kind, its clusters, storage, widths."""

    kind: str
    clusters: bool
    narrow: bool
    odd_rows: bool

    @property
    def gpu(self) -> bool:
        return self.kind != "llvm"


# A dimension is a line: the option, the values that are tried, and where. Combinations that a
# program or a target does not allow cost next to nothing: the planner refuses them in one job.
_DEFAULT: tuple[tuple[str, tuple[Any, ...], Callable[[_Place], bool]], ...] = (
    ("threads_per_group", (32, 64, 128, 256, 512, 1024), lambda at: at.gpu),
    ("reduction_programs_per_group", (1, 2, 4, 8), lambda at: at.gpu),
    ("reduction_lane_elements", (1, 2, 4), lambda at: at.gpu and not at.narrow),
    ("reduction_lane_elements", (1, 2, 4, 8), lambda at: at.gpu and at.narrow),
    ("reduction_blocks_per_program", (1, 2, 4, 8), lambda at: at.clusters),
    ("reduction_programs_per_subgroup", (1, 2, 4), lambda at: at.kind == "cuda"),
    ("shared_tile_materialization", ("preserve", "loaded"), lambda at: at.kind == "cuda"),
    ("reduction_stripe_storage", ("register", "shared"), lambda at: at.clusters),
    ("reduction_peeled_rows", (False, True), lambda at: at.kind == "cuda" and at.odd_rows),
    ("reduction_early_views", (False, True), lambda at: at.kind == "cuda"),
    ("shared_tile_materialization", ("preserve", "expensive-only"), lambda at: at.kind == "llvm"),
    ("vector_access", (True, False), lambda at: at.kind == "llvm"),
)


def has_odd_rows(shapes: Iterable[tuple[int, ...]], dtype: str) -> bool:
    """Whether a row of one of these arrays of ``dtype`` is no whole number of 16-byte vectors."""
    elements = _VECTOR_BYTES // dtype_of(dtype).bytes
    return any(len(shape) > 1 and shape[-1] % elements for shape in shapes)


def default_space(
    kind: str,
    base: CompileOptions | None = None,
    *,
    dtype: str = "float32",
    clusters: bool = False,
    odd_rows: bool = False,
) -> Space:
    """What is tried on a target kind where nothing is stated.

    ``dtype`` is the storage type: eight elements of 16 bits fill a vector. ``clusters`` says
    whether threadgroups of the target can share a program, ``odd_rows`` whether there are rows that
    are no whole number of vectors (:func:`has_odd_rows`).
    """
    at = _Place(kind, clusters, dtype_of(dtype).bytes == 2, odd_rows)
    dimensions = tuple(Dimension(name, values) for name, values, holds in _DEFAULT if holds(at))
    return Space(base or CompileOptions(), dimensions)


def require_budget(space: Space, shapes: int, budget: int, *, trials: int | None = None) -> int:
    """Return the compilations of a run: every candidate, winner and default of every shape.

    ``trials`` bounds the candidates that a search tries of each shape.

    Raises
    ------
    BudgetError
        If they exceed ``budget``; nothing has been compiled then.
    """
    candidates = space.size if trials is None else min(space.size, trials)
    needed = shapes * (candidates + 2)
    if needed > budget:
        product = " x ".join(f"{len(d.values)} {d.name}" for d in space.dimensions) or "1"
        raise BudgetError(
            f"{needed} compilations exceed the budget of {budget}: {shapes} shapes of "
            f"{candidates} candidates ({product}, and the default) and 2 final ones"
        )
    return needed


def rotated(count: int, position: int, shapes: int) -> tuple[int, ...]:
    """Candidate indices in the order of the shape at ``position``.

    Every shape begins at another candidate, so that drift of a run (heat, other load) does not
    fall on the same candidates each time.
    """
    start = position * count // max(shapes, 1)
    return tuple((start + i) % count for i in range(count))

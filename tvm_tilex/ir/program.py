"""The nodes of TileIR.

A program is a tree of parallel nests whose bodies are SSA statements in source order. Nodes are
frozen; equality ignores source locations. State of a reduction: FP32 for float16 and bfloat16
tiles (the result is rounded back to the tile's type), the tile's own type otherwise.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from tvm_tilex.ir.index import Extent, Index
from tvm_tilex.ir.ops import Combiner, ElementOp, NanPolicy, ReductionPolicy
from tvm_tilex.ir.types import DTYPES, Axis, BoundsPolicy, DType, TileType
from tvm_tilex.support.srcloc import SourceLocation

__all__ = [
    "Binding",
    "Constant",
    "Coordinate",
    "Definition",
    "Dot",
    "Elementwise",
    "Full",
    "Gather",
    "Group",
    "Load",
    "Memory",
    "MemoryScope",
    "Operand",
    "Parallel",
    "Pipeline",
    "Program",
    "Read",
    "Reduce",
    "Repartition",
    "Statement",
    "Store",
    "Value",
    "View",
    "ViewAccess",
    "Write",
    "state_dtype",
]


class ViewAccess(enum.Enum):
    """Whether a kernel reads a view, writes it, or both."""

    read = "in"
    write = "out"
    read_write = "inout"


class Binding(enum.Enum):
    """How a parallel nest asks to be realized: ``auto`` or exactly on SIMD groups."""

    auto = "auto"
    subgroup = "subgroup"


class MemoryScope(enum.Enum):
    """Where memory that a person places stands.

    ``shared``
        One copy for the group; every thread of it may read every element.
    ``private``
        Each element in the thread that owns it: read only at its own coordinates.
    """

    shared = "shared"
    private = "private"


@dataclass(frozen=True)
class View:
    """A kernel parameter: a dense row-major tensor; a dynamic extent is known at launch."""

    name: str
    dtype: DType
    shape: tuple[Extent, ...]
    access: ViewAccess = ViewAccess.read
    bounds: BoundsPolicy = BoundsPolicy.checked


@dataclass(frozen=True)
class Value:
    """An SSA name ``%number`` and the type of the tile it stands for."""

    number: int
    type: TileType

    def __str__(self) -> str:
        return f"%{self.number}"


@dataclass(frozen=True)
class Constant:
    """A scalar literal, broadcast over every axis."""

    value: bool | int | float
    dtype: DType

    def __post_init__(self) -> None:
        if self.value != self.value:  # one NaN object, so that equal programs compare equal
            object.__setattr__(self, "value", math.nan)


Operand = Value | Constant


@dataclass(frozen=True)
class Load:
    """``result[a...] = view[origin + a]``.

    ``dimensions`` has one entry per dimension of the view: the tile axis that runs along it, or
    None where the origin alone selects one index. ``result``'s axes are the axes among
    ``dimensions``, in their order.
    """

    result: Value
    view: str
    origin: tuple[Index, ...]
    dimensions: tuple[Axis | None, ...]
    bounds: BoundsPolicy
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Coordinate:
    """``result[a] = offset + a`` along one axis, as an integer tile of ``result``'s dtype."""

    result: Value
    axis: Axis | None
    offset: Index
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Elementwise:
    """``result = op(operands)`` with operands broadcast by axis name."""

    result: Value
    op: ElementOp
    operands: tuple[Operand, ...]
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Reduce:
    """``result`` combines ``source`` over ``axis``, in an order that ``policy`` permits."""

    result: Value
    source: Value
    axis: Axis
    combiner: Combiner
    policy: ReductionPolicy
    nan: NanPolicy
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Gather:
    """``result = source`` at ``axis = index``, or ``fill`` where the index is outside [0, extent).

    ``result``'s axes are the source's without ``axis``, then the index's axes not among them; an
    axis that both have runs together.
    """

    result: Value
    source: Value
    index: Value
    axis: Axis
    fill: bool | int | float
    location: SourceLocation | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.fill != self.fill:
            object.__setattr__(self, "fill", math.nan)


@dataclass(frozen=True)
class Repartition:
    """``result = source``, in a placement of its own.

    Stands where the distribution that produces ``source`` and the one that its consumers need
    can't be fused. The tile is the same, element by element, activity under ``predicate``
    included; what changes is who holds which element, so the tile is materialized here.
    """

    result: Value
    source: Value
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Store:
    """``view[origin + a] = value[a]``; ``dimensions`` as in :class:`Load`."""

    view: str
    origin: tuple[Index, ...]
    dimensions: tuple[Axis | None, ...]
    value: Operand
    bounds: BoundsPolicy
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Parallel:
    """Independent programs, one per coordinate of ``axes``, each running ``body``."""

    nest: int
    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    binding: Binding = Binding.auto
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Full:
    """``result`` is one number everywhere."""

    result: Value
    value: bool | int | float
    location: SourceLocation | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)


@dataclass(frozen=True)
class Dot:
    """``result = accumulator + sum over axis of a * b``, products and sum in the state's type.

    ``result`` has the accumulator's type. ``a`` and ``b`` have one element type and both have
    ``axis``; every axis of the accumulator belongs to one of them or to both, and the order of
    the sum is free. An inactive element contributes zero.
    """

    result: Value
    a: Value
    b: Value
    axis: Axis
    accumulator: Value
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Memory:
    """Memory ``m number`` for one tile of ``type``, placed by hand; its content is undefined."""

    number: int
    type: TileType
    scope: MemoryScope
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Write:
    """Memory ``number`` holds ``value`` from here on."""

    number: int
    value: Operand
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Read:
    """``result`` is what memory ``number`` holds here."""

    result: Value
    number: int
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Pipeline:
    """Iterations over ``axis`` in order, each turning the state into the next.

    In iteration i the coordinate ``n nest .0`` is i and ``state`` holds the tiles; ``next`` is
    the state of iteration i + 1, all of it at once. ``state`` begins as ``initial`` and
    ``results`` is the state at the end. Iterations i >= ``stop`` do not run; ``stop`` None is
    the axis' extent.
    """

    nest: int
    axis: Axis
    state: tuple[Value, ...]
    initial: tuple[Operand, ...]
    body: tuple[Statement, ...]
    next: tuple[Operand, ...]
    results: tuple[Value, ...]
    stop: Index | None = None
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Group:
    """One cooperative group for each program: phases that share its threads.

    ``axes`` names the independent work: nothing in the group reduces over them, and every store
    runs over all of them. They name work, never threads.
    """

    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    location: SourceLocation | None = field(default=None, compare=False, repr=False)


Definition = Load | Coordinate | Elementwise | Reduce | Gather | Repartition | Full | Dot | Read
Statement = (
    Load
    | Coordinate
    | Elementwise
    | Reduce
    | Gather
    | Repartition
    | Full
    | Dot
    | Read
    | Memory
    | Write
    | Store
    | Pipeline
    | Group
    | Parallel
)


@dataclass(frozen=True)
class Program:
    """A captured kernel: its name, parameters in call order and statements."""

    name: str
    views: tuple[View, ...]
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        from tvm_tilex.ir.print import format_program  # the printer imports these nodes

        return format_program(self)

    def view(self, name: str) -> View:
        """Return the parameter of that name."""
        return next(view for view in self.views if view.name == name)


def state_dtype(dtype: DType) -> DType:
    """Element type of a reduction's running state over tiles of ``dtype``."""
    return DTYPES["float32"] if dtype.is_float else dtype

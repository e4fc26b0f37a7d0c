"""The state of one capture: open parallel nests, emitted statements and known axes."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tvm_tilex.errors import CaptureError, ShapeError
from tvm_tilex.ir.bounds import index_bounds
from tvm_tilex.ir.dimensions import dimensions_of, fixed_index
from tvm_tilex.ir.index import Extent, Index, IndexBinary, ProgramCoordinate
from tvm_tilex.ir.program import Binding, Parallel, Statement, Value, View, ViewAccess
from tvm_tilex.ir.types import Axis, TileType
from tvm_tilex.support.srcloc import SourceLocation, caller_location

__all__ = ["Capture", "OpenNest", "capturing", "current_capture", "nests_of"]

_CURRENT: contextvars.ContextVar[Capture | None] = contextvars.ContextVar("capture", default=None)


@dataclass
class OpenNest:
    """A parallel nest, a group or a pipeline whose body is being captured.

    A group has no coordinates, and the number -1.
    """

    number: int
    axes: tuple[Axis, ...]
    binding: Binding
    location: SourceLocation | None
    body: list[Statement] = field(default_factory=list)
    kind: str = "parallel"

    def statement(self) -> Statement:
        """The parallel nest that was captured."""
        return Parallel(self.number, self.axes, tuple(self.body), self.binding, self.location)


@dataclass(frozen=True)
class StoredRegion:
    """Where one store writes, and the extents of the nests around it."""

    origin: tuple[Index, ...]
    entries: tuple[Axis | None, ...]
    extents: dict[tuple[int, int], Extent]

    def spans(self, values: dict[str, int]) -> list[tuple[float, float]]:
        """First and last index by dimension, over all programs, for values of the dimensions."""
        known = {where: _at(extent, values) for where, extent in self.extents.items()}
        if 0 in known.values():
            return [(math.inf, -math.inf)] * len(self.origin)  # no program runs
        found: list[tuple[float, float]] = []
        for index, axis in zip(self.origin, self.entries, strict=True):
            low, high = index_bounds(fixed_index(index, values), known)
            found.append((low, high + (_at(axis.extent, values) if axis else 1) - 1))
        return found


def _at(extent: Extent, values: dict[str, int]) -> int:
    return extent if isinstance(extent, int) else values[extent.name]


def _ends(views: tuple[View, ...]) -> list[dict[str, int]]:
    """The smallest and the largest values of the dimensions, as far as programs run."""
    known = dimensions_of(views)
    if not known:
        return [{}]
    return [{d.name: max(1, d.minimum) for d in known}, {d.name: d.maximum for d in known}]


@dataclass
class Capture:
    """Everything one run of a kernel's Python body has said so far."""

    kernel: str
    views: tuple[View, ...]
    body: list[Statement] = field(default_factory=list)
    open_nests: list[OpenNest] = field(default_factory=list)
    axes: dict[str, tuple[Axis, SourceLocation | None]] = field(default_factory=dict)
    values: int = 0
    nests: int = 0
    memories: int = 0
    stored: dict[str, list[StoredRegion]] = field(default_factory=dict)
    abandoned: SourceLocation | None = None

    def emit(self, statement: Statement) -> None:
        """Append a statement to the innermost open nest."""
        self.innermost().body.append(statement)

    def innermost(self) -> OpenNest:
        """Return the nest whose body is being captured."""
        if not self.open_nests:
            raise CaptureError(
                "tile operations belong inside `for nest in tx.parallel(...)`",
                location=caller_location(),
            )
        return self.open_nests[-1]

    def new_value(self, type_: TileType) -> Value:
        """Name a new tile of that type."""
        value = Value(self.values, type_)
        self.values += 1
        return value

    def know(self, axis: Axis) -> Axis:
        """Check that this name always means this extent."""
        known, where = self.axes.setdefault(axis.name, (axis, caller_location()))
        if known.extent != axis.extent:
            raise ShapeError(
                f"axis {axis.name!r} has extent {axis.extent} here and {known.extent} at {where}; "
                "one name means one extent",
                location=caller_location(),
            )
        return axis

    def open(
        self, axes: tuple[Axis, ...], binding: Binding = Binding.auto, kind: str = "parallel"
    ) -> OpenNest:
        """Begin the body of a nest; one of kind ``group`` gives no coordinates."""
        number = -1 if kind == "group" else self.nests
        nest = OpenNest(number, axes, binding, caller_location(), kind=kind)
        self.nests += number >= 0
        self.open_nests.append(nest)
        return nest

    def close(
        self, nest: OpenNest, make: Callable[[OpenNest], Statement] = OpenNest.statement
    ) -> None:
        """End the body of ``nest``, which becomes the statement that ``make`` gives.

        Raises
        ------
        CaptureError
            If a nest inside it was left by ``break`` and is still open.
        """
        if self.innermost() is not nest:
            raise CaptureError(
                f"{self.kernel}: the body of {self.innermost().kind}(...) was left by break "
                "or return",
                location=self.abandoned or self.innermost().location,
            )
        self.open_nests.pop()
        statement = make(nest)
        (self.open_nests[-1].body if self.open_nests else self.body).append(statement)

    @property
    def domain(self) -> tuple[Axis, ...]:
        """Axes of the open group's domain; none outside a group."""
        return next((nest.axes for nest in self.open_nests if nest.kind == "group"), ())

    def require_not_in_domain(self, axis: Axis, what: str) -> None:
        """Refuse to reduce over an axis that the open group names as independent work."""
        if axis in self.domain:
            raise ShapeError(
                f"{what}: axis {axis.name!r} is in the group's domain, whose elements are "
                "independent; leave it out of group(...)",
                location=caller_location(),
            )

    def extents(self) -> dict[tuple[int, int], Extent]:
        """Extent of every (nest, dimension) that is open."""
        return {
            (nest.number, dimension): axis.extent
            for nest in self.open_nests
            if nest.kind != "group"
            for dimension, axis in enumerate(nest.axes)
        }

    def note_store(
        self, view: View, origin: tuple[Index, ...], entries: tuple[Axis | None, ...]
    ) -> None:
        """Remember that a region of ``view`` is stored, by every program."""
        region = StoredRegion(origin, entries, self.extents())
        self.stored.setdefault(view.name, []).append(region)

    def require_outputs_written(self) -> None:
        """Refuse an ``out`` view of which some rows or columns are certainly never stored.

        An ``out`` view is written whole; a kernel that keeps a part says ``inout``. The spans are
        over-approximations, so no kernel that does write the whole view is refused. Dynamic
        dimensions are judged at both ends of their ranges.
        """
        for view in self.views:
            if view.access is ViewAccess.write:
                for values in _ends(self.views):
                    self._require_written(view, values)

    def stored_spans(self, view: View, values: dict[str, int]) -> list[tuple[float, float]]:
        """First and last index that is stored of each dimension; (inf, -inf) where nothing is.

        ``values`` are those of the dynamic extents, by name.
        """
        regions = [region.spans(values) for region in self.stored.get(view.name, [])]
        return [
            (
                min((spans[d][0] for spans in regions), default=math.inf),
                max((spans[d][1] for spans in regions), default=-math.inf),
            )
            for d in range(len(view.shape))
        ]

    def _require_written(self, view: View, values: dict[str, int]) -> None:
        shape = tuple(_at(extent, values) for extent in view.shape)
        if 0 in shape:
            return
        spans = self.stored_spans(view, values)
        for dimension, (extent, (low, high)) in enumerate(zip(shape, spans, strict=True)):
            if low <= 0 and high >= extent - 1:
                continue
            span = f"only {low} to {high}" if low <= high else "nothing"
            raise ShapeError(
                f"{self.kernel}: 'out' view {view.name!r} {shape}: {span} of dimension "
                f"{dimension} is stored; it is written whole, or annotated 'inout'",
                location=caller_location(),
            )

    def check_in_scope(self, index: Index, what: str) -> None:
        """Refuse a coordinate of a nest that is not open."""
        open_numbers = {nest.number for nest in self.open_nests}
        if not nests_of(index) <= open_numbers:
            raise CaptureError(
                f"{what} uses the index of a parallel nest outside that nest",
                location=caller_location(),
            )


def nests_of(index: Index) -> frozenset[int]:
    """Numbers of the nests whose coordinates occur in ``index``."""
    if isinstance(index, ProgramCoordinate):
        return frozenset({index.nest})
    if isinstance(index, IndexBinary):
        return nests_of(index.lhs) | nests_of(index.rhs)
    return frozenset()


def current_capture(what: str) -> Capture:
    """Return the running capture.

    Raises
    ------
    CaptureError
        If no kernel is being captured; ``what`` names the operation.
    """
    capture = _CURRENT.get()
    if capture is None:
        raise CaptureError(
            f"{what} is only meaningful inside a @tx.tile_kernel function",
            location=caller_location(),
        )
    return capture


@contextlib.contextmanager
def capturing(capture: Capture) -> Iterator[Capture]:
    """Make ``capture`` the running one."""
    token = _CURRENT.set(capture)
    try:
        yield capture
    finally:
        _CURRENT.reset(token)


def running_capture() -> Capture | None:
    """Return the running capture, or None outside a kernel."""
    return _CURRENT.get()

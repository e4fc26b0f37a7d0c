"""What a picture of a layout shows: cells in rows and columns, with their labels.

Three readings of a map. A map to memory is a grid over its domain, each cell with its index. A
thread-value map (participants in the domain) is a grid over its codomain, each cell with who holds
it. A placement (participants in the codomain) is a grid over its domain, each cell with where it
lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["LARGEST", "Cell", "Grid", "grid_of", "thread_axes"]

LARGEST = 4096  # cells; more is no longer read by anybody
_WRAP = 32  # columns of a layout with one axis

# Names of participants, in the order in which they count: the first varies fastest.
_PARTICIPANTS = (
    "lane", "laneid", "t", "thread", "tx", "tid", "tid_in_wg", "w", "worker", "warp", "warpid",
    "wid_in_wg", "wgid", "group", "cta", "block", "bx", "by", "bz", "cbx", "cby", "cbz",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One cell: where it stands, what is written in it, and by what it is coloured.

    ``index`` is the value of a map to memory; ``thread`` and ``value`` number a participant and
    its slot. ``copies`` counts further holders of the same element, ``error`` is a refusal.
    """

    row: int
    column: int
    labels: tuple[str, ...]
    index: int | None = None
    thread: int | None = None
    value: int | None = None
    copies: int = 0
    error: str = ""


@dataclass(frozen=True)
class Grid:
    """A picture's cells by position, its margins' labels, and the reading of the map."""

    kind: str  # "index" or "thread-value"
    rows: int
    columns: int
    cells: dict[tuple[int, int], Cell]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    row_axis: str
    column_axis: str
    points: dict[tuple[int, ...], tuple[int, int]]

    @property
    def threads(self) -> int:
        """Number of distinct participants that appear."""
        return len({c.thread for c in self.cells.values() if c.thread is not None})

    @property
    def values(self) -> int:
        """Number of distinct slots that appear."""
        return len({c.value for c in self.cells.values() if c.value is not None})


def thread_axes(space: IndexSet) -> tuple[str, ...]:
    """Return the axes whose names say that they are participants, the fastest first."""
    found = [name for name in space.names if name in _PARTICIPANTS]
    return tuple(sorted(found, key=_PARTICIPANTS.index))


def grid_of(
    map: LayoutMap,
    threads: tuple[str, ...] | None = None,
    tile: tuple[int, int] | None = None,
    replica: tuple[str, ...] = (),
) -> Grid:
    """Return the picture of ``map``.

    Parameters
    ----------
    map
        A map with a static domain.
    threads
        Axes of the domain or of the codomain that are participants; by default those with a
        participant's name (lane, thread, warp, ...). An empty tuple asks for indices.
    tile
        ``(rows, columns)`` of the tile of a thread-value map whose codomain is one linear index,
        first axis fastest, as CuTe's are.
    replica
        Domain axes of a placement that only number copies: they get no cells of their own.

    Raises
    ------
    LayoutError
        For a symbolic domain, unknown axes, or more than 4096 cells.
    """
    if not map.domain.is_static:
        raise LayoutError(f"a picture needs a static domain, not {map.domain}")
    inside, outside = thread_axes(map.domain), thread_axes(map.codomain)
    if threads is not None:
        inside = tuple(n for n in threads if n in map.domain.names)
        outside = tuple(n for n in threads if n in map.codomain.names)
        missing = [n for n in threads if n not in inside and n not in outside]
        if missing:
            raise LayoutError(
                f"'{missing[0]}' is no axis of {map.domain.names} or {map.codomain.names}"
            )
    if inside:
        return _held(map, inside, tile)
    if outside:
        return _placed(map, outside, replica)
    return _indexed(map)


# -- the three readings ------------------------------------------------------------------------


def _indexed(map: LayoutMap) -> Grid:
    place = _Frame(map.domain)
    cells = {}
    for point, values in _evaluated(map):
        at = place(point)
        if isinstance(values, str):
            cells[at] = Cell(*at, labels=("!",), error=values)
            continue
        index = values[0] if len(values) == 1 else None
        label = str(index) if index is not None else ",".join(str(v) for v in values)
        cells[at] = Cell(*at, labels=(label,), index=index)
    return place.grid("index", cells)


def _placed(map: LayoutMap, threads: tuple[str, ...], replica: tuple[str, ...]) -> Grid:
    names = map.codomain.names
    logical = tuple(a for a in map.domain.axes if a.name not in replica)
    place = _Frame(IndexSet(logical))
    kept = [map.domain.names.index(a.name) for a in logical]
    spans = {a.name: (a.lower, a.bounds()[1]) for a in map.codomain.axes}
    slots = tuple(n for n in names if n not in threads)
    cells: dict[tuple[int, int], Cell] = {}
    for point, values in _evaluated(map):
        at = place(tuple(point[k] for k in kept))
        if isinstance(values, str):
            cells[at] = Cell(*at, labels=("!",), error=values)
            continue
        known = dict(zip(names, values, strict=True))
        _add(cells, _holder_cell(at, known, threads, slots, spans))
    return place.grid("thread-value", cells)


def _held(map: LayoutMap, threads: tuple[str, ...], tile: tuple[int, int] | None) -> Grid:
    names = map.domain.names
    spans = {a.name: (a.lower, a.bounds()[1]) for a in map.domain.axes}
    slots = tuple(n for n in names if n not in threads)
    place, fold = _Frame(map.codomain), None
    if tile is not None:
        if map.codomain.rank != 1:
            raise LayoutError(f"a tile of {tile} folds one linear index, not {map.codomain.names}")
        place, fold = _Frame(IndexSet.box(row=tile[0], column=tile[1])), tile
    cells: dict[tuple[int, int], Cell] = {}
    for point, values in _evaluated(map):
        if isinstance(values, str):
            continue  # a slot without an element has no cell
        element = values
        if fold is not None:
            element = (values[0] % fold[0], values[0] // fold[0])
            if not 0 <= element[1] < fold[1]:
                raise LayoutError(f"index {values[0]} is outside the {fold[0]}x{fold[1]} tile")
        at = place(element)
        known = dict(zip(names, point, strict=True))
        _add(cells, _holder_cell(at, known, threads, slots, spans))
    return place.grid("thread-value", cells)


def _add(cells: dict[tuple[int, int], Cell], cell: Cell) -> None:
    """Add a holder; the first one of an element is shown, the others are counted."""
    first = cells.setdefault((cell.row, cell.column), cell)
    if first is cell:
        return
    copies = first.copies + 1
    labels = (*first.labels[: 2 if first.value is not None else 1], f"+{copies}")
    cells[cell.row, cell.column] = replace(first, labels=labels, copies=copies)


def _holder_cell(
    at: tuple[int, int],
    known: dict[str, int],
    threads: tuple[str, ...],
    slots: tuple[str, ...],
    spans: dict[str, tuple[int, int]],
) -> Cell:
    thread, value = _flat(known, threads, spans), _flat(known, slots, spans)
    wide = [n for n in threads if spans[n][1] > spans[n][0]] or list(threads[:1])
    if len(wide) == 1:
        who = f"T{known[wide[0]]}"
    else:
        who = " ".join(f"{n[0].upper()}{known[n]}" for n in wide)
    labels = (who, f"V{value}") if slots else (who,)
    return Cell(*at, labels, None, thread, value if slots else None)


def _flat(known: dict[str, int], axes: tuple[str, ...], spans: dict[str, tuple[int, int]]) -> int:
    """Return the number of a point of some axes, the first axis fastest."""
    total, below = 0, 1
    for name in axes:
        low, high = spans[name]
        total += (known[name] - low) * below
        below *= high - low + 1
    return total


def _evaluated(map: LayoutMap) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | str]]:
    """Yield every point with its values, or with the words of the refusal."""
    size = map.domain.box_size
    if size is None or size > 16 * LARGEST:
        raise LayoutError(f"a picture of {size} points is not drawn; restrict the domain")
    for point in map.domain.points():
        try:
            value = map.apply(*point)
        except LayoutError as error:
            yield point, str(error)
            continue
        yield point, value if isinstance(value, tuple) else (value,)


class _Frame:
    """Where the points of an index set stand: the last axis across, the others downwards.

    One axis alone is wrapped into rows of 32.
    """

    def __init__(self, space: IndexSet) -> None:
        if space.box_size is None:
            raise LayoutError(f"a picture needs static extents, not {space}")
        self.space = space
        self.shape = space.shape or (1,)
        self.lower = tuple(a.lower for a in space.axes) or (0,)
        if len(self.shape) == 1:
            self.columns = min(self.shape[0], _WRAP)
            self.rows = -(-self.shape[0] // max(self.columns, 1))
        else:
            self.columns, self.rows = self.shape[-1], prod(self.shape[:-1])
        if self.rows * self.columns > LARGEST:
            raise LayoutError(
                f"a picture of {self.rows} x {self.columns} cells is not drawn (at most {LARGEST});"
                " restrict the domain"
            )
        self.points: dict[tuple[int, ...], tuple[int, int]] = {}

    def __call__(self, point: tuple[int, ...]) -> tuple[int, int]:
        linear = 0
        for x, low, extent in zip(point or (0,), self.lower, self.shape, strict=True):
            linear = linear * extent + x - low
        at = divmod(linear, self.columns)
        self.points[point] = at
        return at

    def grid(self, kind: str, cells: dict[tuple[int, int], Cell]) -> Grid:
        """Return the picture with the margins of this frame."""
        names = self.space.names or ("",)
        if len(self.shape) == 1:
            rows, columns, row_axis = self._wrapped_labels()
        else:
            rows = tuple(self._row_label(r) for r in range(self.rows))
            columns = tuple(str(self.lower[-1] + c) for c in range(self.columns))
            row_axis = ", ".join(names[:-1])
        shape = (self.rows, self.columns)
        return Grid(kind, *shape, cells, rows, columns, row_axis, names[-1], self.points)

    def _wrapped_labels(self) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        first = self.lower[0]
        if self.rows == 1:
            return ("",), tuple(str(first + c) for c in range(self.columns)), ""
        rows = tuple(str(first + r * self.columns) for r in range(self.rows))
        return rows, tuple(f"+{c}" for c in range(self.columns)), ""

    def _row_label(self, row: int) -> str:
        digits = []
        for extent, low in zip(reversed(self.shape[:-1]), reversed(self.lower[:-1]), strict=True):
            row, digit = divmod(row, extent)
            digits.append(str(digit + low))
        return ",".join(reversed(digits))

"""Asks for memory ahead of use: the next row, this row's output, or what follows in a stream.

Before, inside a program that has read its row x once already::

    for chunk in T.serial(256):
        for lane in T.vectorized(16):
            tile[chunk * 16 + lane] = exp(x[program, chunk * 16 + lane] - peak)

After::

    for chunk in T.serial(256):
        prefetch(x[min(program + 1, P - 1), chunk * 16])            # to read
        prefetch(out[program, chunk * 16])                          # to write
        for lane in T.vectorized(16): ...

A processor's own prefetching follows misses, and a second pass over a row that is in the cache has
none: memory would rest until the next row begins. The first pass over a row after all rows were
read asks for the output's lines, a later one for the next rows, so that both streams are spread
over the program; short rows have none, nor have wide ones of which two would not stay in a core's
cache. Where several rows run together, the next row is that of the next group.

A program that passes over each row once, and folds it, asks for what lies a fixed distance ahead::

    for chunk in T.serial(64):
        prefetch(x[min(program, P - 2), chunk * 64 + 1024])         # 4 KiB ahead, into the next row
        for lane in T.vectorized(64): lanes[lane] = lanes[lane] + x[program, chunk * 64 + lane]

because the processor's own prefetching begins again at each page. Where a row is shorter than the
distance, whole rows are counted. In the last row the address is one row back, so that it stays
within the array (a single row of a dynamic number excepted, where the address may be beyond its
end, which a prefetch may have). A prefetch changes no value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.effects import is_compact
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    Var,
    call,
    structural_map,
    tirx,
)
from tvm_tilex.tirx.register import PREFETCH
from tvm_tilex.transform.common import (
    is_stage,
    replace_roots,
    sequence,
    statements_of,
    substitute,
    tilex_pass,
    with_body,
)
from tvm_tilex.transform.row_access import RowAccess, row_loads, row_stores

__all__ = ["PrefetchRows"]

_LINE = 64  # bytes
_SHORTEST, _WIDEST = 2048, 1 << 18  # bytes of a row that is read more than once
_SHORTEST_TOGETHER = 256  # the same where several rows run together
_SHORTEST_STREAM = 256  # bytes of a row that is read once
_NEAREST = 1 << 14  # bytes of a row that the first level of the cache is asked to hold
_AHEAD = 1 << 12  # bytes from the use of a row that is read once to what is asked for
_READ, _WRITE = 0, 1
_FIRST_LEVEL, _SECOND_LEVEL, _DATA = 3, 2, 1


# What to ask for, by the element of the row that a loop is at and the rows that it reads.
_Choose = Callable[[Any, "list[RowAccess]"], "list[_Wanted]"]


@tilex_pass("PrefetchRows")
class PrefetchRows:
    """Insert prefetches into the parallel root loops of a scheduled function.

    A fixed distance pays where rows come from memory one after the other: one pass over them.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every root loop that passes over its row more than once."""
        if not is_stage(func, "scheduled"):
            return func
        return func.with_body(replace_roots(func.body, _root))


def _root(root: Any) -> Any:
    statements, program = statements_of(root.body), root.loop_var
    read: list[RowAccess] = []
    later: list[int] = []  # passes over rows that were all read before
    for position, statement in enumerate(statements):
        rows = [access for access in row_loads(statement, program) if not _among(access, read)]
        passes = [access for access in (*rows, *read) if _passes_over(statement, access)]
        if passes and not rows:
            later.append(position)
        elif passes:
            read += rows
    if later:
        return with_body(root, sequence(*_between_passes(root, statements, read, later)))
    if not read or row_stores(statements, program) or _is_one(root.extent):
        return root
    streamed = [_with_prefetches(statement, _stream(root), root) for statement in statements]
    return with_body(root, sequence(*streamed))


def _between_passes(
    root: Any, statements: list[Any], read: list[RowAccess], later: list[int]
) -> list[Any]:
    """The output's lines are asked for in the first later pass, the next rows where they fit in."""
    first, last = later[0], _host_of_next_rows(root, statements, read, later)
    found = list(statements)
    stored = row_stores(statements[first + 1 :], root.loop_var)
    outputs, rows = _outputs(root, read, stored), _next_rows(root, read)
    if first == last:
        found[first] = _with_prefetches(found[first], _both(rows, outputs), root)
        return found
    found[first] = _with_prefetches(found[first], outputs, root)
    found[last] = _with_prefetches(found[last], rows, root)
    return found


def _host_of_next_rows(
    root: Any, statements: list[Any], read: list[RowAccess], later: list[int]
) -> int:
    """The pass that asks for the next rows.

    Where rows run together, the first later one, which is the longest. Else the last one that reads
    the rows: a line that is asked for takes the place of one that has served. Rows beyond the first
    level have no such place to keep, and take the last pass of all.
    """
    if _together(root) > 1:
        return later[0]
    if any(_level(access) != _FIRST_LEVEL for access in read):
        return later[-1]
    reading = [p for p in later if row_loads(statements[p], root.loop_var)]
    return reading[-1] if reading else later[-1]


def _both(one: _Choose, other: _Choose) -> _Choose:
    return lambda element, rows: [*one(element, rows), *other(element, rows)]


def _among(access: RowAccess, known: list[RowAccess]) -> bool:
    return any(access.buffer.same_as(other.buffer) for other in known)


def _passes_over(statement: Any, access: RowAccess) -> bool:
    """Whether a statement's loops pass over half of the row or more, not over its rest alone."""
    passed = 0

    def visit(node: Any, times: int) -> None:
        nonlocal passed
        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                visit(part, times)
        elif isinstance(node, tirx.For) and isinstance(node.extent, tirx.IntImm):
            times *= int(node.extent.value)
            if node.kind == tirx.ForKind.VECTORIZED:
                passed = max(passed, times)
            else:
                visit(node.body, times)

    visit(statement, 1)
    return 2 * passed >= access.elements


@dataclass(frozen=True)
class _Wanted:
    """An element to ask for, with the program and the use it is asked for."""

    access: RowAccess
    program: Any
    use: int
    level: int


def _next_rows(root: Any, read: list[RowAccess]) -> _Choose:
    """The rows of the next program, or of the next group's."""
    program, one = root.loop_var, _like(root.loop_var, 1)
    following = tirx.min(program + _like(program, _together(root)), root.extent - one)
    near = [access for access in read if _is_near(root, access)]

    def wanted(element: Any, rows: list[RowAccess]) -> list[_Wanted]:
        return [_Wanted(a.at(element), following, _READ, _level(a)) for a in near]

    return wanted


def _outputs(root: Any, read: list[RowAccess], stored: list[RowAccess]) -> _Choose:
    """The lines that this program will write."""
    lengths = {access.elements for access in read if _is_near(root, access)}
    near = [access for access in stored if access.elements in lengths]

    def wanted(element: Any, rows: list[RowAccess]) -> list[_Wanted]:
        return [_Wanted(a.at(element), root.loop_var, _WRITE, _level(a)) for a in near]

    return wanted


def _together(root: Any) -> int:
    return attrs.annotation(root, attrs.TOGETHER) or 1


def _is_near(root: Any, access: RowAccess) -> bool:
    shortest = _SHORTEST if _together(root) == 1 else _SHORTEST_TOGETHER
    return shortest <= _size(access) <= _WIDEST


def _stream(root: Any) -> _Choose:
    """What lies :data:`_AHEAD` bytes, or as many whole rows, behind the rows that are read."""
    program, stop = root.loop_var, root.extent

    def wanted(element: Any, rows: list[RowAccess]) -> list[_Wanted]:
        long = [access for access in rows if _size(access) >= _SHORTEST_STREAM]
        return [ahead(access) for access in long if is_compact(access.buffer)]

    def ahead(access: RowAccess) -> _Wanted:
        size = _size(access)
        *outer, last = access.indices
        if size <= _AHEAD:
            distance = -(-_AHEAD // size)
            row = tirx.min(program + _like(program, distance), stop - _like(program, 1))
            return _Wanted(access, row, _READ, _FIRST_LEVEL)
        row = tirx.min(program, stop - _like(program, 2))
        if not isinstance(stop, tirx.IntImm):
            row = tirx.max(row, _like(program, 0))
        moved = (*outer, last + _like(last, _AHEAD // access.element_bytes))
        return _Wanted(RowAccess(access.buffer, moved), row, _READ, _FIRST_LEVEL)

    return wanted


def _size(access: RowAccess) -> int:
    return access.row_bytes or 0


def _level(access: RowAccess) -> int:
    return _FIRST_LEVEL if _size(access) <= _NEAREST else _SECOND_LEVEL


def _like(value: Any, number: int) -> Any:
    return tirx.IntImm(str(value.ty.dtype), number)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent.value) == 1


def _with_prefetches(statement: Any, wanted: _Choose, root: Any) -> Any:
    """The statement with prefetches in front of its vector loops over a row's elements."""

    def chunk(loop: Any) -> Any:
        lanes = loop.body
        if not isinstance(lanes, tirx.For) or lanes.kind != tirx.ForKind.VECTORIZED:
            return loop
        element = _element(lanes)
        if element is None:
            return loop
        asked = [
            part
            for each in wanted(element, row_loads(lanes, root.loop_var))
            for part in _prefetches(each, root.loop_var, lanes)
        ]
        return with_body(loop, sequence(*asked, lanes)) if asked else loop

    return structural_map(statement, (tirx.For, chunk), order="post")


def _element(lanes: Any) -> Any:
    """The place in its row of what a vector loop reads or writes; None where it has none.

    It is what counts along a loop around the vector, as the index of an accumulator does not.
    """
    store = lanes.body
    if not isinstance(store, tirx.BufferStore):
        return None
    for indices in (*(load.indices for load in loads(store.value)), store.indices):
        index = indices[-1]
        if not isinstance(index, Var) and mentions(index, lanes.loop_var):
            return index
    return None


def _prefetches(wanted: _Wanted, program: Any, lanes: Any) -> list[Any]:
    """One prefetch for each line that a vector loop passes over, in another row."""
    access, lane = wanted.access, lanes.loop_var
    found = []
    for first in range(0, int(lanes.extent.value), _LINE // access.element_bytes):
        at = {lane: _like(lane, first), program: wanted.program}
        element = access.buffer[tuple(substitute(index, at) for index in access.indices)]
        numbers = (tirx.IntImm("int32", number) for number in (wanted.use, wanted.level, _DATA))
        asked = call(PREFETCH, tirx.address_of(element), *numbers, dtype="void")
        found.append(tirx.Evaluate(asked))
    return found

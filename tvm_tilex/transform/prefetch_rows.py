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
none: memory would rest until the next row begins. The first loop of a program that reads only rows
which the program has read before carries the prefetches; short rows have none, nor have wide ones
of which two would not stay in a core's cache. Where several rows run together, the next row is
that of the next group.

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
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
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
    statements = statements_of(root.body)
    program = root.loop_var
    seen: list[Any] = []
    for position, statement in enumerate(statements):
        rows = row_loads(statement, program)
        if not any(passes_over(statement, access) for access in rows):
            continue  # what is left of a row after whole vectors
        read = [access.buffer for access in rows]
        if all(any(buffer.same_as(old) for old in seen) for buffer in read):
            stored = row_stores(statements[position + 1 :], program)
            statements[position] = _with_prefetches(statement, _second_pass(root, stored), root)
            return with_body(root, sequence(*statements))
        seen += read
    if not seen or row_stores(statements, program) or _is_one(root.extent):
        return root
    streamed = [_with_prefetches(statement, _stream(root), root) for statement in statements]
    return with_body(root, sequence(*streamed))


def passes_over(statement: Any, access: RowAccess) -> bool:
    """Whether a statement's loops pass over half of the row or more."""
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
    return 2 * passed * access.element_bytes >= _size(access)


@dataclass(frozen=True)
class _Wanted:
    """An element to ask for, with the program and the use it is asked for."""

    access: RowAccess
    program: Any
    use: int
    level: int


def _second_pass(root: Any, stored: list[RowAccess]) -> Callable[[list[RowAccess]], list[_Wanted]]:
    """The next program's rows, and the lines that this one will write."""
    program, together = root.loop_var, attrs.annotation(root, attrs.TOGETHER) or 1
    last = root.extent - _like(program, 1)
    following = tirx.min(program + _like(program, together), last)
    shortest = _SHORTEST if together == 1 else _SHORTEST_TOGETHER

    def wanted(rows: list[RowAccess]) -> list[_Wanted]:
        near = [access for access in rows if shortest <= _size(access) <= _WIDEST]
        if not near:
            return []
        found = [_Wanted(access, following, _READ, _level(access)) for access in near]
        for access in stored:
            if access.row_bytes == near[0].row_bytes:
                here = RowAccess(access.buffer, (*access.indices[:-1], near[0].indices[-1]))
                found.append(_Wanted(here, program, _WRITE, _level(access)))
        return found

    return wanted


def _stream(root: Any) -> Callable[[list[RowAccess]], list[_Wanted]]:
    """What lies :data:`_AHEAD` bytes, or as many whole rows, behind the rows that are read."""
    program, stop = root.loop_var, root.extent

    def wanted(rows: list[RowAccess]) -> list[_Wanted]:
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


def _with_prefetches(
    statement: Any, wanted: Callable[[list[RowAccess]], list[_Wanted]], root: Any
) -> Any:
    """The statement with prefetches in front of its vector loops that read the program's rows."""

    def chunk(loop: Any) -> Any:
        lanes = loop.body
        if not isinstance(lanes, tirx.For) or lanes.kind != tirx.ForKind.VECTORIZED:
            return loop
        rows = row_loads(lanes, root.loop_var)
        if not rows:
            return loop
        asked = [part for each in wanted(rows) for part in _prefetches(each, root.loop_var, lanes)]
        return with_body(loop, sequence(*asked, lanes)) if asked else loop

    return structural_map(statement, (tirx.For, chunk), order="post")


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

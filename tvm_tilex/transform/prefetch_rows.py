"""Asks for the next row, and for the lines of this row's output, while a row is computed on.

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
which the program has read before carries the prefetches; a program without one is left alone, as
are short rows, and wide ones of which two would not stay in a core's cache. A prefetch changes no
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    element_bytes,
    structural_map,
    structural_walk,
    tirx,
)
from tvm_tilex.transform.common import is_stage, sequence, substitute, tilex_pass, with_body

__all__ = ["PrefetchRows"]

_LINE = 64  # bytes
_SHORTEST, _WIDEST = 2048, 1 << 18  # bytes of a row
_NEAREST = 1 << 14  # bytes of a row that the first level of the cache is asked to hold
_READ, _WRITE = 0, 1
_FIRST_LEVEL, _SECOND_LEVEL, _DATA = 3, 2, 1


@dataclass(frozen=True)
class _Access:
    """An element of a global buffer in the program's own row."""

    buffer: Any
    indices: tuple[Any, ...]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of the buffer's last dimension, if that is known."""
        extent = self.buffer.ty.shape[-1]
        if not isinstance(extent, tirx.IntImm):
            return None
        return int(extent.value) * self.element_bytes

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.buffer)


@tilex_pass("PrefetchRows")
class PrefetchRows:
    """Insert prefetches into the parallel root loops of a scheduled function."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every root loop that passes over its row more than once."""
        if not is_stage(func, "scheduled"):
            return func
        return func.with_body(structural_map(func.body, (tirx.For, _root), order="post"))


def _root(root: Any) -> Any:
    if attrs.annotation(root, attrs.PARALLEL) is None or not isinstance(root.body, tirx.SeqStmt):
        return root
    statements = list(root.body.seq)
    seen: list[Any] = []
    for position, statement in enumerate(statements):
        read = [access.buffer for access in _row_loads(statement, root.loop_var)]
        if read and all(any(buffer.same_as(old) for old in seen) for buffer in read):
            stored = _row_stores(statements[position + 1 :], root.loop_var)
            statements[position] = _with_prefetches(statement, root, stored)
            return with_body(root, sequence(*statements))
        seen += read
    return root


def _row_loads(statement: Any, program: Any) -> list[_Access]:
    """Contiguous loads of the program's rows by a statement's vector loops, each buffer once."""
    found: list[_Access] = []

    def visit(loop: Any) -> None:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return
        for load in loads(loop.body):
            access = _Access(load.source, tuple(load.indices))
            known = any(load.source.same_as(other.buffer) for other in found)
            if not known and _of_row(access, program, loop.loop_var):
                found.append(access)

    structural_walk(statement, (tirx.For, visit))
    return found


def _row_stores(statements: list[Any], program: Any) -> list[_Access]:
    """What the vector loops of later statements write into the program's rows."""
    found: list[_Access] = []

    def visit(loop: Any) -> None:
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, tirx.BufferStore):
            return
        access = _Access(loop.body.buffer, tuple(loop.body.indices))
        known = any(access.buffer.same_as(other.buffer) for other in found)
        if not known and _of_row(access, program, loop.loop_var):
            found.append(access)

    for statement in statements:
        structural_walk(statement, (tirx.For, visit))
    return found


def _of_row(access: _Access, program: Any, lane: Any) -> bool:
    if access.buffer.scope() != "global" or len(access.indices) < 2:
        return False
    size = access.row_bytes
    if size is None or not _SHORTEST <= size <= _WIDEST:
        return False
    *outer, last = access.indices
    own = any(mentions(index, program) for index in outer)
    return own and mentions(last, lane) and not any(mentions(index, lane) for index in outer)


def _with_prefetches(statement: Any, root: Any, stored: list[_Access]) -> Any:
    program = root.loop_var
    one = tirx.IntImm(str(program.ty.dtype), 1)
    following = tirx.min(program + one, root.extent - one)

    def chunk(loop: Any) -> Any:
        lanes = loop.body
        if not isinstance(lanes, tirx.For) or lanes.kind != tirx.ForKind.VECTORIZED:
            return loop
        rows = _row_loads(lanes, program)
        if not rows:
            return loop
        wanted = [(access, following, _READ) for access in rows]
        for access in stored:
            if access.row_bytes == rows[0].row_bytes:
                here = _Access(access.buffer, (*access.indices[:-1], rows[0].indices[-1]))
                wanted.append((here, program, _WRITE))
        asked = [part for each in wanted for part in _prefetches(*each, program, lanes)]
        return with_body(loop, sequence(*asked, lanes))

    return structural_map(statement, (tirx.For, chunk), order="post")


def _prefetches(access: _Access, row: Any, use: int, program: Any, lanes: Any) -> list[Any]:
    """One prefetch for each line that a vector loop passes over, in another row."""
    lane, size = lanes.loop_var, access.element_bytes
    level = _FIRST_LEVEL if (access.row_bytes or 0) <= _NEAREST else _SECOND_LEVEL
    found = []
    for first in range(0, int(lanes.extent.value), _LINE // size):
        at = {lane: tirx.IntImm(str(lane.ty.dtype), first), program: row}
        element = access.buffer[tuple(substitute(index, at) for index in access.indices)]
        numbers = (tirx.IntImm("int32", number) for number in (use, level, _DATA))
        asked = tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(element), *numbers)
        found.append(tirx.Evaluate(asked))
    return found

"""Which rows of global buffers the vector loops of a program pass over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.tirx.compat import element_bytes, structural_walk, tirx

__all__ = ["RowAccess", "row_loads", "row_stores"]


@dataclass(frozen=True)
class RowAccess:
    """An element of a global buffer in the program's own row."""

    buffer: Any
    indices: tuple[Any, ...]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of the buffer's last dimension, if that is known and not 0."""
        extent = self.buffer.ty.shape[-1]
        if not isinstance(extent, tirx.IntImm) or not extent.value:
            return None
        return int(extent.value) * self.element_bytes

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return element_bytes(self.buffer)

    @property
    def elements(self) -> int:
        """Elements of the row; 0 where that is not known."""
        return (self.row_bytes or 0) // self.element_bytes

    def at(self, element: Any) -> RowAccess:
        """Another element of the same row."""
        return RowAccess(self.buffer, (*self.indices[:-1], element))


def row_loads(statement: Any, program: Any) -> list[RowAccess]:
    """Contiguous loads of the program's rows by a statement's vector loops, each buffer once."""
    found: list[RowAccess] = []

    def visit(loop: Any) -> None:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return
        for load in loads(loop.body):
            access = RowAccess(load.source, tuple(load.indices))
            known = any(load.source.same_as(other.buffer) for other in found)
            if not known and _of_row(access, program, loop.loop_var):
                found.append(access)

    structural_walk(statement, (tirx.For, visit))
    return found


def row_stores(statements: list[Any], program: Any) -> list[RowAccess]:
    """What the vector loops of later statements write into the program's rows."""
    found: list[RowAccess] = []

    def visit(loop: Any) -> None:
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, tirx.BufferStore):
            return
        access = RowAccess(loop.body.buffer, tuple(loop.body.indices))
        known = any(access.buffer.same_as(other.buffer) for other in found)
        if not known and _of_row(access, program, loop.loop_var):
            found.append(access)

    for statement in statements:
        structural_walk(statement, (tirx.For, visit))
    return found


def _of_row(access: RowAccess, program: Any, lane: Any) -> bool:
    if access.buffer.scope() != "global" or len(access.indices) < 2:
        return False
    if access.row_bytes is None:
        return False
    *outer, last = access.indices
    own = any(mentions(index, program) for index in outer)
    return own and mentions(last, lane) and not any(mentions(index, lane) for index in outer)

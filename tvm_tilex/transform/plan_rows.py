"""Decides how many consecutive programs make one parallel iteration, and how many run together.

Writes ``tilex.block``, the programs of an iteration, and ``tilex.together``, how many of them go
through the program's phases side by side (:mod:`.row_phases`); both are read and removed by
``BlockPrograms``, the second one by ``PrefetchRows`` too, which asks that many rows ahead.

Rows run together where they are bound by arithmetic, that is where a loop over the row calls
elementary functions, and where they fit the first level of the cache
(:func:`tvm_tilex.plan.processor.rows_together`). Rows that are bound by memory stay apart: their
reads and writes should be spread evenly over time.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tilex.analysis.purity import calls
from tvm_tilex.plan.processor import ProcessorFacts, rows_together
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    element_bytes,
    structural_walk,
    tirx,
)
from tvm_tilex.tirx.elementary import FUNCTIONS, SCALEF
from tvm_tilex.transform.block_programs import STACK_BYTES
from tvm_tilex.transform.common import is_stage, replace_roots, statements_of, tilex_pass
from tvm_tilex.transform.row_access import row_loads, row_stores
from tvm_tilex.transform.row_phases import phases_of

__all__ = ["PlanRows"]

_MOST_PROGRAMS = 16
_WORK = 1 << 17  # elements that a block's loops pass over
_LEAST_BLOCKS = 128
_DYNAMIC_WORK = 1 << 13  # the same where the number of programs is not known
_ELEMENTARY = frozenset((*FUNCTIONS.values(), *SCALEF.values()))


@tilex_pass("PlanRows")
class PlanRows:
    """Annotate the parallel root loops of a scheduled function."""

    def __init__(self, processor: ProcessorFacts) -> None:
        self.processor = processor

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Annotate every root loop over programs that is worth a block."""
        if not is_stage(func, "scheduled"):
            return func
        return func.with_body(replace_roots(func.body, self._plan))

    def _plan(self, root: Any) -> Any:
        if root.kind != tirx.ForKind.PARALLEL:
            return root
        programs = _programs_per_block(root)
        together = self._together(root, programs)
        programs -= programs % together
        if programs == 1:
            return root
        index = str(root.loop_var.ty.dtype)
        planned = {attrs.BLOCK: programs, attrs.TOGETHER: together}
        annotations = {key: tirx.IntImm(index, value) for key, value in planned.items()}
        return tirx.For(
            root.loop_var,
            root.min,
            root.extent,
            root.kind,
            root.body,
            root.thread_binding,
            {**dict(root.annotations), **annotations},
            root.step,
        )

    def _together(self, root: Any, programs: int) -> int:
        body = statements_of(root.body)
        if programs == 1 or not _calls_elementary(body) or len(phases_of(body)) == 1:
            return 1
        size = _row_bytes(body, root.loop_var)
        return 1 if size is None else rows_together(size, programs, self.processor)


def _calls_elementary(body: list[Any]) -> bool:
    found: list[bool] = []

    def visit(loop: Any) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED:
            found.append(not _ELEMENTARY.isdisjoint(calls(loop.body)))

    for statement in body:
        structural_walk(statement, (tirx.For, visit))
    return any(found)


def _row_bytes(body: list[Any], program: Any) -> int | None:
    """Bytes that a program passes over, storage included; None where that is not known."""
    accesses = row_stores(body, program)
    for statement in body:
        for access in row_loads(statement, program):
            if not any(access.buffer.same_as(other.buffer) for other in accesses):
                accesses.append(access)
    sizes = [access.row_bytes for access in accesses]
    for statement in body:
        if isinstance(statement, tirx.AllocBuffer):
            shape = statement.buffer.ty.shape
            if not all(isinstance(extent, tirx.IntImm) for extent in shape):
                return None
            size = math.prod(int(extent.value) for extent in shape)
            size *= element_bytes(statement.buffer)
            sizes.append(size if size > STACK_BYTES else 0)  # small storage is in registers
    return sum(size for size in sizes if size is not None)


def _programs_per_block(root: Any) -> int:
    if isinstance(root.extent, tirx.IntImm) and int(root.extent.value) < 2 * _LEAST_BLOCKS:
        return 1
    work = max(1, _work(root.body))
    if not isinstance(root.extent, tirx.IntImm):  # few programs must still reach every thread
        return max(1, min(_MOST_PROGRAMS, _DYNAMIC_WORK // work))
    fitting = min(_MOST_PROGRAMS, _WORK // work)
    return max(1, min(fitting, int(root.extent.value) // _LEAST_BLOCKS))


def _work(statement: Any) -> int:
    """Elements that a statement's loops pass over; a block's whole work where one is dynamic."""
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(_work, statement.seq))
    if isinstance(statement, tirx.For):
        known = isinstance(statement.extent, tirx.IntImm)
        return (int(statement.extent.value) if known else _WORK) * _work(statement.body)
    if isinstance(statement, tirx.IfThenElse):
        return _work(statement.then_case)
    return 1

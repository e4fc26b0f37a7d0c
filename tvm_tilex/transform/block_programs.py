"""Runs consecutive programs in one parallel iteration, with their storage allocated once.

Before::

    for program in T.parallel(P):
        tile = alloc(4096); carry = alloc(1); lanes = alloc(64)
        body(program)

After, with B programs a block::

    for block in T.parallel(ceildiv(P, B)):
        tile = alloc(4096)                          # TVM's workspace: two calls of the runtime
        for row in T.serial(min(B, P - block * B)):
            carry, lanes = on the stack             # and from there in registers
            body(block * B + row)

A narrow row costs less than an allocation. Programs are independent and read no storage that they
have not written, so that one may follow another in the same storage. Small buffers go on the stack
of the thread: TVM's workspace would keep LLVM from holding them in registers. Reads and removes
what ``PlanRows`` decided; where several rows run together, a block is groups of rows whose phases
stand one after the other (:mod:`.row_phases`).
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import ON_STACK, IRModule, PrimFunc, element_bytes, structural_map, tirx
from tvm_tilex.transform.common import (
    ceil_divided,
    chunked,
    is_stage,
    replace_roots,
    sequence,
    serial,
    statements_of,
    substitute,
    tilex_pass,
)
from tvm_tilex.transform.row_phases import by_phases

__all__ = ["STACK_BYTES", "BlockPrograms"]

STACK_BYTES = 512  # of one buffer; several of a program fit any thread's stack


@tilex_pass("BlockPrograms")
class BlockPrograms:
    """Block the parallel root loops of a scheduled function."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every root loop over programs."""
        if not is_stage(func, "scheduled"):
            return func
        body = replace_roots(func.body, _block)
        return func.with_body(structural_map(body, (tirx.AllocBuffer, _on_stack), order="post"))


def _on_stack(allocation: Any) -> Any:
    buffer = allocation.buffer
    shape = buffer.ty.shape
    if buffer.scope() != "local" or not all(isinstance(e, tirx.IntImm) for e in shape):
        return allocation
    elements = math.prod(int(extent.value) for extent in shape)
    if elements * element_bytes(buffer) > STACK_BYTES:
        return allocation
    return tirx.AllocBuffer(buffer, annotations={ON_STACK: tirx.IntImm("int32", 1)})


def _block(root: Any) -> Any:
    programs = attrs.annotation(root, attrs.BLOCK)
    if programs is None:
        return root
    together = attrs.annotation(root, attrs.TOGETHER)
    index, total = str(root.loop_var.ty.dtype), root.extent
    block = tirx.Var("block", index)
    blocks, left = chunked(total + tirx.IntImm(index, programs - 1), programs)
    whole = isinstance(left, tirx.IntImm) and left.value == programs - 1
    first = block * tirx.IntImm(index, programs)
    count = programs if whole else tirx.min(tirx.IntImm(index, programs), total - first)
    if together == 1:
        inner = _one_by_one(root, first, count)
    else:
        inner = _phase_by_phase(root, first, count, together)
    kept = (attrs.BLOCK, attrs.TOGETHER)
    annotations = {k: v for k, v in dict(root.annotations).items() if k not in kept}
    return serial(block, blocks, inner, root.kind, annotations)


def _one_by_one(root: Any, first: Any, count: Any) -> Any:
    row = tirx.Var(root.loop_var.name, str(root.loop_var.ty.dtype))
    body = statements_of(root.body)
    hoisted = [s for s in body if isinstance(s, tirx.AllocBuffer) and _on_stack(s) is s]
    rest = [s for s in body if not any(s.same_as(h) for h in hoisted)]
    program = substitute(sequence(*rest), {root.loop_var: first + row})
    return sequence(*hoisted, serial(row, count, program))


def _phase_by_phase(root: Any, first: Any, count: Any, together: int) -> Any:
    """Groups of ``together`` rows; ``count``, if it is a number, is a multiple of that."""
    index = str(root.loop_var.ty.dtype)
    group, size = tirx.Var("group", index), tirx.IntImm(index, together)
    begin = group * size
    rows: Any = together if isinstance(count, int) else tirx.min(size, count - begin)
    allocations, loops = by_phases(
        statements_of(root.body), root.loop_var, first + begin, together, rows
    )
    groups = count // together if isinstance(count, int) else ceil_divided(count, together)
    return sequence(*allocations, serial(group, groups, sequence(*loops)))

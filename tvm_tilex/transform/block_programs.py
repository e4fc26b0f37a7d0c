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
of the thread: TVM's workspace would keep LLVM from holding them in registers. Reads
``tilex.parallel``; a block's work is bounded, so that every thread gets its share.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import ON_STACK, IRModule, PrimFunc, element_bytes, structural_map, tirx
from tvm_tilex.transform.common import chunked, is_stage, sequence, serial, substitute, tilex_pass

__all__ = ["BlockPrograms"]

_STACK_BYTES = 512  # of one buffer; several of a program fit any thread's stack
_MOST_PROGRAMS = 16
_WORK = 1 << 17  # elements that a block's loops pass over
_LEAST_BLOCKS = 128
_DYNAMIC_WORK = 1 << 13  # the same where the number of programs is not known


@tilex_pass("BlockPrograms")
class BlockPrograms:
    """Block the parallel root loops of a scheduled function."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every root loop over programs."""
        if not is_stage(func, "scheduled"):
            return func
        body = structural_map(func.body, (tirx.AllocBuffer, _on_stack), order="post")
        return func.with_body(structural_map(body, (tirx.For, _block), order="post"))


def _on_stack(allocation: Any) -> Any:
    buffer = allocation.buffer
    shape = buffer.ty.shape
    if buffer.scope() != "local" or not all(isinstance(e, tirx.IntImm) for e in shape):
        return allocation
    elements = math.prod(int(extent.value) for extent in shape)
    if elements * element_bytes(buffer) > _STACK_BYTES:
        return allocation
    return tirx.AllocBuffer(buffer, annotations={ON_STACK: tirx.IntImm("int32", 1)})


def _block(root: Any) -> Any:
    if attrs.annotation(root, attrs.PARALLEL) is None or root.kind != tirx.ForKind.PARALLEL:
        return root
    programs = _programs_per_block(root)
    if programs == 1:
        return root
    index, total = str(root.loop_var.ty.dtype), root.extent
    size = tirx.IntImm(index, programs)
    block, row = tirx.Var("block", index), tirx.Var(root.loop_var.name, index)
    blocks, left = chunked(total + tirx.IntImm(index, programs - 1), programs)
    count: Any = programs
    if not isinstance(left, tirx.IntImm) or left.value != programs - 1:
        count = tirx.min(size, total - block * size)
    body = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    hoisted = [s for s in body if isinstance(s, tirx.AllocBuffer) and not s.annotations]
    rest = [s for s in body if not any(s.same_as(h) for h in hoisted)]
    program = substitute(sequence(*rest), {root.loop_var: block * size + row})
    inner = sequence(*hoisted, serial(row, count, program))
    return serial(block, blocks, inner, root.kind, dict(root.annotations))


def _programs_per_block(root: Any) -> int:
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

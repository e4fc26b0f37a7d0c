"""The reference GPU map: one thread runs one program.

Before::

    for program in T.parallel(P):
        body(program)

After::

    with T.launchthread_axis("blockIdx.x", ceildiv(P, T)), T.launchthread_axis("threadIdx.x", T):
        if blockIdx.x * T + threadIdx.x < P:
            body(blockIdx.x * T + threadIdx.x)

Reads ``tilex.parallel``; removes it and moves the function to the stage ``scheduled``. A root
loop without programs disappears; where the count is known at launch, no program means no launch.
Any number of threads is correct, since programs are independent.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tirx
from tvm_tilex.transform.common import (
    as_index,
    ceil_divided,
    is_stage,
    launch,
    sequence,
    substitute,
    thread_axis,
    tilex_pass,
)

__all__ = ["MapPrograms"]


@tilex_pass("MapPrograms")
class MapPrograms:
    """Bind each root loop's programs to threads, ``threads`` of them per threadgroup."""

    def __init__(self, threads: int = 256) -> None:
        self.threads = threads

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Map every root loop of a reference function."""
        if not is_stage(func, "reference"):
            return func
        roots = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else [func.body]
        mapped = [self.map_root(func, root) for root in roots]
        body = sequence(*mapped) if any(mapped) else tirx.Evaluate(tirx.IntImm("int32", 0))
        return func.with_body(body).with_attr(attrs.STAGE, "scheduled")

    def map_root(self, func: PrimFunc, root: Any) -> Any:
        """The launch of one root loop; None where no program runs."""
        if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
            raise LoweringError(f"{func.attrs['global_symbol']}: a root statement is not parallel")
        known = isinstance(root.extent, tirx.IntImm)
        programs = int(root.extent.value) if known else self.threads
        if programs == 0:
            return None
        threads = min(self.threads, programs)
        dtype = str(root.loop_var.ty.dtype)
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        program = as_index(dtype, block.var) * tirx.IntImm(dtype, threads) + as_index(
            dtype, thread.var
        )
        body = substitute(root.body, {root.loop_var: program})
        if not known or programs % threads:
            body = tirx.IfThenElse(program < root.extent, body, None)
        body = launch(thread, threads, body)
        if known:
            return launch(block, -(-programs // threads), body)
        launched = launch(block, ceil_divided(root.extent, threads), body)
        return tirx.IfThenElse(root.extent > tirx.IntImm(dtype, 0), launched, None)

"""The reference GPU map: one thread runs one program.

Before::

    for program in T.parallel(P):
        body(program)

After::

    with T.launch_thread("blockIdx.x", ceildiv(P, T)), T.launch_thread("threadIdx.x", T):
        if blockIdx.x * T + threadIdx.x < P:
            body(blockIdx.x * T + threadIdx.x)

Reads ``tilex.parallel``; removes it and moves the function to the stage ``scheduled``. A root
loop without programs disappears. Any number of threads is correct, since programs are independent.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tirx
from tvm_tilex.transform.common import is_stage, sequence, substitute, tilex_pass

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
        mapped = [self._map(func, root) for root in roots]
        body = sequence(*mapped) if any(mapped) else tirx.Evaluate(tirx.IntImm("int32", 0))
        return func.with_body(body).with_attr(attrs.STAGE, "scheduled")

    def _map(self, func: PrimFunc, root: Any) -> Any:
        if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
            raise LoweringError(f"{func.attrs['global_symbol']}: a root statement is not parallel")
        programs = int(root.extent.value)
        if programs == 0:
            return None
        threads = min(self.threads, programs)
        dtype = str(root.loop_var.ty.dtype)
        block, thread = _thread("blockIdx.x"), _thread("threadIdx.x")
        program = _as(dtype, block.var) * tirx.IntImm(dtype, threads) + _as(dtype, thread.var)
        body = substitute(root.body, {root.loop_var: program})
        if programs % threads:
            body = tirx.IfThenElse(program < tirx.IntImm(dtype, programs), body, None)
        body = _launch(thread, threads, body)
        return _launch(block, -(-programs // threads), body)


def _thread(tag: str) -> Any:
    return tirx.IterVar(None, tirx.Var(tag, "int32"), 1, tag)


def _as(dtype: str, var: Any) -> Any:
    return var if str(var.ty.dtype) == dtype else tirx.Cast(dtype, var)


def _launch(thread: Any, extent: int, body: Any) -> Any:
    return tirx.AttrStmt(thread, "thread_extent", tirx.IntImm("int32", extent), body)

"""Vectorizes the innermost loop of an independent element domain on a CPU.

Before::

    for e in T.serial(N, annotations={"tilex.domain": 1}):
        out[row, e] = f(e)

After, with L lanes::

    for chunk in T.serial(N // L):
        for lane in T.vectorized(L):
            out[row, chunk * L + lane] = f(chunk * L + lane)
    for lane in T.vectorized(L):               # some elements twice, where L does not divide N
        out[row, N - L + lane] = f(N - L + lane)

Legal because the iterations are independent: the one store writes the element of its own
iteration, and the stored buffer is read, if at all, at exactly that element. That is checked
(:mod:`.vector_loop`); the marker alone is not enough. Removes the marker of what it rewrites and
moves the function to the stage ``scheduled``.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tirx
from tvm_tilex.transform.common import is_stage, replace_loops, serial, tilex_pass
from tvm_tilex.transform.vector_loop import split_loop

__all__ = ["VectorizeDomains"]


@tilex_pass("VectorizeDomains")
class VectorizeDomains:
    """Split the innermost loop of each one-store element domain into ``lanes``."""

    def __init__(self, lanes: int = 16) -> None:
        self.lanes = lanes

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite what qualifies; the function is then ``scheduled``."""
        if not is_stage(func, "reference"):
            return func
        noalias = attrs.noalias(func)

        def rewrite(loop: Any) -> Any:
            return self._rewrite(loop, noalias)

        body = replace_loops(func.body, rewrite)
        return func.with_body(body).with_attr(attrs.STAGE, "scheduled")

    def _rewrite(self, loop: Any, noalias: bool) -> Any:
        depth = attrs.annotation(loop, attrs.DOMAIN)
        if depth is None:
            return loop
        if depth == 1:
            return split_loop(loop, self.lanes, noalias=noalias)
        outer = [loop]
        while len(outer) < depth - 1 and isinstance(outer[-1].body, tirx.For):
            outer.append(outer[-1].body)
        inner = outer[-1].body
        if len(outer) != depth - 1 or not isinstance(inner, tirx.For):
            return loop
        body = split_loop(inner, self.lanes, noalias=noalias)
        if body is inner:
            return loop
        for enclosing in reversed(outer):
            body = serial(enclosing.loop_var, enclosing.extent, body)
        return body

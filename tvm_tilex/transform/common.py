"""What the passes share: their base, stage checks, statement building."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.plan.candidates import MAX_GRID
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    PrimFunc,
    Range,
    Var,
    prim_func_pass,
    s_tir,
    structural_map,
    tirx,
)

__all__ = [
    "as_index",
    "ceil_divided",
    "chunked",
    "compute_capability",
    "in_root_block",
    "is_stage",
    "launch",
    "out_of_root_block",
    "replace_loops",
    "replace_roots",
    "sequence",
    "serial",
    "statements_of",
    "substitute",
    "thread_axis",
    "tilex_pass",
    "with_body",
    "with_extent",
]


def tilex_pass(name: str) -> Callable[[type], type]:
    """Make a class with ``transform_function(func, mod, ctx)`` the TVM pass ``tilex.name``."""
    return prim_func_pass(opt_level=0, name=f"tilex.{name}")


def is_stage(function: PrimFunc, stage: str) -> bool:
    """Whether ``function`` is one of ours in that stage; others pass through untouched."""
    found = function.attrs.get(attrs.STAGE, None) if function.attrs else None
    return found is not None and str(found) == stage


def replace_loops(node: Any, replace: Callable[[Any], Any]) -> Any:
    """Rewrite every For in ``node``, inner ones first; ``replace`` returns the loop to keep it."""
    return structural_map(node, (tirx.For, replace), order="post")


def replace_roots(body: Any, replace: Callable[[Any], Any]) -> Any:
    """Rewrite the parallel root loops of a function's body; ``replace`` may return its argument."""
    if isinstance(body, tirx.SeqStmt):
        return sequence(*(replace_roots(statement, replace) for statement in body.seq))
    if isinstance(body, tirx.For):
        return body if attrs.annotation(body, attrs.PARALLEL) is None else replace(body)

    def visit(loop: Any) -> Any:
        return loop if attrs.annotation(loop, attrs.PARALLEL) is None else replace(loop)

    return replace_loops(body, visit)


def substitute(node: Any, replacements: dict[Any, Any]) -> Any:
    """Replace variables by expressions, by identity."""

    def swap(var: Any) -> Any:
        for old, new in replacements.items():
            if var.same_as(old):
                return new
        return var

    return structural_map(node, (Var, swap), order="post")


def sequence(*statements: Any) -> Any:
    """Statements in order; None is nothing, and None is returned where nothing is left."""
    kept = [statement for statement in statements if statement is not None]
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)


def statements_of(body: Any) -> list[Any]:
    """The statements of a body in order."""
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def serial(
    var: Any,
    extent: Any,
    body: Any,
    kind: Any = tirx.ForKind.SERIAL,
    annotations: dict[str, Any] | None = None,
) -> Any:
    """``for var in range(extent)`` in the variable's own type; nothing where the extent is 0.

    ``extent`` is an integer or an expression.
    """
    dtype = str(var.ty.dtype)
    if isinstance(extent, int):
        extent = tirx.IntImm(dtype, extent)
    if isinstance(extent, tirx.IntImm) and extent.value == 0:
        return None
    zero, stop = tirx.IntImm(dtype, 0), extent
    return tirx.For(var, zero, stop, kind, body, None, annotations or {})


def chunked(extent: Any, width: int) -> tuple[Any, Any]:
    """How many full chunks of ``width`` an extent holds, and the rest, in the extent's type.

    Literals for a literal extent. A dynamic extent is not negative.
    """
    dtype = str(extent.ty.dtype)
    if isinstance(extent, tirx.IntImm):
        full, rest = divmod(int(extent.value), width)
        return tirx.IntImm(dtype, full), tirx.IntImm(dtype, rest)
    size = tirx.IntImm(dtype, width)
    return tirx.truncdiv(extent, size), tirx.truncmod(extent, size)


def with_body(loop: Any, body: Any) -> Any:
    """The same loop around another body."""
    return with_extent(loop, loop.extent, body)


def with_extent(loop: Any, extent: Any, body: Any) -> Any:
    """The same loop with another extent and body."""
    return tirx.For(
        loop.loop_var,
        loop.min,
        extent,
        loop.kind,
        body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
    )


def thread_axis(tag: str) -> Any:
    """A thread index variable such as ``threadIdx.x``."""
    return tirx.IterVar(None, tirx.Var(tag, "int32"), 1, tag)


def in_root_block(function: PrimFunc) -> PrimFunc:
    """The same function with its body in a plain root block, which Relax's passes ask for."""
    root = s_tir.SBlock([], [], [], "root", function.body)
    return function.with_body(s_tir.SBlockRealize([], tirx.IntImm("bool", 1), root))


def out_of_root_block(function: PrimFunc) -> PrimFunc:
    """Undo :func:`in_root_block`; any other function is returned as it is."""
    realize = function.body
    if not isinstance(realize, s_tir.SBlockRealize):
        return function
    block = realize.block
    plain = not (len(block.iter_vars) or len(block.alloc_buffers) or len(block.match_buffers))
    return function.with_body(block.body) if plain and block.init is None else function


def as_index(dtype: str, var: Any) -> Any:
    """``var`` in the index type ``dtype``."""
    return var if str(var.ty.dtype) == dtype else tirx.Cast(dtype, var)


def ceil_divided(extent: Any, width: int) -> Any:
    """The number of groups of ``width`` that hold a dynamic, positive extent."""
    if width == 1:
        return extent
    dtype = str(extent.ty.dtype)
    return tirx.truncdiv(extent + tirx.IntImm(dtype, width - 1), tirx.IntImm(dtype, width))


def compute_capability(target: Any) -> int:
    """10 * major + minor of a CUDA target's architecture; 0 where it states none."""
    digits = "".join(filter(str.isdigit, str(target.attrs.get("arch", ""))))
    return int(digits) if digits else 0


def launch(thread: Any, extent: Any, body: Any) -> Any:
    """Run ``body`` on ``extent`` instances of a thread axis: an integer or an expression.

    An expression is positive and below 2**31 where the launch is reached.

    Raises
    ------
    LoweringError
        If the extent does not fit the 32 bits that a launch has for it.
    """
    if isinstance(extent, int):
        if extent > MAX_GRID:
            raise LoweringError(f"{extent} threadgroups would need a 64-bit grid extent")
        extent = tirx.IntImm("int32", extent)
    stop = as_index("int32", extent)
    domain = Range(tirx.IntImm("int32", 0), stop)
    axis = tirx.IterVar(domain, thread.var, thread.iter_type, thread.thread_tag)
    return tirx.AttrStmt(axis, "thread_extent", stop, body)

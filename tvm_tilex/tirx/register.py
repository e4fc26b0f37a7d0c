"""Registers errors, operators and their lowering with TVM, once, when first needed."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import tvm_ffi

from tvm_tilex import errors
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx

__all__ = ["MAXIMUM", "MINIMUM", "register"]

# NaN-propagating on LLVM and CUDA; plain max/min on Metal, whose default math is fast.
MAXIMUM = "tilex.maximum"
MINIMUM = "tilex.minimum"
# NaN-propagating on every target.
MAXIMUM_PROPAGATE = "tilex.maximum_propagate"
MINIMUM_PROPAGATE = "tilex.minimum_propagate"
# a * b + c with one rounding; TVM's own fma lets LLVM round twice.
FMA = "tilex.fma"
# Its operand, never fused into a consumer (LLVM only; elsewhere the operand itself).
FENCE = "tilex.fence"


@functools.cache
def register() -> None:
    """Make TVM know this package's errors and operators. Idempotent."""
    for name in errors.__all__:
        tvm_ffi.register_error(name, getattr(errors, name))
    for op in (MAXIMUM, MINIMUM, MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE):
        compat.register_op(op, "NaN-aware extremum", effect=compat.PURE, vectorizable=True)
    compat.register_op(FENCE, "contraction fence", effect=compat.PURE, vectorizable=True)
    compat.register_op(FMA, "fused multiply-add", effect=compat.PURE, vectorizable=True)
    for op, greater in (
        (MAXIMUM, True),
        (MINIMUM, False),
        (MAXIMUM_PROPAGATE, True),
        (MINIMUM_PROPAGATE, False),
    ):
        compat.register_intrin_lowering(op, target="default", f=_propagating(greater), level=99)
    compat.register_intrin_lowering(MAXIMUM, target="metal", f=_plain(tirx.max), level=99)
    compat.register_intrin_lowering(MINIMUM, target="metal", f=_plain(tirx.min), level=99)
    compat.register_intrin_lowering(FENCE, target="default", f=lambda c: c.args[0], level=99)
    compat.register_intrin_lowering(FENCE, target="llvm", f=_llvm_fence, level=99)
    compat.register_intrin_lowering(FMA, target="default", f=_fma, level=99)
    compat.register_intrin_lowering(FMA, target="llvm", f=_llvm_fma, level=99)
    # Lets printed TIRx parse back: T.tilex.maximum(a, b).
    compat.builder.register_script_namespace("tilex", _script_namespace())


def _script_namespace() -> types.SimpleNamespace:
    def constructor(op: str) -> Callable[..., Any]:
        def construct(*arguments: Any) -> Any:
            return compat.call(op, *arguments, dtype=str(arguments[0].ty.dtype))

        return construct

    ops = (MAXIMUM, MINIMUM, MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE, FMA, FENCE)
    return types.SimpleNamespace(**{op.split(".")[1]: constructor(op) for op in ops})


def _propagating(greater: bool) -> Callable[[Any], Any]:
    """``a if a > b or a is NaN else b``: a NaN on either side is the result."""

    def lower(call: Any) -> Any:
        a, b = call.args
        x, y = tirx.Var("x", a.ty), tirx.Var("y", b.ty)
        wins = x > y if greater else x < y
        return tirx.Let(x, a, tirx.Let(y, b, tirx.Select(tirx.any(wins, x != x), x, y)))

    return lower


def _plain(extremum: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda call: extremum(call.args[0], call.args[1])


def _fma(call: Any) -> Any:
    return tirx.call_intrin(call.ty, "tirx.fma", *call.args)


def _llvm_fma(call: Any) -> Any:
    return tirx.call_llvm_pure_intrin(call.ty, "llvm.fma", *call.args)


def _llvm_fence(call: Any) -> Any:
    return tirx.call_llvm_pure_intrin(call.ty, "llvm.arithmetic.fence", *call.args)

"""Registers errors, operators and their lowering with TVM, once, when first needed."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import tvm_ffi

from tvm_tilex import errors
from tvm_tilex.tirx import compat, cuda_functions
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.tirx.elementary import FUNCTIONS, SCALEF, register_elementary

__all__ = ["MAXIMUM", "MINIMUM", "register"]

# TVM's simplifier treats floats as real numbers: it turns `(x + y) - y` into `x`, `x - x` and
# `x * 0` into 0, `not a < b` into `a >= b`, `x == x` into true. That is wrong where a result is
# rounded, for NaN, infinities and -0. These operators are opaque to it.
EQUAL = "tilex.equal"
NOT_EQUAL = "tilex.not_equal"
LESS = "tilex.less"
LESS_EQUAL = "tilex.less_equal"
SUBTRACT = "tilex.subtract"
# An int64 value wrapped to int32: TVM's bounds take a cast for one that never wraps.
WRAP_INT32 = "tilex.wrap_int32"
# An FP32 value rounded to the nearest bfloat16 (ties to even), as FP32.
ROUND_BFLOAT16 = "tilex.round_bfloat16"

# NaN-propagating on LLVM and CUDA; plain max/min on Metal, whose default math is fast.
MAXIMUM = "tilex.maximum"
MINIMUM = "tilex.minimum"
# NaN-propagating on every target.
MAXIMUM_PROPAGATE = "tilex.maximum_propagate"
MINIMUM_PROPAGATE = "tilex.minimum_propagate"
# a * b + c with one rounding; TVM's own fma lets LLVM round twice.
FMA = "tilex.fma"
# a / b, given b and its correctly rounded reciprocal: three multiply-adds in place of a division.
QUOTIENT = "tilex.quotient"
# exp(x) by the hardware's exponential of base 2: a relative error of 2**-22 + |x| * 2**-24, and
# results below 2**-126 are 0.
EXP_APPROXIMATE = "tilex.exp_approximate"
# A float16 or bfloat16 as FP32, computed where it is used: a device compiler that shared it between
# uses would keep a register for each FP32 value in place of one for two narrow ones.
WIDEN = "tilex.widen"
# Collectives over the lanes of a SIMD group: opaque, so that no pass merges, hoists or sinks them.
SUBGROUP = {
    "add": "tilex.subgroup_add",
    "maximum": "tilex.subgroup_maximum",
    "minimum": "tilex.subgroup_minimum",
}
# A collective extremum by the integer instruction redux.sync of compute capability 8.0 and later.
WARP_EXTREMUM = {"maximum": "tilex.warp_maximum", "minimum": "tilex.warp_minimum"}
# A pair of 16-bit floats (uint32, the first in the lower half) folded with two more; and the
# extremum of a pair, as FP32. NaN-propagating; CUDA of compute capability 8.0 and later.
_PAIRS = [(c, dtype) for c in ("maximum", "minimum") for dtype in ("bfloat16", "float16")]
PAIR_EXTREMUM = {(c, dtype): f"tilex.{c}_{dtype}x2" for c, dtype in _PAIRS}
WIDENED_EXTREMUM = {(c, dtype): f"tilex.{c}_of_{dtype}x2" for c, dtype in _PAIRS}
# A cluster's threadgroups: prepare a mailbox for a number of bytes; say that all are prepared, and
# wait until all have said so; send a number to another threadgroup; wait until a mailbox is full.
CLUSTER_PREPARE = "tilex.cluster_prepare"
CLUSTER_ARRIVE = "tilex.cluster_arrive"
CLUSTER_WAIT = "tilex.cluster_wait"
CLUSTER_SEND = "tilex.cluster_send"
CLUSTER_RECEIVE = "tilex.cluster_receive"
_CLUSTER = (CLUSTER_PREPARE, CLUSTER_ARRIVE, CLUSTER_WAIT, CLUSTER_SEND, CLUSTER_RECEIVE)
# Lets the next kernel of the stream be launched, then waits until those before have ended.
GRID_DEPENDENCY = "tilex.grid_dependency"
# Asks for a cache line: address, 0 to read or 1 to write, level (3 is the nearest), 1 for data.
PREFETCH = "tilex.prefetch"
# Its operand, never fused into a consumer (LLVM only; elsewhere the operand itself).
FENCE = "tilex.fence"

# One or two instructions each, unlike calls of mathematical functions.
_EXTREMA = (MAXIMUM, MINIMUM, MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE)
CHEAP = frozenset(
    (
        WIDEN,
        EQUAL,
        NOT_EQUAL,
        LESS,
        LESS_EQUAL,
        SUBTRACT,
        WRAP_INT32,
        FENCE,
        FMA,
        QUOTIENT,
        *_EXTREMA,
    )
)


@functools.cache
def register() -> None:
    """Make TVM know this package's errors and operators. Idempotent."""
    for name in errors.__all__:
        tvm_ffi.register_error(name, getattr(errors, name))
    for op in (MAXIMUM, MINIMUM, MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE):
        compat.register_op(op, "NaN-aware extremum", effect=compat.PURE, vectorizable=True)
    for op in _COMPARISONS:
        compat.register_op(op, "IEEE comparison", effect=compat.PURE, vectorizable=True)
    compat.register_op(SUBTRACT, "IEEE difference", effect=compat.PURE, vectorizable=True)
    compat.register_op(WRAP_INT32, "wrapping cast", effect=compat.PURE, vectorizable=True)
    compat.register_op(ROUND_BFLOAT16, "rounding", effect=compat.PURE, vectorizable=True)
    compat.register_op(FENCE, "contraction fence", effect=compat.PURE, vectorizable=True)
    compat.register_op(FMA, "fused multiply-add", effect=compat.PURE, vectorizable=True)
    compat.register_op(QUOTIENT, "refined quotient", effect=compat.PURE, vectorizable=True)
    compat.register_intrin_lowering(QUOTIENT, target="default", f=_quotient, level=99)
    compat.register_op(EXP_APPROXIMATE, "fast exp", effect=compat.PURE, vectorizable=False)
    compat.register_op(WIDEN, "widening", effect=compat.PURE, vectorizable=False)
    compat.register_intrin_lowering(
        EXP_APPROXIMATE, target="cuda", f=cuda_functions.exponential, level=99
    )
    compat.register_intrin_lowering(WIDEN, target="cuda", f=cuda_functions.widening, level=99)
    for target, keep in (("default", _keep), ("llvm", _llvm_keep)):
        for op in (MAXIMUM, MAXIMUM_PROPAGATE):
            rule = _propagating(tirx.GT, keep)
            compat.register_intrin_lowering(op, target=target, f=rule, level=99)
        for op in (MINIMUM, MINIMUM_PROPAGATE):
            rule = _propagating(tirx.LT, keep)
            compat.register_intrin_lowering(op, target=target, f=rule, level=99)
        rule = _rounding(keep)
        compat.register_intrin_lowering(ROUND_BFLOAT16, target=target, f=rule, level=99)
    rule = cuda_functions.rounding(_rounding(_keep))
    compat.register_intrin_lowering(ROUND_BFLOAT16, target="cuda", f=rule, level=99)
    for op, instruction in _CUDA_EXTREMA.items():
        wins = tirx.GT if instruction == "max" else tirx.LT
        rule = cuda_functions.extremum(instruction, _propagating(wins, _keep))
        compat.register_intrin_lowering(op, target="cuda", f=rule, level=99)
    compat.register_intrin_lowering(MAXIMUM, target="metal", f=_plain(tirx.max), level=99)
    compat.register_intrin_lowering(MINIMUM, target="metal", f=_plain(tirx.min), level=99)
    for op, node in _COMPARISONS.items():
        compat.register_intrin_lowering(op, target="default", f=_node(node), level=99)
    # TVM's LLVM code generator makes `!=` an ordered comparison, false for NaN.
    compat.register_intrin_lowering(NOT_EQUAL, target="llvm", f=_unequal, level=99)
    compat.register_intrin_lowering(WRAP_INT32, target="default", f=_wrap, level=99)
    compat.register_intrin_lowering(SUBTRACT, target="default", f=_node(tirx.Sub), level=99)
    compat.register_intrin_lowering(FENCE, target="default", f=lambda c: c.args[0], level=99)
    compat.register_intrin_lowering(FENCE, target="llvm", f=_llvm_fence, level=99)
    compat.register_op(PREFETCH, "cache hint", effect=compat.OPAQUE, vectorizable=False)
    compat.register_intrin_lowering(PREFETCH, target="default", f=_prefetch, level=99)
    for combiner, op in SUBGROUP.items():
        compat.register_op(op, "SIMD-group collective", effect=compat.OPAQUE, vectorizable=False)
        compat.register_intrin_lowering(op, target="metal", f=_metal_collective(combiner), level=99)
    for combiner, op in WARP_EXTREMUM.items():
        compat.register_op(op, "warp-wide extremum", effect=compat.OPAQUE, vectorizable=False)
        rule = cuda_functions.warp_extremum(combiner)
        compat.register_intrin_lowering(op, target="cuda", f=rule, level=99)
    for kind in _PAIRS:
        for op, rule in (
            (PAIR_EXTREMUM[kind], cuda_functions.pair_extremum(*kind)),
            (WIDENED_EXTREMUM[kind], cuda_functions.widened_extremum(*kind)),
        ):
            compat.register_op(op, "extremum of pairs", effect=compat.PURE, vectorizable=False)
            compat.register_intrin_lowering(op, target="cuda", f=rule, level=99)
    for op in _CLUSTER:
        compat.register_op(op, "cluster synchronization", effect=compat.OPAQUE, vectorizable=False)
        rule = cuda_functions.cluster(op.replace(".", "_"))
        compat.register_intrin_lowering(op, target="cuda", f=rule, level=99)
    compat.register_op(GRID_DEPENDENCY, "wait of a grid", effect=compat.OPAQUE, vectorizable=False)
    rule = cuda_functions.grid_dependency
    compat.register_intrin_lowering(GRID_DEPENDENCY, target="cuda", f=rule, level=99)
    register_elementary()
    compat.register_intrin_lowering(FMA, target="default", f=_fma, level=99)
    compat.register_intrin_lowering(FMA, target="llvm", f=_llvm_fma, level=99)
    for target in ("cuda", "metal"):
        compat.register_intrin_lowering(FMA, target=target, f=_c_fma, level=99)
    # Lets printed TIRx parse back: T.tilex.maximum(a, b).
    compat.builder.register_script_namespace("tilex", _script_namespace())


def _script_namespace() -> types.SimpleNamespace:
    def constructor(op: str) -> Callable[..., Any]:
        def construct(*arguments: Any) -> Any:
            dtype = _FIXED.get(op) or str(arguments[0].ty.dtype)
            return compat.call(op, *arguments, dtype=dtype)

        return construct

    ops = (MAXIMUM, MINIMUM, MAXIMUM_PROPAGATE, MINIMUM_PROPAGATE, FMA, FENCE, QUOTIENT)
    ops += (EXP_APPROXIMATE, WIDEN)
    ops += (
        SUBTRACT,
        ROUND_BFLOAT16,
        WRAP_INT32,
        *_COMPARISONS,
        *SUBGROUP.values(),
        *_CLUSTER,
        *PAIR_EXTREMUM.values(),
        *WIDENED_EXTREMUM.values(),
        *FUNCTIONS.values(),
        *SCALEF.values(),
        PREFETCH,
        GRID_DEPENDENCY,
    )
    return types.SimpleNamespace(**{op.split(".")[1]: constructor(op) for op in ops})


def _propagating(wins: Any, keep: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``(a > b ? a : b) if a == a else a``: a NaN on either side is the result.

    The inner selection is the processor's own maximum, which gives ``b`` where either is NaN.
    """

    def lower(call: Any) -> Any:
        a, b = call.args
        x, y = tirx.Var("x", a.ty), tirx.Var("y", b.ty)
        extremum = tirx.Select(wins(x, y), x, y)
        body = tirx.Select(tirx.EQ(x, x), extremum, x)
        return tirx.Let(x, keep(a), tirx.Let(y, keep(b), body))

    return lower


_CUDA_EXTREMA = {
    MAXIMUM: "max",
    MAXIMUM_PROPAGATE: "max",
    MINIMUM: "min",
    MINIMUM_PROPAGATE: "min",
}


def _keep(value: Any) -> Any:
    """A value that TVM's analyzer will not substitute for a variable bound to it.

    It does so with pure values, and then takes ``x == x`` for true. What loads may become pure,
    where a guard around the load is proved false.
    """
    dtype = value.ty.dtype
    if dtype.lanes != 1:
        return value
    return tirx.call_extern(value.ty, _C_NAMES[str(dtype)], value)


def _llvm_keep(value: Any) -> Any:
    return tirx.call_llvm_intrin(value.ty, "llvm.arithmetic.fence", value)


# A functional cast to its own type is the identity in C dialects.
_C_NAMES = {"float32": "float", "float16": "half"}


_COMPARISONS = {EQUAL: tirx.EQ, NOT_EQUAL: tirx.NE, LESS: tirx.LT, LESS_EQUAL: tirx.LE}


def _node(node: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda call: node(*call.args)


def _unequal(call: Any) -> Any:
    return tirx.Not(tirx.EQ(*call.args))


# Result types that are not the first argument's.
_FIXED = {
    WRAP_INT32: "int32",
    PREFETCH: "void",
    GRID_DEPENDENCY: "void",
    WIDEN: "float32",
    **dict.fromkeys(_COMPARISONS, "bool"),
    **dict.fromkeys(_CLUSTER, "void"),
    **dict.fromkeys(PAIR_EXTREMUM.values(), "uint32"),
    **dict.fromkeys(WIDENED_EXTREMUM.values(), "float32"),
}


def _metal_collective(combiner: str) -> Callable[[Any], Any]:
    function = {"add": "simd_sum", "maximum": "simd_max", "minimum": "simd_min"}[combiner]
    return lambda call: tirx.call_extern(call.ty, function, *call.args)


def _rounding(keep: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add half a unit less the tie-breaking bit to the bits, cut 16 of them; a NaN is canonical."""

    def lower(call: Any) -> Any:
        (value,) = call.args
        lanes = value.ty.dtype.lanes
        words = _vector("uint32", lanes)
        x, bits = tirx.Var("x", value.ty), tirx.Var("bits", words)

        def word(number: int) -> Any:
            return _splat(tirx.IntImm("uint32", number), lanes)

        even = tirx.bitwise_and(tirx.shift_right(bits, word(16)), word(1))
        cut = tirx.bitwise_and(bits + word(0x7FFF) + even, word(0xFFFF0000))
        nan = _splat(tirx.FloatImm("float32", math.nan), lanes)
        near = tirx.Select(tirx.EQ(x, x), tirx.reinterpret(str(value.ty.dtype), cut), nan)
        return tirx.Let(x, keep(value), tirx.Let(bits, tirx.reinterpret(words, x), near))

    return lower


def _wrap(call: Any) -> Any:
    return tirx.Cast(str(call.ty.dtype), call.args[0])


def _vector(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _splat(value: Any, lanes: int) -> Any:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def _plain(extremum: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda call: extremum(call.args[0], call.args[1])


def _prefetch(call: Any) -> Any:
    return tirx.call_intrin("void", "tirx.prefetch", *call.args)


def _fma(call: Any) -> Any:
    return tirx.call_intrin(call.ty, "tirx.fma", *call.args)


def _c_fma(call: Any) -> Any:
    return tirx.call_extern(call.ty, "fma", *call.args)


def _llvm_fma(call: Any) -> Any:
    return tirx.call_llvm_pure_intrin(call.ty, "llvm.fma", *call.args)


def _quotient(call: Any) -> Any:
    """An infinite or NaN first estimate is the result: its remainder would be NaN."""
    a, divisor, reciprocal = call.args
    dtype = str(call.ty.dtype)
    dividend, estimate = tirx.Var("dividend", call.ty), tirx.Var("estimate", call.ty)
    minus_one = tirx.FloatImm(dtype, -1.0)
    remainder = compat.call(FMA, estimate, divisor, dividend * minus_one, dtype=dtype)
    nearer = compat.call(FMA, remainder * minus_one, reciprocal, estimate, dtype=dtype)
    finite = compat.call(LESS, tirx.abs(estimate), tirx.FloatImm(dtype, math.inf), dtype="bool")
    chosen = tirx.Select(finite, nearer, estimate)
    return tirx.Let(dividend, a, tirx.Let(estimate, dividend * reciprocal, chosen))


def _llvm_fence(call: Any) -> Any:
    return tirx.call_llvm_pure_intrin(call.ty, "llvm.arithmetic.fence", *call.args)

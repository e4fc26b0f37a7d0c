"""exp, exp2, log, log2, tanh and erf of FP32 as branch-free polynomials, for LLVM's vectors.

LLVM turns a vector of ``llvm.exp`` into calls of ``expf``, one a lane. Here each function is an
operator of ours that is lowered, at any number of lanes, to a range reduction, a polynomial and
selections. Every multiply-add is written as one (``llvm.fma``), every other product is fenced and
every input too, so that nothing is left for a code generator to contract: a value's bits do not
depend on the lanes it was computed in, nor on the expression around it.

Polynomials are minimax fits of the relative error of the result, with coefficients rounded to FP32
one after the other, lowest first, the rest being fitted again each time
(``scripts/elementary_functions.py``, which also measures the errors). Range reductions are the
classical ones of Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapters 5,
6 and 13.

A processor with AVX-512 multiplies by a power of two in one instruction, ``vscalefps``; for it the
functions that end so have a second operator, whose values have the same bits.

NaN gives NaN. Results beyond FP32 overflow to inf, subnormal results and inputs are exact to the
same bound, and signed zeros are kept where the function is odd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx

__all__ = ["FUNCTIONS", "SCALEF", "ULP", "register_elementary"]

EXP, EXP2 = "tilex.exp", "tilex.exp2"
LOG, LOG2 = "tilex.log", "tilex.log2"
TANH, ERF = "tilex.tanh", "tilex.erf"

# TVM's operator -> ours.
FUNCTIONS = {
    "tirx.exp": EXP,
    "tirx.exp2": EXP2,
    "tirx.log": LOG,
    "tirx.log2": LOG2,
    "tirx.tanh": TANH,
    "tirx.erf": ERF,
}

# Ours -> the same for processors with AVX-512.
SCALEF = {op: f"{op}_scalef" for op in (EXP, EXP2, TANH, ERF)}

# Bound of the error in units in the last place of the FP32 result.
ULP = {EXP: 1.0, EXP2: 1.0, LOG: 1.0, LOG2: 1.0, TANH: 1.6, ERF: 1.2}

# Rounds to the nearest integer n when added, as one unit of the last place is then 1, and leaves
# n + 254, twice the bias of an exponent, in the last 9 bits: those of 1.5 * 2**23 are zero.
_ROUND = 12582912.0 + 254.0
_LOG2_E = 1.4426950408889634
# ln 2 in two parts; an integer of 8 bits times the first is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
_EXP = (float.fromhex("0x1.fffffcp-2"), float.fromhex("0x1.555492p-3"),
        float.fromhex("0x1.5558bp-5"), float.fromhex("0x1.12398ep-7"),
        float.fromhex("0x1.6a4d6p-10"))  # fmt: skip
_EXP2 = (float.fromhex("0x1.62e43p-1"), float.fromhex("0x1.ebfbdcp-3"),
         float.fromhex("0x1.c6af7ap-5"), float.fromhex("0x1.3b2dd6p-7"),
         float.fromhex("0x1.5f0964p-10"), float.fromhex("0x1.4176b2p-13"))  # fmt: skip
_LOG = (float.fromhex("0x1.555546p-2"), float.fromhex("-0x1.fffff8p-3"),
        float.fromhex("0x1.99a524p-3"), float.fromhex("-0x1.555fbep-3"),
        float.fromhex("0x1.233318p-3"), float.fromhex("-0x1.fbbf34p-4"),
        float.fromhex("0x1.e6d1b8p-4"), float.fromhex("-0x1.e02114p-4"),
        float.fromhex("0x1.16a74ap-4"))  # fmt: skip
# Lanes -> LLVM's intrinsic and the type of its mask; the widest one is told how to round, too.
_SCALEF_INTRINSIC = {
    16: ("llvm.x86.avx512.mask.scalef.ps.512", "int16"),
    8: ("llvm.x86.avx512.mask.scalef.ps.256", "int8"),
    4: ("llvm.x86.avx512.mask.scalef.ps.128", "int8"),
}
_CURRENT_ROUNDING = 4
_TANH_SPLIT = 0.55
_TANH = (float.fromhex("-0x1.555554p-2"), float.fromhex("0x1.111084p-3"),
         float.fromhex("-0x1.b9f4bep-5"), float.fromhex("0x1.63d27ap-6"),
         float.fromhex("-0x1.0d6644p-7"), float.fromhex("0x1.1e6bbap-9"))  # fmt: skip
_ERF_SPLIT = 0.92
_ERF = (float.fromhex("0x1.06eba8p-3"), float.fromhex("-0x1.81273ep-2"),
        float.fromhex("0x1.ce2ce6p-4"), float.fromhex("-0x1.b7f71ap-6"),
        float.fromhex("0x1.53f224p-8"), float.fromhex("-0x1.a3515ep-11"),
        float.fromhex("0x1.4771fcp-14"))  # fmt: skip
# -log(1 - erf(t)) on [0.9, 4].
_ERFC = (float.fromhex("0x1.5d10f8p-13"), float.fromhex("0x1.20b752p+0"),
         float.fromhex("0x1.4621bap-1"), float.fromhex("0x1.aa7326p-4"),
         float.fromhex("-0x1.6d9cf6p-6"), float.fromhex("0x1.91cd74p-9"),
         float.fromhex("-0x1.9fb45ap-13"))  # fmt: skip


@dataclass(frozen=True)
class _Math:
    """FP32 arithmetic at one number of lanes, with bound intermediate values."""

    lanes: int
    scalef: bool = False

    @property
    def real(self) -> str:
        return "float32" if self.lanes == 1 else f"float32x{self.lanes}"

    @property
    def word(self) -> str:
        return "int32" if self.lanes == 1 else f"int32x{self.lanes}"

    def number(self, value: float) -> Any:
        return self._splat(tirx.FloatImm("float32", value))

    def integer(self, value: int) -> Any:
        return self._splat(tirx.IntImm("int32", value))

    def _splat(self, value: Any) -> Any:
        return value if self.lanes == 1 else tirx.Broadcast(value, self.lanes)

    def bind(self, value: Any, body: Callable[[Any], Any]) -> Any:
        """``body`` of a variable that holds ``value``."""
        variable = tirx.Var("t", value.ty)
        return tirx.Let(variable, value, body(variable))

    def opaque(self, value: Any) -> Any:
        """A value that is neither contracted into a consumer nor seen through by an analyzer."""
        return tirx.call_llvm_intrin(value.ty, "llvm.arithmetic.fence", value)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c`` rounded once."""
        return compat.call("tilex.fma", a, b, c, dtype=self.real)

    def subtract(self, a: Any, b: Any) -> Any:
        """``a - b``, which TVM does not simplify."""
        return compat.call("tilex.subtract", a, b, dtype=self.real)

    def less(self, a: Any, b: Any) -> Any:
        """IEEE comparison, false for NaN."""
        condition = "bool" if self.lanes == 1 else f"boolx{self.lanes}"
        return compat.call("tilex.less", a, b, dtype=condition)

    def choose(self, condition: Any, a: Any, b: Any) -> Any:
        return tirx.Select(condition, a, b)

    def least(self, a: Any, bound: float) -> Any:
        """``min(a, bound)``; NaN stays."""
        limit = self.number(bound)
        return self.choose(self.less(limit, a), limit, a)

    def most(self, a: Any, bound: float) -> Any:
        """``max(a, bound)``; NaN stays."""
        limit = self.number(bound)
        return self.choose(self.less(a, limit), limit, a)

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """By Horner's rule, lowest power first."""
        value = self.number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.number(coefficient))
        return value

    def bits(self, x: Any) -> Any:
        return tirx.reinterpret(self.word, x)

    def real_bits(self, x: Any) -> Any:
        return tirx.reinterpret(self.real, x)

    def scaled(self, value: Any, n: Any, rounded: Any) -> Any:
        """``value * 2**n``, rounded once; ``rounded`` is n + :data:`_ROUND`."""
        if self.scalef and self.lanes in _SCALEF_INTRINSIC:
            return self._scaled_at_once(value, n)
        return self._scaled_twice(value, rounded)

    def _scaled_at_once(self, value: Any, n: Any) -> Any:
        intrinsic, mask_type = _SCALEF_INTRINSIC[self.lanes]
        arguments = [value, n, self.number(0.0), tirx.IntImm(mask_type, -1)]
        if self.lanes == 16:
            arguments.append(tirx.IntImm("int32", _CURRENT_ROUNDING))
        return tirx.call_llvm_pure_intrin(value.ty, intrinsic, *arguments)

    def _scaled_twice(self, value: Any, rounded: Any) -> Any:
        """As two products.

        n + 254 is halved, so that each half is the biased exponent of a factor in range: the result
        overflows or becomes subnormal in the second product alone, with one rounding. Shifting an
        exponent into its place drops the bits above it.
        """

        def factor(exponent: Any) -> Any:
            return self.real_bits(tirx.shift_left(exponent, self.integer(23)))

        def by(bits: Any) -> Any:
            def by_half(half: Any) -> Any:
                first = self.opaque(value * factor(half))
                return self.opaque(first * factor(bits - half))

            return self.bind(tirx.shift_right(bits, self.integer(1)), by_half)

        return self.bind(self.bits(rounded), by)

    def expm(self, x: Any) -> Any:
        """Exp of a bound value in [-104, 89], or NaN."""

        def of(z: Any) -> Any:
            n = self.subtract(z, self.number(_ROUND))
            return self.bind(
                n, lambda n: self.bind(reduced(n), lambda r: self.scaled(value(r), n, z))
            )

        def reduced(n: Any) -> Any:
            near = self.fma(n, self.number(-_LN2_HIGH), x)
            return self.fma(n, self.number(-_LN2_LOW), near)

        def value(r: Any) -> Any:
            one = self.number(1.0)
            slope = self.fma(self.polynomial(r, _EXP), r, one)
            return self.fma(slope, r, one)

        return self.bind(self.fma(x, self.number(_LOG2_E), self.number(_ROUND)), of)


def _exp(math_: _Math, x: Any) -> Any:
    clamped = math_.least(math_.most(x, -104.0), 89.0)
    return math_.bind(clamped, math_.expm)


def _exp2(math_: _Math, x: Any) -> Any:
    def of(clamped: Any) -> Any:
        rounded = math_.fma(clamped, math_.number(1.0), math_.number(_ROUND))
        return math_.bind(rounded, lambda z: value(clamped, z))

    def value(clamped: Any, z: Any) -> Any:
        n = math_.subtract(z, math_.number(_ROUND))
        return math_.bind(n, lambda n: math_.bind(math_.subtract(clamped, n), of_rest(n, z)))

    def of_rest(n: Any, z: Any) -> Callable[[Any], Any]:
        return lambda r: math_.scaled(near_one(r), n, z)

    def near_one(r: Any) -> Any:
        return math_.fma(math_.polynomial(r, _EXP2), r, math_.number(1.0))

    return math_.bind(math_.least(math_.most(x, -151.0), 129.0), of)


def _logarithm(math_: _Math, x: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """``combine(e, f, g)`` with x = 2**e * m, sqrt(1/2) <= m < sqrt(2), f = m - 1, g = ln m - f."""
    smallest, scale = math_.number(2.0**-126), math_.number(2.0**23)
    tiny = math_.less(x, smallest)
    root = math_.integer(0x3F3504F3)  # sqrt(1/2)

    def of(normal: Any) -> Any:
        return math_.bind(math_.bits(normal) - root, split)

    def split(bits: Any) -> Any:
        exponent = tirx.Cast(math_.real, tirx.shift_right(bits, math_.integer(23)))
        e = math_.subtract(exponent, math_.choose(tiny, math_.number(23.0), math_.number(0.0)))
        mantissa = math_.real_bits(tirx.bitwise_and(bits, math_.integer(0x7FFFFF)) + root)
        f = math_.subtract(mantissa, math_.number(1.0))
        return math_.bind(e, lambda e: math_.bind(f, lambda f: value(e, f)))

    def value(e: Any, f: Any) -> Any:
        inner = math_.fma(math_.polynomial(f, _LOG), f, math_.number(-0.5))
        square = math_.opaque(f * f)
        return math_.bind(math_.opaque(inner * square), lambda g: combine(e, f, g))

    normal = math_.choose(tiny, math_.opaque(x * scale), x)
    infinity = math_.number(math.inf)
    zero = math_.number(0.0)
    positive = tirx.bitwise_and(math_.less(zero, x), math_.less(x, infinity))
    negative = math_.choose(math_.less(x, zero), math_.number(math.nan), x)
    nothing = tirx.bitwise_or(math_.less(x, zero), math_.less(zero, x))
    # Neither: 0 of either sign, or NaN, which adding keeps.
    limit = math_.choose(nothing, negative, math_.subtract(x, infinity))
    return math_.choose(positive, math_.bind(normal, of), limit)


def _log(math_: _Math, x: Any) -> Any:
    def combine(e: Any, f: Any, g: Any) -> Any:
        low = math_.fma(e, math_.number(_LN2_LOW), g)
        return math_.fma(e, math_.number(_LN2_HIGH), math_.opaque(f + low))

    return _logarithm(math_, x, combine)


def _log2(math_: _Math, x: Any) -> Any:
    def combine(e: Any, f: Any, g: Any) -> Any:
        high = math_.number(_LOG2_E)
        low = math_.number(1.925963033500e-08)  # log2 e less its FP32 value
        rest = math_.fma(g, high, math_.opaque(f * low))
        return math_.opaque(e + math_.fma(f, high, rest))

    return _logarithm(math_, x, combine)


def _odd(
    math_: _Math,
    x: Any,
    split: float,
    near: Callable[[Any], Any],
    far: Callable[[Any], Any],
) -> Any:
    """An odd function: ``near(|x|)`` below ``split``, ``far(|x|)`` above, with the sign of x."""
    sign = tirx.bitwise_and(math_.bits(x), math_.integer(-(1 << 31)))

    def of(t: Any) -> Any:
        value = math_.choose(math_.less(t, math_.number(split)), near(t), far(t))
        return math_.real_bits(tirx.bitwise_or(math_.bits(value), sign))

    return math_.bind(tirx.abs(x), of)


def _tanh(math_: _Math, x: Any) -> Any:
    def near(t: Any) -> Any:
        def inside(s: Any) -> Any:
            slope = math_.opaque(math_.polynomial(s, _TANH) * s)
            return math_.fma(slope, t, t)

        return math_.bind(math_.opaque(t * t), inside)

    def far(t: Any) -> Any:
        one = math_.number(1.0)
        twice = math_.least(math_.opaque(t + t), 20.0)
        grown = math_.bind(twice, math_.expm)
        quotient = math_.number(2.0) / math_.opaque(grown + one)
        return math_.subtract(one, quotient)

    return _odd(math_, x, _TANH_SPLIT, near, far)


def _erf(math_: _Math, x: Any) -> Any:
    def near(t: Any) -> Any:
        square = math_.opaque(t * t)
        return math_.bind(square, lambda s: math_.fma(math_.polynomial(s, _ERF), t, t))

    def far(t: Any) -> Any:
        def of(clamped: Any) -> Any:
            decay = math_.subtract(math_.number(0.0), math_.polynomial(clamped, _ERFC))
            return math_.subtract(math_.number(1.0), math_.bind(decay, math_.expm))

        return math_.bind(math_.least(t, 4.0), of)

    return _odd(math_, x, _ERF_SPLIT, near, far)


_LOWERED: dict[str, Callable[[_Math, Any], Any]] = {
    EXP: _exp,
    EXP2: _exp2,
    LOG: _log,
    LOG2: _log2,
    TANH: _tanh,
    ERF: _erf,
}


def register_elementary() -> None:
    """Register the operators: polynomials on LLVM, TVM's own function on any other target."""
    for original, op in FUNCTIONS.items():
        _register(op, original, _polynomial(op))
        if op in SCALEF:
            _register(SCALEF[op], original, _polynomial(op, scalef=True))


def _register(op: str, original: str, polynomial: Callable[[Any], Any]) -> None:
    compat.register_op(op, "elementary function", effect=compat.PURE, vectorizable=True)
    compat.register_intrin_lowering(op, target="llvm", f=polynomial, level=99)
    compat.register_intrin_lowering(op, target="default", f=_stock(original), level=99)


def _polynomial(op: str, *, scalef: bool = False) -> Callable[[Any], Any]:
    rule = _LOWERED[op]

    def lower(call: Any) -> Any:
        math_ = _Math(call.ty.dtype.lanes, scalef)
        (x,) = call.args
        return math_.bind(math_.opaque(x), lambda bound: rule(math_, bound))

    return lower


def _stock(original: str) -> Callable[[Any], Any]:
    return lambda call: tirx.call_intrin(call.ty, original, *call.args)

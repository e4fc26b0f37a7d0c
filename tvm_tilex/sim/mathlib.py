"""Math and integer builtins: one NumPy function each, with the argument rule of the language.

``float`` functions are NumPy's (at most a few units in the last place from exact); ``half`` and
``bfloat`` functions compute in ``float`` and round once. ``fast::`` and ``precise::`` name the same
function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "Builtin"]


@dataclass(frozen=True)
class Builtin:
    """A builtin: ``domain`` is ``f`` (floats), ``n`` (any arithmetic) or ``i`` (integers).

    ``result`` is ``same`` or ``bool``.
    """

    function: Callable[..., Any]
    arity: int
    domain: str = "f"
    result: str = "same"


def _exp10(x: Any) -> Any:
    return np.power(x.dtype.type(10), x)


def _rsqrt(x: Any) -> Any:
    return (1.0 / np.sqrt(np.asarray(x, np.float64))).astype(x.dtype)[()]


def _round(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)


def _fma(a: Any, b: Any, c: Any) -> Any:
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return wide.astype(np.result_type(a, b, c))[()]


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return _minimum(_maximum(x, low), high)


def _maximum(a: Any, b: Any) -> Any:
    return np.fmax(a, b)


def _minimum(a: Any, b: Any) -> Any:
    return np.fmin(a, b)


def _mix(x: Any, y: Any, a: Any) -> Any:
    return x + (y - x) * a


def _saturate(x: Any) -> Any:
    return _clamp(x, x.dtype.type(0), x.dtype.type(1))


def _sign(x: Any) -> Any:
    return np.where(np.isnan(x), x.dtype.type(0), np.sign(x))


def _step(edge: Any, x: Any) -> Any:
    return np.where(x < edge, x.dtype.type(0), x.dtype.type(1))


def _fract(x: Any) -> Any:
    below = np.nextafter(np.ones((), x.dtype), np.zeros((), x.dtype))
    return np.minimum(x - np.floor(x), below)


def _fmod(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def _popcount(x: Any) -> Any:
    # Of a signed operand NumPy counts the bits of the absolute value.
    return np.bitwise_count(np.asarray(x).view(f"u{x.dtype.itemsize}")).astype(x.dtype)[()]


def _leading_zeros(x: Any) -> Any:
    dtype = x.dtype
    bits = 8 * dtype.itemsize
    rest = np.asarray(x).astype(f"u{dtype.itemsize}", copy=True)
    count = np.full(rest.shape, bits, np.int64)
    for _ in range(bits):
        count -= rest != 0
        rest = rest >> rest.dtype.type(1)
    return count.astype(dtype)[()]


def _trailing_zeros(x: Any) -> Any:
    dtype = x.dtype
    unsigned = np.asarray(x).astype(f"u{dtype.itemsize}")
    below = (unsigned & (~unsigned + unsigned.dtype.type(1))) - unsigned.dtype.type(1)
    return np.bitwise_count(below).astype(dtype)[()]


def _unary(function: Callable[..., Any]) -> Builtin:
    return Builtin(function, 1)


FUNCTIONS: dict[str, Builtin] = {
    **{
        name: _unary(getattr(np, numpy_name))
        for name, numpy_name in {
            "exp": "exp",
            "exp2": "exp2",
            "log": "log",
            "log2": "log2",
            "log10": "log10",
            "sqrt": "sqrt",
            "sin": "sin",
            "cos": "cos",
            "tan": "tan",
            "asin": "arcsin",
            "acos": "arccos",
            "atan": "arctan",
            "sinh": "sinh",
            "cosh": "cosh",
            "tanh": "tanh",
            "asinh": "arcsinh",
            "acosh": "arccosh",
            "atanh": "arctanh",
            "floor": "floor",
            "ceil": "ceil",
            "trunc": "trunc",
            "rint": "rint",
            "fabs": "abs",
        }.items()
    },
    "exp10": _unary(_exp10),
    "rsqrt": _unary(_rsqrt),
    "round": _unary(_round),
    "fract": _unary(_fract),
    "saturate": _unary(_saturate),
    "sign": _unary(_sign),
    "pow": Builtin(np.power, 2),
    "powr": Builtin(np.power, 2),
    "fmod": Builtin(_fmod, 2),
    "atan2": Builtin(np.arctan2, 2),
    "copysign": Builtin(np.copysign, 2),
    "step": Builtin(_step, 2),
    "fmax": Builtin(_maximum, 2),
    "fmin": Builtin(_minimum, 2),
    "fma": Builtin(_fma, 3),
    "mix": Builtin(_mix, 3),
    "isnan": Builtin(np.isnan, 1, result="bool"),
    "isinf": Builtin(np.isinf, 1, result="bool"),
    "isfinite": Builtin(np.isfinite, 1, result="bool"),
    "signbit": Builtin(np.signbit, 1, result="bool"),
    "max": Builtin(_maximum, 2, domain="n"),
    "min": Builtin(_minimum, 2, domain="n"),
    "clamp": Builtin(_clamp, 3, domain="n"),
    "abs": Builtin(np.abs, 1, domain="n"),
    "popcount": Builtin(_popcount, 1, domain="i"),
    "clz": Builtin(_leading_zeros, 1, domain="i"),
    "ctz": Builtin(_trailing_zeros, 1, domain="i"),
}

"""Divides a whole row by one number without a division an element.

Before::

    for e: out[e] = f(e) / d[0]                # d does not depend on e

After::

    divisor[0] = d[0]
    reciprocal[0] = 1 / divisor[0]
    if 2**-100 < divisor[0] < 2**100:
        for e: out[e] = tilex.quotient(f(e), divisor[0], reciprocal[0])
    else:
        for e: out[e] = f(e) / d[0]

where ``quotient(f, d, r)`` is ``q = f * r; m = fma(q, d, -f); fma(-m, r, q)``: for a correctly
rounded reciprocal r this is the correctly rounded quotient (Markstein, "Computation of elementary
functions on the IBM RISC System/6000 processor", 1990; Cornea, Harrison and Tang, 2002), because
the remainder m is exact. It is not exact below about 2**-101, where m would be subnormal: there
the last bit may differ. An infinite or NaN q is the result itself, so that infinities, NaN and
signed zeros come out as the division gives them; a quotient within an ulp of overflow may become
infinite. The condition is uniform over a program's workers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import impure_call, mentions
from tvm_tilex.tirx.compat import call, structural_equal, structural_map, tirx
from tvm_tilex.tirx.register import LESS, QUOTIENT
from tvm_tilex.transform.common import sequence

__all__ = ["InvariantDivision", "invariant_division"]

_FLOAT = "float32"
_LIMIT = 100


@dataclass(frozen=True)
class InvariantDivision:
    """A domain's value with its divisions refined.

    ``prepare`` stores the reciprocals; ``value`` is right where ``safe`` holds.
    """

    prepare: Any
    safe: Any
    value: Any


def invariant_division(
    value: Any, variables: tuple[Any, ...], *, exact: bool = True
) -> InvariantDivision | None:
    """Refine the FP32 divisions of ``value`` whose divisor depends on none of ``variables``.

    None where there is none. A constant divisor is left to the device compiler. Where the quotient
    need not be ``exact``, it is ``f * r``, off by at most 1.5 units in the last place.
    """
    divisors: list[Any] = []
    places: list[tuple[Any, Any]] = []

    def refined(division: Any) -> Any:
        if not _eligible(division, variables):
            return division
        known = [structural_equal(divisor, division.b) for divisor in divisors]
        at = known.index(True) if any(known) else len(divisors)
        if at == len(divisors):
            divisors.append(division.b)
            places.append((_scalar(f"divisor{at}"), _scalar(f"reciprocal{at}")))
        divisor, reciprocal = (buffer[_zero()] for buffer in places[at])
        if not exact:
            return division.a * reciprocal
        return call(QUOTIENT, division.a, divisor, reciprocal, dtype=_FLOAT)

    found = structural_map(value, (tirx.Div, refined), order="post")
    if not divisors:
        return None
    prepare, safe = [], []
    for value_of, (divisor, reciprocal) in zip(divisors, places, strict=True):
        quotient = tirx.Div(tirx.FloatImm(_FLOAT, 1.0), divisor[_zero()])
        prepare += [
            tirx.AllocBuffer(divisor),
            tirx.BufferStore(divisor, value_of, [_zero()]),
            tirx.AllocBuffer(reciprocal),
            tirx.BufferStore(reciprocal, quotient, [_zero()]),
        ]
        safe.append(_within(divisor[_zero()]))
    return InvariantDivision(sequence(*prepare), functools.reduce(tirx.And, safe), found)


def _scalar(name: str) -> Any:
    return tirx.decl_buffer((1,), _FLOAT, name, scope="local", layout=None)


def _eligible(division: Any, variables: tuple[Any, ...]) -> bool:
    divisor = division.b
    if str(division.ty.dtype) != _FLOAT or isinstance(divisor, tirx.FloatImm):
        return False
    if impure_call(divisor) is not None:
        return False
    return not any(mentions(divisor, variable) for variable in variables)


def _within(divisor: Any) -> Any:
    low, high = (tirx.FloatImm(_FLOAT, 2.0**exponent) for exponent in (-_LIMIT, _LIMIT))
    above = call(LESS, low, divisor, dtype="bool")
    return tirx.And(above, call(LESS, divisor, high, dtype="bool"))


def _zero() -> Any:
    return tirx.IntImm("int32", 0)

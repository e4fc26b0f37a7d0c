"""Elementwise operators with the arithmetic of the Metal Shading Language."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.errors import IntegerDivisionByZeroError, ShiftWidthError
from tvm_tilex.sim.types import ScalarType
from tvm_tilex.sim.values import Tainted, apply

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.operands import Run
    from tvm_tilex.sim.syntax import Node

__all__ = ["RELATIONS", "binary_run", "convert_value", "converter", "mapped_run"]

RELATIONS = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_PLAIN = {
    "+": ("add", np.add),
    "-": ("subtract", np.subtract),
    "*": ("multiply", np.multiply),
    "&": ("and", np.bitwise_and),
    "|": ("or", np.bitwise_or),
    "^": ("xor", np.bitwise_xor),
}


def binary_run(operator: str, kind: ScalarType, left: Run, right: Run, node: Node) -> Run:
    """Return the closure of ``left operator right`` on operands already of type ``kind``.

    Operands may be components or tuples of them (both sides alike). Integers wrap; division
    truncates and faults on zero; a shift faults past the width of ``kind``.
    """
    if operator in RELATIONS:
        return _elementwise(RELATIONS[operator], f"{kind.name}.compare", left, right)
    if operator in _PLAIN:
        name, function = _PLAIN[operator]
        return _elementwise(function, f"{kind.name}.{name}", left, right)
    if operator == "/" and kind.kind == "f":
        return _elementwise(np.divide, f"{kind.name}.divide", left, right)
    if operator in ("<<", ">>"):
        function = np.left_shift if operator == "<<" else np.right_shift
        return _guarded(function, f"{kind.name}.shift", left, right, _shift_guard(kind, node))
    function = _quotient if operator == "/" else np.fmod
    name = "divide" if operator == "/" else "remainder"
    return _guarded(function, f"{kind.name}.{name}", left, right, _zero_guard(node))


def mapped_run(function: Callable[..., Any], runs: list[Run], key: str) -> Run:
    """Return the closure that applies ``function`` to the operands component by component."""

    def run(machine: Machine) -> Any:
        values = [r(machine) for r in runs]
        if isinstance(values[0], tuple):
            machine.arithmetic[key] += machine.active * len(values[0])
            return tuple(apply(function, *parts) for parts in zip(*values, strict=True))
        machine.arithmetic[key] += machine.active
        return apply(function, *values)

    return run


def _elementwise(function: Callable[..., Any], key: str, left: Run, right: Run) -> Run:
    def run(machine: Machine) -> Any:
        a, b = left(machine), right(machine)
        if a.__class__ is tuple:
            machine.arithmetic[key] += machine.active * len(a)
            return tuple(apply(function, x, y) for x, y in zip(a, b, strict=True))
        machine.arithmetic[key] += machine.active
        if a.__class__ is Tainted or b.__class__ is Tainted:
            return apply(function, a, b)
        return function(a, b)

    return run


def _guarded(
    function: Callable[..., Any],
    key: str,
    left: Run,
    right: Run,
    guard: Callable[[Machine, Any], Any],
) -> Run:
    def one(machine: Machine, a: Any, b: Any) -> Any:
        return apply(function, a, guard(machine, b))

    def run(machine: Machine) -> Any:
        a, b = left(machine), right(machine)
        if a.__class__ is tuple:
            machine.arithmetic[key] += machine.active * len(a)
            return tuple(one(machine, x, y) for x, y in zip(a, b, strict=True))
        machine.arithmetic[key] += machine.active
        return one(machine, a, b)

    return run


def _zero_guard(node: Node) -> Callable[[Machine, Any], Any]:
    def guard(machine: Machine, divisor: Any) -> Any:
        divisor = machine.defined(divisor, node, "a divisor")
        zero = np.equal(divisor, 0)
        if not np.any(zero):
            return divisor
        bad = np.logical_and(zero, machine.active_array())
        if bad.any():
            machine.fault(IntegerDivisionByZeroError, node, "integer division by zero", bad)
        return np.where(zero, divisor.dtype.type(1), divisor)

    return guard


def _shift_guard(kind: ScalarType, node: Node) -> Callable[[Machine, Any], Any]:
    width = kind.bits

    def guard(machine: Machine, amount: Any) -> Any:
        amount = machine.defined(amount, node, "a shift amount")
        outside = np.logical_or(np.less(amount, 0), np.greater_equal(amount, width))
        if not np.any(outside):
            return amount
        bad = np.logical_and(outside, machine.active_array())
        if bad.any():
            lane = int(np.argmax(bad.reshape(-1)))
            value = np.broadcast_to(amount, machine.shape).reshape(-1)[lane]
            machine.fault(
                ShiftWidthError, node, f"shift of a {width}-bit {kind.name} by {int(value)}", lane
            )
        return np.where(outside, amount.dtype.type(0), amount)

    return guard


def _quotient(a: Any, b: Any) -> Any:
    """Return the quotient truncated toward zero, as C++ divides."""
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    return np.floor_divide(np.subtract(a, np.fmod(a, b)), b)


def converter(source: ScalarType, target: ScalarType) -> Callable[[Any], Any] | None:
    """Return the elementwise conversion between scalar types, None where it is the identity.

    Floats round to nearest even. A float goes to an integer by truncation, saturating at the ends
    and NaN to zero (the language leaves those undefined; this is what Apple GPUs do). Integers
    wrap.
    """
    if source == target:
        return None
    if target.kind == "b":
        return lambda value: np.not_equal(value, source.dtype.type(0))
    if source.kind == "f" and target.kind in "iu":
        return lambda value: _truncate(value, target.dtype)
    dtype = target.dtype
    return lambda value: value.astype(dtype)


def _truncate(value: Any, dtype: np.dtype) -> Any:
    info = np.iinfo(dtype)
    wide = np.trunc(
        np.nan_to_num(np.asarray(value, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    )
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high, 0.0, wide).astype(dtype)
    result = np.where(low, dtype.type(info.min), np.where(high, dtype.type(info.max), inside))
    return result.astype(dtype)[()]


def convert_value(source: ScalarType, target: ScalarType, value: Any) -> Any:
    """Convert a component or a tuple of components."""
    function = converter(source, target)
    if function is None:
        return value
    if isinstance(value, tuple):
        return tuple(apply(function, part) for part in value)
    return apply(function, value)

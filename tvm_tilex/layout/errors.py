"""Errors of the layout core, each a refusal that names the axis, the operand and the rule."""

from __future__ import annotations

from tvm_tilex.errors import LayoutError, ParseError

__all__ = [
    "ArithmeticRangeError",
    "CodomainError",
    "DomainError",
    "LayoutTextError",
    "OperatorError",
    "TracingError",
    "TransformError",
]


class DomainError(LayoutError):
    """A coordinate outside the declared domain; the message names the axis or the guard."""


class CodomainError(LayoutError):
    """A value outside the declared codomain; the message names the axis or the guard."""


class ArithmeticRangeError(LayoutError):
    """A subexpression that leaves signed 64-bit range, divides by zero or shifts too far."""


class TracingError(LayoutError):
    """An index function that branches on a symbol, loads, or has an effect."""


class TransformError(LayoutError):
    """A registered transform that is unknown, lacks a part, or contradicts its own evaluator."""


class OperatorError(LayoutError):
    """An operator of the layout algebra that has no layout as its answer; says why."""


class LayoutTextError(ParseError, LayoutError):
    """A layout text that does not parse or does not describe a map."""

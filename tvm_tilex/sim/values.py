"""Values of lanes: NumPy scalars where uniform, arrays broadcastable to (threadgroups, threads).

A vector is a tuple of such components. A :class:`Tainted` component is undefined in some lanes: it
was read from thread memory that nothing wrote. Undefinedness travels with the value through
arithmetic, as in a memory checker, and is a fault only where a result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Tainted", "apply", "merge", "undefined"]


class Tainted:
    """A component that is undefined where ``undef`` is true.

    ``origin`` names the variable and the line of the read that found nothing written.
    """

    __slots__ = ("origin", "undef", "value")

    def __init__(self, value: Any, undef: Any, origin: tuple[str, int]) -> None:
        self.value, self.undef, self.origin = value, undef, origin


def undefined(dtype: np.dtype, origin: tuple[str, int]) -> Tainted:
    """Return a component that is undefined in every lane."""
    return Tainted(np.zeros((), dtype)[()], np.True_, origin)


def apply(function: Callable[..., Any], *arguments: Any) -> Any:
    """Apply an elementwise function; the result is undefined where an argument is."""
    undef, origin, plain = None, None, []
    for argument in arguments:
        if argument.__class__ is Tainted:
            origin = origin or argument.origin
            undef = argument.undef if undef is None else np.logical_or(undef, argument.undef)
            plain.append(argument.value)
        else:
            plain.append(argument)
    result = function(*plain)
    if undef is None:
        return result
    return Tainted(result, undef, origin)


def merge(chosen: np.ndarray, new: Any, old: Any) -> Any:
    """Return ``new`` where ``chosen`` and ``old`` elsewhere, component by component."""
    if isinstance(new, tuple):
        return tuple(merge(chosen, n, o) for n, o in zip(new, old, strict=True))
    if new.__class__ is not Tainted and old.__class__ is not Tainted:
        return np.where(chosen, new, old)
    new_value, new_undef = _parts(new)
    old_value, old_undef = _parts(old)
    undef = np.where(chosen, new_undef, old_undef)
    value = np.where(chosen, new_value, old_value)
    if not undef.any():
        return value
    origin = new.origin if new.__class__ is Tainted else old.origin
    return Tainted(value, undef, origin)


def _parts(component: Any) -> tuple[Any, Any]:
    if component.__class__ is Tainted:
        return component.value, component.undef
    return component, np.False_

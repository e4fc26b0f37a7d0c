"""What an access outside a view's valid part means."""

from __future__ import annotations

from enum import Enum

__all__ = ["BoundsPolicy"]


class BoundsPolicy(Enum):
    """The policy for the invalid part of a view's domain.

    ``zero``
        A read gives zero; a write has no effect.
    ``predicate``
        The element is inactive: it has no value, and nothing computed from it is written.
    ``assume``
        The author promises that no access is invalid. Nothing is checked when code is emitted; a
        reference evaluation that meets an invalid point raises.
    """

    zero = "zero"
    predicate = "predicate"
    assume = "assume"

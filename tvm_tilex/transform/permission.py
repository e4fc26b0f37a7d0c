"""What a user allows to change in the numbers of an existing program, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.errors import OptionError
from tvm_tilex.ir.ops import ReductionPolicy

__all__ = ["Outcome", "Permission"]


@dataclass(frozen=True)
class Permission:
    """What the user allows to change in the numbers of an existing program.

    Parameters
    ----------
    policy
        ``"unordered_tree"`` allows any order and association of a reduction's elements, and the
        exact identity (-inf, +inf) where the program begins a maximum or minimum from the largest
        finite number, which differs for rows of nothing but infinities; ``"rescaled_tree"`` also
        sums of exponentials in parts relative to their own maxima. None allows nothing.
    accumulate
        ``"float32"`` also allows a float16 or bfloat16 reduction to keep its state in FP32 and to
        round it once. None leaves such a reduction alone.
    """

    policy: str | None = None
    accumulate: str | None = None

    def __post_init__(self) -> None:
        if self.policy not in (None, *(policy.value for policy in ReductionPolicy)):
            known = ", ".join(policy.value for policy in ReductionPolicy)
            raise OptionError(f"policy={self.policy!r}: use None or one of {known}")
        if self.accumulate not in (None, "float32"):
            raise OptionError(f"accumulate={self.accumulate!r}: use None or 'float32'")

    @property
    def refusal(self) -> str | None:
        """Why nothing may be reordered, or None."""
        if self.policy is None:
            return "numerical permission: no policy was stated"
        if ReductionPolicy[self.policy].ordered:
            return f"numerical permission: the policy {self.policy} fixes the order"
        return None


@dataclass(frozen=True)
class Outcome:
    """What happened to one function: ``reason`` says why it was left, and is None otherwise."""

    function: str
    reason: str | None

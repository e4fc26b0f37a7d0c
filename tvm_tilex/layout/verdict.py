"""Three-valued verdicts with reason, guard and witness. A verdict has no truth value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Generic, NoReturn, TypeVar

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.expr import Expr

__all__ = ["Answer", "Fact", "LayoutProof", "Verdict", "VerdictKind", "Witness"]


class VerdictKind(Enum):
    """Outcome of an analysis."""

    PROVEN = "PROVEN"
    DISPROVEN = "DISPROVEN"
    UNKNOWN = "UNKNOWN"

    def __bool__(self) -> NoReturn:
        raise LayoutError("a verdict kind has no truth value; compare with 'is'")


class Fact(str, Enum):
    """The four facts of a map."""

    TOTALITY = "totality"
    BOUNDS = "bounds"
    INJECTIVITY = "injectivity"
    SURJECTIVITY = "surjectivity"


@dataclass(frozen=True)
class Witness:
    """Evidence against a fact, re-evaluated on the original DAG before it is reported.

    ``points`` are domain points: one that fails (totality, bounds) or two that collide
    (injectivity). ``values`` are the outputs there. ``missing`` is a codomain point that is not
    reached (surjectivity). ``params`` holds the parameter values.
    """

    points: tuple[tuple[int, ...], ...] = ()
    values: tuple[tuple[int, ...], ...] = ()
    missing: tuple[int, ...] | None = None
    params: tuple[tuple[str, int], ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """PROVEN, DISPROVEN or UNKNOWN, with the reason; ``guard`` limits where it holds."""

    kind: VerdictKind
    reason: str
    guard: Expr | None = None
    witness: Witness | None = None

    def __bool__(self) -> NoReturn:
        raise LayoutError("a verdict has no truth value; look at .kind (UNKNOWN is not success)")

    @property
    def proven(self) -> bool:
        """Whether the fact holds without a further guard."""
        return self.kind is VerdictKind.PROVEN and self.guard is None

    @property
    def disproven(self) -> bool:
        """Whether the fact is refuted."""
        return self.kind is VerdictKind.DISPROVEN

    @property
    def unknown(self) -> bool:
        """Whether nothing is established."""
        return self.kind is VerdictKind.UNKNOWN

    def __str__(self) -> str:
        return f"{self.kind.value} ({self.reason})"


T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The value of a query and the verdict on it; ``value`` is None unless PROVEN."""

    verdict: Verdict
    value: T | None = None

    def __bool__(self) -> NoReturn:
        raise LayoutError("an answer has no truth value; look at .verdict.kind and .value")


@dataclass(frozen=True)
class LayoutProof:
    """The four facts of one map."""

    totality: Verdict
    bounds: Verdict
    injectivity: Verdict
    surjectivity: Verdict

    def __bool__(self) -> NoReturn:
        raise LayoutError("a proof has no truth value; look at its four verdicts")

    def fact(self, fact: Fact) -> Verdict:
        """Return the verdict on ``fact``."""
        verdict: Verdict = getattr(self, fact.value)
        return verdict

    def items(self) -> tuple[tuple[str, Verdict], ...]:
        """Return the facts in order, by name."""
        return tuple((f.name, getattr(self, f.name)) for f in fields(self))

    @property
    def all_proven(self) -> bool:
        """Whether the map is proved to be a bijection of its domain onto its codomain."""
        return all(verdict.proven for _, verdict in self.items())


def proven(reason: str, guard: Expr | None = None) -> Verdict:
    """Return a PROVEN verdict."""
    return Verdict(VerdictKind.PROVEN, reason, guard)


def disproven(reason: str, witness: Witness | None = None) -> Verdict:
    """Return a DISPROVEN verdict."""
    return Verdict(VerdictKind.DISPROVEN, reason, None, witness)


def unknown(reason: str) -> Verdict:
    """Return an UNKNOWN verdict."""
    return Verdict(VerdictKind.UNKNOWN, reason)

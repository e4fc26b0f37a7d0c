"""The only door from a map to emitted code that relies on an inverse, a bijection or an owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.verdict import Fact, LayoutProof, Verdict

__all__ = ["BIJECTION", "ProvenMap", "require_proven"]

BIJECTION = (Fact.TOTALITY, Fact.BOUNDS, Fact.INJECTIVITY, Fact.SURJECTIVITY)
_KEY = object()


@dataclass(frozen=True)
class ProvenMap:
    """A map with the facts that are proved of it; only :func:`require_proven` makes one."""

    map: LayoutMap
    proof: LayoutProof
    facts: tuple[Fact, ...]
    _key: object = None

    def __post_init__(self) -> None:
        if self._key is not _KEY:
            raise LayoutError("a ProvenMap comes from require_proven only")


def _next_step(verdict: Verdict, budget: int) -> str:
    if verdict.disproven:
        return "change the map"
    return f"budget {budget}; try a larger budget, a tighter domain, or a guard"


def require_proven(
    map: LayoutMap,
    facts: Iterable[Fact | str] = BIJECTION,
    budget: int = DEFAULT_BUDGET,
) -> ProvenMap:
    """Return ``map`` with its proof, or raise where a fact is not PROVEN.

    Raises
    ------
    ProofError
        Naming the fact, its verdict and reason, and what to try next. UNKNOWN is refused as
        DISPROVEN is: an unknown map may be stored and lowered as computation, not relied on.
    """
    try:
        wanted = tuple(Fact(fact) for fact in facts)
    except ValueError as error:
        raise LayoutError(f"{error}; facts are {', '.join(f.value for f in Fact)}") from None
    if not wanted:
        raise LayoutError("require_proven needs at least one fact")
    proof = prove(map, budget)
    for fact in wanted:
        verdict = proof.fact(fact)
        if verdict.proven:
            continue
        points = verdict.witness.points if verdict.witness is not None else ()
        where = f", e.g. at {points}" if points else ""
        raise ProofError(
            f"{fact.value} is {verdict.kind.value}: {verdict.reason}{where}"
            f" ({_next_step(verdict, budget)})\n  map: {_short(map)}"
        )
    return ProvenMap(map, proof, wanted, _KEY)


def _short(map: LayoutMap) -> str:
    try:
        text = str(map)
    except LayoutError:
        return f"{type(map).__name__} from {map.domain} to {map.codomain}"
    return text if len(text) <= 160 else text[:157] + "..."

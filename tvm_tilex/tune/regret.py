"""How much slower a cost model's choice is than the fastest of the same candidates."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section

__all__ = ["Regret", "model_regret"]


@dataclass(frozen=True)
class Regret:
    """``regret`` is the choice's value over the best's, minus one."""

    choice: Trial
    best: Trial
    regret: float


def model_regret(section: Section, metric: str) -> Regret | None:
    """The model's regret over a section's valid trials; None where no score was given."""
    scored = [
        (score, trial, value)
        for trial in section.trials
        if (value := trial.value(metric)) is not None
        and (score := (trial.facts or {}).get("score")) is not None
    ]
    if not scored:
        return None
    _, choice, chosen = min(scored, key=lambda found: (found[0], found[1].candidate))
    _, best, least = min(scored, key=lambda found: found[2])
    return Regret(choice, best, chosen / least - 1)

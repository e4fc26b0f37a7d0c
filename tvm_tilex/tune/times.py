"""Where the time of a section went: its phases by the clock, the stages of its trials added up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section

__all__ = ["Times", "times_of"]


@dataclass(frozen=True)
class Times:
    """Wall ``seconds`` of a section and of its ``phases`` in turn, and what was done in them.

    ``stages`` are seconds of every trial's compilation, validation and measurement, added up; on
    several devices, or beside compilers that run ahead, stages go on at once. ``trials`` counts the
    candidates that ran, ``refused`` those that the compiler declined, ``to_within`` the trials
    until one was within 2 % of the best of all (None without a valid one).
    """

    seconds: float
    phases: dict[str, float]
    stages: dict[str, float]
    trials: int
    refused: int
    to_within: int | None

    def describe(self) -> str:
        """One line."""
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.phases.items())
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.stages.items())
        near = "" if self.to_within is None else f", within 2 % of the best after {self.to_within}"
        return (
            f"{self.seconds:.1f} s ({phases}): {self.trials} trials ({stages} s){near}; "
            f"{self.refused} candidates refused"
        )


def times_of(section: Section, metric: str) -> Times:
    """The times of a section, as far as it went."""
    every = list(_everything(section))
    stages = {
        "compiling": sum(trial.compile_seconds or 0.0 for trial in every),
        "validating": sum(trial.validate_seconds or 0.0 for trial in every),
        "measuring": sum(trial.measure_seconds or 0.0 for trial in every),
    }
    refused = sum(trial.status == "refused" for trial in section.trials)
    ran = len(section.trials) - refused
    near = _trials_to_within(section, metric, 0.02)
    return Times(section.seconds, dict(section.phases), stages, ran, refused, near)


def _everything(section: Section) -> Iterator[Trial]:
    yield from section.trials
    if section.winner is not None:
        yield from (section.winner.trial, section.winner.default, *section.winner.rejected)


def _trials_to_within(section: Section, metric: str, part: float) -> int | None:
    values = [t.value(metric) for t in section.trials if t.status != "refused"]
    known = [value for value in values if value is not None]
    if not known:
        return None
    near = min(known) * (1 + part)
    return next(n for n, value in enumerate(values, 1) if value is not None and value <= near)

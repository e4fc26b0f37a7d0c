"""What is kept of one trial: choices, outcome, plan facts, errors and measurements, as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["METRICS", "STATUSES", "Measurement", "Trial", "scope_of"]

# Tuning metric -> the scope whose median it compares.
METRICS: Mapping[str, str] = {
    "host-wall": "end_to_end",
    "gpu-control": "gpu",
    "sim-cost": "modelled",
}

STATUSES: Mapping[str, str] = {
    "valid": "compiled, right over the whole output, measured",
    "refused": "declined by the compiler, with its reason",
    "wrong": "compiled and ran, but an output differs from the FP64 oracle",
    "failed": "an exception that is no refusal",
    "crashed": "ended its process",
    "timeout": "did not end within the time limit",
}


def scope_of(metric: str) -> str:
    """The scope that a metric compares."""
    return METRICS[metric]


@dataclass(frozen=True)
class Measurement:
    """One scope of a trial.

    ``scope`` is ``end_to_end`` (a call as a user makes it, checks and synchronization included),
    ``gpu`` (the device's own timestamps) or ``modelled`` (counted by the simulator: no time).
    ``value`` is the median of ``samples`` in ``unit``, each the mean of ``calls_per_sample`` calls.
    """

    scope: str
    unit: str
    value: float
    samples: tuple[float, ...]
    calls_per_sample: int
    how: str

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Measurement:
        """A measurement from JSON values."""
        return cls(**{**found, "samples": tuple(found["samples"])})


@dataclass(frozen=True)
class Trial:
    """One candidate of one shape. Kept whatever its outcome (see :data:`STATUSES`).

    ``device`` names what measured it; ``attempts`` are earlier tries that ended with the loss of
    a device, each with that device and the reason. ``facts`` describe the plan, ``outputs`` the
    errors of each output. ``skipped`` says why a scope has no measurement. ``seconds`` is the wall
    time of the trial in its process, ``compile_seconds``, ``validate_seconds`` and
    ``measure_seconds`` those of its stages; all None where the planner refused it unasked.
    """

    candidate: int
    choices: Mapping[str, Any]
    options: str
    status: str
    reason: str | None = None
    device: str | None = None
    attempts: tuple[Mapping[str, str], ...] = ()
    facts: Mapping[str, Any] | None = None
    outputs: tuple[Mapping[str, Any], ...] = ()
    measurements: tuple[Measurement, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    compile_seconds: float | None = None
    validate_seconds: float | None = None
    measure_seconds: float | None = None
    seconds: float | None = None

    def value(self, metric: str) -> float | None:
        """The metric's median, or None where the trial is not valid or has no such scope."""
        if self.status != "valid":
            return None
        scope = scope_of(metric)
        return next((m.value for m in self.measurements if m.scope == scope), None)

    def to_dict(self) -> dict[str, Any]:
        """The trial as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Trial:
        """A trial from :meth:`to_dict`'s values."""
        measured = tuple(map(Measurement.from_dict, found["measurements"]))
        lists = {name: tuple(found[name]) for name in ("attempts", "outputs")}
        return cls(**{**found, **lists, "measurements": measured})

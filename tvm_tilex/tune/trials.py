"""From a candidate to its job, and from a job's outcome to the record of a trial."""

from __future__ import annotations

from typing import Any

from tvm_tilex.tune.job import Job, SubjectSpec
from tvm_tilex.tune.pool import Task
from tvm_tilex.tune.record import Measurement, Trial
from tvm_tilex.tune.report import Settings
from tvm_tilex.tune.space import Candidate

__all__ = ["make_job", "refused", "trial_of"]


def make_job(settings: Settings, subject: SubjectSpec, candidate: Candidate, **other: Any) -> Job:
    """The job of one candidate; the endpoint is the pool's choice."""
    return Job(
        subject=subject,
        target=settings.target,
        options=candidate.options.to_json(),
        metric=settings.metric,
        timing=settings.timing,
        seed=settings.seed,
        limit=settings.limit,
        **other,
    )


def trial_of(task: Task, outcome: dict[str, Any]) -> Trial:
    """The record of an outcome."""
    candidate: Candidate = task.tag[1]
    return Trial(
        candidate=candidate.index,
        choices=dict(candidate.choices),
        options=candidate.options.to_json(),
        status=outcome["status"],
        reason=outcome.get("reason"),
        device=outcome.get("device"),
        attempts=tuple(task.attempts),
        facts=outcome.get("facts"),
        outputs=tuple(outcome.get("outputs", ())),
        measurements=tuple(map(Measurement.from_dict, outcome.get("measurements", ()))),
        skipped=outcome.get("skipped", {}),
        compile_seconds=outcome.get("compile_seconds"),
        validate_seconds=outcome.get("validate_seconds"),
        measure_seconds=outcome.get("measure_seconds"),
        seconds=outcome.get("seconds"),
    )


def refused(candidate: Candidate, reason: str) -> Trial:
    """The record of a candidate that the planner refuses: no trial was made."""
    choices, options = dict(candidate.choices), candidate.options.to_json()
    return Trial(candidate.index, choices, options, "refused", reason)

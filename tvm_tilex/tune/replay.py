"""Rebuild, validate and measure exactly what a report published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm_tilex.build.target import resolve_target
from tvm_tilex.ir.print import format_program
from tvm_tilex.tune.endpoint import LOCAL
from tvm_tilex.tune.errors import ReportError
from tvm_tilex.tune.metric import require_metric
from tvm_tilex.tune.pool import Pool, Task
from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Report, Section
from tvm_tilex.tune.space import Candidate
from tvm_tilex.tune.trials import make_job, trial_of
from tvm_tilex.tune.versions import versions

__all__ = ["Replayed", "replay"]

# What must come out again; a score may be revised without changing what is measured.
_PUBLISHED = (
    "plan",
    "materialization",
    "cost_policy",
    "fallback",
    "unroll",
    "requires_precise_math",
)


@dataclass(frozen=True)
class Replayed:
    """A winner measured again. ``notes`` say what is not as it was: versions, device, source."""

    section: Section
    trial: Trial
    notes: tuple[str, ...]


def replay(report: Report) -> tuple[Replayed, ...]:
    """Replay every winner on this machine, each in a new process.

    Raises
    ------
    ReportError
        If there is no winner, the kernel's capture is another program now, the plan comes out
        differently, or the replayed kernel is not valid.
    """
    sections = [section for section in report.sections if section.winner is not None]
    if not sections:
        raise ReportError("the report has no winner to replay")
    require_metric(report.settings.metric, _kind(report), LOCAL)
    for section in sections:
        _require_same_capture(section)
    pool = Pool((LOCAL,))
    try:
        return tuple(_replay(report, section, pool) for section in sections)
    finally:
        pool.close()


def _kind(report: Report) -> str:
    return str(resolve_target(report.settings.target).kind.name)


def _require_same_capture(section: Section) -> None:
    text = format_program(section.subject.subject().capture())
    if text != section.tile_ir:
        pairs = zip(section.tile_ir.splitlines(), text.splitlines(), strict=False)
        then, now = next(((a, b) for a, b in pairs if a != b), ("(shorter)", "(longer)"))
        raise ReportError(
            f"{section.subject.label}: the kernel is another program now: "
            f"{then.strip()!r} became {now.strip()!r}"
        )


def _replay(report: Report, section: Section, pool: Pool) -> Replayed:
    assert section.winner is not None
    recorded = section.winner.trial
    options = replace(report.settings.space.base, **recorded.choices)
    candidate = Candidate(recorded.candidate, recorded.choices, options)
    if options.to_json() != recorded.options:
        raise ReportError(f"{section.subject.label}: its choices are not those of its options")
    job = make_job(report.settings, section.subject, candidate, fresh=True)
    pool.submit(Task(("replay", candidate), job))
    trial = trial_of(*pool.next())
    if trial.status != "valid":
        raise ReportError(f"{section.subject.label}: {trial.status} now: {trial.reason}")
    _require_same_facts(section, recorded.facts or {}, trial.facts or {})
    return Replayed(section, trial, _notes(report, recorded, trial))


def _require_same_facts(section: Section, then: Any, now: Any) -> None:
    for name in _PUBLISHED:
        if then.get(name) != now.get(name):
            raise ReportError(
                f"{section.subject.label}: {name} was {then.get(name)}, is {now.get(name)}"
            )


def _notes(report: Report, recorded: Trial, trial: Trial) -> tuple[str, ...]:
    found = [
        f"{name} was {report.environment.get(name)}, is {now}"
        for name, now in versions().items()
        if report.environment.get(name) != now
    ]
    if recorded.device != trial.device:
        found.append(f"measured on {recorded.device}, now on {trial.device}")
    if (recorded.facts or {}).get("source_sha256") != (trial.facts or {}).get("source_sha256"):
        found.append("the emitted source is not the same text")
    return tuple(found)

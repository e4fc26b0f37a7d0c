"""From a report to the database: the fresh measurement of each winner."""

from __future__ import annotations

from tvm_tilex.build.target import resolve_target
from tvm_tilex.tune.database import Database
from tvm_tilex.tune.entry import Entry
from tvm_tilex.tune.lookup import key_of
from tvm_tilex.tune.record import scope_of
from tvm_tilex.tune.report import Report

__all__ = ["entries_of", "store"]


def entries_of(report: Report) -> tuple[Entry, ...]:
    """An entry for every section that has a winner.

    A winner of another machine is stored under that device's name: lookups here do not find it,
    an export taken there does.
    """
    settings, found = report.settings, []
    target = resolve_target(settings.target)
    for section in report.sections:
        if section.winner is None:
            continue
        trial = section.winner.trial
        value = trial.value(settings.metric)
        assert value is not None
        measured = next(m for m in trial.measurements if m.scope == scope_of(settings.metric))
        key = key_of(section.tile_ir, target, settings.space.base.to_json(), trial.device)
        found.append(
            Entry(key, trial.choices, settings.metric, value, measured.unit, report.created)
        )
    return tuple(found)


def store(report: Report, database: Database) -> int:
    """Append the report's winners; returns how many were new."""
    return database.put(entries_of(report))

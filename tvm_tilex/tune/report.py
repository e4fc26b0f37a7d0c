"""The report of a tuning run: everything that was tried, and what a replay needs.

One JSON file, replaced as a whole after every trial, so that a run that is interrupted at any
point leaves a report that can be read and resumed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_tilex.tune.endpoint import LOCAL, Endpoint
from tvm_tilex.tune.errors import ReportError
from tvm_tilex.tune.job import DEFAULT_TIMING, SubjectSpec, Timing
from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.space import Space

__all__ = ["SCHEMA", "VERSION", "Report", "Section", "Settings", "Winner"]

SCHEMA = "tvm_tilex.tuning-report"
VERSION = 1


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    ``target`` is TVM's whole description. ``trials`` bounds a search's trials of a shape,
    ``patience`` ends the model's order, ``limit`` is the seconds of a trial. ``jobs`` compilers run
    beside the measurements where machine code is compiled ahead: 0 none, None as many as there are
    cores but two.
    """

    target: str
    space: Space
    metric: str
    timing: Timing = DEFAULT_TIMING
    seed: int = 0
    search: str = "exhaustive"
    trials: int | None = None
    patience: int = 8
    budget: int = 1000
    limit: float = 120.0
    endpoints: tuple[Endpoint, ...] = (LOCAL,)
    jobs: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            **values,
            "space": self.space.to_dict(),
            "timing": dataclasses.asdict(self.timing),
            "endpoints": [dataclasses.asdict(e) for e in self.endpoints],
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Settings:
        """Settings from :meth:`to_dict`'s values."""
        return cls(
            **{
                **found,
                "space": Space.from_dict(found["space"]),
                "timing": Timing(**found["timing"]),
                "endpoints": tuple(map(Endpoint.from_dict, found["endpoints"])),
            }
        )


@dataclass(frozen=True)
class Winner:
    """The published result: compiled, validated and measured again in a new process.

    ``trial`` is that new measurement of the winner, ``default`` of the default options, in the
    same way and on the same device. ``searched`` is the value that made it the winner.
    ``rejected`` are better candidates whose second trial was not valid.
    """

    trial: Trial
    default: Trial
    searched: float
    source: str
    default_source: str
    rejected: tuple[Trial, ...] = ()

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Winner:
        """A winner from JSON values."""
        trials = {name: Trial.from_dict(found[name]) for name in ("trial", "default")}
        return cls(
            **{**found, **trials, "rejected": tuple(map(Trial.from_dict, found["rejected"]))}
        )


@dataclass
class Section:
    """One subject: its capture, the order of its candidates, every trial, the winner.

    ``lost`` are candidates whose device was lost while they had no outcome, ``scores`` the cost
    model's values where a search asked for them first, ``ended`` says why the search ended.
    ``seconds`` is the wall time of the whole, ``phases`` that of its parts in turn.
    """

    subject: SubjectSpec
    tile_ir: str
    useful_bytes: int | None
    order: tuple[int, ...]
    trials: list[Trial] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)
    winner: Winner | None = None
    ended: str | None = None
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def tried(self) -> set[int]:
        """Candidates that have an outcome."""
        return {trial.candidate for trial in self.trials}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Section:
        """A section from JSON values."""
        return cls(
            **{
                **found,
                "subject": SubjectSpec.from_dict(found["subject"]),
                "order": tuple(found["order"]),
                "trials": [Trial.from_dict(trial) for trial in found["trials"]],
                "scores": {int(key): value for key, value in found["scores"].items()},
                "winner": Winner.from_dict(found["winner"]) if found["winner"] else None,
            }
        )


@dataclass
class Report:
    """A whole run. ``status`` is ``running`` (or killed), ``interrupted`` or ``complete``."""

    settings: Settings
    environment: dict[str, str]
    created: str
    sections: list[Section]
    status: str = "running"
    reason: str | None = None
    lost_devices: list[dict[str, str]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Replace the file as a whole: a reader sees the old text or the new one."""
        # Lines take json's slow encoder; they are for the reader of a run that has ended.
        text = json.dumps(self.to_dict(), indent=None if self.status == "running" else 1)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            "schema": SCHEMA,
            "version": VERSION,
            **values,
            "settings": self.settings.to_dict(),
            "sections": [dataclasses.asdict(section) for section in self.sections],
        }

    @classmethod
    def from_dict(cls, found: Any) -> Report:
        """A report from :meth:`to_dict`'s values.

        Raises
        ------
        ReportError
            If it is no report, or one of another version.
        """
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ReportError(f"not a tuning report: its schema is not {SCHEMA!r}")
        if found.get("version") != VERSION:
            raise ReportError(
                f"report version {found.get('version')}: this package reads {VERSION}"
            )
        values = {key: value for key, value in found.items() if key not in ("schema", "version")}
        try:
            values["settings"] = Settings.from_dict(values["settings"])
            values["sections"] = [Section.from_dict(section) for section in values["sections"]]
            report = cls(**values)
            _require_types(report)
            return report
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReportError(f"not a whole tuning report ({error!r})") from None

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read a report, or the one in a folder.

        Raises
        ------
        ReportError
            If there is none, or it is not one.
        """
        path = path / "report.json" if path.is_dir() else path
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ReportError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ReportError(f"{path}: not JSON ({error})") from None
        try:
            return cls.from_dict(found)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from None


def _require_types(report: Report) -> None:
    """Raise TypeError for what would only fail amid a resumed run."""
    settings = report.settings
    found: list[tuple[Any, Any]] = [
        (report.environment, dict),
        (settings.metric, str),
        (settings.search, str),
        (settings.budget, int),
        (settings.patience, int),
        (settings.limit, (int, float)),
    ]
    for section in report.sections:
        found += [(section.subject.kernel, str), (section.subject.static, dict)]
        found += [(extent, int) for shape in section.subject.shapes for extent in shape]
    for value, expected in found:
        if not isinstance(value, expected):
            raise TypeError(f"{value!r} is not of its type")
    for section in report.sections:
        if section.winner and section.winner.trial.value(settings.metric) is None:
            raise ValueError("a winner without its measurement")

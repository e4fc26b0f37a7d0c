"""The verdicts of one function as text that survives in an attribute."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tvm_tilex.analysis.admission import Admission

__all__ = ["ProofRecord", "RowRecord", "record"]


@dataclass(frozen=True)
class RowRecord:
    """One row of the admission table: PROVEN, DISPROVEN or UNKNOWN, and why."""

    name: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class ProofRecord:
    """Whether SIMD-group maps were considered, on whose request, and what each row said."""

    enabled: bool
    explicit: bool
    reason: str
    admitted: bool
    rows: tuple[RowRecord, ...]

    @property
    def declined(self) -> RowRecord | None:
        """The row that declined, or None."""
        failed = [row for row in self.rows if row.verdict != "PROVEN"]
        told = [row for row in failed if not row.reason.startswith("not examined")]
        return next(iter(told or failed), None)

    def to_json(self) -> str:
        """Stable text of the record."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ProofRecord:
        """A record from :meth:`to_json`'s text."""
        values = json.loads(text)
        values["rows"] = tuple(RowRecord(**row) for row in values["rows"])
        return cls(**values)


def record(admission: Admission, *, explicit: bool, reason: str) -> ProofRecord:
    """The record of an admission that was asked for."""
    rows = tuple(
        RowRecord(row.name, row.verdict.kind.value, row.verdict.reason) for row in admission.rows
    )
    return ProofRecord(True, explicit, reason, admission.admitted, rows)

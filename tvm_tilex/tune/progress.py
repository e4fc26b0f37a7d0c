"""What a run tells while it goes on; the base class keeps silent."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tilex.tune.pool import Lost
from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section

__all__ = ["Progress"]


class Progress:
    """Receives events; every method may be overridden."""

    def begin(self, section: Section, candidates: int) -> None:
        """A shape's search begins."""

    def screened(self, section: Section, refused: Sequence[Trial]) -> None:
        """The planner has said which candidates it refuses."""

    def trial(self, section: Section, trial: Trial) -> None:
        """A trial has an outcome."""

    def finished(self, section: Section) -> None:
        """A shape has its winner, or none of its candidates was valid."""

    def lost(self, lost: Lost) -> None:
        """A device left the pool."""

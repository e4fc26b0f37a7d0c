"""A live table of a run on a terminal; plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tvm_tilex.tune.pool import Lost
from tvm_tilex.tune.progress import Progress
from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section
from tvm_tilex.tune.text import describe_choices, format_value
from tvm_tilex.tune.times import times_of

__all__ = ["LiveTable"]

_ROWS = 12


class LiveTable(Progress):
    """Shows the best trials of the current shape, how many there were of each outcome, the rest.

    A context manager. Where the console is no terminal, every trial is one line.
    """

    def __init__(self, metric: str, console: Console | None = None) -> None:
        self._metric = metric
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._section: Section | None = None
        self._candidates = 0

    def __enter__(self) -> LiveTable:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def begin(self, section: Section, candidates: int) -> None:
        """Begin a shape."""
        self._section, self._candidates = section, candidates
        self._show(f"{section.subject.label}: {candidates} candidates")

    def screened(self, section: Section, refused: Sequence[Trial]) -> None:
        """Show how many candidates need no trial, and one reason."""
        if refused:
            last = refused[-1]
            self._show(
                f"{len(refused)}/{self._candidates} refused  by the planner, such as "
                f"{describe_choices(last.choices)}: {last.reason}"
            )

    def trial(self, section: Section, trial: Trial) -> None:
        """Show a trial."""
        value = trial.value(self._metric)
        what = format_value(value, self._metric) if value is not None else str(trial.reason)
        self._show(
            f"{len(section.trials)}/{self._candidates} {trial.status:8} "
            f"{describe_choices(trial.choices)}: {what}"
        )

    def finished(self, section: Section) -> None:
        """Print a shape's result, and where the time went."""
        for line in (
            result_line(section, self._metric),
            f"  {times_of(section, self._metric).describe()}",
        ):
            self._console.print(line, highlight=False, soft_wrap=True)

    def lost(self, lost: Lost) -> None:
        """Print the loss of a device."""
        self._console.print(
            f"lost {lost.endpoint.name}: {lost.reason}", highlight=False, soft_wrap=True
        )

    def _show(self, line: str) -> None:
        if self._live is None:
            self._console.print(line, highlight=False, soft_wrap=True)
        elif self._section is not None:
            self._live.update(progress_table(self._section, self._candidates, self._metric))


def progress_table(section: Section, candidates: int, metric: str) -> Table:
    """The best trials so far, and a caption that counts the outcomes."""
    counts: dict[str, int] = {}
    for trial in section.trials:
        counts[trial.status] = counts.get(trial.status, 0) + 1
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    table = Table(
        title=f"{section.subject.label} by {metric}",
        caption=f"{len(section.trials)} of {candidates} candidates: {told or 'none yet'}",
    )
    table.add_column(metric, justify="right")
    table.add_column("score", justify="right")
    table.add_column("choices")
    table.add_column("device")
    valid = [t for t in section.trials if t.value(metric) is not None]
    for trial in sorted(valid, key=lambda t: t.value(metric) or 0.0)[:_ROWS]:
        score = (trial.facts or {}).get("score")
        table.add_row(
            format_value(trial.value(metric), metric),
            "" if score is None else f"{score:g}",
            describe_choices(trial.choices),
            trial.device or "",
        )
    return table


def result_line(section: Section, metric: str) -> str:
    """One line: the published value, the choices, the default's value."""
    label = section.subject.label
    if section.winner is None:
        return f"{label}: no winner, {section.ended}"
    trial, default = section.winner.trial, section.winner.default
    published, base = trial.value(metric), default.value(metric)
    line = f"{label}: {format_value(published, metric)} with {describe_choices(trial.choices)}"
    if published is None or base is None:
        return f"{line}; the default is {default.status}"
    return f"{line}; the default takes {format_value(base, metric)} ({base / published:.2f}x)"

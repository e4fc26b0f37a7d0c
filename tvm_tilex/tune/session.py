"""A tuning run: search every subject, then measure each winner anew.

Legality is never decided here. A candidate is compiled like any kernel, with the proof and the
refusals that this brings; the tuner chooses among those that were right.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import OptionError
from tvm_tilex.ir.print import format_program
from tvm_tilex.tune.ahead import Ahead, default_jobs
from tvm_tilex.tune.errors import ReportError, TuningError
from tvm_tilex.tune.final import measure_winner
from tvm_tilex.tune.job import Job, SubjectSpec
from tvm_tilex.tune.metric import require_metric
from tvm_tilex.tune.pool import Pool, Task
from tvm_tilex.tune.progress import Progress
from tvm_tilex.tune.record import Trial, scope_of
from tvm_tilex.tune.report import Report, Section, Settings
from tvm_tilex.tune.search import MODELLED, Strategy, make_strategy
from tvm_tilex.tune.space import Candidate, require_budget, rotated
from tvm_tilex.tune.trials import make_job, refused, trial_of
from tvm_tilex.tune.versions import environment, versions

__all__ = ["new_report", "resumed", "run"]


def new_report(settings: Settings, subjects: Sequence[SubjectSpec]) -> Report:
    """A report without trials; every refusal that needs no work is raised here.

    Raises
    ------
    BudgetError
        If the space has more compilations than the budget.
    MetricError, OptionError, TilexError
        If a metric, a search or a subject is not what it must be.
    """
    if not subjects:
        raise TuningError("nothing to tune: no shape is given")
    _require_bounds(settings)
    bound = settings.trials if settings.search == "optuna" else None
    require_budget(settings.space, len(subjects), settings.budget, trials=bound)
    kind = resolve_target(settings.target).kind.name
    for endpoint in settings.endpoints:
        require_metric(settings.metric, kind, endpoint)
    count = len(settings.space.candidates())
    sections = []
    for position, spec in enumerate(subjects):
        subject = spec.subject()
        entry, shape = subject.entry, subject.shape
        moved = entry.useful_bytes(shape[0], shape[1], subject.dtype) if entry else None
        order = rotated(count, position, len(subjects))
        sections.append(Section(spec, format_program(subject.capture()), moved, order))
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Report(settings, environment(), created, sections)


def _require_bounds(settings: Settings) -> None:
    """Refuse bounds under which nothing would be measured, or no measurement would end."""
    timing = settings.timing
    positive = {
        "patience": settings.patience,
        "trials": 1 if settings.trials is None else settings.trials,
        "time limit": settings.limit,
        "samples": timing.samples,
        "sample milliseconds": timing.sample_ms,
    }
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise OptionError(f"{name} {value}: must be positive and finite")
    if not 0 <= timing.warmup_ms < math.inf:
        raise OptionError(f"warm-up {timing.warmup_ms} ms: must be finite, not negative")


def resumed(report: Report, wanted: Report) -> Report:
    """The report of an earlier run, if it is of the same work as ``wanted``; endpoints may differ.

    Raises
    ------
    ReportError
        Naming what differs.
    """
    old, new = report.settings.to_dict(), wanted.settings.to_dict()
    free = {"budget", "limit", "endpoints", "jobs"}
    differing = [name for name in new if name not in free and old[name] != new[name]]
    texts = [[(s.subject, s.tile_ir) for s in r.sections] for r in (report, wanted)]
    if texts[0] != texts[1]:
        differing.append("kernels or shapes")
    differing += [name for name, now in versions().items() if report.environment.get(name) != now]
    if differing:
        raise ReportError(f"the report is of another run: it differs in {', '.join(differing)}")
    return replace(report, settings=wanted.settings, status="running", reason=None)


def run(report: Report, path: Path, progress: Progress | None = None) -> Report:
    """Carry on until every section has its winner; the report is written after each trial.

    Raises
    ------
    KeyboardInterrupt, TuningError
        After writing the report; ``resumed`` takes it up again.
    """
    progress = progress or Progress()
    report.write(path)
    pool = Pool(report.settings.endpoints)
    try:
        for section in report.sections:
            if section.winner is None and section.ended is None:
                _section(report, section, pool, path, progress)
        report.status = "complete"
    except BaseException as error:
        report.status = "interrupted"
        report.reason = str(error) or type(error).__name__
        raise
    finally:
        report.lost_devices += [
            {"device": lost.endpoint.name, "reason": lost.reason} for lost in pool.lost
        ]
        report.write(path)
        pool.close()
    return report


def _section(report: Report, section: Section, pool: Pool, path: Path, progress: Progress) -> None:
    began = time.monotonic() - section.seconds
    with tempfile.TemporaryDirectory(prefix="tilex-tune-", ignore_cleanup_errors=True) as shared:
        search = _Search(report, section, pool, path, progress, shared)
        progress.begin(section, len(search.candidates))
        with search.compiling_ahead():
            search.screen()
            with _phase(section, "asking the model"):
                search.score()
            with _phase(section, "searching"):
                search.try_all()
        with _phase(section, "measuring the winner"):
            section.winner, reason = measure_winner(
                section, search.candidates, report.settings, pool, shared
            )
    section.seconds = time.monotonic() - began
    section.ended = reason or "searched"
    report.write(path)
    progress.finished(section)


@contextlib.contextmanager
def _phase(section: Section, name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        _spent(section, name, time.monotonic() - began)


def _spent(section: Section, name: str, seconds: float) -> None:
    section.phases[name] = section.phases.get(name, 0.0) + seconds


# What a search measures before it ends, and some more; the rest its own trial compiles.
_MOST_AHEAD = 64


class _Search:
    """The trials of one section, in the order of its strategy."""

    def __init__(
        self,
        report: Report,
        section: Section,
        pool: Pool,
        path: Path,
        progress: Progress,
        shared: str,
    ) -> None:
        self.candidates = report.settings.space.candidates()
        self._report, self._section, self._pool = report, section, pool
        self._path, self._progress = path, progress
        self._settings = report.settings
        self._began = time.monotonic() - section.seconds
        self._lost_before = len(pool.lost)
        self._in_flight: dict[int, Task] = {}
        self._shared = shared
        self._ahead: Ahead | None = None

    @contextlib.contextmanager
    def compiling_ahead(self) -> Iterator[None]:
        """Machine code is compiled beside the search where a compiler and a core are free for it.

        For a device of this machine: elsewhere the other machine compiles what it loads.
        """
        jobs, kind = self._settings.jobs, resolve_target(self._settings.target).kind.name
        local = all(endpoint.kind == "local" for endpoint in self._settings.endpoints)
        if jobs == 0 or not local or not Ahead.serves(kind):
            yield
            return
        self._ahead = Ahead(self._shared, default_jobs() if jobs is None else jobs)
        try:
            yield
        finally:
            self._ahead.close()
            self._ahead = None

    def screen(self) -> None:
        """Record what the planner says: one job for all candidates, and no trial for the refused.

        If that job does not end well, each candidate's own compilation says it.
        """
        left = [c for c in self.candidates if c.index not in self._section.tried]
        if not left:
            return
        texts = tuple(candidate.options.to_json() for candidate in left)
        job = self._job(self.candidates[0], measure=False, screened=texts)
        began = time.monotonic()
        self._pool.submit(Task(("screen", self.candidates[0]), job))
        _, outcome = self._pool.next()
        whole = time.monotonic() - began
        inside = min(outcome.get("seconds", whole), whole)
        _spent(self._section, "starting", whole - inside)  # the process, before its first job
        _spent(self._section, "screening", inside)
        found = outcome.get("reasons", ())
        for candidate, score in zip(left, outcome.get("scores", ()), strict=False):
            if score is not None:
                self._section.scores[candidate.index] = score
        trials = [
            refused(candidate, reason)
            for candidate, reason in zip(left, found, strict=False)
            if reason is not None
        ]
        self._section.trials += trials
        self._save()
        self._progress.screened(self._section, trials)

    def score(self) -> None:
        """Ask the cost model first, where the search wants its order, by compiling to text only.

        Where the planner has said the score already, only the best are, for the sake of the text,
        which is compiled to machine code from then on.
        """
        modelled = self._settings.search in MODELLED
        if not modelled and self._ahead is None:
            return
        scores, tried = self._section.scores, self._section.tried
        left = [c for c in self.candidates if c.index not in tried]
        unknown = [c for c in left if c.index not in scores] if modelled else []
        best: list[Candidate] = []
        if self._ahead is not None:
            best = sorted(left, key=lambda c: scores.get(c.index, -math.inf))[:_MOST_AHEAD]
        for candidate in {c.index: c for c in (*unknown, *best)}.values():
            job = self._job(candidate, measure=False, source=self._ahead is not None)
            self._pool.submit(Task(("score", candidate), job))
        sources: dict[int, str] = {}
        while self._pool.pending:
            task, outcome = self._pool.next()
            if outcome["status"] != "compiled":
                self._record(trial_of(task, outcome))
                continue
            index, score = task.tag[1].index, outcome["facts"]["score"]
            if score is not None:
                scores[index] = score
            sources[index] = str(outcome.get("source", ""))
        self._save()
        self._compile_ahead(sources)

    def _compile_ahead(self, sources: dict[int, str]) -> None:
        """The model's first choices first, for those are measured first."""
        if self._ahead is None:
            return
        scores = self._section.scores
        for index in sorted(sources, key=lambda i: (i != 0, scores.get(i, math.inf))):
            self._ahead.add(index, sources[index])
        if scope_of(self._settings.metric) != "gpu":
            self._ahead.await_all()  # the host's clock is not read while compilers run

    def try_all(self) -> None:
        """Measure what the strategy asks for; the default is always among it."""
        strategy = self._strategy()
        if 0 not in self._section.tried:
            self._submit(self.candidates[0])
        while True:
            while self._pool.free > 0 and (index := strategy.next()) is not None:
                if index not in self._section.tried and index not in self._in_flight:
                    self._submit(self.candidates[index])
            if not self._pool.pending:
                return
            trial = self._take()
            if trial.status == "refused" and self._settings.search in MODELLED:
                continue  # it says nothing of the order
            strategy.tell(trial.candidate, trial.value(self._settings.metric))

    def _strategy(self) -> Strategy:
        settings, section = self._settings, self._section
        out = {trial.candidate for trial in section.trials if trial.status == "refused"}
        candidates = [c for c in self.candidates if c.index not in out]
        strategy = make_strategy(
            settings.search,
            candidates,
            [index for index in section.order if index not in out],
            section.scores,
            trials=settings.trials or len(candidates),
            patience=settings.patience,
            seed=settings.seed,
        )
        for trial in section.trials:
            if trial.candidate in out:
                continue  # known before anything was measured: it says nothing of the order
            strategy.tell(trial.candidate, trial.value(settings.metric))
        return strategy

    def _submit(self, candidate: Candidate) -> None:
        if self._ahead is not None:
            self._ahead.await_candidate(candidate.index, self._settings.limit)
        job = self._job(candidate)
        lost = [entry for entry in self._section.lost if entry["candidate"] == candidate.index]
        attempts = [{"device": e["device"], "reason": e["reason"]} for e in lost]
        self._in_flight[candidate.index] = Task(("trial", candidate), job, attempts)
        self._pool.submit(self._in_flight[candidate.index])

    def _job(self, candidate: Candidate, **other: Any) -> Job:
        subject = self._section.subject
        return make_job(self._settings, subject, candidate, shared=self._shared, **other)

    def _take(self) -> Trial:
        try:
            task, outcome = self._pool.next()
        finally:
            self._note_losses()
        del self._in_flight[task.tag[1].index]
        trial = trial_of(task, outcome)
        self._record(trial)
        return trial

    def _note_losses(self) -> None:
        """Keep what the loss of a device took, so that a resumed run knows it too."""
        others = [e for e in self._section.lost if e["candidate"] not in self._in_flight]
        self._section.lost = others + [
            {"candidate": index, **attempt}
            for index, task in self._in_flight.items()
            for attempt in task.attempts
        ]
        for lost in self._pool.lost[self._lost_before :]:
            self._progress.lost(lost)
        self._lost_before = len(self._pool.lost)

    def _record(self, trial: Trial) -> None:
        assert trial.candidate not in self._section.tried, "a trial is counted once"
        self._section.trials.append(trial)
        self._section.lost = [e for e in self._section.lost if e["candidate"] != trial.candidate]
        self._save()
        self._progress.trial(self._section, trial)

    def _save(self) -> None:
        self._section.seconds = time.monotonic() - self._began
        self._report.write(self._path)

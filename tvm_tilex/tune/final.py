"""The end of a search: the winner is compiled, validated and measured again, and so is the default.

The search's own minimum is the luckiest of many measurements; what is published is a new one, from
a process that has compiled nothing before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_tilex.tune.pool import Pool, Task
from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section, Settings, Winner
from tvm_tilex.tune.space import Candidate
from tvm_tilex.tune.trials import make_job, trial_of

__all__ = ["measure_winner"]


def measure_winner(
    section: Section,
    candidates: Sequence[Candidate],
    settings: Settings,
    pool: Pool,
    shared: str = "",
) -> tuple[Winner | None, str | None]:
    """Return the winner, or None and why there is none.

    With several devices the best candidate of each is measured again, all on one device, because
    times of different devices do not compare.
    """

    def again(candidate: Candidate) -> tuple[Trial, str]:
        other = {"fresh": True, "source": True, "shared": shared}
        job = make_job(settings, section.subject, candidate, **other)
        pool.submit(Task(("final", candidate), job, only=pool.alive[0]))
        task, outcome = pool.next()
        return trial_of(task, outcome), str(outcome.get("source", ""))

    metric = settings.metric
    valid = [t for t in section.trials if t.value(metric) is not None]
    valid.sort(key=lambda trial: trial.value(metric) or 0.0)
    rejected: list[Trial] = []
    fresh: list[tuple[Trial, Trial, str]] = []
    for device in dict.fromkeys(trial.device for trial in valid):
        for trial in (t for t in valid if t.device == device):
            repeated, source = again(candidates[trial.candidate])
            if repeated.value(metric) is not None:
                fresh.append((trial, repeated, source))
                break
            rejected.append(repeated)
    if not fresh:
        return None, f"none of {len(section.trials)} trials was valid"
    known = (found[1:] for found in fresh if found[1].candidate == 0)
    default, default_source = next(known, None) or again(candidates[0])
    comparable = [found for found in fresh if found[1].device == default.device] or fresh
    searched, trial, source = min(comparable, key=lambda found: found[1].value(metric) or 0.0)
    value: Any = searched.value(metric)
    return Winner(trial, default, value, source, default_source, tuple(rejected)), None

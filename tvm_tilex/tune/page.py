"""A report as one self-contained HTML file: no script, no link, nothing to load."""

from __future__ import annotations

import difflib
import html
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tvm_tilex.errors import TilexError
from tvm_tilex.tune.plots import candidates_plot, regret_plot, scores_plot
from tvm_tilex.tune.record import STATUSES, Trial
from tvm_tilex.tune.regret import model_regret
from tvm_tilex.tune.report import Report, Section, Winner
from tvm_tilex.tune.text import describe_choices, format_value
from tvm_tilex.tune.times import times_of

__all__ = ["PlotsMissing", "render_page", "write_page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: 12px; }
svg { max-width: 100%; height: auto; }
.add { background: #dcf5dc; } .del { background: #fbdcdc; } .note { color: #666; }
"""


class PlotsMissing(TilexError):
    """matplotlib is not installed."""


def write_page(report: Report, path: Path) -> None:
    """Write the page.

    Raises
    ------
    PlotsMissing
        If matplotlib, which draws the plots, is not installed.
    """
    path.write_text(render_page(report), encoding="utf-8")


def render_page(report: Report) -> str:
    """The page's text."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotsMissing("plots need matplotlib (pip install 'tvm-tilex[viz]')")
    settings = report.settings
    body = "\n".join(part for section in report.sections for part in _section(report, section))
    facts = "".join(
        f"<tr><th>{_(name)}</th><td>{_(value)}</td></tr>"
        for name, value in (
            ("status", f"{report.status}{f' ({report.reason})' if report.reason else ''}"),
            ("created", report.created),
            ("target", settings.target),
            ("metric", _metric(settings.metric)),
            ("search", settings.search),
            ("devices", ", ".join(endpoint.name for endpoint in settings.endpoints)),
            (
                "lost devices",
                "; ".join(" ".join(d.values()) for d in report.lost_devices) or "none",
            ),
            ("versions", ", ".join(f"{k} {v}" for k, v in report.environment.items())),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Tuning report</title><style>{_STYLE}</style></head><body>"
        f"<h1>Tuning report</h1><table>{facts}</table>{body}</body></html>\n"
    )


def _section(report: Report, section: Section) -> Iterator[str]:
    metric = report.settings.metric
    yield f"<h2>{_(section.subject.label)}</h2>"
    yield f"<p>{_(_counts(section))}</p>"
    yield f"<p>{_(times_of(section, metric).describe())}.</p>"
    if section.winner is not None:
        yield _winner(section, section.winner, metric)
    regret = model_regret(section, metric)
    if regret is not None:
        yield (
            f"<p>The cost model's choice among the measured candidates is "
            f"<b>{_(describe_choices(regret.choice.choices))}</b>, {100 * regret.regret:.2f} % "
            f"slower than the fastest ({_(describe_choices(regret.best.choices))}): "
            "the regret of the model.</p>"
        )
    if any(trial.value(metric) is not None for trial in section.trials):
        plots = (candidates_plot, scores_plot, regret_plot)
        yield from filter(None, (plot(section, metric) for plot in plots))
    yield _trials(section, metric)
    if section.winner is not None:
        yield _difference(section.winner)
    yield f"<h3>The kernel's capture</h3><pre>{_(section.tile_ir)}</pre>"


def _counts(section: Section) -> str:
    counts: dict[str, int] = {}
    for trial in section.trials:
        counts[trial.status] = counts.get(trial.status, 0) + 1
    told = ", ".join(f"{n} {status} ({STATUSES[status]})" for status, n in counts.items())
    return f"{len(section.trials)} trials in {section.seconds:.0f} s: {told or 'none'}"


def _winner(section: Section, winner: Winner, metric: str) -> str:
    rows = []
    for name, trial in (("winner", winner.trial), ("default", winner.default)):
        scopes = "; ".join(
            f"{m.scope}: {m.value:.6g} {m.unit}, {m.how}" for m in trial.measurements
        )
        rows.append(
            f"<tr><th>{name}</th><td>{_(describe_choices(trial.choices))}</td>"
            f'<td class="n">{_(format_value(trial.value(metric), metric))}</td>'
            f"<td>{_(str(trial.device))}</td><td>{_(scopes)}</td></tr>"
        )
    facts = winner.trial.facts or {}
    plan = facts.get("plan") or {"reference map": facts.get("fallback") or "processor"}
    shown = ", ".join(f"{name} {value}" for name, value in plan.items())
    return (
        "<h3>Chosen plan</h3><p>Both compiled, validated and measured again in new processes; the "
        f"search had measured {_(format_value(winner.searched, metric))} for the winner.</p>"
        f"<table>{''.join(rows)}</table><p>{_(shown)}; shared tiles: "
        f"{_(str(facts.get('materialization')))}</p>"
    )


def _trials(section: Section, metric: str) -> str:
    rows = "".join(_row(trial, metric) for trial in section.trials)
    return (
        "<details><summary>Every trial</summary><table><tr><th>candidate</th><th>choices</th>"
        f"<th>outcome</th><th>{_(metric)}</th><th>score</th><th>device</th><th>reason</th></tr>"
        f"{rows}</table></details>"
    )


def _row(trial: Trial, metric: str) -> str:
    score = (trial.facts or {}).get("score")
    lost = "; ".join(f"lost with {a['device']}" for a in trial.attempts)
    reason = "; ".join(filter(None, (trial.reason, lost)))
    return (
        f'<tr><td class="n">{trial.candidate}</td><td>{_(describe_choices(trial.choices))}</td>'
        f'<td>{_(trial.status)}</td><td class="n">{_(format_value(trial.value(metric), metric))}'
        f'</td><td class="n">{"" if score is None else f"{score:g}"}</td>'
        f"<td>{_(trial.device or '')}</td><td>{_(reason)}</td></tr>"
    )


def _difference(winner: Winner) -> str:
    lines = difflib.unified_diff(
        winner.default_source.splitlines(),
        winner.source.splitlines(),
        "default",
        "winner",
        lineterm="",
    )
    marked = "\n".join(_marked(line) for line in lines)
    body = f"<pre>{marked}</pre>" if marked else "<p>The same text.</p>"
    return f"<h3>Emitted source: winner against default</h3>{body}"


def _marked(line: str) -> str:
    kind = {"+": "add", "-": "del"}.get(line[:1])
    return f'<span class="{kind}">{_(line)}</span>' if kind else _(line)


def _metric(metric: str) -> str:
    return "sim-cost: modelled by the simulator, no time" if metric == "sim-cost" else metric


def _(text: object) -> str:
    return html.escape(str(text))

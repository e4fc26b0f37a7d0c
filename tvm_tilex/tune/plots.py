"""Plots of a section as SVG text (``pip install 'tvm-tilex[viz]'``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from tvm_tilex.tune.record import Trial
from tvm_tilex.tune.report import Section
from tvm_tilex.tune.text import describe_choices

__all__ = ["candidates_plot", "regret_plot", "scores_plot"]

# A palette that is told apart without colour vision.
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#999999"
_MOST_BARS = 40


def candidates_plot(section: Section, metric: str) -> str:
    """Every valid candidate as a bar, fastest first; the default and the winner are marked."""
    ranked = _ranked(section, metric)
    shown = ranked[:_MOST_BARS]
    default = next((t for t in ranked if t.candidate == 0), None)
    if default is not None and default not in shown:
        shown = [*shown[: _MOST_BARS - 1], default]
    figure, axes = _figure(7.5, 0.6 + 0.2 * max(len(shown), 3))
    winner = section.winner.trial.candidate if section.winner is not None else None
    colours = [
        _ORANGE if t.candidate == winner else _GREY if t.candidate == 0 else _BLUE for t in shown
    ]
    factor, unit = _scale(metric)
    values = [factor * (t.value(metric) or 0.0) for t in shown]
    positions = range(len(shown))
    axes.barh(positions, values, color=colours)
    axes.set_yticks(positions, [describe_choices(t.choices) for t in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit} (orange: winner, grey: default)")
    more = f" ({len(shown)} of {len(ranked)})" if len(shown) < len(ranked) else ""
    axes.set_title(f"valid candidates by {metric}{more}", fontsize=10)
    return _svg(figure)


def scores_plot(section: Section, metric: str) -> str | None:
    """Measured value over the model's score; None where no candidate has a score."""
    scored = [t for t in _ranked(section, metric) if _score(t) is not None]
    if not scored:
        return None
    figure, axes = _figure(7.5, 4.0)
    factor, unit = _scale(metric)
    pick = min(scored, key=lambda t: (_score(t), t.candidate))
    for trials, colour, mark, label in (
        (scored, _BLUE, "o", "candidates"),
        ([pick], _GREY, "s", "the model's choice"),
        (scored[:1], _ORANGE, "*", "fastest"),
    ):
        axes.scatter(
            [_score(t) for t in trials],
            [factor * (t.value(metric) or 0.0) for t in trials],
            color=colour,
            marker=mark,
            s=90 if mark == "*" else 30,
            label=label,
        )
    axes.set_xlabel("score of the cost model (lower is better)")
    axes.set_ylabel(unit)
    axes.set_title(f"{metric} against the cost model's score", fontsize=10)
    axes.legend(fontsize=8)
    return _svg(figure)


def regret_plot(section: Section, metric: str) -> str | None:
    """How far the best trial so far is from the best of all, over the number of trials."""
    best = _ranked(section, metric)
    if not best:
        return None
    least = best[0].value(metric) or 0.0
    so_far, curve = float("inf"), []
    for trial in section.trials:
        value = trial.value(metric)
        so_far = min(so_far, value if value is not None else so_far)
        curve.append(100 * (so_far / least - 1) if so_far < float("inf") else float("nan"))
    figure, axes = _figure(7.5, 3.0)
    axes.step(range(1, len(curve) + 1), curve, where="post", color=_BLUE)
    axes.set_xlim(left=1)
    axes.axhline(2, color=_GREY, linewidth=0.8, linestyle="--")
    axes.set_xlabel("trials (the dashed line is 2 %)")
    axes.set_ylabel("above the best, %")
    axes.set_title("progress of the search", fontsize=10)
    return _svg(figure)


def _ranked(section: Section, metric: str) -> Sequence[Trial]:
    valid = [t for t in section.trials if t.value(metric) is not None]
    return sorted(valid, key=lambda t: t.value(metric) or 0.0)


def _score(trial: Trial) -> Any:
    return (trial.facts or {}).get("score")


def _scale(metric: str) -> tuple[float, str]:
    return (1.0, "modelled operations, no time") if metric == "sim-cost" else (1e6, "microseconds")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Any) -> str:
    """SVG without a date and with plain text, so that a page is the same for the same report."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tilex"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]

"""Draws a grid with matplotlib: cells, margins, title and legend.

Text stays text in SVG, and every cell's labels stand in a group ``cell-ROW-COLUMN``. No window is
opened and no global state of matplotlib is changed.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from tvm_tilex.errors import OptionError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.drawing import palette
from tvm_tilex.layout.drawing.banks import BankReport
from tvm_tilex.layout.drawing.grid import Cell, Grid, grid_of

__all__ = ["draw", "save"]

_CELL = 0.46  # inches
_INK, _MUTED, _LINE, _ALARM = "#1f2330", "#6b7080", "#ffffff", "#d1242f"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tvm_tilex",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.monospace": ["DejaVu Sans Mono", "Menlo", "Consolas"],
    "font.size": 8.0,
}
_LEGEND = 1.5  # inches


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
        import matplotlib.collections
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise OptionError(
            f"a picture needs matplotlib ({error}); install it with: pip install 'tvm-tilex[viz]'"
        ) from None
    return matplotlib


def draw(
    subject: LayoutMap | Grid,
    *,
    title: str | None = None,
    subtitle: str = "",
    report: BankReport | None = None,
) -> Any:
    """Return a matplotlib ``Figure`` of a layout.

    Parameters
    ----------
    subject
        A map, read as :func:`grid_of` does, or a grid.
    title
        The text above the picture; by default the map's own.
    subtitle
        A line below the title.
    report
        Colour by bank, and frame the threads of the worst phase, red where they conflict.

    Raises
    ------
    OptionError
        Where matplotlib is not installed.
    LayoutError
        Where the layout can't be drawn.
    """
    matplotlib = _matplotlib()
    grid = subject if isinstance(subject, Grid) else grid_of(subject)
    heading = title
    if heading is None:
        heading = "" if isinstance(subject, Grid) else _text(subject)
    with matplotlib.rc_context(_STYLE):
        return _Picture(matplotlib, grid, heading, subtitle, report).figure()


def save(figure: Any, path: str | Path) -> None:
    """Write a figure as the suffix of ``path`` says (``.svg``, ``.png``, ``.pdf``)."""
    matplotlib = _matplotlib()
    where = Path(path)
    dated = {"Date": None} if where.suffix == ".svg" else None
    with matplotlib.rc_context(_STYLE):
        figure.savefig(where, dpi=160, metadata=dated, facecolor="white")


class _Picture:
    def __init__(
        self, matplotlib: Any, grid: Grid, title: str, subtitle: str, report: BankReport | None
    ) -> None:
        self.matplotlib = matplotlib
        self.grid, self.report = grid, report
        worst = report.worst_phase if report is not None else None
        places = grid.points
        self.phase = {places[p] for p in (worst.points if worst else ()) if p in places}
        self.crowded = {places[p] for p in (worst.crowded if worst else ()) if p in places}
        # Participants and slots by rank, so that those that appear share all the colours.
        cells = grid.cells.values()
        named = {c.thread: c.labels[0] for c in cells if c.thread is not None}
        self.threads = {t: (rank, named[t]) for rank, t in enumerate(sorted(named))}
        held = sorted({c.value for c in cells if c.value is not None})
        self.slots = {v: rank for rank, v in enumerate(held)}
        indices = [c.index for c in cells if c.index is not None]
        self.span = (min(indices), max(indices)) if indices else (0, 0)
        self.left = 0.35 + 0.075 * max(map(len, grid.row_labels), default=0)
        self.wide = max(grid.columns * _CELL, 3.2)
        self.width = self.left + self.wide + _LEGEND
        letters = max(int((self.width - 0.4) / 0.088), 24)
        self.title = _wrapped(title, letters, 4)
        self.subtitle = _wrapped(subtitle, int(letters * 1.15), 2)
        lines = self.title.count("\n") + 1 if self.title else 0
        more = self.subtitle.count("\n") + 1 if self.subtitle else 0
        self.top = 0.42 + 0.18 * lines + 0.15 * more
        self.tall = grid.rows * _CELL
        self.height = self.top + max(self.tall, self._legend_height()) + 0.25

    def figure(self) -> Any:
        """Return the finished figure."""
        figure = self.matplotlib.figure.Figure(figsize=(self.width, self.height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)  # inches, from the top left
        axes.set_axis_off()
        self._heading(axes)
        self._margins(axes)
        self._cells(axes)
        self._legend(axes, self.left + self.grid.columns * _CELL + 0.3, self.top + 0.1)
        return figure

    def _heading(self, axes: Any) -> None:
        y = 0.16
        if self.title:
            axes.text(
                0.18, y, self.title, family="monospace", fontsize=9.5, weight="bold", color=_INK,
                va="top", gid="title",
            )  # fmt: skip
            y += 0.18 * (self.title.count("\n") + 1)
        if self.subtitle:
            axes.text(0.18, y, self.subtitle, fontsize=8, color=_MUTED, va="top", gid="subtitle")

    def _margins(self, axes: Any) -> None:
        grid, x0, y0 = self.grid, self.left, self.top
        style = {"fontsize": 7, "color": _MUTED}
        for column, label in enumerate(grid.column_labels):
            axes.text(x0 + (column + 0.5) * _CELL, y0 - 0.05, label, ha="center", **style)
        for row, label in enumerate(grid.row_labels):
            y = y0 + (row + 0.5) * _CELL
            axes.text(x0 - 0.07, y, label, ha="right", va="center", **style)
        label = f"{grid.column_axis} \N{RIGHTWARDS ARROW}"
        axes.text(x0 + grid.columns * _CELL + 0.06, y0 - 0.05, label, **style)
        if grid.row_axis:
            label = f"{grid.row_axis} \N{DOWNWARDS ARROW}"
            axes.text(x0 - 0.07, y0 - 0.05, label, ha="right", **style)

    # -- cells -----------------------------------------------------------------------------

    def _cells(self, axes: Any) -> None:
        box = self.matplotlib.patches.Rectangle
        faces: list[Any] = []
        strips: list[Any] = []
        frames: list[Any] = []
        alarms: list[Any] = []
        for row in range(self.grid.rows):
            for column in range(self.grid.columns):
                x, y = self.left + column * _CELL, self.top + row * _CELL
                cell = self.grid.cells.get((row, column))
                face: Any = "#f3f3f5" if cell is None else self._face(cell)
                faces.append(box((x, y), _CELL, _CELL, facecolor=face))
                if cell is None:
                    continue
                if cell.value is not None:
                    colour = palette.slot(self.slots[cell.value], len(self.slots))
                    strips.append(
                        box((x + 0.05, y + _CELL - 0.075), _CELL - 0.1, 0.045, facecolor=colour)
                    )
                if (row, column) in self.phase:
                    frame = box((x + 0.022, y + 0.022), _CELL - 0.044, _CELL - 0.044)
                    (alarms if (row, column) in self.crowded else frames).append(frame)
                self._labels(axes, cell, x, y)
        collection = self.matplotlib.collections.PatchCollection
        axes.add_collection(
            collection(faces, match_original=True, edgecolor=_LINE, linewidth=0.9, zorder=0)
        )
        if strips:
            axes.add_collection(collection(strips, match_original=True, linewidth=0, zorder=1))
        for found, ink in ((frames, _INK), (alarms, _ALARM)):
            if found:
                axes.add_collection(
                    collection(found, facecolor="none", edgecolor=ink, linewidth=1.4, zorder=2)
                )

    def _face(self, cell: Cell) -> Any:
        if cell.error:
            return "#fbe3e4"
        if self.report is not None and cell.index is not None:
            banks = self.report.banks
            return palette.around(banks.bank(cell.index), banks.count)
        if cell.thread is not None:
            return palette.around(self.threads[cell.thread][0], len(self.threads))
        if cell.index is None:
            return "#eef0f4"
        low, high = self.span
        return palette.ramp((cell.index - low) / max(high - low, 1))

    def _labels(self, axes: Any, cell: Cell, x: float, y: float) -> None:
        lines = list(cell.labels)
        if self.report is not None and cell.index is not None:
            lines.append(f"b{self.report.banks.bank(cell.index)}")
        longest = max(map(len, lines))
        size = 8.2 if longest <= 4 else 6.8 if longest == 5 else 6.1 if longest == 6 else 5.2
        middle = x + _CELL / 2
        centre = y + _CELL / 2 - (0.03 if cell.value is not None else 0)
        step = 0.125 if len(lines) < 3 else 0.108
        start = centre - step * (len(lines) - 1) / 2
        for number, line in enumerate(lines):
            axes.text(
                middle, start + step * number, line, ha="center", va="center_baseline",
                fontsize=size if number == 0 else min(size, 6.4),
                weight="bold" if number == 0 and len(lines) > 1 else "normal",
                color=_INK if number == 0 else "#3c4152",
                gid=f"cell-{cell.row}-{cell.column}" + (f"-{number}" if number else ""),
            )  # fmt: skip

    # -- legend ----------------------------------------------------------------------------

    def _entries(self) -> list[tuple[str, list[tuple[Any, str]]]]:
        """Titles with their swatches: (colour, label)."""
        if self.report is not None:
            count = self.report.banks.count
            swatches = [(palette.around(b, count), f"bank {b}") for b in _spread(count, 8)]
            return [("banks", swatches)]
        if self.grid.kind == "thread-value":
            who, held = list(self.threads.values()), list(self.slots)
            shown = [(palette.around(r, len(who)), who[r][1]) for r in _spread(len(who), 8)]
            found = [("threads", shown)]
            if held:
                strip = [(palette.slot(r, len(held)), f"V{held[r]}") for r in _spread(len(held), 8)]
                found.append(("values", strip))
            return found
        low, high = self.span
        steps = sorted({low + (high - low) * k // 4 for k in range(5)})
        return [("index", [(palette.ramp((s - low) / max(high - low, 1)), str(s)) for s in steps])]

    def _legend_height(self) -> float:
        return sum(0.3 + 0.17 * len(swatches) for _, swatches in self._entries()) + 0.5

    def _legend(self, axes: Any, x: float, y: float) -> None:
        box = self.matplotlib.patches.Rectangle
        y += 0.08
        for name, swatches in self._entries():
            axes.text(x, y, name, fontsize=7.5, weight="bold", color=_INK, va="center")
            y += 0.17
            for colour, label in swatches:
                axes.add_patch(box((x, y - 0.06), 0.2, 0.12, facecolor=colour, edgecolor="none"))
                axes.text(x + 0.27, y, label, fontsize=7, color=_MUTED, va="center")
                y += 0.17
            y += 0.13
        rest = self.phase - self.crowded
        red = "conflict in it" if rest else "worst phase"
        whole = "worst phase" if self.crowded else "one phase"
        marks = [(_INK, whole, rest), (_ALARM, red, self.crowded)]
        for colour, label, cells in marks:
            if not cells:
                continue
            axes.add_patch(
                box((x, y - 0.06), 0.2, 0.12, facecolor="none", edgecolor=colour, linewidth=1.3)
            )
            axes.text(x + 0.27, y, label, fontsize=7, color=_MUTED, va="center")
            y += 0.2


def _text(map: LayoutMap) -> str:
    """Return the title of a map: shape:stride where that says it, else its text form."""
    from tvm_tilex.layout.radix import MixedRadix
    from tvm_tilex.layout.text import radix_text

    return radix_text(map) if isinstance(map, MixedRadix) else str(map)


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced numbers of [0, count)."""
    return list(range(0, count, -(-count // most)))


def _wrapped(text: str, width: int, lines: int) -> str:
    found = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    if len(found) > lines:
        found = [*found[: lines - 1], found[lines - 1][: width - 3] + "..."]
    return "\n".join(found)

"""Draws what peers.py recorded: useful bytes a second of every operator and shape, under two roofs.

They bound a kernel that only moves memory: the rate of a large elementwise copy, and that of a copy
which moves no more than the call does, where the ramp of a launch counts.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

__all__ = ["draw"]

_STYLE = {  # Okabe and Ito's colours, told apart by the marker as well
    "tilex": ("#000000", "o"),
    "tilex-ordinary": ("#0072B2", "*"),
    "torch": ("#E69F00", "s"),
    "compile": ("#56B4E9", "^"),
    "liger": ("#009E73", "D"),
    "quack": ("#D55E00", "v"),
    "dlight": ("#CC79A7", "P"),
}


def draw(records, path):
    """Draw recorded runs into one picture, a row for each type, a column for each operator.

    Raises
    ------
    ValueError
        If a record has another schema, or nothing was measured.
    """
    lines = []
    for record in records:
        if record.get("schema") != 1:
            raise ValueError(f"not a record of peers.py: schema {record.get('schema')!r}")
        for dtype in dict.fromkeys(row["dtype"] for row in record["rows"]):
            rows = [
                row
                for row in record["rows"]
                if row["dtype"] == dtype and row["status"] == "measured"
            ]
            lines += [(record, dtype, rows)] if rows else []
    if not lines:
        raise ValueError("nothing was measured")
    operators = list(dict.fromkeys(row["operator"] for _, _, rows in lines for row in rows))
    figure, axes = pyplot.subplots(
        len(lines),
        len(operators),
        figsize=(3.1 * len(operators), 3.4 * len(lines) + 0.7),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for line, (record, dtype, rows) in zip(axes, lines, strict=True):
        for axis, operator in zip(line, operators, strict=True):
            _panel(axis, record, [row for row in rows if row["operator"] == operator])
            axis.set_title(f"{operator}, {dtype}", fontsize=9)
        line[0].set_ylabel("useful GB/s")
    handles = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=8, fontsize=9)
    conditions = lines[0][0]["conditions"]
    figure.suptitle(f"{conditions['device']}, torch {conditions['torch']}", fontsize=10)
    figure.savefig(Path(path), dpi=130)
    pyplot.close(figure)


def _panel(axis, record, rows):
    # By shape, not by bytes: half of the shapes move the same bytes in rows of other widths.
    shapes = sorted({tuple(row["shape"]) for row in rows}, key=lambda shape: shape[::-1])
    roof = {tuple(row["shape"]): row["same_size_copy_GBps"] for row in rows}
    axis.axhline(record["copy_GBps"], color="#555555", linewidth=1.2, label="large copy")
    axis.plot(
        range(len(shapes)),
        [roof[shape] for shape in shapes],
        color="#999999",
        linestyle="--",
        linewidth=1.2,
        label="copy of as many bytes",
    )
    for name in dict.fromkeys(row["implementation"] for row in rows):
        colour, marker = _STYLE.get(name, ("#0072B2", "x"))
        own = {tuple(row["shape"]): row["GBps"] for row in rows if row["implementation"] == name}
        axis.plot(
            range(len(shapes)),
            [own.get(shape, float("nan")) for shape in shapes],
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=0.8,
            alpha=0.85,
            label=name,
        )
    labels = [f"{rows}x{columns}" for rows, columns in shapes]
    axis.set_xticks(range(len(shapes)), labels, rotation=60, ha="right", fontsize=7)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.25)

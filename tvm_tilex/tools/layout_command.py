"""``tilex layout TEXT``: the map, a table of its values, each fact with its verdict, a picture."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    DEFAULT_BUDGET,
    LayoutMap,
    alignment,
    cardinality,
    compose,
    contiguity,
    normalize,
    prove,
    try_inverse,
)
from tvm_tilex.layout.drawing import BankReport, Banks, bank_conflicts, draw, grid_of, save
from tvm_tilex.tools.layout_text import SYSTEMS, ReadLayout, read_layout

__all__ = ["layout"]


_LONGEST = 2000  # characters of a map's text; a table would fill the screen


class _Tile(click.ParamType):
    name = "ROWSxCOLUMNS"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        rows, _, columns = str(value).partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            self.fail(f"{value!r} is not ROWSxCOLUMNS", param, ctx)
        return int(rows), int(columns)


@click.command("layout")
@click.argument("text", metavar="LAYOUT")
@click.option(
    "--from",
    "system",
    type=click.Choice(("auto", *SYSTEMS)),
    default="auto",
    show_default=True,
    help="Whose spelling LAYOUT and OTHER have.",
)
@click.option(
    "--compose",
    "others",
    metavar="OTHER",
    multiple=True,
    help="Show LAYOUT after OTHER, x -> LAYOUT(OTHER(x)). Several are applied right to left.",
)
@click.option("--inverse", is_flag=True, help="Show the inverse on the image, proved or refused.")
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Points to enumerate where no procedure decides; 0 turns enumeration off.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    help="Rows of the value table to print.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw into PATH.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw into PATH.")
@click.option(
    "--threads",
    metavar="AXES",
    help="Axes that are participants, separated by commas; '' for none. By default by name.",
)
@click.option("--tile", type=_Tile(), help="Tile of a thread-value layout with a linear index.")
@click.option("--bank-conflicts", is_flag=True, help="Count the bank conflicts of an access.")
@click.option("--access-bytes", type=click.IntRange(min=1), help="Bytes that a thread accesses.")
@click.option("--element-bytes", type=click.IntRange(min=1), help="Bytes of an element.")
@click.option("--along", metavar="AXIS", help="Axis along which neighbouring threads stand.")
@click.option("--banks", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--bank-bytes", type=click.IntRange(min=1), default=4, show_default=True)
def layout(
    text: str,
    system: str,
    others: tuple[str, ...],
    inverse: bool,
    budget: int,
    rows: int,
    svg: Path | None,
    png: Path | None,
    threads: str | None,
    tile: tuple[int, int] | None,
    bank_conflicts: bool,
    **access: Any,
) -> None:
    """Evaluate LAYOUT, say what is proved of it, and draw it.

    LAYOUT is SHAPE:STRIDE as in CuTe, for example "(4,(2,2)):(2,(1,8))", a map in the text form of
    docs/layout.md, a layout as CuTe, Triton, TileLang or TVM write it, or an operand of an
    instruction atom such as mma_m16n8k16_f16_f32.A.
    """
    banks = _banks(bank_conflicts, access)
    parts = [_read(part, system) for part in (text, *others)]
    map, title = _composed(parts, (text, *others))
    if inverse:
        map, title = _inverted(map, budget), f"inverse of {title}"
    click.echo(_text_of(map))
    if rows:
        _print_values(map, rows)
    for name, verdict in prove(map, budget).items():
        click.echo(f"{name}: {verdict}")
    _print_queries(map, budget)
    report = None if banks is None else _report(map, banks, access["along"])
    replica = tuple(n for part in parts for n in part.replica if n in map.domain.names)
    chosen = None if threads is None else tuple(n.strip() for n in threads.split(",") if n.strip())
    for path in (svg, png):
        if path is not None:
            _draw(map, path, title, report, threads=chosen, tile=tile, replica=replica)


def _banks(asked: bool, access: dict[str, Any]) -> Banks | None:
    if not asked:
        given = [name for name in ("access_bytes", "element_bytes", "along") if access[name]]
        if given:
            raise click.UsageError(f"--{given[0].replace('_', '-')} needs --bank-conflicts")
        return None
    for name in ("access_bytes", "element_bytes"):
        if access[name] is None:
            raise click.UsageError(f"--bank-conflicts needs --{name.replace('_', '-')}")
    try:
        return Banks(
            access["access_bytes"], access["element_bytes"], access["banks"], access["bank_bytes"]
        )
    except LayoutError as error:
        raise click.UsageError(str(error)) from None


def _refuse(error: LayoutError | str, code: int) -> SystemExit:
    click.echo(f"error: {' '.join(str(error).split())}", err=True)
    return SystemExit(code)


def _read(text: str, system: str) -> ReadLayout:
    try:
        return read_layout(text, system)
    except LayoutError as error:
        raise _refuse(error, 2) from None


def _composed(parts: list[ReadLayout], texts: tuple[str, ...]) -> tuple[LayoutMap, str]:
    map = parts[-1].map
    try:
        for part in reversed(parts[:-1]):
            map = normalize(compose(part.map, map))
    except LayoutError as error:
        raise _refuse(error, 1) from None
    return map, " o ".join(" ".join(text.split()) for text in texts)


def _inverted(map: LayoutMap, budget: int) -> LayoutMap:
    answer = try_inverse(map, budget, on_image=True)
    click.echo(f"inverse: {answer.verdict}")
    if answer.value is None:
        raise SystemExit(1)
    return answer.value


def _text_of(map: LayoutMap) -> str:
    try:
        text = str(map)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    except LayoutError as error:
        return f"{type(map).__name__} from {map.domain} to {map.codomain} ({error})"


def _report(map: LayoutMap, banks: Banks, along: str | None) -> BankReport:
    try:
        report = bank_conflicts(map, banks, along)
    except LayoutError as error:
        raise _refuse(error, 1) from None
    click.echo(str(report))
    return report


def _draw(
    map: LayoutMap, path: Path, title: str, report: BankReport | None, **reading: Any
) -> None:
    try:
        grid = grid_of(map, **reading)
    except LayoutError as error:
        raise _refuse(error, 1) from None
    subtitle = f"{map.domain} \N{RIGHTWARDS ARROW} {map.codomain}"
    if report is not None:
        subtitle = f"{report}  |  {subtitle}"
    try:
        save(draw(grid, title=title, subtitle=subtitle, report=report), path)
    except OSError as error:
        raise _refuse(f"'{path}' is not written: {error.strerror or error}", 1) from None
    click.echo(f"drawn: {path}")


def _print_values(map: LayoutMap, rows: int) -> None:
    params = {p.name: p.upper for p in map.domain.parameters}
    table = Table(*map.domain.names, *map.codomain.names, box=None, pad_edge=False)
    shown = 0
    for point in itertools.islice(_members(map, params), rows + 1):
        if shown == rows:
            break
        table.add_row(*map_row(map, point, params))
        shown += 1
    setting = ", ".join(f"{n} = {v}" for n, v in params.items())
    if setting:
        click.echo(f"values at {setting}:")
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(table)
    size = cardinality(map.domain, 0).value if not params else None
    if size is not None and size > shown:
        click.echo(f"... {size - shown} more points (--rows)")


def _members(map: LayoutMap, params: dict[str, int]) -> itertools.chain[tuple[int, ...]]:
    from tvm_tilex.layout.finite import _points

    return itertools.chain(_points(map.domain, params))


def map_row(map: LayoutMap, point: tuple[int, ...], params: dict[str, int]) -> list[str]:
    """Return the coordinates and values of one point as text; a refusal is shown in place."""
    left = [str(x) for x in point]
    try:
        value = map.apply(*point, params=params)
    except LayoutError as error:
        return [*left, f"! {error}"] + [""] * (map.codomain.rank - 1)
    return left + [str(v) for v in (value if isinstance(value, tuple) else (value,))]


def _print_queries(map: LayoutMap, budget: int) -> None:
    size = cardinality(map, budget)
    shown = "" if size.value is None else f"{size.value} "
    click.echo(f"cardinality: {shown}{size.verdict}")
    for output in map.codomain.names:
        aligned = alignment(map, output, budget)
        shown = "" if aligned.value is None else f"{aligned.value} "
        click.echo(f"alignment of {output}: {shown}{aligned.verdict}")
        if not map.domain.rank:
            continue
        axis = map.domain.names[-1]
        run = contiguity(map, axis, output, budget)
        shown = "" if run.value is None else f"{run.value} "
        click.echo(f"contiguity of {output} along {axis}: {shown}{run.verdict}")

"""``tilex layout TEXT``: the map, a table of its values, and each fact with its verdict."""

from __future__ import annotations

import itertools
import sys

import click
from rich.console import Console
from rich.table import Table

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    DEFAULT_BUDGET,
    LayoutMap,
    alignment,
    cardinality,
    contiguity,
    parse_map,
    prove,
)

__all__ = ["layout"]


@click.command("layout")
@click.argument("text", metavar="LAYOUT")
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
def layout(text: str, budget: int, rows: int) -> None:
    """Evaluate LAYOUT and say what is proved of it.

    LAYOUT is SHAPE:STRIDE as in CuTe, for example "(4,(2,2)):(2,(1,8))", or a map in the text
    form of docs/layout.md.
    """
    try:
        map = parse_map(text)
    except LayoutError as error:
        click.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise SystemExit(2) from None
    click.echo(str(map))
    if rows:
        _print_values(map, rows)
    for name, verdict in prove(map, budget).items():
        click.echo(f"{name}: {verdict}")
    _print_queries(map, budget)


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

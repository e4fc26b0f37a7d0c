"""``tilex tuned``: what the tuning database holds, and its exchange as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from tvm_tilex.tune.database import Database
from tvm_tilex.tune.text import describe_choices, format_value

__all__ = ["tuned"]


@click.group()
@click.option("--database", type=click.Path(path_type=Path), help="Another one than the user's.")
@click.pass_context
def tuned(ctx: click.Context, database: Path | None) -> None:
    """List, export or import stored winners."""
    ctx.obj = Database(database)


@tuned.command("list")
@click.pass_obj
def list_winners(database: Database) -> None:
    """List every readable entry."""
    for entry in database.entries():
        head = entry.key.tile_ir.partition("\n")[0].removesuffix(" {")
        value = format_value(entry.value, entry.metric)
        click.echo(
            f"{head} on {entry.key.device}: {value} by {entry.metric} with "
            f"{describe_choices(entry.choices)} ({entry.created})"
        )


@tuned.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def export_winners(database: Database, file: Path) -> None:
    """Write every readable entry to FILE as JSON."""
    click.echo(f"{database.export_json(file)} entries")


@tuned.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def import_winners(database: Database, file: Path) -> int:
    """Append the entries of FILE; corrupted ones are reported and left out."""
    new, left_out = database.import_json(file)
    click.echo(f"{new} new entries, {left_out} left out")
    return 1 if left_out else 0

"""Stored winners for the compiler: the options of one, and what a cache must remember of them."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tilex.ir import Program
from tvm_tilex.ir.print import format_program
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.database import Database, TuningDatabaseWarning
from tvm_tilex.tune.entry import Key
from tvm_tilex.tune.versions import device_name, versions

__all__ = ["StoredWinner", "key_of", "state", "stored_winner", "unusable"]


@dataclass(frozen=True)
class StoredWinner:
    """Options that won, and where they are from."""

    options: CompileOptions
    origin: str


def key_of(program_text: str, target: Any, options: str, device: str | None = None) -> Key:
    """The key of a program's text for a target, and this machine's device unless it is named."""
    where = device if device is not None else _device(str(target.kind.name))
    return Key(program_text, options, str(target), where, versions())


def stored_winner(
    program: Program, target: Any, options: CompileOptions, database: bool | str | Path
) -> StoredWinner | None:
    """The winner for exactly this program, these options, this target, device and versions."""
    found = _database(database)
    entry = found.get(key_of(format_program(program), target, options.to_json()))
    if entry is None:
        return None
    origin = f"{entry.metric} winner of {entry.created} in {found.path}"
    return StoredWinner(entry.options(), origin)


def unusable(winner: StoredWinner, error: Exception) -> None:
    """Report a stored winner that the compiler refuses."""
    warnings.warn(
        f"ignored: the {winner.origin} is refused: {error}", TuningDatabaseWarning, stacklevel=4
    )


def state(database: bool | str | Path) -> tuple[str, ...]:
    """What changes whenever a lookup might."""
    return _database(database).state()


def _database(database: bool | str | Path) -> Database:
    return Database(None if database is True else Path(str(database)))


@functools.cache
def _device(kind: str) -> str:
    return device_name(kind)

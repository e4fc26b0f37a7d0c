"""Stored winners in SQLite: many processes may read and write at once, and nothing is overwritten.

A write appends; the newest entry of a key and metric is the one that counts. What cannot be read
is reported with a warning and ignored: a tuning database can make a kernel slower, never wrong,
and never keep it from compiling.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs

from tvm_tilex.tune.entry import Entry, Key
from tvm_tilex.tune.errors import DatabaseError

__all__ = ["Database", "TuningDatabaseWarning", "default_path"]

# "TILX": tells a tuning database from any other SQLite file.
_APPLICATION = 0x54494C58
_SCHEMA = 1
_WAIT_SECONDS = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS winners (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    metric TEXT NOT NULL,
    entry TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_key ON winners (key, metric);
"""
# Device time before wall time; a modelled cost only where nothing was measured.
_PREFERENCE = ("gpu-control", "host-wall", "sim-cost")


class TuningDatabaseWarning(UserWarning):
    """An entry or a file that is ignored, and why."""


def default_path() -> Path:
    """``TILEX_TUNING_DATABASE``, or ``tuning.sqlite`` in the user's cache folder."""
    named = os.environ.get("TILEX_TUNING_DATABASE")
    if named:
        return Path(named)
    return Path(platformdirs.user_cache_dir("tvm_tilex")) / "tuning.sqlite"


class Database:
    """A tuning database at ``path``, by default the user's. Opened anew for each operation."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()

    def require_ours(self) -> None:
        """Refuse a path that winners could not be stored under, before a long run.

        Raises
        ------
        DatabaseError
            If there is a file that is no tuning database of this version.
        """
        if self.path.exists():
            with self._opened(write=False):
                pass

    def put(self, entries: Iterable[Entry]) -> int:
        """Append entries in one transaction; those that are stored already are not repeated.

        Returns
        -------
        int
            How many were new.

        Raises
        ------
        DatabaseError
            If the file is not a tuning database or cannot be written.
        """
        rows = [(e.key.digest, e.metric, e.to_json()) for e in entries]
        with self._opened(write=True) as connection:
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO winners (key, metric, entry) SELECT ?1, ?2, ?3 WHERE NOT EXISTS "
                "(SELECT 1 FROM winners WHERE key = ?1 AND metric = ?2 AND entry = ?3)",
                rows,
            )
            connection.execute("COMMIT")
            return connection.total_changes - before

    def get(self, key: Key) -> Entry | None:
        """The newest readable winner of a key, by device time if there is one.

        Entries that are corrupted or foreign are reported by a :class:`TuningDatabaseWarning` and
        ignored, and so is a file that is no tuning database.
        """
        if not self.path.exists():
            return None
        query = "SELECT number, key, metric, entry FROM winners WHERE key = ? ORDER BY number DESC"
        found: dict[str, Entry] = {}
        for entry in self._readable(query, (key.digest,)):
            if entry.key == key:
                found.setdefault(entry.metric, entry)
        return next((found[metric] for metric in _PREFERENCE if metric in found), None)

    def entries(self) -> tuple[Entry, ...]:
        """Every readable entry, oldest first."""
        if not self.path.exists():
            return ()
        return tuple(self._readable("SELECT number, key, metric, entry FROM winners", ()))

    def export_json(self, path: Path) -> int:
        """Write every readable entry to a JSON file; returns how many.

        Raises
        ------
        DatabaseError
            If the file cannot be written.
        """
        found = [json.loads(entry.to_json()) for entry in self.entries()]
        text = json.dumps({"schema": "tvm_tilex.tuning-database", "entries": found}, indent=1)
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise DatabaseError(f"{path}: {error.strerror}") from None
        return len(found)

    def import_json(self, path: Path) -> tuple[int, int]:
        """Append the entries of a JSON file; corrupted ones are reported and left out.

        Returns
        -------
        tuple of int
            How many were new, and how many were left out.

        Raises
        ------
        DatabaseError
            If the file is not an export, or the database cannot be written.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            texts = [json.dumps(entry) for entry in found["entries"]]
            known = found["schema"] == "tvm_tilex.tuning-database"
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatabaseError(f"{path}: not an exported tuning database ({error})") from None
        if not known:
            raise DatabaseError(f"{path}: not an exported tuning database")
        good = []
        for position, text in enumerate(texts):
            try:
                good.append(Entry.from_json(text))
            except DatabaseError as error:
                _ignore(f"{path}: entry {position}: {error}")
        return self.put(good), len(texts) - len(good)

    def state(self) -> tuple[str, ...]:
        """What changes whenever the file does, for caches of what was looked up."""
        found = [str(self.path)]
        for path in (self.path, self.path.with_name(self.path.name + "-wal")):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append(f"{status.st_mtime_ns} {status.st_size}")
        return tuple(found)

    def _readable(self, query: str, values: tuple[str, ...]) -> Iterator[Entry]:
        try:
            with self._opened(write=False) as connection:
                found = _has_tables(connection)
                rows = connection.execute(query, values).fetchall() if found else []
        except DatabaseError as error:
            _ignore(str(error))
            return
        for number, key, metric, text in rows:
            try:
                entry = Entry.from_json(text)
            except DatabaseError as error:
                _ignore(f"{self.path}: entry {number}: {error}")
                continue
            if (entry.key.digest, entry.metric) != (key, metric):
                _ignore(f"{self.path}: entry {number}: stored under the key of another")
                continue
            yield entry

    @contextlib.contextmanager
    def _opened(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if write else "ro"
            address = f"{self.path.resolve().as_uri()}?mode={mode}"
            connection = sqlite3.connect(
                address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
            with contextlib.closing(connection):
                self._prepare(connection, write=write)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise DatabaseError(f"{self.path}: {error}") from None

    def _prepare(self, connection: sqlite3.Connection, *, write: bool) -> None:
        """Check that the file is ours, and make it ours if it is new.

        A file of no tables is one that another process is about to make: it holds no winners.
        """
        application, schema, tables = _contents(connection)
        if (application, schema, tables) == (0, 0, 0):
            if write:
                self._create(connection)
            return
        if application != _APPLICATION:
            raise DatabaseError(f"{self.path}: not a tuning database")
        if schema != _SCHEMA:
            raise DatabaseError(
                f"{self.path}: a tuning database of version {schema}, not {_SCHEMA}"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        # Changing the journal needs the file alone and does not wait for it by itself.
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        # One transaction: another process sees an empty file or a whole database.
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLE} PRAGMA application_id = {_APPLICATION};"
            f"PRAGMA user_version = {_SCHEMA}; COMMIT;"
        )


def _contents(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """The application, the schema and the number of tables, all of one moment."""
    connection.execute("BEGIN")  # else another process may make the file between two of them
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    return application, schema, tables


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


def _ignore(message: str) -> None:
    warnings.warn(f"ignored: {message}", TuningDatabaseWarning, stacklevel=4)

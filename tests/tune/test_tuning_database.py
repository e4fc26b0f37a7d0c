"""Stored winners: the whole key, damage of every kind, several processes, exchange as JSON."""

import contextlib
import dataclasses
import functools
import json
import sqlite3
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.build.target import resolve_target
from tvm_tilex.ir import format_program
from tvm_tilex.tune import Database, TuningDatabaseWarning
from tvm_tilex.tune.entry import Entry, Key
from tvm_tilex.tune.errors import DatabaseError
from tvm_tilex.tune.lookup import key_of

SOFTMAX = tx.kernels.catalog()["softmax"]


def key(rows=17, columns=4096, kind="metal", **other):
    program = SOFTMAX.kernel.capture(SOFTMAX.specs(rows, columns))
    found = key_of(format_program(program), resolve_target(kind), tx.CompileOptions().to_json())
    return dataclasses.replace(found, **other)


def entry(value=10.0, metric="sim-cost", choices=None, **other):
    chosen = {"threads_per_group": 128} if choices is None else choices
    return Entry(key(**other), chosen, metric, value, "x", "2026-01-01T00:00:00+00:00")


def compiled(**other):
    return tx.compile(SOFTMAX.kernel, *SOFTMAX.specs(17, 4096), target="metal", **other)


def raw(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.fixture
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningDatabaseWarning)
        yield


# Use of a winner.


def test_compile_uses_a_winner_only_when_told_to(database_path, strict):
    Database().put([entry()])
    assert database_path.exists()
    plain = compiled()
    assert plain.tuned is None and plain.plan.threads != 128
    told = compiled(tuned=True)
    assert told.plan.threads == 128 and told.options.threads_per_group == 128
    assert "sim-cost winner of 2026-01-01" in told.tuned and str(database_path) in told.tuned
    assert compiled().plan.threads != 128  # the cache keeps them apart
    assert compiled(tuned=database_path).plan.threads == 128
    assert compiled(tuned=database_path.with_name("none.sqlite")).tuned is None


def test_the_environment_can_tell_it(database_path, strict, monkeypatch):
    Database().put([entry()])
    monkeypatch.setenv("TILEX_TUNED", "1")
    assert compiled().plan.threads == 128
    assert compiled(tuned=False).plan.threads != 128
    monkeypatch.setenv("TILEX_TUNED", str(database_path))
    monkeypatch.delenv("TILEX_TUNING_DATABASE")
    assert compiled().plan.threads == 128
    monkeypatch.setenv("TILEX_TUNED", "0")
    assert compiled().plan.threads != 128


@pytest.mark.parametrize(
    "other",
    [
        {"columns": 4095},
        {"kind": "cuda"},
        {"options": tx.CompileOptions(reduction_unroll=2).to_json()},
        {"device": "Apple M9"},
        {"versions": {"tvm_tilex": "0.0.1", "apache-tvm": "x", "apache-tvm-ffi": "x"}},
        {"target": "{}"},
    ],
)
def test_every_part_of_the_key_counts(other, strict):
    Database().put([entry(**other)])
    assert compiled(tuned=True).tuned is None


def test_options_that_were_asked_for_select_the_entry(strict):
    asked = tx.CompileOptions(reduction_unroll=2)
    Database().put([entry(options=asked.to_json())])
    artifact = compiled(tuned=True, options=asked)
    assert artifact.options == dataclasses.replace(asked, threads_per_group=128)


def test_a_call_sees_a_winner_that_is_stored_after_it(strict, monkeypatch):
    """The cache of calls knows the state of the database."""
    monkeypatch.setenv("TILEX_TUNED", "1")

    @tx.tile_kernel
    def shifted(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
            value = x[at, region]
            out(at, region).store(value - tx.reduce(value, columns, tx.maximum))

    x = np.ones((3, 64), np.float32)
    out = np.empty_like(x)
    shifted(x, out)
    shifted(x, out)
    assert [a.tuned for a in shifted.artifacts.values()] == [None]
    program = format_program(shifted.capture([tx.spec((3, 64)), tx.spec((3, 64))]))
    mine = key_of(program, resolve_target("llvm"), tx.CompileOptions().to_json())
    Database().put([Entry(mine, {"vector_access": False}, "host-wall", 1.0, "seconds", "now")])
    shifted(x, out)
    assert (out == 0).all()
    assert [a.tuned is None for a in shifted.artifacts.values()] == [True, False]


def test_the_newest_counts_and_device_time_before_wall_time(strict):
    database = Database()
    database.put([entry(1.0, "host-wall", {"threads_per_group": 64})])
    database.put([entry(2.0, "host-wall", {"threads_per_group": 256})])
    assert database.get(key()).choices == {"threads_per_group": 256}
    database.put([entry(9.0, "gpu-control", {"threads_per_group": 512})])
    database.put([entry(0.1, "sim-cost", {"threads_per_group": 32})])
    assert database.get(key()).metric == "gpu-control"
    assert len(database.entries()) == 4  # nothing is overwritten
    assert database.put([entry(2.0, "host-wall", {"threads_per_group": 256})]) == 0


def test_a_winner_that_the_compiler_refuses_is_reported_and_left(strict):
    """160 threads do not divide among 3 programs: no longer a legal plan, whatever was stored."""
    choices = {"threads_per_group": 160, "reduction_programs_per_group": 3}
    Database().put([entry(choices=choices)])
    with pytest.warns(TuningDatabaseWarning, match="is refused: .*not 32"):
        artifact = compiled(tuned=True)
    assert artifact.tuned is None and artifact.options == tx.CompileOptions()


# Damage.


def damaged(change):
    found = json.loads(entry().to_json())
    change(found)
    return json.dumps(found)


DAMAGE = {
    "no JSON": ("{", "not an entry"),
    "no entry": ("[]", "not an entry"),
    "missing": (damaged(lambda e: e["body"].pop("choices")), "not an entry"),
    "altered": (damaged(lambda e: e["body"].update(value=1.0)), "digest"),
    "no digest": (damaged(lambda e: e.pop("digest")), "digest"),
    "metric": (entry(metric="taste").to_json(), "no such metric: 'taste'"),
    "option": (entry(choices={"speed": 11}).to_json(), "no tunable option"),
    "promise": (entry(choices={"noalias": True}).to_json(), "no tunable option"),
    "value": (entry(choices={"threads_per_group": 48}).to_json(), "multiple of 32"),
    "type": (entry(choices={"threads_per_group": {}}).to_json(), "not usable"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_corrupted_entry_is_reported_and_ignored(name, database_path):
    text, reason = DAMAGE[name]
    database = Database()
    database.put([entry(choices={"threads_per_group": 256})])
    raw(
        database_path,
        "INSERT INTO winners (key, metric, entry) VALUES (?, ?, ?)",
        key().digest,
        "sim-cost",
        text,
    )
    with pytest.warns(TuningDatabaseWarning, match=f"entry 2.*{reason}"):
        artifact = compiled(tuned=True)
    assert artifact.plan.threads == 256  # the older one is whole


def test_an_entry_under_the_key_of_another_is_ignored(database_path):
    database = Database()
    database.put([entry(columns=128)])
    raw(database_path, "UPDATE winners SET key = ?", key().digest)
    with pytest.warns(TuningDatabaseWarning, match="under the key of another"):
        assert database.get(key()) is None


def not_sqlite(path):
    path.write_bytes(b"tuning data " * 100)


def another_application(path):
    raw(path, "CREATE TABLE winners (key, metric, entry, number)")


def newer_version(path):
    Database(path).put([entry()])
    raw(path, "PRAGMA user_version = 2")


def folder(path):
    path.mkdir()


def truncated(path):
    Database(path).put([entry(value=float(n)) for n in range(50)])
    raw(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    "make", [not_sqlite, another_application, newer_version, folder, truncated]
)
def test_a_file_that_is_no_database_is_reported_and_left_alone(make, database_path):
    make(database_path)
    before = database_path.read_bytes() if database_path.is_file() else None
    with pytest.warns(TuningDatabaseWarning, match=r"tuning\.sqlite"):
        assert compiled(tuned=True).tuned is None
    with pytest.raises(DatabaseError, match=r"tuning\.sqlite"):
        Database().put([entry(value=3.5)])
    if before is not None:
        assert database_path.read_bytes() == before


def test_an_unwritable_place_is_an_error_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="file"):
        Database(tmp_path / "file" / "tuning.sqlite").put([entry()])


# Several processes.

WRITERS = """
import dataclasses, os, sys
from tvm_tilex.tune.database import Database
from tvm_tilex.tune.entry import Entry
path, count, *names = sys.argv[1:]
one = Entry.from_json(sys.stdin.readline())
gate, opened = os.pipe()
writers = []
for name in names:
    writers.append(os.fork())
    if writers[-1] == 0:
        os.close(opened)
        os.read(gate, 1)  # returns to all when the last of the others closes it
        for n in range(int(count)):
            Database(path).put([dataclasses.replace(one, created=f"{name} {n}")])
        os._exit(0)
os.close(opened)
assert [os.waitpid(writer, 0)[1] for writer in writers] == [0] * len(names)
"""


def test_concurrent_writers_lose_nothing(tmp_path, strict):
    """Two processes begin together with a file that does not exist yet."""
    path, count = tmp_path / "shared.sqlite", 40
    done = subprocess.run(
        [sys.executable, "-c", WRITERS, str(path), str(count), "first", "second"],
        input=entry().to_json() + "\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    stored = [e.created for e in Database(path).entries()]
    assert sorted(stored) == sorted(f"{w} {n}" for w in ("first", "second") for n in range(count))
    for name in ("first", "second"):  # each in its own order
        own = [created for created in stored if created.startswith(name)]
        assert own == [f"{name} {n}" for n in range(count)]
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    check.close()


def test_a_file_made_while_it_is_looked_at_is_ours(tmp_path, strict, monkeypatch):
    """Another writer makes the file between two statements, or is made to wait."""
    path, true = tmp_path / "shared.sqlite", sqlite3.connect

    class Interrupted(sqlite3.Connection):
        def execute(self, statement, *values):
            if statement.startswith("SELECT count"):
                monkeypatch.setattr(sqlite3, "connect", true)
                with contextlib.suppress(DatabaseError):  # it may find the file locked
                    Database(path).put([entry(value=1.0)])
            return super().execute(statement, *values)

    monkeypatch.setattr("tvm_tilex.tune.database._WAIT_SECONDS", 0.05)
    monkeypatch.setattr(sqlite3, "connect", functools.partial(true, factory=Interrupted))
    assert Database(path).put([entry(value=2.0)]) == 1
    assert sqlite3.connect is true  # the other did try
    assert Database(path).entries()[-1].value == 2.0


def test_a_file_that_is_about_to_be_made_holds_no_winners(tmp_path, strict):
    path = tmp_path / "shared.sqlite"
    path.touch()
    assert Database(path).entries() == () and Database(path).get(key()) is None
    Database(path).require_ours()
    assert Database(path).put([entry()]) == 1


# Exchange.


def test_export_and_import(tmp_path, strict):
    one, other = Database(tmp_path / "a.sqlite"), Database(tmp_path / "b.sqlite")
    stored = [entry(), entry(columns=128), entry(metric="host-wall")]
    one.put(stored)
    assert one.export_json(tmp_path / "all.json") == 3
    assert other.import_json(tmp_path / "all.json") == (3, 0)
    assert other.import_json(tmp_path / "all.json") == (0, 0)
    assert list(other.entries()) == stored
    assert other.get(key()).key == Key(**dataclasses.asdict(key()))


def test_import_reports_and_leaves_out_what_is_damaged(tmp_path):
    path = tmp_path / "all.json"
    Database(tmp_path / "a.sqlite").put([entry(), entry(columns=128)])
    Database(tmp_path / "a.sqlite").export_json(path)
    found = json.loads(path.read_text())
    found["entries"][1]["body"]["value"] = 0.5
    path.write_text(json.dumps(found))
    with pytest.warns(TuningDatabaseWarning, match="entry 1: its digest"):
        assert Database().import_json(path) == (1, 1)
    assert [e.key.digest for e in Database().entries()] == [key().digest]


@pytest.mark.parametrize("text", ["", "[]", '{"entries": []}', '{"schema": "x", "entries": []}'])
def test_import_of_something_else_is_an_error(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DatabaseError, match="not an exported tuning database"):
        Database().import_json(tmp_path / "x.json")


def test_a_database_that_does_not_exist_is_empty(strict):
    assert Database().entries() == () and Database().get(key()) is None
    assert not Database().path.exists()

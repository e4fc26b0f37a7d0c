"""``tilex tune`` and ``tilex tuned``: a run, its replay, its winner in use; bad usage."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tvm_tilex as tx
from tvm_tilex.build.target import resolve_target, system_has
from tvm_tilex.tune import Database, Measurement, Replayed, Report, Settings, Space, Trial
from tvm_tilex.tune.job import SubjectSpec
from tvm_tilex.tune.report import Winner
from tvm_tilex.tune.session import new_report

RUN = Path(__file__).parents[2] / "scripts" / "benchmark" / "tile_torch" / "run.py"
pytestmark = pytest.mark.usefixtures("warm_workers")
QUICK = ("--samples", 2, "--sample-ms", 1, "--warmup-ms", 1)


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEX_TUNING_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.delenv("TILEX_TUNED", raising=False)
    return tmp_path / "tuning.sqlite"


def test_tuning_takes_a_described_family(tilex, tmp_path):
    (tmp_path / "occupied").touch()
    words = ("tune", "row_sum", "--shape", "2x64", "--output", tmp_path, "--target")
    refused = tilex(*words, "apple-m2")
    assert refused.code == 1 and "not empty" in refused.err  # after the target was understood
    unknown = tilex(*words, "apple")
    assert unknown.code == 2 and "apple-m2" in unknown.err


def test_tune_replay_and_use_the_winner(tilex, tmp_path, database):
    folder = tmp_path / "out"
    space = ("--tune-group-threads", "64,128", "--tune-reduction-lane-elements", "4")
    result = tilex(
        "tune", "softmax", "--shape", "5x300", "--shape", "3x1024", "--target", "metal",
        "--search", "exhaustive", "--metal-subgroup-reductions", *space,
        "--tune-shared-tile-materializations", "preserve",
        "--tune", "reduction_unroll=1,2", *QUICK, "--output", folder,
    )  # fmt: skip
    assert result.code == 0 and f"report: {folder / 'report.json'}" in result.out
    assert "1/5 valid" in result.err and "modelled" in result.err
    report = Report.read(folder)
    assert report.settings.metric == "sim-cost"  # no Apple GPU, and named so
    assert [len(s.trials) for s in report.sections] == [5, 5]
    assert report.settings.space.base == tx.CompileOptions(metal_subgroup_reductions=True)
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")

    replayed = tilex("tune", "--replay", folder)
    assert replayed.code == 0 and replayed.out.count("right over every output") == 2

    assert len(Database().entries()) == 2 and database.exists()
    listed = tilex("tuned", "list")
    assert listed.code == 0 and listed.out.count("on simulator: ") == 2
    winner = report.sections[0].winner.trial
    entry = tx.kernels.catalog()["softmax"]
    asked = tx.CompileOptions(metal_subgroup_reductions=True)
    artifact = tx.compile(
        entry.kernel, *entry.specs(5, 300), target="metal", options=asked, tuned=True
    )
    assert artifact.options.to_json() == winner.options
    assert artifact.plan.threads == winner.facts["plan"]["threads"]

    exported = tilex("tuned", "export", tmp_path / "all.json")
    assert exported.out == "2 entries\n"
    other = ("tuned", "--database", tmp_path / "other.sqlite")
    assert tilex(*other, "import", tmp_path / "all.json").out == "2 new entries, 0 left out\n"
    assert len(Database(tmp_path / "other.sqlite").entries()) == 2

    resumed = tilex("tune", "--resume", folder, "--no-database")
    assert resumed.code == 0 and Report.read(folder).sections == report.sections
    again = tilex("tune", "softmax", "--shape", "5x300", *QUICK, "--output", folder)
    assert again.code == 1 and "not empty" in again.err


def test_replay_as_json_and_its_notes(tilex, tmp_path, monkeypatch):
    """What `replay` returns, printed in both ways."""
    space = Space(tx.CompileOptions(), ())
    settings = Settings(str(resolve_target("metal")), space, "sim-cost")
    report = new_report(settings, [SubjectSpec("softmax", ((3, 64),))])
    value = Measurement("modelled", "modelled operations", 7.0, (7.0,), 1, "modelled")
    trial = Trial(0, {}, tx.CompileOptions().to_json(), "valid", measurements=(value,))
    report.sections[0].winner = Winner(trial, trial, 7.0, "", "")
    report.write(tmp_path / "report.json")
    note = "measured on a, now on b"
    monkeypatch.setattr(
        "tvm_tilex.tools.tune_command.replay",
        lambda report: (Replayed(report.sections[0], trial, (note,)),),
    )
    printed = tilex("tune", "--replay", tmp_path)
    assert printed.out.splitlines()[1] == f"  note: {note}"
    assert "default: right over every output; 7.0 modelled, published 7.0" in printed.out
    (row,) = json.loads(tilex("tune", "--replay", tmp_path, "--json").out)
    assert row["trial"]["status"] == "valid" and row["notes"] == [note]


USAGE = [
    ((), "give a KERNEL, or --resume or --replay"),
    (("softmax", "--replay", "x"), "give a KERNEL, or --resume or --replay"),
    (("--replay", "x", "--samples", "3"), "--samples has no effect with --replay"),
    (("--resume", "x", "--shape", "3x4"), "--shape has no effect with --resume"),
    (("softmax",), "--shape"),
    (("softmx", "--shape", "3x4"), "did you mean 'softmax'?"),
    (("softmax", "--shape", "3y4"), "write extents as 3x4096"),
    (("softmax", "--shape", "3x4x5"), "one --shape of two extents"),
    (("softmax", "--shape", "3x4", "--tuning-metric", "speed"), "speed"),
    (("softmax", "--shape", "3x4", "--search", "luck"), "luck"),
    (("softmax", "--shape", "3x4", "--tune-group-threads", "32,,64"), "write values as"),
    (("softmax", "--shape", "3x4", "--tune", "unroll"), "reduction_unroll=1,2"),
]


@pytest.mark.parametrize(("arguments", "text"), USAGE)
def test_bad_usage_is_exit_code_2(tilex, arguments, text):
    result = tilex("tune", *arguments)
    assert result.code == 2 and text in result.err
    assert len(result.err.strip().splitlines()) == 1


REFUSED = [
    (("--budget", "60"), "64 compilations exceed the budget of 60"),
    (("--tuning-metric", "gpu-control"), "this process has no metal device"),
    (("--tuning-metric", "host-wall"), "sim-cost counts the emitted text"),
    (("--tune-group-threads", "48"), "multiple of 32"),
    (("--tune", "speed=1"), "no tunable option"),
    (("--samples", "0"), "must be positive"),
    (("--rpc-server", "nowhere"), "host:port"),
    (("--patience", "0"), "patience 0: must be positive"),
    (("--trials", "-2"), "trials -2: must be positive"),
    (("--time-limit", "nan"), "time limit nan: must be positive and finite"),
    (("--sample-ms", "nan"), "must be positive"),
    (("--warmup-ms", "inf"), "all finite"),
]


def test_a_file_that_is_no_database_is_refused_before_any_work(tilex, tmp_path):
    database, output = tmp_path / "notes.txt", tmp_path / "out"
    database.write_text("no database\n")
    result = tilex("tune", "softmax", "--shape", "3x8", "--output", output, "--database", database)
    assert result.code == 1 and f"{database}: file is not a database" in result.err
    assert not output.exists() and len(result.err.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("import math\nimport nonsense_module\n", 2, "ModuleNotFoundError: No module named"),
        ("def f(:\n", 1, "SyntaxError: invalid syntax"),
        ("x = 1\n\ny = 1 / 0\n", 3, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_users_file_that_does_not_load_is_named_with_its_line(tilex, tmp_path, text, line, said):
    path = tmp_path / "mine.py"
    path.write_text(text)
    result = tilex("run", f"{path}:kernel", "--shape", "3x8")
    assert result.code == 2 and f"{path}:{line}: {said}" in result.err
    assert len(result.err.strip().splitlines()) <= 2 and "Traceback" not in result.err


@pytest.mark.parametrize(("arguments", "text"), REFUSED)
def test_a_refusal_comes_before_any_work(tilex, arguments, text, tmp_path):
    if system_has("metal"):
        pytest.skip("says what is missing where there is no Apple GPU")
    space = ("--tune", "max_thread_candidates=" + ",".join(map(str, range(100, 161))))
    options = [*space, *arguments] if "--budget" in arguments else list(arguments)
    output = tmp_path / "out"
    result = tilex(
        "tune", "softmax", "--shape", "3x64", "--target", "metal", *options, "--output", output
    )
    assert result.code == 1 and text in result.err and not output.exists()
    assert len(result.err.strip().splitlines()) <= 2


def test_a_replay_of_nothing(tilex, tmp_path):
    result = tilex("tune", "--replay", tmp_path / "none.json")
    assert result.code == 1 and "No such file" in result.err


def test_an_export_that_cannot_be_written(tilex, tmp_path):
    result = tilex("tuned", "export", tmp_path)
    assert result.code == 1 and result.err == f"tilex: {tmp_path}: Is a directory\n"


# The benchmark beside torch.


def benchmark(*arguments):
    spec = importlib.util.spec_from_file_location("tile_torch_run", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return CliRunner().invoke(module.main, list(map(str, arguments)))


def test_the_benchmark_beside_torch(tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    folder = tmp_path / "out"
    done = benchmark(
        "--output", folder, "--backends", "llvm,metal", "--operations", "rmsnorm",
        "--shape", "6x128", "--metal-subgroup-reductions", "--tune-group-threads", "64",
        "--tune-reduction-packing", "1", "--tune-reduction-unroll", "2",
        "--tune-reduction-lane-elements", "4",
        "--tune-shared-tile-materializations", "preserve", *QUICK,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = json.loads((folder / "results.json").read_text())["rows"]
    assert (rows[0]["backend"], rows[0]["metric"]) == ("llvm", "host-wall")
    torch = rows[0]["torch"]
    assert torch["right"] and torch["measurements"][0]["scope"] == "end_to_end"
    assert rows[0]["winner"]["measurements"][0]["scope"] == "end_to_end"
    assert rows[1]["winner"]["status"] == "valid"
    trials = Report.read(folder / "llvm" / "rmsnorm").sections[0].trials
    assert sorted(t.status for t in trials) == ["refused", "valid"]  # no SIMD groups on LLVM
    assert len(Report.read(folder / "metal" / "rmsnorm").sections[0].trials) == 2
    again = benchmark("--output", folder)
    assert "not empty" in str(again.exception)
    wrong = benchmark("--output", tmp_path / "x", "--operations", "conv")
    assert wrong.exit_code == 2 and "conv: use some of" in wrong.output
    metric = benchmark("--output", tmp_path / "x", "--tuning-metric", "gpu-control")
    assert "a processor has none" in str(metric.exception)
    assert not (tmp_path / "x").exists()

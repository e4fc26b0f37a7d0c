"""Ctrl-C and kill leave a readable report and no process; the run is taken up where it was."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tvm_tilex.tune import Report, resume, tune
from tvm_tilex.tune.errors import ReportError
from tvm_tilex.tune.ownership import owned

THREADS = "32,64,96,128,160,192,224,256,288,320"


def start(folder, environment):
    command = [sys.executable, "-m", "tvm_tilex", "tune", "row_sum", "--shape", "400x700"]
    command += ["--target", "metal", "--search", "exhaustive", "--tune-group-threads", THREADS]
    command += ["--output", str(folder), "--no-html", "--no-database"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for_trials(folder, process, count):
    """The report once it has that many trials; every read on the way must succeed."""
    path = folder / "report.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if path.exists() and len(Report.read(path).sections[0].trials) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no trials")


def children_of(*parents):
    """Processes below, of every generation."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) in parents:
                found.append(int(name))
    return found + (children_of(*found) if found else [])


def gone(pids):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads processes from /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_is_readable_and_resumes(how, tmp_path):
    folder = tmp_path / "out"
    process = start(folder, {**os.environ, "TILEX_VERIFY": "0"})
    wait_for_trials(folder, process, 3)
    workers = children_of(process.pid)
    assert len(workers) == 2  # the process that loaded TVM, and the copy that runs candidates
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert gone(workers), "a worker outlived the tuner"

    partial = Report.read(folder)
    kept = partial.sections[0].trials
    assert 3 <= len(kept) < 11 and partial.sections[0].winner is None
    if how == signal.SIGINT:
        assert process.returncode == 130 and partial.status == "interrupted"
        assert f"--resume {folder}" in err
    else:
        assert process.returncode == -signal.SIGKILL and partial.status == "running"
    leftovers = [p.name for p in folder.iterdir() if p.name != "report.json"]
    assert how == signal.SIGKILL or leftovers == []

    finished = resume(folder)
    trials = finished.sections[0].trials
    assert finished.status == "complete" and finished.sections[0].winner is not None
    assert trials[: len(kept)] == kept, "a finished trial was repeated or changed"
    assert sorted(t.candidate for t in trials) == list(range(11))
    assert Report.read(folder) == finished
    again = resume(folder)  # of a complete run: nothing to do
    assert again.sections == finished.sections


def test_a_report_of_other_work_is_not_resumed(tmp_path, quick):
    from tvm_tilex.tune.job import SubjectSpec
    from tvm_tilex.tune.session import new_report, resumed

    settings = quick.settings("metal", "sim-cost", quick.space(threads_per_group=(64,)))
    one = new_report(settings, [SubjectSpec("row_sum", ((3, 64),))])
    other = new_report(settings, [SubjectSpec("row_sum", ((3, 65),))])
    with pytest.raises(ReportError, match="differs in kernels or shapes"):
        resumed(one, other)
    one.environment["apache-tvm"] = "0.0"
    one.write(tmp_path / "report.json")
    with pytest.raises(ReportError, match="differs in apache-tvm"):
        resume(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ("[]", "not a tuning report"),
        ('{"schema": "tvm_tilex.tuning-report", "version": 99}', "version 99"),
        ('{"schema": "tvm_tilex.tuning-report", "version": 1}', "not a whole"),
    ],
)
def test_what_is_no_report_is_refused_by_name(text, reason, tmp_path):
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    with pytest.raises(ReportError, match=rf"report\.json: .*{reason}"):
        Report.read(tmp_path)


def test_a_write_that_fails_leaves_the_old_report(tmp_path, quick, monkeypatch):
    from tvm_tilex.tune.job import SubjectSpec
    from tvm_tilex.tune.session import new_report

    settings = quick.settings("metal", "sim-cost", quick.space())
    report = new_report(settings, [SubjectSpec("row_sum", ((3, 64),))])
    path = tmp_path / "report.json"
    report.write(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    report.status = "complete"
    with pytest.raises(OSError, match="No space"):
        report.write(path)
    assert path.read_bytes() == before


def test_one_run_at_a_time_writes_a_report(tmp_path, quick):
    """A killed one ends its hold: the interrupted runs above are resumed."""
    from tvm_tilex.tune.job import SubjectSpec
    from tvm_tilex.tune.session import new_report

    settings = quick.settings("metal", "sim-cost", quick.space())
    report = new_report(settings, [SubjectSpec("row_sum", ((3, 64),))])
    report.write(tmp_path / "report.json")
    before = (tmp_path / "report.json").read_bytes()
    new = tmp_path / "new"
    new.mkdir()
    with owned(tmp_path), owned(new):
        with pytest.raises(ReportError, match="another run is writing its report here"):
            resume(tmp_path)
        with pytest.raises(ReportError, match="another run is writing its report here"):
            tune("row_sum", [(3, 64)], target="metal", space=settings.space, output=new)
    assert (tmp_path / "report.json").read_bytes() == before
    with owned(tmp_path):  # free again, and nothing is left behind
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "report.json"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("environment",), None),
        (("settings", "metric"), {}),
        (("settings", "budget"), None),
        (("sections", 0, "subject", "kernel"), None),
        (("sections", 0, "subject", "static"), "x"),
        (("sections", 0, "subject", "shapes", 0, 0), None),
    ],
)
def test_a_damaged_value_is_refused_by_name(path, value, tmp_path, quick):
    from tvm_tilex.tune.job import SubjectSpec
    from tvm_tilex.tune.session import new_report

    settings = quick.settings("metal", "sim-cost", quick.space())
    found = new_report(settings, [SubjectSpec("row_sum", ((3, 64),))]).to_dict()
    found = json.loads(json.dumps(found))
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (tmp_path / "report.json").write_text(json.dumps(found))
    with pytest.raises(ReportError, match="not a whole tuning report"):
        Report.read(tmp_path)

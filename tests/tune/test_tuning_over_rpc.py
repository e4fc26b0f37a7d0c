"""Measurement through TVM's RPC on loopback: two LLVM servers, one of them killed midway."""

import collections
import threading
import time

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import OptionError, TargetError
from tvm_tilex.runtime.remote import connect_server, servers_of
from tvm_tilex.tools.tune_options import endpoints_of
from tvm_tilex.tune import Dimension, Endpoint, Report, Space, Timing, resume, tune
from tvm_tilex.tune.errors import TuningError
from tvm_tilex.tune.evaluate import evaluate
from tvm_tilex.tune.job import Job, SubjectSpec
from tvm_tilex.tune.progress import Progress

TIMING = Timing(samples=2, sample_ms=1, warmup_ms=0)
# Long enough that a second server connects before the first has measured everything.
SHARED = Timing(samples=2, sample_ms=150, warmup_ms=0)
# Options that LLVM realizes, and a bound that has no effect there: 9 candidates.
SPACE = Space(
    tx.CompileOptions(),
    (
        Dimension("shared_tile_materialization", ("preserve", "expensive-only")),
        Dimension("vector_access", (True, False)),
        Dimension("max_thread_candidates", (257, 258)),
    ),
)
SMALL = Space(SPACE.base, SPACE.dimensions[:2])


def server(port):
    return Endpoint("server", "127.0.0.1", port)


def device(port):
    return f"llvm at 127.0.0.1:{port}"


def run(tmp_path, endpoints, space=SPACE, progress=None, shapes=((64, 513),)):
    timing = SHARED if len(endpoints) > 1 else TIMING
    return tune(
        tx.kernels.softmax, shapes, space=space, search="exhaustive", timing=timing,
        output=tmp_path / "out", endpoints=endpoints, progress=progress, limit=30,
    )  # fmt: skip


class KillsAServer(Progress):
    """Kills ``victim`` once both servers have measured something and it is at work again.

    That is a while after it has reported, and well before its next trial can be over: a result
    that it had sent, but that was not counted yet, would be one of a dead server.
    """

    def __init__(self, loopback, victim):
        self.loopback, self.victim = loopback, victim
        self.measured = collections.Counter()
        self.lost_devices = []
        self.killed_after = self.timer = None

    def trial(self, section, trial):
        self.measured[trial.device] += 1
        its = trial.device == device(self.victim)
        if self.timer is None and its and len(self.measured) == 2:
            self.timer = threading.Timer(0.1, self.kill, (section,))
            self.timer.start()

    def kill(self, section):
        self.killed_after = len(section.trials)
        self.loopback.kill(self.victim)

    def lost(self, lost):
        self.lost_devices.append(lost.endpoint)


def test_a_killed_server_loses_no_trial_and_none_counts_twice(loopback, tmp_path):
    kept, victim = loopback.server(), loopback.server()
    progress = KillsAServer(loopback, victim)
    report = run(tmp_path, (server(kept), server(victim)), progress=progress)
    assert progress.killed_after is not None and progress.killed_after < SPACE.size - 1
    (section,) = report.sections
    assert sorted(t.candidate for t in section.trials) == list(range(SPACE.size))
    assert {t.status for t in section.trials} == {"valid"}
    # Who measured what.
    devices = collections.Counter(t.device for t in section.trials)
    assert set(devices) == {device(kept), device(victim)} and devices == progress.measured
    after = section.trials[progress.killed_after :]
    assert {t.device for t in after} == {device(kept)}
    # The one that was under way there is told, and has one outcome like all the others.
    interrupted = [t for t in section.trials if t.attempts]
    assert len(interrupted) <= 1
    for trial in interrupted:
        (attempt,) = trial.attempts
        assert attempt["device"] == device(victim) and trial.device == device(kept)
        assert "session ended" in attempt["reason"]
    assert progress.lost_devices == [server(victim)]
    assert [d["device"] for d in report.lost_devices] == [f"server 127.0.0.1:{victim}"]
    assert section.lost == []
    # Times of two devices do not compare: the last measurements are of one.
    assert section.winner.trial.device == section.winner.default.device == device(kept)
    assert Report.read(tmp_path / "out").sections == report.sections


def test_losing_the_only_server_interrupts_and_another_one_resumes(loopback, tmp_path):
    only = loopback.server()

    class Kill(Progress):
        def trial(self, section, trial):
            if len(section.trials) == 2:
                loopback.kill(only)

    with pytest.raises(TuningError, match="no device is left"):
        run(tmp_path, (server(only),), SMALL, progress=Kill())
    partial = Report.read(tmp_path / "out")
    assert partial.status == "interrupted" and len(partial.sections[0].trials) == 2
    another = loopback.server()
    report = resume(tmp_path / "out", endpoints=(server(another),))
    trials = report.sections[0].trials
    assert trials[:2] == partial.sections[0].trials
    assert sorted(t.candidate for t in trials) == list(range(SMALL.size))
    assert {t.device for t in trials[2:]} == {device(another)}


def test_a_tracker_lends_its_servers_and_says_which_measured(loopback, tmp_path):
    pytest.importorskip("tornado", reason="TVM's tracker needs tornado")
    tracker = loopback.tracker()
    ports = {loopback.server(tracker, "pool") for _ in range(2)}
    deadline = time.monotonic() + 30  # servers listen before they have registered
    known = servers_of("127.0.0.1", tracker, "pool")
    while len(known) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        known = servers_of("127.0.0.1", tracker, "pool")
    assert set(known) == {f"127.0.0.1:{port}" for port in ports}
    endpoints = endpoints_of((), f"127.0.0.1:{tracker}", "pool")
    assert len(endpoints) == 2 and {e.kind for e in endpoints} == {"tracker"}
    with pytest.raises(OptionError, match="no server of the key 'other'"):
        endpoints_of((), f"127.0.0.1:{tracker}", "other")
    report = run(tmp_path, endpoints, SMALL)
    (section,) = report.sections
    assert sorted(t.candidate for t in section.trials) == list(range(SMALL.size))
    assert {t.device for t in section.trials} == {device(port) for port in ports}
    measurement = section.winner.trial.measurements[0]
    assert measurement.scope == "end_to_end" and "on the server" in measurement.how


def test_a_wrong_or_slow_candidate_there_is_its_own_outcome(loopback, monkeypatch):
    port = loopback.server()
    options = tx.CompileOptions().to_json()

    def job(**other):
        spec = SubjectSpec("row_sum", ((64, 512),))
        given = {"timing": TIMING, "endpoint": server(port), "limit": 20, **other}
        return Job(spec, "llvm", options, "host-wall", **given)

    assert evaluate(job())["status"] == "valid"
    slow = evaluate(job(timing=Timing(100, 200, 0), limit=1))
    assert slow["status"] == "timeout" and "expired" in slow["reason"]
    assert evaluate(job())["status"] == "valid"  # the server is free again
    monkeypatch.setattr(
        "tvm_tilex.kernels.registry.KernelEntry.expected",
        lambda self, arguments: (arguments[0].sum(axis=1) + 1.0,),
    )
    spec = SubjectSpec("row_sum", ((65, 512),))
    wrong = Job(spec, "llvm", options, "host-wall", timing=TIMING, endpoint=server(port))
    assert evaluate(wrong)["status"] == "wrong"


def test_a_server_that_does_not_answer_is_a_device_and_not_a_candidate(tmp_path):
    import socket

    with socket.socket() as silent:  # accepts, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(TargetError, match=r"no answer within 0\.5 s"):
            connect_server("127.0.0.1", port, limit=0.5)
    with pytest.raises(TuningError, match=f"no device is left: RPC server 127.0.0.1:{port}"):
        run(tmp_path, (server(port),))
    report = Report.read(tmp_path / "out")
    assert report.status == "interrupted" and report.sections[0].trials == []


@pytest.mark.parametrize("text", ["localhost", "host:", ":90", "host:port", "host:70000"])
def test_addresses(text):
    with pytest.raises(OptionError, match="host:port"):
        endpoints_of((text,), None, "")

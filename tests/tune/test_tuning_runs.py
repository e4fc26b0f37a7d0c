"""A run with everything that candidates do: valid, refused, crashing, hanging, defective."""

import json
import os

import pytest

import tvm_tilex as tx
from tvm_tilex.kernels.subjects import make_subject
from tvm_tilex.tune import Dimension, Report, Space, Timing, replay, tune
from tvm_tilex.tune.errors import ReportError
from tvm_tilex.tune.evaluate import evaluate
from tvm_tilex.tune.job import Job, SubjectSpec
from tvm_tilex.tune.progress import Progress
from tvm_tilex.tune.regret import model_regret

POLICIES = ("default", "test-crash", "test-hang", "test-defect", "no-such-policy")


class Events(Progress):
    def __init__(self, path):
        self.path = path
        self.seen = []

    def trial(self, section, trial):
        on_disk = Report.read(self.path)  # readable after every trial, this one included
        written = [t for s in on_disk.sections for t in s.trials if s.subject == section.subject]
        self.seen.append((trial.candidate, written[-1].candidate, on_disk.status))


@pytest.fixture(scope="module")
def run(tmp_path_factory, kernel_file):
    """Two shapes of a kernel whose file holds the cost policies of ``POLICIES``."""
    folder = tmp_path_factory.mktemp("run")
    captures = kernel_file.with_name("captures")
    captures.touch()
    space = Space(
        tx.CompileOptions(),
        (Dimension("cost_policy", POLICIES), Dimension("threads_per_group", (64,))),
    )
    events = Events(folder / "out" / "report.json")
    report = tune(
        f"{kernel_file}:normalized",
        [(3, 300), (5, 129)],
        target="metal",
        space=space,
        search="exhaustive",
        timing=Timing(2, 1, 1),
        limit=2.0,
        output=folder / "out",
        progress=events,
    )
    noted = captures.read_text().split()
    captures.unlink()
    return report, events, noted, folder / "out"


def by_choices(section):
    return {
        (t.choices.get("cost_policy"), t.choices.get("threads_per_group")): t
        for t in section.trials
    }


def test_every_candidate_has_one_outcome_and_none_is_dropped(run):
    report, events, _, _ = run
    assert report.status == "complete"
    for section in report.sections:
        candidates = report.settings.space.candidates()
        assert sorted(t.candidate for t in section.trials) == [c.index for c in candidates]
        outcomes = {key: trial.status for key, trial in by_choices(section).items()}
        assert outcomes == {
            (None, None): "valid",
            ("default", 64): "valid",
            ("test-crash", 64): "crashed",
            ("test-hang", 64): "timeout",
            ("test-defect", 64): "failed",
            ("no-such-policy", 64): "refused",
        }
    assert all(told == written for told, written, _ in events.seen)
    assert {status for *_, status in events.seen} == {"running"}


def test_reasons_are_kept(run):
    trials = by_choices(run[0].sections[0])
    assert trials["test-crash", 64].reason == "SIGSEGV: about to end"
    assert trials["test-hang", 64].reason == "no answer within 2 s"
    assert "RuntimeError: of two lines" in trials["test-defect", 64].reason
    assert "OptionError: cost_policy='no-such-policy'" in trials["no-such-policy", 64].reason


def test_the_order_rotated_between_the_shapes(run):
    first, second = ([t.candidate for t in s.trials if t.candidate] for s in run[0].sections)
    assert first != second and sorted(first) == sorted(second)
    for section in run[0].sections:
        wanted = [c for c in section.order if c]
        assert [t.candidate for t in section.trials if t.candidate] == wanted


def test_every_candidate_was_captured_anew_and_never_in_the_tuners_process(run):
    report, _, captures, _ = run
    own = str(os.getpid())
    trials = sum(len(s.trials) for s in report.sections)
    assert captures.count(own) == len(report.sections)  # the text of the report
    others = [pid for pid in captures if pid != own]
    assert len(others) >= trials
    # Crashed and hanging candidates took their process with them; the others shared one.
    died = sum(t.status in ("crashed", "timeout") for s in report.sections for t in s.trials)
    assert len(set(others)) >= died
    assert len(set(others)) < len(others)


def test_the_published_measurement_is_a_new_one_from_a_new_process(run):
    report, _, captures, _ = run
    for section in report.sections:
        winner = section.winner
        searched = [t for t in section.trials if t.value("sim-cost") is not None]
        best = min(searched, key=lambda t: t.value("sim-cost"))
        assert winner.searched == best.value("sim-cost")
        assert winner.trial.candidate == best.candidate
        assert winner.trial.status == winner.default.status == "valid"
        # Compiled again: its own compilation and run, not a copy of the trial.
        assert winner.trial.seconds != best.seconds
        assert all(output["right"] for output in winner.trial.outputs)
        assert "kernel void" in winner.source and "kernel void" in winner.default_source
    # The last processes ran one job each; the oracle's values were there.
    assert captures.count(captures[-1]) == 1


def test_a_modelled_cost_is_named_as_such_and_is_no_time(run):
    for trial in (t for s in run[0].sections for t in s.trials if t.status == "valid"):
        (measurement,) = trial.measurements
        assert (measurement.scope, measurement.unit) == ("modelled", "modelled operations")
        assert "no time" in measurement.how and trial.device == "simulator"
        assert set(trial.skipped) == {"end_to_end", "gpu"}


def test_the_report_keeps_what_a_replay_needs(run):
    report, _, _, folder = run
    found = json.loads((folder / "report.json").read_text())
    assert (found["schema"], found["version"]) == ("tvm_tilex.tuning-report", 1)
    assert Report.from_dict(found) == report
    assert {"tvm_tilex", "apache-tvm", "apache-tvm-ffi"} <= set(found["environment"])
    section = found["sections"][0]
    assert section["tile_ir"].startswith("kernel normalized(")
    trial = section["winner"]["trial"]
    assert tx.CompileOptions.from_json(trial["options"])
    facts = trial["facts"]
    assert facts["materialization"] and facts["cost_policy"] == "default"
    assert isinstance(facts["plan"]["cooperating_subgroups"], bool)
    assert facts["plan"]["threads"] > 0 and trial["device"] == "simulator"
    assert json.loads(found["settings"]["target"])["kind"] == "metal"


def test_replay_rebuilds_validates_and_measures_the_winner(run):
    report = run[0]
    replayed = replay(report)
    assert len(replayed) == 2
    for one in replayed:
        recorded = one.section.winner.trial
        assert one.trial.status == "valid" and one.notes == ()
        assert one.trial.facts == recorded.facts
        assert one.trial.value("sim-cost") == recorded.value("sim-cost")


def altered(report, **facts):
    found = json.loads(json.dumps(report.to_dict()))
    found["sections"] = found["sections"][:1]
    found["sections"][0]["winner"]["trial"]["facts"].update(facts)
    return found


def test_replay_refuses_another_plan(run):
    changed = altered(run[0], materialization="recompute")
    with pytest.raises(ReportError, match="materialization was recompute, is preserve"):
        replay(Report.from_dict(changed))


def test_replay_refuses_another_program_or_other_options(run):
    changed = altered(run[0])
    text = changed["sections"][0]["tile_ir"]
    changed["sections"][0]["tile_ir"] = text.replace("exp", "log")
    with pytest.raises(ReportError, match=r"is another program now: '.*log.*' became '.*exp"):
        replay(Report.from_dict(changed))
    changed = altered(run[0])
    changed["sections"][0]["winner"]["trial"]["choices"] = {"reduction_unroll": 8}
    with pytest.raises(ReportError, match="its choices are not those of its options"):
        replay(Report.from_dict(changed))


def test_regret_of_the_model(run):
    regret = model_regret(run[0].sections[0], "sim-cost")
    values = [t.value("sim-cost") for t in run[0].sections[0].trials]
    least = min(v for v in values if v is not None)
    assert regret.best.value("sim-cost") == least
    assert regret.regret == regret.choice.value("sim-cost") / least - 1 >= 0


# One job in this process.


def job(kernel="softmax", shape=(3, 200), kind="llvm", metric="host-wall", **other):
    options = tx.CompileOptions().to_json()
    return Job(
        SubjectSpec(kernel, (shape,)), kind, options, metric, timing=Timing(2, 0.2, 0.1), **other
    )


def test_a_wrong_candidate_is_never_timed(monkeypatch):
    def timed(*a, **k):
        raise AssertionError("a wrong kernel was timed")

    monkeypatch.setattr("tvm_tilex.tune.local.LocalLaunch.measure", timed)
    stock = make_subject("softmax", [(3, 201)], "float32").entry.oracle

    def last_element_differs(self, arguments):
        expected = stock(arguments[0])
        expected[-1, -1] *= 1.001
        return (expected,)

    monkeypatch.setattr("tvm_tilex.kernels.registry.KernelEntry.expected", last_element_differs)
    outcome = evaluate(job(shape=(3, 201)))
    assert outcome["status"] == "wrong" and "measurements" not in outcome
    (output,) = outcome["outputs"]
    assert output["name"] == "output" and not output["right"]
    assert output["fraction_of_allowed_error"] > 1


def test_an_output_that_is_not_written_is_wrong(monkeypatch):
    monkeypatch.setattr("tvm_tilex.runtime.artifact.Artifact.launch", lambda self, arguments: None)
    assert evaluate(job(shape=(3, 202)))["status"] == "wrong"


def test_end_to_end_and_gpu_are_separate_scopes():
    outcome = evaluate(job())
    (measurement,) = outcome["measurements"]
    assert (measurement["scope"], measurement["unit"]) == ("end_to_end", "seconds")
    assert len(measurement["samples"]) == 2 and measurement["calls_per_sample"] >= 1
    assert outcome["skipped"] == {"gpu": "a processor has no device timestamps"}


@pytest.mark.parametrize("name", tx.kernels.catalog())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_kernel_of_the_library_can_be_tuned(name, dtype):
    """Labels, several outputs, another storage type; widths that leave a tail."""
    spec = SubjectSpec(name, ((5, 131),), dtype)
    options = tx.CompileOptions().to_json()
    found = evaluate(Job(spec, "llvm", options, "host-wall", timing=Timing(1, 0.1, 0)))
    assert found["status"] == "valid", found


@pytest.mark.filterwarnings("ignore:no Apple GPU")
def test_no_rows_are_valid_and_cost_a_call():
    assert evaluate(job(shape=(0, 64)))["status"] == "valid"
    found = evaluate(job(shape=(0, 64), kind="metal", metric="sim-cost"))
    assert found["status"] == "valid", found
    assert found["measurements"][0]["value"] == 0.0


def test_constants_of_the_kernel_reach_the_capture():
    spec = SubjectSpec("softmax", ((3, 64),), static={"no_such": 1})
    outcome = evaluate(Job(spec, "llvm", tx.CompileOptions().to_json(), "host-wall"))
    assert outcome["status"] == "refused" and "no_such" in outcome["reason"]

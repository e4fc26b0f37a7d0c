"""What a run does ahead of its trials: refusals of the planner, inputs, machine code."""

import json

import numpy as np
import pytest

from tvm_tilex.build import machine_code
from tvm_tilex.build.machine_code import MachineCode, cubin_for, kept
from tvm_tilex.build.screening import Screened, screen
from tvm_tilex.build.target import resolve_target
from tvm_tilex.driver import compile, compile_text
from tvm_tilex.errors import MappingError, TilexError
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune import default_space
from tvm_tilex.tune.inputs import inputs_of
from tvm_tilex.tune.job import SubjectSpec
from tvm_tilex.tune.times import times_of


def subject_of(name, *shape, dtype="float32"):
    return SubjectSpec(name, (shape,), dtype).subject()


CELLS = [
    ("softmax", (40, 4096), "float32", "h200"),
    ("layernorm", (4, 16384), "bfloat16", "h200"),
    ("rmsnorm", (64, 256), "float32", "metal"),
]


@pytest.mark.filterwarnings("ignore:no Apple GPU")
@pytest.mark.parametrize(("name", "shape", "dtype", "target"), CELLS)
def test_the_planner_refuses_what_compiling_refuses_in_the_same_words(name, shape, dtype, target):
    subject, resolved = subject_of(name, *shape, dtype=dtype), resolve_target(target)
    space = default_space(resolved.kind.name, dtype=dtype, clusters=target == "h200")
    every = [c.options for c in space.candidates()]
    screened = screen(subject.capture(), resolved, every)
    found = [one.refusal for one in screened]
    assert found[0] is None and any(found) and not all(found)
    assert all((one.score is None) == (one.refusal is not None) for one in screened[1:])
    # A cell of each kind, not the whole space: compiling is what this saves.
    refused = [i for i, error in enumerate(found) if error is not None]
    kept = [i for i, error in enumerate(found) if error is None]
    for index in (*refused[:: max(1, len(refused) // 6)], *kept[:: max(1, len(kept) // 4)]):
        arguments = (subject.kernel, *subject.specs)
        if found[index] is None:
            artifact = compile_text(*arguments, target=resolved, options=every[index])
            assert index == 0 or artifact.plan.score == screened[index].score
            continue
        with pytest.raises(MappingError) as refusal:
            compile(*arguments, target=resolved, options=every[index], tuned=False)
        assert str(refusal.value) == str(found[index])


def test_what_the_planner_does_not_see_is_left_to_compiling():
    """A cost policy is not asked, and a processor has no plans."""
    subject = subject_of("softmax", 8, 256)
    strange = CompileOptions(threads_per_group=64, cost_policy="nobody's")
    for target in ("h200", "llvm"):
        assert screen(subject.capture(), resolve_target(target), [strange]) == (Screened(),)
    with pytest.raises(TilexError):
        compile(subject.kernel, *subject.specs, target="h200", options=strange, tuned=False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "cross_entropy"])
def test_inputs_of_the_folder_are_those_that_were_made(tmp_path, name, dtype):
    subject = subject_of(name, 3, 257, dtype=dtype)
    made = inputs_of("made here", subject, 7, "")
    inputs_of("shared", subject, 7, str(tmp_path))
    inputs_of("another one", subject, 8, str(tmp_path))  # takes the place in this process
    assert len(list(tmp_path.iterdir())) == 2
    read = inputs_of("shared", _Nothing(subject.static), 7, str(tmp_path))
    for ours, theirs in zip(made, read, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


class _Nothing:
    def __init__(self, static):
        self.static = static


def test_a_folder_that_is_gone_costs_the_sharing_alone(tmp_path):
    subject = subject_of("row_sum", 3, 5)
    before, expected = inputs_of("gone", subject, 0, str(tmp_path / "none"))
    assert before[0].shape == (3, 5) and expected[0].shape == (3,)


def test_machine_code_is_made_once_for_all_processes_of_a_folder(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        machine_code, "compile_cubin", lambda *asked: made.append(asked) or b"code %d" % len(made)
    )
    one, other = MachineCode(tmp_path), MachineCode(tmp_path)
    assert one.cubin("text", "sm_90", ()) == other.cubin("text", "sm_90", ()) == b"code 1"
    assert one.cubin("text", "sm_80", ()) == b"code 2"
    assert one.cubin("text", "sm_90", ("--fmad=false",)) == b"code 3"
    assert MachineCode().cubin("text", "sm_90", ()) == b"code 4" and len(made) == 4
    with kept(other):
        assert cubin_for("text", "sm_90", ()) == b"code 1"
    assert cubin_for("text", "sm_90", ()) == b"code 5"  # nothing is kept unasked
    assert {path.suffix for path in tmp_path.iterdir()} == {".cubin"}


def test_a_run_on_cuda_compiles_each_text_once_and_the_winner_again(cuda_standin, tmp_path):
    report = cuda_standin.tune(
        *(tmp_path / "out", "--target", "h200", "--tuning-metric", "gpu-control", "--jobs", 2),
        *("--tune-reduction-packing", "1,16"),
    )
    (section,) = report["sections"]
    by_status = {}
    for trial in section["trials"]:
        by_status.setdefault(trial["status"], []).append(trial)
    # 16 programs in 32 to 256 threads: no whole S.
    assert len(by_status["refused"]) == 4 and len(by_status["valid"]) == 5
    assert all(trial["seconds"] is None for trial in by_status["refused"])
    texts = {trial["facts"]["source_sha256"] for trial in by_status["valid"]}
    # Ahead or by the trial, once each; then the winner and the default anew, once if they are one.
    winner = section["winner"]
    anew = {winner[name]["facts"]["source_sha256"] for name in ("trial", "default")}
    assert len(cuda_standin.compiled.read_text().splitlines()) == len(texts) + len(anew)
    phases = ["starting", "screening", "asking the model", "searching", "measuring the winner"]
    assert list(section["phases"]) == phases
    assert sum(section["phases"].values()) <= section["seconds"]
    for trial in (*by_status["valid"], section["winner"]["trial"]):
        stages = ("compile_seconds", "validate_seconds", "measure_seconds")
        assert 0 < sum(trial[stage] for stage in stages) <= trial["seconds"]
    from tvm_tilex.tune import Report

    (found,) = Report.from_dict(json.loads(json.dumps(report))).sections
    times = times_of(found, "gpu-control")
    assert times.trials == 5 and times.refused == 4 and times.to_within <= 5
    assert "5 trials (compiling" in times.describe()

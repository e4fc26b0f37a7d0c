"""``run.py --native``: winners of the llvm backend in the C++ runner, against the same oracle."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.target import resolve_target
from tvm_tilex.tune import Settings, Space, Trial
from tvm_tilex.tune.job import SubjectSpec
from tvm_tilex.tune.report import Winner
from tvm_tilex.tune.session import new_report

RUN = Path(__file__).parents[2] / "scripts" / "benchmark" / "tile_torch" / "run.py"


@pytest.fixture(scope="module")
def benchmark():
    pytest.importorskip("torch", reason="needs torch")
    spec = importlib.util.spec_from_file_location("tile_torch_native", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def native(benchmark):
    """Run one kernel's default options as if they had won."""

    def run(program, name, shape, dtype="float32", limit=60.0):
        settings = Settings(
            str(resolve_target("llvm")), Space(tx.CompileOptions(), ()), "host-wall"
        )
        (section,) = new_report(settings, [SubjectSpec(name, (shape,), dtype)]).sections
        trial = Trial(0, {}, tx.CompileOptions().to_json(), "valid")
        section.winner = Winner(trial, trial, 1.0, "", "")
        return benchmark.run_native(program, kernels.catalog()[name], section, 0, limit)

    return run


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("softmax", (3, 257), "float32"),
        ("rmsnorm", (5, 131), "bfloat16"),  # no type of .npy files
        ("cross_entropy", (4, 100), "float16"),  # int64 labels
        ("minmax", (3, 1), "float32"),  # two outputs
        ("softmax", (0, 64), "float32"),
    ],
)
def test_the_runner_agrees_with_the_oracle(runner, native, name, shape, dtype):
    found = native(runner.folder / "tilex_run", name, shape, dtype)
    assert found["right"], found
    assert found["process_seconds"] > 0


def program(tmp_path, text):
    path = tmp_path / "program"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho no such function >&2; exit 2\n", "no such function"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\nexec sleep 60\n", "timed out"),
        ("no program", "Exec format error"),
    ],
)
def test_a_runner_that_fails_is_a_result(native, tmp_path, text, reason):
    found = native(program(tmp_path, text), "softmax", (2, 8), limit=1.0)
    assert not found["right"] and reason in found["reason"]


def test_a_wrong_result_is_seen(native, tmp_path):
    array = tmp_path / "wrong.npy"
    np.save(array, np.full((2, 8), 0.5, np.float32))
    copy = f'#!/bin/sh\nfor last; do :; done\ncp "{array}" "$last"\n'
    found = native(program(tmp_path, copy), "softmax", (2, 8))
    assert found == {"right": False, "reason": "not the oracle's result"}


def test_the_whole_command(runner, benchmark, tmp_path):
    words = [
        "--output", tmp_path / "out", "--operations", "row_sum", "--shape", "4x96", "--tune",
        "vector_access=true", "--native", runner.folder / "tilex_run", "--samples", 1,
        "--sample-ms", 1, "--warmup-ms", 0,
    ]  # fmt: skip
    done = CliRunner().invoke(benchmark.main, list(map(str, words)))
    assert done.exit_code == 0 and "native: right" in done.output, done.output
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert row["native"]["right"]


def test_usage(benchmark, tmp_path):
    def usage(*words):
        return CliRunner().invoke(benchmark.main, ["--output", str(tmp_path / "x"), *words])

    other = usage("--native", str(program(tmp_path, "")), "--backends", "metal")
    assert other.exit_code == 2 and "winners of the llvm backend" in other.output
    missing = usage("--native", str(tmp_path / "none"))
    assert missing.exit_code == 2 and "does not exist" in missing.output
    assert not (tmp_path / "x").exists()

"""``tilex sim`` on files."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from tvm_tilex.tools.sim_command import sim

TEXT = """#include <metal_stdlib>
using namespace metal;
kernel void scale(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  b[i] = a[i] * 2.0f;
}
"""


@pytest.fixture
def invoke(tmp_path):
    path = tmp_path / "scale.metal"
    path.write_text(TEXT)

    def run(*arguments: str):
        return CliRunner().invoke(sim, [str(path), *arguments])

    return run


def test_runs_prints_counters_and_saves(invoke, tmp_path):
    out = tmp_path / "out"
    data = np.arange(64, dtype=np.float32)
    np.save(tmp_path / "a.npy", data)
    launch = ("--grid", "2", "--group", "32x1", "--save", str(out))
    result = invoke(*launch, "--arg", str(tmp_path / "a.npy"), "--arg", "float32:64")
    assert result.exit_code == 0, result.output
    assert "2 threadgroups x 32 threads" in result.output and "float.multiply" in result.output
    np.testing.assert_array_equal(np.load(out / "b.npy"), data * 2)


def test_lists_kernels(invoke):
    result = invoke("--list")
    assert result.exit_code == 0
    assert result.output.strip() == "scale(a: device float*, b: device float*)"


def test_a_fault_is_exit_code_one_on_stderr(invoke):
    launch = ("--grid", "3", "--group", "32")
    result = invoke(*launch, "--arg", "float32:64:random", "--arg", "float32:64")
    assert result.exit_code == 1 and result.stdout == ""
    assert "line 5, column 10: out-of-bounds" in result.stderr
    assert result.stderr.count("\n") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--grid", "2"),
        ("--grid", "2y", "--group", "1"),
        ("--grid", "1", "--group", "1", "--arg", "float99:3"),
        ("--grid", "1", "--group", "1", "--arg", "float32:3:noise"),
        ("--grid", "1", "--group", "1", "--arg", "missing.npy"),
    ],
)
def test_bad_usage_is_exit_code_two(invoke, arguments):
    assert invoke(*arguments).exit_code == 2


def test_a_refused_source_is_exit_code_one(tmp_path):
    path = tmp_path / "bad.metal"
    path.write_text("kernel void k() { switch (1) {} }")
    result = CliRunner().invoke(sim, [str(path), "--list"])
    assert result.exit_code == 1 and "switch statement is not supported" in result.stderr

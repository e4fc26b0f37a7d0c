"""The deployment document says what is so: its blocks run, in order, and print what they show."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_python_blocks_run_each_in_its_own_process(tmp_path):
    python = blocks("python")
    assert len(python) == 4
    for block in python:
        command = [sys.executable, "-c", block]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr


def test_runner_commands_run(runner, tmp_path):
    """The shell blocks after ``run_ctest.sh``, with the build folder of this test run."""
    build, use, install = blocks("sh")
    assert build.startswith("scripts/run_ctest.sh ")
    use = use.replace("cd build/runner", f"cd {runner.folder}")
    install = install.replace("build/runner", str(runner.folder))
    for block in (use, install):
        ran = subprocess.run(
            ["sh", "-ec", block], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        if block is use:
            (shown,) = blocks("text")
            assert ran.stdout.startswith(shown.partition(", worst")[0])
    assert (tmp_path / "deployed" / "bin" / "tilex_run").exists()


def test_document_and_help_name_the_same_options(runner):
    table = "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))
    options = set(re.findall(r"--[a-z-]+", re.sub(r"\|[-|: ]+\|", "", table)))
    assert options == set(re.findall(r"--[a-z-]+", runner.run("--help").stdout)) - {"--help"}

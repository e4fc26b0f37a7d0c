"""The C++ runner, configured, built and tested once for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RunnerBuild:
    """A build folder and what ``scripts/run_ctest.sh`` said of it."""

    folder: Path
    ctest: subprocess.CompletedProcess[str]

    def case(self, kernel: str) -> Path:
        """Folder of an exported kernel with its inputs and references."""
        return self.folder / "tests" / "deploy" / "ctest" / "cases" / kernel

    def run(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``tilex_run``."""
        return execute(self.folder / "tilex_run", *words, cwd=cwd)


def execute(
    *words: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120
    )


def _missing_tool() -> str | None:
    if os.name != "posix":
        return "the runner's script is for POSIX shells"
    if not all(shutil.which(tool) for tool in ("cmake", "ctest")):
        return "CMake is not installed"
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    if not any(shutil.which(compiler) for compiler in compilers):
        return "no C++ compiler is installed"
    return None


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> RunnerBuild:
    missing = _missing_tool()
    if missing is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("runner")
    env = {**os.environ, "PYTHON": sys.executable}
    ctest = execute("sh", ROOT / "scripts" / "run_ctest.sh", folder, env=env)
    if not (folder / "tilex_run").exists():
        pytest.fail(f"the runner was not built:\n{ctest.stdout}\n{ctest.stderr}")
    return RunnerBuild(folder, ctest)

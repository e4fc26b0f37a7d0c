"""Options and fixtures of the whole suite."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent

# Every compilation of the suite verifies its functions after every pass.
os.environ["TILEX_VERIFY"] = "1"


def _load(name: str, path: Path) -> None:
    """Make a helper module importable by a plain name (importlib mode has no test packages)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_load("random_programs", TESTS / "ir" / "random_programs.py")
_load("scalar_reference", TESTS / "ir" / "scalar_reference.py")
_load("compiled_programs", TESTS / "lower" / "compiled_programs.py")
_load("cuda_on_cpu", TESTS / "cuda_on_cpu.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden texts instead of comparing"
    )


class Golden:
    """Compares a text with ``golden/<test module>/<name>`` beside the test."""

    def __init__(self, folder: Path, update: bool) -> None:
        self._folder = folder
        self._update = update

    def __call__(self, text: str, name: str) -> None:
        path = self._folder / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden text {path.relative_to(TESTS)}; run with --update-golden")
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.relative_to(TESTS)} differs; --update-golden accepts the new text"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Call with (text, file name): equal to the stored text, or stored with --update-golden."""
    folder = request.path.parent / "golden" / request.path.stem
    return Golden(folder, request.config.getoption("--update-golden"))


class WarmWorkers:
    """Keeps the processes that loaded TVM for the next tuning run of this session.

    Jobs run in copies of them as ever, and each run begins with a new copy; only the seconds that
    loading takes are shared. Those that a run started itself end with it.
    """

    STATE = ("_process", "_answers", "_log", "_said", "_worker", "_used")

    def __init__(self) -> None:
        self._started: set[int] = set()
        self._idle: list[dict[str, Any]] = []

    def begin(self, pool: Any) -> None:
        for worker in pool._workers.values():
            if self._idle:
                vars(worker).update(self._idle.pop())
            else:  # by this thread, since a process ends with the thread that started it
                self._started.add(worker._started().pid)

    def end(self, pool: Any) -> None:
        for endpoint, worker in pool._workers.items():
            process = worker._process
            if endpoint in pool._busy or process is None or process.pid not in self._started:
                continue
            worker._renew()
            if worker._process is process:
                self._idle.append({name: vars(worker)[name] for name in self.STATE})
                worker._process = None

    def close(self, worker: Any) -> None:
        for state in self._idle:
            vars(worker).update(state)
            worker.close()


@pytest.fixture(scope="session")
def warm_workers() -> Iterator[None]:
    """Tuning runs of this process share loaded worker processes."""
    from tvm_tilex.tune.pool import Pool
    from tvm_tilex.tune.process import Worker

    warm, begin, end = WarmWorkers(), Pool.__init__, Pool.close

    def begin_warm(pool: Any, endpoints: Any) -> None:
        begin(pool, endpoints)
        warm.begin(pool)

    def end_warm(pool: Any) -> None:
        warm.end(pool)
        end(pool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "__init__", begin_warm)
        patch.setattr(Pool, "close", end_warm)
        yield
    warm.close(Worker())

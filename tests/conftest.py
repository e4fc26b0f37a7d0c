"""Options and fixtures of the whole suite."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

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

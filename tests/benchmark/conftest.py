"""The scripts of the GPU benchmarks import one another by plain names, from their own folder."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmark"


@pytest.fixture
def script(monkeypatch):
    """Import a benchmark script by name."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module

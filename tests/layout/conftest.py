"""Loads the fuzz script as a module, so that the suite runs a seeded portion of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fuzz_layout():
    path = Path(__file__).resolve().parents[2] / "scripts" / "fuzz_layout.py"
    spec = importlib.util.spec_from_file_location("fuzz_layout", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_layout"] = module
    spec.loader.exec_module(module)
    return module

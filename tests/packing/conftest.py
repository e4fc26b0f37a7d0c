"""Makes the helper of this folder importable."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "packing_runs", Path(__file__).with_name("packing_runs.py")
)
assert _SPEC is not None and _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["packing_runs"] = _MODULE
_SPEC.loader.exec_module(_MODULE)


@pytest.fixture(autouse=True)
def in_the_simulator():
    """A Metal kernel is meant to run in the simulator here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no Apple GPU here")
        yield

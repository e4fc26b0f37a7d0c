"""Makes the helpers of this folder importable."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

_NAME = "group_samples"
_SPEC = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name(f"{_NAME}.py"))
assert _SPEC is not None and _SPEC.loader is not None
sys.modules[_NAME] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules[_NAME])


@pytest.fixture(autouse=True)
def in_the_simulator():
    """A Metal kernel is meant to run in the simulator here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no Apple GPU here")
        yield

"""Makes the helpers of this folder importable."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

for _name in ("group_samples", "cuda_on_cpu"):
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
    assert _spec is not None and _spec.loader is not None
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_name])


@pytest.fixture(autouse=True)
def in_the_simulator():
    """A Metal kernel is meant to run in the simulator here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no Apple GPU here")
        yield

"""Our plans beside TVM dlight's schedules of the same operators, counted in the same simulator."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark" / "metal_counters.py"


@pytest.fixture(scope="module")
def counters():
    spec = importlib.util.spec_from_file_location("metal_counters", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("operator", ["softmax", "layernorm"])
def test_fewer_loads_barriers_and_collectives(counters, operator):
    ours = counters._tilex(operator, 3, 4096, 1)
    dlight = counters._dlight(operator, 3, 4096, 1)
    assert ours.loads < dlight.loads
    assert (ours.barriers, dlight.barriers) == (2, 6)
    assert (ours.collectives, dlight.collectives) == (4, 12)
    assert ours.stores == dlight.stores == 1

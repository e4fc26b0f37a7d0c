"""The recorded measurements are readable, and one cell's plans are plans of today."""

import json
import math
from pathlib import Path

import pytest

from tvm_tilex.plan.cost import OccupancyCost

FOLDER = Path(__file__).parents[2] / "configs" / "measurements"
RECORDS = [FOLDER / f"h200_{dtype}.json" for dtype in ("bfloat16", "float32")]


def rows_of(path):
    return [row for row in json.loads(path.read_text())["rows"] if "us" in row and row.get("S")]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_row_states_a_plan_and_its_time(path):
    rows = rows_of(path)
    assert len(rows) > 500
    for row in rows:
        assert row["us"] > 0 and 1 <= row["S"] <= 32 and row["Q"] >= 1
        assert row["V"] in (1, 2, 4, 8) and (row.get("C") or 1) in (1, 2, 4, 8)
        assert 32 * row["S"] * row["Q"] <= 1024
        assert row["materialization"] in ("preserve", "loaded", "recompute", "expensive-only")


def test_a_cell_s_plans_are_read_and_scored(script, tmp_path):
    """The whole record takes minutes: one cell of it, with staged and clustered plans."""
    path = next(path for path in RECORDS if "bfloat16" in path.stem)
    record = json.loads(path.read_text())
    cell = ("softmax", [1024, 32000])
    record["rows"] = [r for r in record["rows"] if (r["operator"], r["shape"]) == cell]
    few = tmp_path / path.name
    few.write_text(json.dumps(record))
    plans_module = script("measured_plans")
    ((found, plans),) = plans_module.read_plans([few]).items()
    assert found == ("softmax", 1024, 32000, record["dtype"])
    assert len(plans) > 10
    assert any(plan.facts.staged_bytes for plan in plans)
    assert any(plan.automatic for plan in plans)
    scores = [OccupancyCost()(plan.facts) for plan in plans]
    assert all(math.isfinite(score) and score > 0 for score in scores)
    regret, choice, best = plans_module.regret_of(plans, OccupancyCost())
    assert regret >= 0 and choice.automatic and best in plans

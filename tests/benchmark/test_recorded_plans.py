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


def test_plans_of_shared_simd_groups_are_exported_and_read(script, tmp_path):
    """A record without R has whole SIMD groups."""
    export = script("export_cuda_artifacts")
    grid = [plan for plan in export.grid(256, 4) if plan[7] > 1]
    assert {(t, q, r) for t, q, *_, r, _ in grid} == {
        (t, t * r // 32, r) for t in (32, 64, 128, 256) for r in (2, 4)
    }
    assert not any(plan[7] > 1 for plan in export.grid(4096, 4))
    assert {plan[7] for plan in export.grid(1024, 2)} == {1, 2, 4}
    softmax = {"operator": "softmax", "shape": [32768, 256], "materialization": "preserve"}
    plans = [
        {"S": 1, "Q": 8, "V": 4, "C": 1, "R": 4, "us": 2.0},
        {"S": 1, "Q": 2, "V": 4, "us": 3.0},
    ]
    record = {"dtype": "float32", "rows": [{**softmax, **plan} for plan in plans]}
    path = tmp_path / "shared.json"
    path.write_text(json.dumps(record))
    ((_, (shared, whole)),) = script("measured_plans").read_plans([path]).items()
    assert shared.choices["threads_per_group"] == 64 and shared.facts.workers == 8
    assert (shared.facts.programs_per_subgroup, whole.facts.programs_per_subgroup) == (4, 1)
    assert whole.automatic and shared.automatic
    assert script("model_regret").label(shared) == "S1 Q8 V4 R4"

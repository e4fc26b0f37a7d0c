"""Short texts of values and choices, the same in tables, lines and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["describe_choices", "format_value"]

_SHORT = {
    "threads_per_group": "threads",
    "reduction_programs_per_group": "Q",
    "reduction_lane_elements": "V",
    "reduction_blocks_per_program": "C",
    "reduction_programs_per_subgroup": "R",
    "reduction_stripe_storage": "stripes",
    "reduction_peeled_rows": "peeled",
    "reduction_early_views": "early",
    "reduction_unroll": "unroll",
    "shared_tile_materialization": "tiles",
    "metal_subgroup_reductions": "subgroups",
    "subgroup_reductions": "subgroups",
}


def format_value(value: float | None, metric: str) -> str:
    """Microseconds, or modelled operations named as such."""
    if value is None:
        return "-"
    return f"{value:.1f} modelled" if metric == "sim-cost" else f"{1e6 * value:.2f} us"


def describe_choices(choices: Mapping[str, Any]) -> str:
    """The options that a candidate states; ``default`` where it states none."""
    named = (f"{_SHORT.get(name, name)}={_value(value)}" for name, value in choices.items())
    return " ".join(named) or "default"


def _value(value: Any) -> str:
    return "auto" if value is None or (value == 0 and value is not False) else str(value)

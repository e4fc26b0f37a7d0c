"""TVM passes that realize reference TIRx on a target. They consume verdicts and decide nothing."""

from __future__ import annotations

import importlib
from typing import Any

_PASSES = {
    "BlockPrograms": "tvm_tilex.transform.block_programs",
    "CanonicalizeReductions": "tvm_tilex.transform.canonicalize_reductions",
    "CoherentParameters": "tvm_tilex.transform.dependent_launches",
    "DependentLaunches": "tvm_tilex.transform.dependent_launches",
    "ElementaryFunctions": "tvm_tilex.transform.elementary_functions",
    "FenceProducts": "tvm_tilex.transform.fence_products",
    "NarrowResults": "tvm_tilex.transform.narrow_results",
    "EarlyViews": "tvm_tilex.transform.early_views",
    "ForwardViews": "tvm_tilex.transform.forward_views",
    "GuardDimensions": "tvm_tilex.transform.guard_dimensions",
    "LowerCollectives": "tvm_tilex.transform.lower_collectives",
    "MapGroups": "tvm_tilex.transform.map_groups",
    "MapSubgroups": "tvm_tilex.transform.map_subgroups",
    "PadDimensions": "tvm_tilex.transform.pad_dimensions",
    "PlanRows": "tvm_tilex.transform.plan_rows",
    "PlanGroups": "tvm_tilex.transform.plan_groups",
    "PrefetchRows": "tvm_tilex.transform.prefetch_rows",
    "ProveReductions": "tvm_tilex.transform.prove_reductions",
    "ScheduleReductions": "tvm_tilex.transform.schedule_reductions",
    "MapPrograms": "tvm_tilex.transform.map_programs",
    "VectorizeDomains": "tvm_tilex.transform.vectorize_domains",
    "VectorizeReductions": "tvm_tilex.transform.vectorize_reductions",
}

__all__ = sorted(_PASSES)


def __getattr__(name: str) -> Any:
    if name in _PASSES:
        return getattr(importlib.import_module(_PASSES[name]), name)
    raise AttributeError(f"module 'tvm_tilex.transform' has no attribute {name!r}")

"""Compile options: frozen, validated, hashed into every cache key, printed in reports."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import OptionError
from tvm_tilex.lowering.sharing import SharedTileMaterialization

__all__ = ["CompileOptions"]

_ELEMENTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class CompileOptions:
    """How a kernel may be realized. 0 and None mean automatic; nothing explicit is clamped.

    Parameters
    ----------
    metal_subgroup_reductions
        Whether Metal candidates with SIMD-group collectives are considered; None decides from the
        target. Enabling is not permission: each reduction's policy is.
    subgroup_reductions
        The same for CUDA.
    noalias
        True promises that no argument overlaps a written one, and a call that breaks the promise
        raises; None establishes it at each call.
    threads_per_group
        Exact number of threads of a group, a multiple of 32.
    reduction_programs_per_group
        Exact number of programs packed into a group.
    reduction_lane_elements
        Exact number of consecutive elements a worker owns: 1, 2, 4 or 8.
    reduction_blocks_per_program
        Exact number of threadgroups, a cluster, that share one program (CUDA of compute capability
        9.0 and later: 1, 2, 4 or 8).
    reduction_programs_per_subgroup
        Exact number of programs that share one SIMD group, each on a part of its lanes (CUDA: 1, 2
        or 4).
    reduction_stripe_storage
        Where a worker keeps its part of a view that several consumers read: ``"register"``, or
        ``"shared"`` memory that the launch asks for (CUDA); None lets the cost model choose.
    reduction_peeled_rows
        Whether the consecutive elements that a worker owns begin at a row's first aligned element,
        so that rows of odd widths move as vectors; None lets the cost model choose on CUDA, and is
        False elsewhere.
    reduction_early_views
        Whether what every program reads at its own elements, such as weights, is loaded before the
        first reduction and kept in registers (CUDA); None lets the cost model choose.
    reduction_unroll
        Unrolling of ordered stripes: 1, 2, 4 or 8. Never changes a result.
    group_threads
        Exact number of threads of a cooperative group, any positive one: a group that is not a
        whole number of SIMD groups folds its reductions serially. 0 leaves it to the cost model;
        ``threads_per_group`` is taken where only that is stated.
    group_reductions
        ``"collective"`` (one SIMD group an output), ``"columns"`` (neighbouring outputs a thread)
        or ``"serial"`` (one thread an output) for every reduction inside a group that permits it;
        None lets the cost model choose for each.
    group_products
        ``"matrix"``, ``"fma"`` or ``"scalar"`` for every product inside a group whose shape
        permits it; None prefers them in this order.
    vector_access
        Whether consecutive elements that are proved contiguous and aligned move as vectors.
    shared_tile_materialization
        PRESERVE, EXPENSIVE_ONLY, LOADED or RECOMPUTE; None lets the target choose: LLVM the one of
        the first two that moves fewer bytes, Metal PRESERVE, CUDA PRESERVE, LOADED or RECOMPUTE by
        cost, both RECOMPUTE where no width keeps the row within the stripe bound.
    max_reduction_striped_scalars_per_worker
        Bound on the scalars of worker-private stripes.
    max_thread_candidates
        Bound on the candidates a planner may enumerate.
    cost_policy
        Name of the policy that scores legal candidates; ``default`` is ``analytic`` on Metal and
        ``occupancy``, fitted to measurements, on CUDA, or ``occupancy_in_turn`` where launches do
        not overlap.
    dependent_launch
        Whether the kernels may be launched before those they follow have ended; they wait for them
        before they touch memory (CUDA of compute capability 9.0 and later, else an error). None
        lets the planner choose for mapped reductions, and launches others in turn.
    dynamic_rows
        Whether a direct call compiles for any number of rows, where the kernel allows it, or for
        its own shapes. ``tx.compile`` does what its specs say.
    """

    metal_subgroup_reductions: bool | None = None
    subgroup_reductions: bool | None = None
    noalias: bool | None = None
    threads_per_group: int = 0
    reduction_programs_per_group: int = 0
    reduction_lane_elements: int = 0
    reduction_blocks_per_program: int = 0
    reduction_programs_per_subgroup: int = 0
    reduction_stripe_storage: str | None = None
    reduction_peeled_rows: bool | None = None
    reduction_early_views: bool | None = None
    reduction_unroll: int = 1
    group_threads: int = 0
    group_reductions: str | None = None
    group_products: str | None = None
    vector_access: bool = True
    shared_tile_materialization: SharedTileMaterialization | None = None
    max_reduction_striped_scalars_per_worker: int = 64
    max_thread_candidates: int = 256
    cost_policy: str = "default"
    dependent_launch: bool | None = None
    dynamic_rows: bool = True

    def __post_init__(self) -> None:
        mode = self.shared_tile_materialization
        if mode is not None and not isinstance(mode, SharedTileMaterialization):
            object.__setattr__(self, "shared_tile_materialization", _materialization(mode))
        for name in ("threads_per_group", "reduction_programs_per_group"):
            _require(self, name, _is_count(getattr(self, name)), "0 or a positive integer")
        _require(self, "group_threads", _is_count(self.group_threads), "0 or a positive integer")
        for name, words in (
            ("group_reductions", ("collective", "columns", "serial")),
            ("group_products", ("matrix", "fma", "scalar")),
            ("reduction_stripe_storage", ("register", "shared")),
        ):
            _require(self, name, getattr(self, name) in (None, *words), f"None, {', '.join(words)}")
        threads = self.threads_per_group
        _require(self, "threads_per_group", threads % 32 == 0, "a multiple of 32")
        for name, choices in (
            ("reduction_lane_elements", (0, *_ELEMENTS)),
            ("reduction_blocks_per_program", (0, *_ELEMENTS)),
            ("reduction_programs_per_subgroup", (0, 1, 2, 4)),
            ("reduction_unroll", _ELEMENTS),
        ):
            value = getattr(self, name)
            rule = f"{', '.join(map(str, choices[:-1]))} or {choices[-1]}"
            _require(self, name, _is_count(value) and value in choices, rule)
        stated = isinstance(self.dependent_launch, (bool, type(None)))
        _require(self, "dependent_launch", stated, "True, False or None")
        for name in ("max_reduction_striped_scalars_per_worker", "max_thread_candidates"):
            value = getattr(self, name)
            _require(self, name, _is_count(value) and value > 0, "a positive integer")

    @property
    def explicit_request(self) -> bool:
        """Whether a SIMD-group map is asked for exactly, to be realized or refused."""
        return bool(
            self.threads_per_group
            or self.reduction_programs_per_group
            or self.reduction_lane_elements
            or self.reduction_blocks_per_program
            or self.reduction_programs_per_subgroup
            or self.reduction_stripe_storage == "shared"
            or self.reduction_peeled_rows
        )

    def to_json(self) -> str:
        """Stable text of every option, sorted by name."""
        values = dataclasses.asdict(self)
        mode = self.shared_tile_materialization
        values["shared_tile_materialization"] = mode.value if mode else None
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CompileOptions:
        """Options from :meth:`to_json`'s text."""
        return cls(**json.loads(text))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _require(options: CompileOptions, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise OptionError(f"{name}={getattr(options, name)!r}: must be {rule}")


def _materialization(name: Any) -> SharedTileMaterialization:
    for mode in SharedTileMaterialization:
        if isinstance(name, str) and name.lower().replace("_", "-") == mode.value:
            return mode
    known = ", ".join(repr(mode.value) for mode in SharedTileMaterialization)
    raise OptionError(f"shared_tile_materialization={name!r}: use one of {known}")

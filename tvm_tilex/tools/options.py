"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tvm_tilex.ir.types import DTYPES
from tvm_tilex.lowering.sharing import SharedTileMaterialization
from tvm_tilex.tools.subjects import Shape
from tvm_tilex.transform.options import CompileOptions

__all__ = ["TargetName", "compile_options", "kernel_options"]

_STORAGE = [name for name, dtype in DTYPES.items() if dtype.is_float]


class TargetName(click.ParamType):
    """A target kind, or a device family that ``configs/targets`` describes."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or a usage error that lists the names."""
        from tvm_tilex.build.target import KINDS
        from tvm_tilex.build.target_config import target_configs

        known = dict.fromkeys((*KINDS, *target_configs()))
        if value not in known:
            self.fail(f"{value!r} is not one of {', '.join(known)}", param, ctx)
        return str(value)


def kernel_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add KERNEL, --shape, --target, --dtype, --seed, --json and the compile options."""
    for decorate in (
        click.option(
            "--materialization",
            type=click.Choice([mode.value for mode in SharedTileMaterialization]),
            help="Which shared tiles are kept; the target chooses by default.",
        ),
        click.option("--lane-elements", default=0, help="Exact V: 1, 2, 4 or 8."),
        click.option(
            "--peeled-rows/--no-peeled-rows",
            default=None,
            help="Vectors from a row's first aligned element; the cost decides by default (CUDA).",
        ),
        click.option(
            "--stripe-storage",
            type=click.Choice(["register", "shared"]),
            help="Where parts of a kept view stand (CUDA); the cost decides by default.",
        ),
        click.option(
            "--programs-per-subgroup",
            default=0,
            help="Exact R, programs that share a SIMD group (CUDA): 1, 2 or 4.",
        ),
        click.option("--blocks-per-program", default=0, help="Exact C, a cluster: 1, 2, 4 or 8."),
        click.option("--programs-per-group", default=0, help="Exact Q, programs a threadgroup."),
        click.option("--threads-per-group", default=0, help="Exact threads of a threadgroup."),
        click.option(
            "--subgroups/--no-subgroups",
            default=None,
            help="Consider SIMD-group maps; the target decides by default.",
        ),
        click.option(
            "--dependent-launch/--no-dependent-launch",
            default=None,
            help="Launches may overlap the kernels they follow (CUDA from compute capability 9.0 "
            "on); the planner decides by default.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--seed", default=0, show_default=True, help="Seed of the random inputs."),
        click.option(
            "--dtype",
            type=click.Choice(_STORAGE),
            default="float32",
            show_default=True,
            help="Storage type; computation is FP32.",
        ),
        click.option(
            "--target",
            type=TargetName(),
            default="llvm",
            show_default=True,
            help="llvm, metal or cuda, or a described family such as apple-m2 or h200.",
        ),
        click.option(
            "--shape",
            "shapes",
            type=Shape(dynamic=True),
            multiple=True,
            required=True,
            help="Extents such as 3x4096; once for a library kernel, else once a view. "
            "Px4096 leaves P to the call, PxN=1..300 bounds N.",
        ),
        click.argument("kernel"),
    ):
        command = decorate(command)
    return command


def compile_options(
    *,
    subgroups: bool | None,
    threads_per_group: int,
    programs_per_group: int,
    lane_elements: int,
    blocks_per_program: int,
    programs_per_subgroup: int,
    stripe_storage: str | None,
    peeled_rows: bool | None,
    dependent_launch: bool | None,
    materialization: str | None,
) -> CompileOptions:
    """The compile options that the command line states."""
    return CompileOptions(
        metal_subgroup_reductions=subgroups,
        subgroup_reductions=subgroups,
        threads_per_group=threads_per_group,
        reduction_programs_per_group=programs_per_group,
        reduction_lane_elements=lane_elements,
        reduction_blocks_per_program=blocks_per_program,
        reduction_programs_per_subgroup=programs_per_subgroup,
        reduction_stripe_storage=stripe_storage,
        reduction_peeled_rows=peeled_rows,
        dependent_launch=dependent_launch,
        shared_tile_materialization=materialization,  # type: ignore[arg-type]
    )

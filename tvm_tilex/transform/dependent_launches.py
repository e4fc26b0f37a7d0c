"""Lets a kernel be launched before the one it follows has ended (CUDA).

Before::

    for threadIdx.x in thread_binding(256):
        body

After::

    # attr tirx.kernel_launch_params: tirx.use_programtic_dependent_launch
    for threadIdx.x in thread_binding(256):
        tilex.grid_dependency()  # lets the next kernel be launched, then waits for those before
        body

Every thread of every threadgroup waits before it touches memory. So a kernel ends after all those
before it, and one that follows two of them needs to wait for the nearer one alone. What is gained
is a launch's latency and the time that the last threadgroups leave the others idle.

What a kernel reads may be written while it waits, which is within its lifetime: nothing may be
loaded as constant (``ld.global.nc``), for ptxas moves such loads in front of the wait. Hence no
``__restrict__``, from which nvcc would infer it.

The rule is programmatic dependent launch's (CUDA Programming Guide, "Programmatic Dependent Launch
and Synchronization"; PTX ISA 7.8, griddepcontrol). Runs on scheduled functions, just before TVM
lowers them.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import calls
from tvm_tilex.errors import OptionError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, call, structural_map, tirx
from tvm_tilex.tirx.register import GRID_DEPENDENCY
from tvm_tilex.transform.common import is_stage, sequence, tilex_pass
from tvm_tilex.transform.realization import Realization, realization_of

__all__ = ["CoherentParameters", "DependentLaunches"]


@tilex_pass("DependentLaunches")
class DependentLaunches:
    """Wait for earlier kernels inside the kernel, where the options or the plan ask for it."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Mark the function's launches, and make each of its kernels wait."""
        if not is_stage(func, "scheduled"):
            return func
        realization = realization_of(func, self.target, None)
        if not _asked(func, realization):
            return func
        body = structural_map(func.body, (tirx.AttrStmt, _wait_in_kernel), order="post")
        return func.with_body(body).with_attr(attrs.LAUNCH_PARAMETERS, [attrs.DEPENDENT_LAUNCH])


@tilex_pass("CoherentParameters")
class CoherentParameters:
    """Take ``__restrict__`` from the device functions that wait: TVM gives it to all of them."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Say no more that the parameters do not overlap."""
        flags = func.attrs.get(attrs.LAUNCH_PARAMETERS, ()) if func.attrs else ()
        # Others launched so, with waits of their own, keep what their authors said.
        if attrs.DEPENDENT_LAUNCH in map(str, flags) and GRID_DEPENDENCY in calls(func.body):
            return func.without_attr("tirx.noalias")
        return func


def _asked(func: PrimFunc, realization: Realization) -> bool:
    if realization.options.dependent_launch:
        _require_support(realization)
        return True
    return attrs.OVERLAPS in func.attrs


def _require_support(realization: Realization) -> None:
    if not realization.target.dependent_launches:
        major, minor = divmod(realization.capability, 10)
        given = f"cuda of {major}.{minor}" if realization.kind == "cuda" else realization.kind
        raise OptionError(
            f"dependent_launch=True: needs CUDA of compute capability 9.0 or later, not {given}"
        )


def _wait_in_kernel(statement: Any) -> Any:
    if statement.attr_key != "thread_extent" or statement.node.thread_tag != "threadIdx.x":
        return statement
    wait = tirx.Evaluate(call(GRID_DEPENDENCY, dtype="void"))
    return tirx.AttrStmt(
        statement.node, statement.attr_key, statement.value, sequence(wait, statement.body)
    )

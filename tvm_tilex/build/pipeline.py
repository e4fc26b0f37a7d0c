"""The one ordered list of passes, from reference TIRx to what TVM's code generators take.

Registered as the TIR pipeline ``tilex``. It differs from TVM's ``s_tir`` pipeline in that nothing
merges scratch buffers or adds barriers behind a plan (no StorageRewrite, no ThreadSync), so that
the barriers and shared bytes of a plan are those of the emitted text. Functions that are not ours
go through ``s_tir`` as they would without this pipeline, so that one module may hold both.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm_tilex import transform
from tvm_tilex.build import cuda_compile, metal_compile
from tvm_tilex.build.processor import processor_facts
from tvm_tilex.build.target_config import register_cost_policies
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, s_tir, tirx, tvm
from tvm_tilex.tirx.register import register
from tvm_tilex.transform.common import out_of_root_block

__all__ = ["mapping", "planning", "realization", "register_pipeline", "tilex_pipeline"]


def realization(target: Any, *, keep_views: bool | None = None) -> list[Any]:
    """Our own passes for a target, in order: :func:`planning`, then :func:`mapping`."""
    return [*planning(target, keep_views=keep_views), *mapping(target)]


def planning(
    target: Any, *, keep_views: bool | None = None, early_views: bool = False
) -> list[Any]:
    """The passes that prove and plan; on LLVM, which has no plans, all of them.

    ``keep_views`` says whether a worker keeps its part of a view that several consumers read; by
    default CUDA does (one read of memory), Metal does not (fewer rounds, the specification's map).
    ``early_views`` loads what every program reads before the first reduction.
    """
    if target.kind.name == "llvm":
        return [
            transform.ProveReductions(target),  # an explicit request is refused, not ignored
            transform.FenceProducts(),
            transform.ElementaryFunctions(target),
            transform.VectorizeReductions(),
            transform.VectorizeDomains(),
            transform.PlanRows(processor_facts(target)),
            transform.PrefetchRows(),
            transform.BlockPrograms(),
        ]
    proved = before_planning(target, keep_views=keep_views, early_views=early_views)
    return [*proved, transform.PlanGroups(target)]


def mapping(target: Any) -> list[Any]:
    """The passes that realize what is planned, and map the rest to one thread a program."""
    if target.kind.name == "llvm":
        return []
    limit = int(target.attrs.get("max_threads_per_block", 256))
    return [
        transform.MapSubgroups(target),
        transform.MapPrograms(threads=min(256, limit)),
    ]


def before_planning(
    target: Any, *, keep_views: bool | None = None, early_views: bool = False
) -> list[Any]:
    """The passes of a GPU's :func:`planning` up to the proof that a plan needs."""
    early = [transform.EarlyViews()] if early_views else []
    narrow = [transform.NarrowResults()] if target.kind.name == "cuda" else []
    limit = int(target.attrs.get("max_threads_per_block", 256))
    return [
        transform.MapGroups(target, threads=min(256, limit)),
        transform.PadDimensions(),
        transform.ForwardViews(target.kind.name == "cuda" if keep_views is None else keep_views),
        *early,
        *narrow,
        transform.ProveReductions(target),
    ]


def tvm_lowering(kind: str) -> list[Any]:
    """TVM's own passes, in order."""
    # A device compiler shares subexpressions itself; TVM's leave dead names in the text.
    shared = [tirx.transform.CommonSubexprElim()] if kind == "llvm" else []
    return [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.UnifyThreadBinding(),
        tirx.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        # After vectorization: the storage legalization below doesn't know a broadcast of bfloat16.
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        *shared,
        tirx.transform.FP8ComputeLegalize(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
    ]


def tilex_pipeline() -> tuple[Any, Any, Any]:
    """The pipeline in the form TVM's registry asks for: body, host and device finalizers."""

    @tvm.transform.module_pass(opt_level=0, name="tilex")
    def pipeline(mod: IRModule, ctx: Any) -> IRModule:
        target = _target(mod)
        own, foreign = _divided(mod)
        last = [transform.DependentLaunches(target), transform.GuardDimensions()]
        realized = [*realization(target), *last]
        own = tvm.ir.transform.Sequential(realized, name="tilex.Realize")(own)
        own = tvm.ir.transform.Sequential(tvm_lowering(target.kind.name), name="tilex.Lower")(own)
        whole = own
        if foreign is not None:
            whole = own.clone()
            whole.update(tirx.compilation_pipeline.get_tir_pipeline("s_tir")[0](foreign))
        # One source holds all kernels of a device, so that ours decide for those beside them.
        needing = whole if len(own.functions) else own
        metal_compile.expect(needing)
        cuda_compile.expect(needing)
        return whole

    stock = tirx.compilation_pipeline
    return pipeline, stock.finalize_host_passes, finalize_device_passes


def finalize_device_passes() -> Any:
    """TVM's device finalizers behind what only a device function can be told."""
    stock = tirx.compilation_pipeline.finalize_device_passes()
    own = [transform.LowerCollectives(), transform.CoherentParameters()]
    return tvm.ir.transform.Sequential([*own, stock], name="tilex.Device")


def _divided(mod: IRModule) -> tuple[IRModule, IRModule | None]:
    """Our functions, and those of somebody else (None where there are none).

    A foreign function may rely on what TVM's own pipeline does and this one does not: barriers
    around shared memory, cross-thread reductions, software pipelines. It goes through that one.
    """
    own, foreign = {}, {}
    for variable, function in mod.functions.items():
        if function.attrs is not None and attrs.STAGE in function.attrs:
            own[variable] = out_of_root_block(function)
        else:
            foreign[variable] = function
    if not foreign:
        return IRModule(own, attrs=mod.attrs), None
    return IRModule(own, attrs=mod.attrs), IRModule(foreign, attrs=mod.attrs)


def _target(mod: IRModule) -> Any:
    """The functions' target; the device's where a module also has functions for the host."""
    found = [
        function.attrs["target"]
        for function in mod.functions.values()
        if function.attrs and "target" in function.attrs
    ]
    devices = [target for target in found if target.kind.name != "llvm"]
    return next(iter(devices or found), None) or tvm.target.Target("llvm")


def register_pipeline() -> None:
    """Register errors, operators and the pipeline with TVM. Idempotent."""
    register()
    _register_once()
    tirx.register_tir_pipeline("tilex", tilex_pipeline)


@functools.cache
def _register_once() -> None:
    metal_compile.register_metal_compile()
    cuda_compile.register_cuda_compile()
    register_cost_policies()

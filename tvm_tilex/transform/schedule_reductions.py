"""The one pass for existing programs: our schedules where they are proved, the rest for dlight.

Put it in front of ``dlight.ApplyDefaultSchedule`` and build with ``tir_pipeline="tilex"``. Each
function is canonicalized (:mod:`.canonicalize_reductions`), proved, planned and mapped by the same
passes as a tile kernel. One that is not admitted, or that no plan fits, stays the same object, so
dlight schedules it as before, and ``report`` says why. A mapped function carries
``tirx.is_scheduled``, which dlight respects.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm_tilex.analysis.blocks import Foreign
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.analysis.rows import MAPPED_KINDS
from tvm_tilex.errors import MappingError
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, Target, tvm
from tvm_tilex.transform.canonicalize_reductions import canonicalize
from tvm_tilex.transform.common import in_root_block
from tvm_tilex.transform.forward_views import ForwardViews
from tvm_tilex.transform.map_subgroups import MapSubgroups
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.permission import Outcome, Permission
from tvm_tilex.transform.plan_groups import PlanGroups
from tvm_tilex.transform.prove_reductions import ProveReductions

__all__ = ["ScheduleReductions"]

PRESERVE, EXPENSIVE_ONLY, RECOMPUTE = (
    SharedTileMaterialization[name] for name in ("PRESERVE", "EXPENSIVE_ONLY", "RECOMPUTE")
)


@tvm.transform.module_pass(opt_level=0, name="tilex.ScheduleReductions")
class ScheduleReductions:
    """Schedule the row reductions of a module of ordinary TVM functions.

    Parameters
    ----------
    policy, accumulate
        The numerical permission, see
        :class:`~tvm_tilex.transform.permission.Permission`. Without a policy nothing
        is touched.
    target
        Defaults to a function's own, then to the current target. On LLVM a function stays in
        canonical form, which the ``tilex`` pipeline vectorizes.
    options
        :class:`tx.CompileOptions` for every function; what is asked for exactly and does not fit a
        function leaves that function to dlight.

    Attributes
    ----------
    report
        An ``Outcome(function, reason)`` for every PrimFunc of the last module; the reason is None
        where the function is scheduled.
    """

    def __init__(
        self,
        policy: str | None = None,
        *,
        accumulate: str | None = None,
        target: Any = None,
        options: CompileOptions | None = None,
    ) -> None:
        self.permission = Permission(policy, accumulate)
        self.target = Target(target) if target is not None else None
        self.options = options or CompileOptions()
        self.report: tuple[Outcome, ...] = ()

    def transform_module(self, mod: IRModule, ctx: Any) -> IRModule:
        """Schedule what is proved; the others stay the same objects."""
        outcomes, changed = [], {}
        for variable, function in mod.functions_items():
            if not isinstance(function, PrimFunc):
                continue
            name = str(variable.name_hint)
            found = self._schedule(name, function)
            if isinstance(found, Foreign):
                outcomes.append(Outcome(name, found.reason))
                continue
            outcomes.append(Outcome(name, None))
            changed[variable] = in_root_block(found).with_attr("tirx.is_scheduled", True)
        self.report = tuple(outcomes)
        if not changed:
            return mod
        result = mod.clone()
        for variable, function in changed.items():
            result[variable] = function
        return result

    def _schedule(self, name: str, function: PrimFunc) -> PrimFunc | Foreign:
        target = self.target or function.attrs.get("target", None) or Target.current()
        if target is None:
            return Foreign("no target: state one, or enter `with target:`")
        kind = str(target.kind.name)
        if kind == "llvm":
            return canonicalize(function, self.permission, EXPENSIVE_ONLY)
        if kind not in MAPPED_KINDS:
            return Foreign(f"target kind {kind} has no SIMD-group realization")
        reason = Foreign("")
        for mode, view_loads in self._materializations(kind):
            canonical = canonicalize(function, self.permission, mode, view_loads)
            if isinstance(canonical, Foreign):
                return canonical
            options = dataclasses.replace(self.options, shared_tile_materialization=mode)
            mapped = _map(name, canonical, target, options)
            if not isinstance(mapped, Foreign):
                return mapped
            reason = reason if reason.reason else mapped
        return reason

    def _materializations(self, kind: str) -> tuple[tuple[SharedTileMaterialization, int], ...]:
        """Which tiles a worker keeps, and from how many loads on an input, in order of preference.

        CUDA reads a row once where it can. On Metal a second load is cheaper than a round more
        (tile kernels forward their views there), and from the third on keeping is.
        """
        loads = 2 if kind == "cuda" else 3
        stated = self.options.shared_tile_materialization
        if stated is not None:
            return ((stated, loads),)
        return (PRESERVE, loads), (PRESERVE, _NEVER), (RECOMPUTE, _NEVER)


# More loads of one input than any function has.
_NEVER = 2**31


def _map(name: str, function: PrimFunc, target: Any, options: CompileOptions) -> PrimFunc | Foreign:
    """Prove, plan and map one canonical function, or say which row or resource declines."""
    private = "global_symbol" not in function.attrs
    named = function.with_attr("global_symbol", name).with_attr(attrs.OPTIONS, options.to_json())
    passes = [ForwardViews(keep_owned=True), ProveReductions(target), PlanGroups(target)]
    try:
        module = tvm.ir.transform.Sequential(passes)(IRModule({name: named}))
        planned = module[name]
        if attrs.PROOF not in planned.attrs:
            return Foreign("the target or the options disable SIMD groups")
        proof = ProofRecord.from_json(str(planned.attrs[attrs.PROOF]))
        if proof.declined is not None:
            return Foreign(f"{proof.declined.name}: {proof.declined.reason}")
        if attrs.PLAN not in planned.attrs:
            return Foreign(str(planned.attrs.get(attrs.PLAN_REFUSAL, "it was not planned")))
        mapped = MapSubgroups(target)(module)[name]
    except MappingError as error:
        return Foreign(str(error))
    return mapped.without_attr("global_symbol") if private else mapped

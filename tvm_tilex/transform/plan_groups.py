"""Plans an admitted function: facts to the planner, the chosen GroupPlan onto the function.

Reads ``tilex.proof``, ``tilex.options`` and the target; adds ``tilex.plan``, or
``tilex.plan_refusal`` where no candidate fits the resources (an error if it was requested).
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.errors import MappingError
from tvm_tilex.plan.cost import CostPolicy, cost_policy
from tvm_tilex.plan.planner import PlanRefusal, plan_groups
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc
from tvm_tilex.transform.common import is_stage, tilex_pass
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.realization import realization_of

__all__ = ["PlanGroups", "misfit"]


def misfit(name: str, refusal: PlanRefusal) -> MappingError:
    """The error of a request that the planner refuses."""
    return MappingError(f"{name}: the requested map does not fit: {refusal}")


@tilex_pass("PlanGroups")
class PlanGroups:
    """Choose S, Q and V for an admitted function.

    Parameters
    ----------
    target, options
        Default to the function's own attributes.
    policy
        A cost policy; defaults to the one the options name.
    """

    def __init__(
        self,
        target: Any = None,
        options: CompileOptions | None = None,
        policy: CostPolicy | None = None,
    ) -> None:
        self.target = target
        self.options = options
        self.policy = policy

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Add the plan to an admitted reference function."""
        if not is_stage(func, "reference") or attrs.PROOF not in func.attrs:
            return func
        if not ProofRecord.from_json(str(func.attrs[attrs.PROOF])).admitted:
            return func
        wanted = realization_of(func, self.target, self.options)
        admission = admit(func, lanes=wanted.target.lanes, kind=wanted.kind)
        if admission.facts is None:
            raise MappingError(f"{func.attrs['global_symbol']}: changed since it was proved")
        if admission.facts.programs == 0:  # nothing to map: not even a request is refused
            return func.with_attr(attrs.PLAN_REFUSAL, "no program runs")
        policy = self.policy or cost_policy(wanted.cost_policy, wanted.kind, wanted.family)
        try:
            plan = plan_groups(admission.facts, wanted.target, wanted.request, policy)
        except PlanRefusal as refusal:
            if wanted.explicit:
                raise misfit(str(func.attrs["global_symbol"]), refusal) from None
            return func.with_attr(attrs.PLAN_REFUSAL, str(refusal))
        return func.with_attr(attrs.PLAN, plan.to_json())

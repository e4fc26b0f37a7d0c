"""How many SIMD groups serve a row, how many rows share a group: integers only.

A planner sees facts and never IR, so that a score or a measurement cannot make a map legal.
"""

from tvm_tilex.plan.cost import (
    AnalyticCost,
    CostFacts,
    CostPolicy,
    ServiceCost,
    cost_policy,
    register_cost_policy,
)
from tvm_tilex.plan.facts import ProgramFacts, Request, Stripe, TargetFacts
from tvm_tilex.plan.group_plan import Candidate, GroupPlan
from tvm_tilex.plan.planner import PlanRefusal, plan_groups

__all__ = [
    "AnalyticCost",
    "Candidate",
    "CostFacts",
    "CostPolicy",
    "GroupPlan",
    "PlanRefusal",
    "ProgramFacts",
    "Request",
    "ServiceCost",
    "Stripe",
    "TargetFacts",
    "cost_policy",
    "plan_groups",
    "register_cost_policy",
]

"""Attribute and annotation keys written into TIRx, with their meaning.

Loops
-----
``tilex.parallel``
    On the root loop of a nest: its number. Its iterations are independent programs.
``tilex.binding``
    On the same loop, ``"subgroup"`` when the source demands SIMD groups.
``tilex.block`` / ``tilex.together``
    On the same loop of a CPU's function: how many programs make one parallel iteration, and how
    many of those go through the program's phases side by side.
``tilex.nested``
    On a serial loop that runs a nested parallel nest.
``tilex.domain``
    On the outermost loop of an independent element domain: how many perfectly nested loops it has.
``tilex.repartition``
    On the outermost loop of a domain that materializes a repartition: the TileIR value.
``tilex.group``
    On a root loop whose programs are cooperative groups: the elements of the group's domain.
``tilex.private``
    On such a loop: names of the tiles that a person placed in private memory.
``tilex.pipeline``
    On the serial loop of a pipeline: its nest number.
``tilex.iterations``
    On the same loop: how many iterations there are where it does not stop earlier.
``tilex.outputs``
    On the outermost loop over the outputs of a reduction in a group: how many such loops.
``tilex.dot``
    On the outermost loop of a matrix product: how many perfectly nested loops it has.
``tilex.reduction`` / ``tilex.policy`` / ``tilex.value``
    On a reduction's loop: the combiner, the resolved policy, and the TileIR value it computes. A
    marker is a claim, never a proof: analyses recheck everything it says.

Functions
---------
``tilex.options``
    The compile options as JSON text.
``tilex.stage``
    Which stage of the pipeline the function is in: ``reference`` or ``scheduled``.
``tilex.dimensions``
    Least and greatest value of each dynamic extent, by the name of its variable in the parameters'
    shapes. What is proved of the function holds within them; removed where the launch is guarded.
``tilex.requires_precise_math``
    Set when the result depends on an order or on NaN propagation that fast math does not keep.
``tilex.proof`` / ``tilex.plan`` / ``tilex.plan_refusal``
    JSON texts: the admission table's verdicts, the GroupPlan, or why no plan fits.
``tilex.group_plans`` / ``tilex.group_refusal``
    JSON text of the plans of composed groups, or why a group's programs run on one thread each.
``tilex.alignment``
    Bytes that the base address of a parameter must be a multiple of, by name: what vector
    accesses assume. Checked at launch.
``tilex.fenced``
    Set once products are fenced against contraction.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALIGNMENT",
    "BINDING",
    "BLOCK",
    "DEPENDENT_LAUNCH",
    "DIMENSIONS",
    "DOMAIN",
    "DOT",
    "FENCED",
    "GROUP",
    "GROUP_PLANS",
    "GROUP_REFUSAL",
    "ITERATIONS",
    "LAUNCH_PARAMETERS",
    "NESTED",
    "OPTIONS",
    "OUTPUTS",
    "OVERLAPS",
    "PARALLEL",
    "PIPELINE",
    "PLAN",
    "PLAN_REFUSAL",
    "POLICY",
    "PRECISE",
    "PRIVATE",
    "PROOF",
    "REDUCTION",
    "REPARTITION",
    "STAGE",
    "TOGETHER",
    "VALUE",
    "annotation",
    "noalias",
]

PARALLEL = "tilex.parallel"
BINDING = "tilex.binding"
BLOCK = "tilex.block"
TOGETHER = "tilex.together"
NESTED = "tilex.nested"
DOMAIN = "tilex.domain"
GROUP = "tilex.group"
PIPELINE = "tilex.pipeline"
PRIVATE = "tilex.private"
ITERATIONS = "tilex.iterations"
GROUP_PLANS = "tilex.group_plans"
GROUP_REFUSAL = "tilex.group_refusal"
OUTPUTS = "tilex.outputs"
DOT = "tilex.dot"
REDUCTION = "tilex.reduction"
REPARTITION = "tilex.repartition"
POLICY = "tilex.policy"
VALUE = "tilex.value"
OPTIONS = "tilex.options"
STAGE = "tilex.stage"
DIMENSIONS = "tilex.dimensions"
FENCED = "tilex.fenced"
ALIGNMENT = "tilex.alignment"
OVERLAPS = "tilex.overlaps"
PROOF = "tilex.proof"
PLAN = "tilex.plan"
PLAN_REFUSAL = "tilex.plan_refusal"
PRECISE = "tilex.requires_precise_math"
# TVM's own: on a function, what its launches ask for; and the flag that one may overlap the kernel
# before it, in TVM's spelling.
LAUNCH_PARAMETERS = "tirx.kernel_launch_params"
DEPENDENT_LAUNCH = "tirx.use_programtic_dependent_launch"


def annotation(loop: Any, key: str) -> Any:
    """Value of a loop annotation as a Python int or str, or None."""
    value = loop.annotations.get(key) if loop.annotations else None
    if value is None or isinstance(value, (str, int)):
        return value
    return getattr(value, "value", value)


def noalias(function: Any) -> bool:
    """Whether a function promises that its arguments do not overlap (``tirx.noalias``)."""
    value = function.attrs.get("tirx.noalias", None) if function.attrs else None
    return bool(getattr(value, "value", value))

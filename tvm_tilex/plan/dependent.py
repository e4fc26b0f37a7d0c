"""Whether a launch gains by beginning before the kernel that it follows has ended.

It saves the time between two kernels, but the threadgroups of such a launch start one after the
other at a lower rate: what reads little in each of many threadgroups would wait for them.

Measured on an H200 over 1,090 plans (docs/performance.md): 0.78 threadgroups a nanosecond whatever
their threads and registers, against 4.2 bytes a nanosecond that a kernel moves at the memory's
limit.
"""

from __future__ import annotations

from tvm_tilex.plan.facts import ProgramFacts, Request, TargetFacts
from tvm_tilex.plan.resources import MapShape

__all__ = ["launches_dependently"]

_SAVED_NS = 500.0  # between two kernels, at least
_START_NS = 1.28  # between the starts of two threadgroups
_BYTES_PER_NS = 4200.0


def launches_dependently(
    shape: MapShape, facts: ProgramFacts, target: TargetFacts, request: Request
) -> bool:
    """Whether a candidate's kernel is launched so: as asked for, or where that pays."""
    if request.dependent is not None or not target.dependent_launches:
        return bool(request.dependent) and target.dependent_launches
    # Of the most programs, where their number is known at launch: many lose more than few gain.
    groups = -(-facts.programs // shape.programs_per_group) * shape.blocks
    return groups * _START_NS <= _SAVED_NS + facts.programs * facts.bytes / _BYTES_PER_NS

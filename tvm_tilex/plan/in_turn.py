"""The occupancy policy for kernels that begin when the one before has ended.

Fitted like :mod:`tvm_tilex.plan.occupancy`, to an H200's record of the same plans launched in turn
(2026-11-30; mean regret 1.4 %). Their text differs too: nvcc may load constants early.
"""

from __future__ import annotations

from tvm_tilex.plan.occupancy import OccupancyCost

__all__ = ["in_turn"]


def in_turn() -> OccupancyCost:
    """The policy for launches that never overlap, whose gap every candidate has alike."""
    return OccupancyCost(
        bandwidth=19181.0,
        repeated=0.0693526,
        repeated_depth=0.0678501,
        cached=0.0959239,
        registers=28.9371,
        registers_per_scalar=1.51217,
        registers_per_move=0.415853,
        start=0.194311,
        start_per_warp=0.0184467,
        barrier=0.134137,
        barrier_per_doubling=0.0879086,
        cluster_start=0.468846,
        cluster_barrier=0.446693,
        cluster_barrier_per_warp=0.0998252,
        round=0.00188229,
        beside=0.517255,
        late=0.0878715,
        late_access=0.0428765,
        access=0.00593565,
        staging=0.0729034,
        staging_per_element=0.00216717,
        launch=0.138847,
        launch_per_warp=0.42528,
        slots_per_round=0.208539,
        slots_per_instruction=0.400573,
        slots_per_access=0.103919,
        slots_per_shifted=1.54878,
        slots_per_collective=0.262886,
        knee=1.81427,
        depth=0.0902984,
        latency_crowd=0.0917898,
        crowd=0.370655,
        mixing=13.4653,
        tail=0.236908,
        vector=0.0207935,
        packed=0.0053828,
        cluster=0.00649046,
        released=0.00468484,
        spilled=0.173496,
        staged=0.00248489,
        separate=0.0,
    )

"""The realizations ("plans") that every public bug case runs on.

A plan runs a kernel on arrays in call order and writes its outputs in place. New realizations
(SIMD groups, packings, device back ends) join :data:`PLANS`; the cases stay as they are.
"""

import itertools
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.errors import TilexError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.program import ViewAccess


def _interpreted(seed: int) -> Callable[..., None]:
    def run(kernel: tx.TileKernel, *arrays: Any, **static: Any) -> None:
        program = kernel.capture([tx.spec(a.shape, a.dtype.name) for a in arrays], static)
        written = iter(interpret(program, arrays, seed=seed))
        for view, array in zip(program.views, arrays, strict=True):
            if view.access is not ViewAccess.read:
                array[...] = next(written)

    return run


def _compiled(target: str, **options: Any) -> Callable[..., None]:
    def run(kernel: tx.TileKernel, *arrays: Any, **static: Any) -> None:
        chosen = tx.CompileOptions(**options)
        artifact = tx.compile(kernel, *arrays, target=target, options=chosen, **static)
        with warnings.catch_warnings():
            # Without an Apple GPU a Metal kernel runs in the simulator, which is what we want.
            warnings.filterwarnings("ignore", message="no Apple GPU here")
            artifact(*arrays)

    return run


@dataclass(frozen=True)
class Plan:
    """A named realization.

    ``tree`` says that its sums are trees, not one serial fold. ``nan`` says that a NaN result of
    maximum and minimum is part of its contract (on Metal, whose default is fast math, it isn't).
    """

    name: str
    run: Callable[..., None]
    tree: bool = False
    nan: bool = True

    def __call__(self, kernel: tx.TileKernel, *arrays: Any, **static: Any) -> None:
        self.run(kernel, *arrays, **static)

    def outputs(self, kernel: tx.TileKernel, *inputs: Any, shapes: Any, **static: Any) -> Any:
        """Run with NaN-filled float32 outputs of these shapes, given last; return them."""
        outputs = [np.full(shape, np.nan, np.float32) for shape in shapes]
        self.run(kernel, *inputs, *outputs, **static)
        return outputs[0] if len(outputs) == 1 else outputs


# Why an explicit SIMD-group map may be refused; anything else is a fault.
_REFUSALS = ("striped scalars", "fold_left", "fold_right", "ordered_tree")


def _mapped(subgroups: int, packed: int, elements: int) -> Callable[..., None]:
    """S SIMD groups a program, Q programs a threadgroup, V elements a worker, or a skip."""
    options = tx.CompileOptions(
        threads_per_group=32 * subgroups * packed,
        reduction_programs_per_group=packed,
        reduction_lane_elements=elements,
    )

    def run(kernel: tx.TileKernel, *arrays: Any, **static: Any) -> None:
        try:
            artifact = tx.compile(kernel, *arrays, target="metal", options=options, **static)
        except TilexError as refusal:
            if any(reason in str(refusal) for reason in _REFUSALS):
                pytest.skip(str(refusal))
            raise
        plan = artifact.plan
        if plan is not None or not artifact.empty:
            assert plan.reduction_subgroups_per_program == subgroups
            assert (plan.programs_per_group, plan.lane_elements) == (packed, elements)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no Apple GPU here")
            artifact(*arrays)

    return run


def _subgroup_plans() -> list[Plan]:
    """A few maps that meet every Q and V; all of them where TILEX_ALL_PLANS is set."""
    chosen = [(1, 3, 1), (3, 8, 2), (5, 2, 8), (32, 1, 4)]
    if os.environ.get("TILEX_ALL_PLANS"):
        every = itertools.product((1, 2, 3, 4, 5, 7, 8, 16, 32), (1, 2, 3, 8), (1, 2, 4, 8))
        chosen = [(s, q, v) for s, q, v in every if s * q <= 32]
    return [
        Plan(f"metal-S{s}-Q{q}-V{v}", _mapped(s, q, v), tree=True, nan=False) for s, q, v in chosen
    ]


PLANS = (
    Plan("interpreter", _interpreted(0), tree=True),
    Plan("interpreter-other-order", _interpreted(1), tree=True),
    Plan("llvm", _compiled("llvm")),
    Plan("llvm-preserve", _compiled("llvm", shared_tile_materialization="preserve")),
    Plan("metal", _compiled("metal"), tree=True, nan=False),
    Plan("metal-reference", _compiled("metal", metal_subgroup_reductions=False), nan=False),
    *_subgroup_plans(),
)


@pytest.fixture(params=PLANS, ids=lambda plan: plan.name)
def plan(request: pytest.FixtureRequest) -> Plan:
    """One realization of a kernel."""
    return request.param

"""The realizations ("plans") that every public bug case runs on.

A plan runs a kernel on arrays in call order and writes its outputs in place. New realizations
(SIMD groups, packings, device back ends) join :data:`PLANS`; the cases stay as they are.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tvm_tilex as tx
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


PLANS = (
    Plan("interpreter", _interpreted(0), tree=True),
    Plan("interpreter-other-order", _interpreted(1), tree=True),
    Plan("llvm", _compiled("llvm")),
    Plan("metal", _compiled("metal"), nan=False),
    Plan("llvm-preserve", _compiled("llvm", shared_tile_materialization="preserve")),
)


@pytest.fixture(params=PLANS, ids=lambda plan: plan.name)
def plan(request: pytest.FixtureRequest) -> Plan:
    """One realization of a kernel."""
    return request.param

"""The interpreter against a scalar reference, and against itself in other batch sizes."""

import numpy as np
import pytest
import scalar_reference
from hypothesis import HealthCheck, given, settings
from random_programs import inputs_for, programs

from tvm_tilex.ir import ReductionPolicy, ViewAccess, interp
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.types import numpy_dtype

ORDERED = [policy for policy in ReductionPolicy if policy.ordered]
SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@SETTINGS
# NumPy's vector and scalar paths of exp and its kind may differ in the last place.
@given(program=programs(policies=ORDERED, transcendental=False))
def test_equals_the_scalar_reference(precision, program):
    inputs = inputs_for(program, special=True)
    memory = {
        view.name: inputs[view.name].astype(numpy_dtype(view.dtype, precision))
        if view.name in inputs
        else np.zeros(view.shape, numpy_dtype(view.dtype, precision))
        for view in program.views
    }
    given_arrays = {name: array.copy() for name, array in memory.items()}
    outputs = interpret(program, given_arrays, precision=precision)
    scalar_reference.run(program, memory, precision)
    written = [view.name for view in program.views if view.access is not ViewAccess.read]
    for name, output in zip(written, outputs, strict=True):
        _assert_same(output, memory[name])


@SETTINGS
@given(program=programs(transcendental=False))
def test_batch_size_changes_nothing(program):
    inputs = inputs_for(program, special=True)
    whole = interpret(program, inputs, seed=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "_BATCH_ELEMENTS", 1)
        single = interpret(program, inputs, seed=5)
    for a, b in zip(whole, single, strict=True):
        _assert_same(a, b)


@SETTINGS
@given(program=programs())
def test_inputs_are_not_written_to(program):
    inputs = inputs_for(program)
    before = {name: array.tobytes() for name, array in inputs.items()}
    interpret(program, inputs)
    assert {name: array.tobytes() for name, array in inputs.items()} == before


def _assert_same(a, b):
    """Equal type and elements; NaN equals NaN, and -0 equals 0 (maximum may give either)."""
    assert a.dtype == b.dtype
    wide = a.dtype.itemsize == 2  # NumPy does not know that a bfloat16 can be NaN
    np.testing.assert_array_equal(*(x.astype(np.float32) if wide else x for x in (a, b)))

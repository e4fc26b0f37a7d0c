"""Compiling and checking library kernels whose rows, or rows and columns, are dynamic."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

MARGIN = 64  # elements before and after each output
MARK = 77.0  # held exactly by every storage type


class DynamicKernel:
    """One artifact of a library kernel, run at many shapes."""

    def __init__(self, name, columns, target, dtype="float32", **options):
        self.entry = kernels.catalog()[name]
        self.dtype = dtype
        self.artifact = tx.compile(
            self.entry.kernel,
            *self.entry.specs(tx.dynamic("P"), columns, dtype),
            target=target,
            options=tx.CompileOptions(**options),
        )

    def check(self, rows, columns, seed=0):
        """Run at one shape and compare every output with the oracle.

        Outputs start as NaN, between sentinels that must stay.
        """
        arguments = list(self.entry.arguments(rows, columns, self.dtype, seed=seed))
        surroundings = []
        for position in self.entry.outputs:
            given = arguments[position]
            around = np.full(given.size + 2 * MARGIN, MARK, given.dtype)
            inside = around[MARGIN : MARGIN + given.size]
            inside[...] = np.nan
            arguments[position] = inside.reshape(given.shape)
            surroundings.append(around)
        inputs = [np.array(a) for a in arguments]
        counters = self.artifact(*arguments)
        for position, (before, after) in enumerate(zip(inputs, arguments, strict=True)):
            if position not in self.entry.outputs:
                np.testing.assert_array_equal(before, after)
        if rows:
            found = self.entry.check(arguments)
            assert all(comparison.within for comparison in found), (rows, columns, found)
        for around in surroundings:
            assert (around[:MARGIN] == MARK).all() and (around[-MARGIN:] == MARK).all()
        return counters


@pytest.fixture(scope="session")
def dynamic_kernel():
    """Makes a :class:`DynamicKernel`, each once."""
    made = {}

    def make(name, columns, target, dtype="float32", **options):
        key = (name, columns, target, dtype, *sorted(options.items()))
        if key not in made:
            made[key] = DynamicKernel(name, columns, target, dtype, **options)
        return made[key]

    return make

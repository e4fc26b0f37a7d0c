"""Loads that say how the caches should treat them stay under the guards of what they load."""

import re

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import VIEW, kernel_of

import tvm_tilex as tx


@tx.tile_kernel
def permuted(
    x: VIEW[tx.float32, 2],
    order: VIEW[tx.int64, 1],
    weight: VIEW[tx.float32, 1],
    out: VIEW[tx.float32, 2, tx.Out],
):
    """The sum of a row times the weights in an order that every program reads."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one, table = tx.axis("one", 1), tx.axis("table", weight.extent(0))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        weights = weight[tx.coord(0), tx.shape(table)]
        chosen = tx.gather(weights, order[tx.coord(0), tx.shape(columns)], table)
        total = tx.reduce(x[origin, tx.shape(one, columns)], columns, tx.add)
        out(origin, tx.shape(one, columns)).store(chosen * total)


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize(("columns", "length"), [(33, 50), (61, 1), (129, 64)])
def test_an_index_outside_reads_nothing(columns, length, tmp_path):
    """Memory so far away would be a fault."""
    specs = (tx.spec((3, columns)), tx.spec((columns,), "int64"), tx.spec((length,)))
    options = tx.CompileOptions(
        reduction_early_views=False, reduction_lane_elements=1, threads_per_group=64
    )
    artifact = tx.compile(permuted, *specs, tx.spec((3, columns)), target="cuda", options=options)
    text = kernel_of(artifact)
    calls = [line for line in text.splitlines() if "tilex_load_kept_4(" in line]
    assert calls and all(re.match(r"\s+condval\w* = tilex_load_kept_4\(", c) for c in calls)
    rng = np.random.default_rng(columns)
    x, weight = (rng.integers(-8, 9, n).astype("f") for n in ((3, columns), length))
    order = rng.integers(-2, length + 2, columns)
    order[:3] = 2**62, -(2**62), length - 1
    out = np.full((3, columns), np.nan, np.float32)
    cuda_on_cpu.run(artifact, [x, order, weight, out], tmp_path)
    inside = (order >= 0) & (order < length)
    chosen = np.where(inside, weight[np.clip(order, 0, length - 1)], 0)
    assert np.array_equal(out, chosen * x.sum(1, keepdims=True))

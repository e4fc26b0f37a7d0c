"""What the planner is told of rows, and of bytes that every program reads."""

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import VIEW, compiled, facts_of

import tvm_tilex as tx
from tvm_tilex.plan import Stripe


def test_a_row_and_what_is_computed_from_it():
    kept = {"shared_tile_materialization": "preserve"}
    facts = facts_of(compiled("softmax", 64, 1024, "bfloat16", **kept))
    row, exponentials = Stripe(1024, 2, True, "bfloat16"), Stripe(1024)
    assert facts.views == (row,)
    assert facts.stripes == (1024, 1024)
    # An exponential takes its element's place: the row dies as they are stored.
    assert facts.live_stripes == ((row,), (exponentials,))
    assert facts.vector_width == 8
    assert (facts.reads, facts.writes, facts.bytes) == (1024, 1024, 2 * 2 * 1024)
    assert facts.cached_bytes == 0


def test_a_row_of_float32_stands_as_it_is():
    facts = facts_of(compiled("softmax", 64, 1024, "float32"))
    assert facts.views == (Stripe(1024, 4, True, "float32"),) and facts.vector_width == 4


def test_both_views_where_loaded_tiles_are_kept():
    loaded = {"shared_tile_materialization": "loaded"}
    facts = facts_of(compiled("residual_layernorm", 64, 1024, "float16", **loaded))
    assert facts.views == (Stripe(1024, 2, True, "float16"),) * 2
    assert facts_of(compiled("residual_layernorm", 64, 1024, "float16")).views == ()


def test_what_every_program_reads():
    facts = facts_of(compiled("layernorm", 64, 1024, "bfloat16"))
    assert facts.cached_bytes == 2 * 1024 * 2  # the weight and the bias
    assert facts_of(compiled("rmsnorm", 64, 1024)).cached_bytes == 1024 * 4


def test_more_arithmetic_is_more_instructions():
    few = facts_of(compiled("row_sum", 64, 1024)).instructions
    many = facts_of(compiled("softmax", 64, 1024)).instructions
    narrow = facts_of(compiled("softmax", 64, 1024, "float16")).instructions
    assert few < narrow < many  # the hardware's exponential


@tx.tile_kernel
def masked(x: VIEW[tx.float32, 2], mask: VIEW[tx.uint8, 2], out: VIEW[tx.float32, 2, tx.Out]):
    """A row whose maximum is taken where a mask of bytes says so."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = x[origin, tx.shape(one, columns)]
        taken = tx.cast(mask[origin, tx.shape(one, columns)], tx.int32)
        peak = tx.reduce(tx.where(taken > 0, row, -1.0), columns, tx.maximum)
        out(origin, tx.shape(one, columns)).store(row - peak)


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
def test_a_row_beside_bytes_is_vectors_of_eight(tmp_path):
    """16 bytes hold 16 of them, but a worker owns at most 8 elements of a pack."""
    shape = (3, 2048)
    specs = tx.spec(shape), tx.spec(shape, "uint8"), tx.spec(shape)
    artifact = tx.compile(masked, *specs, target="cuda")
    assert facts_of(artifact).vector_width == 8
    assert {c.lane_elements for c in artifact.plan.candidates} == {1, 8}
    options = tx.CompileOptions(reduction_lane_elements=8, threads_per_group=64)
    wide = tx.compile(masked, *specs, target="cuda", options=options)
    rng = np.random.default_rng(3)
    x, mask = rng.standard_normal(shape).astype("f"), rng.integers(0, 2, shape, np.uint8)
    out = np.empty_like(x)
    cuda_on_cpu.run(wide, [x, mask, out], tmp_path)
    assert np.array_equal(out, x - np.where(mask > 0, x, np.float32(-1)).max(1, keepdims=True))

"""Which shared tiles a processor's planner keeps: by the bytes that pass between core and cache."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.lowering import SharedTileMaterialization, bytes_moved
from tvm_tilex.plan.materialization import MaterializationFacts, choose_materialization

PRESERVE, AGAIN = (SharedTileMaterialization[n] for n in ("PRESERVE", "EXPENSIVE_ONLY"))


def chain(arrays, out, consumers):
    """A cheap tile of several arrays, read by ``consumers - 1`` reductions and the output."""
    rows, columns = tx.axis("rows", out.extent(0)), tx.axis("columns", out.extent(1))
    row = tx.shape(1, columns)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        tile = tx.cast(arrays[0][origin, row], "float32") * 0.5
        for array in arrays[1:]:
            tile = tile + tx.cast(array[origin, row], "float32")
        number = None
        for _ in range(consumers - 1):
            number = tx.reduce(tile if number is None else tile * number, columns, tx.add) * 0.01
        out(origin, row).store(tile - number)


View, Output = tx.TensorView[tx.float32, 2], tx.TensorView[tx.float32, 2, tx.Out]
Half = tx.TensorView[tx.bfloat16, 2]


def kernel(views, consumers, view=View):
    @tx.tile_kernel
    def one(a: view, out: Output):
        chain((a,), out, consumers)

    @tx.tile_kernel
    def three(a: view, b: view, c: view, out: Output):
        chain((a, b, c), out, consumers)

    return {1: one, 3: three}[views]


def compiled(views, consumers, *, options=None, width=100, view=View):
    shapes = [tx.spec((5, width), "bfloat16" if view is Half else "float32")] * views
    made = kernel(views, consumers, view)
    return tx.compile(made, *shapes, tx.spec((5, width)), target="llvm", options=options)


@pytest.mark.parametrize(("kept", "again", "keep"), [(7, 9, True), (9, 7, False), (6, 6, False)])
def test_fewer_bytes_win_and_level_means_again(kept, again, keep):
    choice = choose_materialization(MaterializationFacts(kept, again))
    assert choice.keep is keep and choice.reason.startswith("moves ")


@pytest.mark.parametrize("consumers", [2, 3, 4])
@pytest.mark.parametrize("views", [1, 3])
def test_bytes_are_those_of_the_loops(views, consumers):
    """Again: every consumer loads every view. Kept: the views once, a store, a load a consumer."""
    program = compiled(views, consumers).tile_ir
    assert bytes_moved(program, AGAIN, noalias=True) == 400 * views * consumers
    assert bytes_moved(program, PRESERVE, noalias=True) == 400 * (views + 1 + consumers)


@pytest.mark.parametrize(("views", "consumers", "chosen"), [
    (1, 2, AGAIN), (1, 4, AGAIN), (3, 2, AGAIN), (3, 3, PRESERVE), (3, 4, PRESERVE),
])  # fmt: skip
@pytest.mark.parametrize("width", [1, 100, 4097])
def test_both_outcomes(views, consumers, chosen, width):
    artifact = compiled(views, consumers, width=width)
    # A single element is no tile to speak of: it is kept by either choice.
    assert artifact.materialization is (AGAIN if width == 1 else chosen)
    rng = np.random.default_rng(views)
    arrays = [rng.standard_normal((5, width), dtype=np.float32) for _ in range(views)]
    out = np.full((5, width), np.nan, np.float32)
    artifact(*arrays, out)
    tile = 0.5 * arrays[0].astype(np.float64) + sum(a.astype(np.float64) for a in arrays[1:])
    number = tile.sum(1, keepdims=True) * 0.01
    for _ in range(consumers - 2):
        number = (tile * number).sum(1, keepdims=True) * 0.01
    np.testing.assert_allclose(out, tile - number, rtol=1e-4, atol=1e-5)


def test_narrow_storage_makes_loads_cheap():
    """Three rows of bfloat16 are less than two of FP32, which a kept tile is."""
    assert compiled(3, 3).materialization is PRESERVE
    assert compiled(3, 3, view=Half).materialization is AGAIN


def test_what_is_stated_is_taken():
    options = tx.CompileOptions(shared_tile_materialization="expensive-only")
    artifact = compiled(3, 3, options=options)
    assert artifact.materialization is AGAIN and artifact.materialization_reason == ""


@pytest.mark.parametrize("name", ["softmax", "layernorm", "residual_layernorm", "cross_entropy"])
def test_the_library_computes_again(name):
    entry = tx.kernels.catalog()[name]
    artifact = tx.compile(entry.kernel, *entry.specs(64, 512), target="llvm")
    assert artifact.materialization is AGAIN


def test_the_artifact_says_why():
    artifact = compiled(3, 3)
    assert artifact.materialization_reason == "moves 2.7 KiB a program instead of 3.5 KiB"
    level = compiled(3, 2)
    assert level.materialization_reason == "moves 2.3 KiB a program either way"

"""PRESERVE, EXPENSIVE_ONLY and RECOMPUTE as compile options: structure, traffic and results.

``combined`` and ``centered`` of the residual LayerNorm are cheap and have several consumers; the
shifted row of the softmax holds an exponential and has two.
"""

import numpy as np
import pytest
from packing_runs import assert_right, compiled, entry

import tvm_tilex as tx
from tvm_tilex.errors import OptionError
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx.compat import structural_walk, tirx

MODES = ("preserve", "expensive-only", "recompute")

# kernel -> mode -> (private arrays of a row, loads per element of the first view)
EXPECTED = {
    "residual_layernorm": {
        "preserve": (2, 1),
        "expensive-only": (0, 4),  # mean, both factors of the square, result
        "recompute": (0, 4),
    },
    "softmax": {
        "preserve": (1, 2),
        "expensive-only": (1, 2),  # the exponential is kept
        "recompute": (0, 3),
    },
}


def tiles(function) -> int:
    """Local buffers of more than one element in a reference function."""
    found = []

    def visit(statement):
        extents = [int(extent.value) for extent in statement.buffer.ty.shape]
        if statement.buffer.scope() == "local" and np.prod(extents) > 1:
            found.append(statement.buffer.name)

    structural_walk(function.body, (tirx.AllocBuffer, visit))
    return len(found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_on_metal(name, mode):
    kept, loads = EXPECTED[name][mode]
    artifact = compiled(name, 3, 1000, threads_per_group=128, shared_tile_materialization=mode)
    assert artifact.materialization is SharedTileMaterialization(mode)
    assert artifact.plan.stripes == (8,) * kept
    arguments = entry(name).arguments(3, 1000)
    (counters,) = artifact.simulate(*arguments)
    assert_right(name, arguments)
    first = entry(name).parameters[0]
    assert counters.loads_per_element(f"{first}_ptr", 3000) == loads


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_on_llvm(name, mode):
    kept, _ = EXPECTED[name][mode]
    found = entry(name)
    options = tx.CompileOptions(shared_tile_materialization=mode)
    artifact = tx.compile(found.kernel, *found.specs(5, 257), target="llvm", options=options)
    assert artifact.materialization is SharedTileMaterialization(mode)
    snapshots = name == "softmax" and mode == "preserve"  # of the input, which has two consumers
    assert tiles(artifact.tirx[name]) == kept + snapshots
    arguments = found.arguments(5, 257)
    artifact(*arguments)
    assert_right(name, arguments)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_choice_loads_more_than_a_serial_recomputation(name):
    """The structural difference is the tile, not the arithmetic: all three agree closely."""
    results = []
    for mode in MODES:
        artifact = compiled(name, 2, 515, threads_per_group=64, shared_tile_materialization=mode)
        arguments = entry(name).arguments(2, 515)
        artifact.simulate(*arguments)
        results.append(arguments[-1])
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("target", "mode"), [("metal", "preserve"), ("llvm", "expensive-only")])
def test_the_target_chooses_where_nothing_is_stated(target, mode):
    found = entry("residual_layernorm")
    artifact = tx.compile(found.kernel, *found.specs(3, 256), target=target)
    assert artifact.materialization is SharedTileMaterialization(mode)


def test_lowering_preserves_by_itself():
    found = entry("residual_layernorm")
    specs = found.specs(3, 256)
    assert tiles(tx.lower(found.kernel, *specs)["residual_layernorm"]) >= 2
    options = tx.CompileOptions(shared_tile_materialization="recompute")
    lowered = tx.lower(found.kernel, *specs, options=options)
    assert tiles(lowered["residual_layernorm"]) < 2


@tx.tile_kernel
def chain(x: tx.TensorView["float32", 2], out: tx.TensorView["float32", 2, "out"]):  # noqa: F821
    """A cheap tile with three consumers, one of which is an expensive tile with two."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        cheap = x[origin, tx.shape(one, columns)] * 0.5 + 1.0
        costly = tx.exp(cheap - tx.reduce(cheap, columns, tx.maximum))
        total = tx.reduce(costly, columns, tx.add)
        out(origin, tx.shape(one, columns)).store(costly / total + cheap)


@pytest.mark.parametrize(("mode", "stripes"), list(zip(MODES, (2, 1, 0), strict=True)))
def test_each_choice_keeps_its_own_tiles(mode, stripes):
    options = tx.CompileOptions(threads_per_group=64, shared_tile_materialization=mode)
    artifact = tx.compile(chain, (3, 200), (3, 200), target="metal", options=options)
    assert len(artifact.plan.stripes) == stripes
    x = np.random.default_rng(1).standard_normal((3, 200), dtype=np.float32)
    out = np.full_like(x, np.nan)
    artifact.simulate(x, out)
    wide = x.astype(np.float64) * 0.5 + 1
    costly = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(out, costly / costly.sum(1, keepdims=True) + wide, rtol=2e-5)


@pytest.mark.parametrize(
    "mode", ["PRESERVE", "Expensive_Only", SharedTileMaterialization.RECOMPUTE]
)
def test_names_are_understood(mode):
    options = tx.CompileOptions(shared_tile_materialization=mode)
    assert isinstance(options.shared_tile_materialization, SharedTileMaterialization)
    assert tx.CompileOptions.from_json(options.to_json()) == options


@pytest.mark.parametrize("mode", ["all", "", 3])
def test_other_names_are_errors(mode):
    with pytest.raises(OptionError, match="shared_tile_materialization"):
        tx.CompileOptions(shared_tile_materialization=mode)

"""Public bug cases on row counts, labels and wide rows (O08, O09, O22, O23)."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ShapeError, TilexError

# O08: zero rows


@pytest.mark.parametrize("name", kernels.catalog())
@pytest.mark.parametrize("columns", [1, 64])
def test_o08_zero_rows_give_an_empty_result(plan, name, columns):
    entry = kernels.catalog()[name]
    arguments = entry.arguments(0, columns)
    plan(entry.kernel, *arguments)
    assert all(c.within for c in entry.check(arguments))


@pytest.mark.parametrize("name", kernels.catalog())
def test_o08_zero_columns_are_refused_by_name(name):
    kernel = getattr(kernels, name)
    extents = {"rows": 3, "columns": 0}
    specs = [
        tx.spec(tuple(extents[d] for d in view.dimensions), view.dtypes[0])
        for view in kernel.parameters.values()
    ]
    with pytest.raises(ShapeError, match="axis 'columns' has extent 0"):
        kernel.capture(specs)


# O09: labels outside the row


@pytest.mark.parametrize("outside", [-100, -1, 2, 5, 2**31, 2**32, 2**32 + 1, -(2**63), 2**63 - 1])
def test_o09_labels_outside(plan, outside):
    logits = np.array([[0, 1], [1, 0], [0, 1]], np.float32)
    labels = np.array([1, 0, outside], np.int64)
    losses = plan.outputs(kernels.cross_entropy, logits, labels, shapes=[3])
    np.testing.assert_allclose(losses, [0.3132617, 0.3132617, 1.3132617], rtol=2e-5)


@pytest.mark.parametrize("columns", [1, 31, 33, 257])
def test_o09_every_edge_of_the_row(plan, columns):
    labels = np.array([0, columns - 1, columns, -1, -columns, 2 * columns], np.int64)
    entry = kernels.catalog()["cross_entropy"]
    logits, _, losses = entry.arguments(len(labels), columns)
    plan(entry.kernel, logits, labels, losses)
    assert all(c.within for c in entry.check((logits, labels, losses)))


# O22: a row wider than any private storage budget


@pytest.mark.parametrize("columns", [65536, 65537])
def test_o22_wide_rows(plan, columns):
    if plan.name == "metal-reference":
        pytest.skip("the simulator would run three threads over 65537 elements for minutes")
    i = np.arange(3 * columns)
    x = ((i * 31) % 29).astype(np.float32).reshape(3, columns) / np.float32(8)
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    np.testing.assert_allclose(y.sum(axis=1, dtype=np.float64), 1, rtol=2e-5)
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))
    if columns == 65537:
        wanted = [1.3506021e-05, 1.7342074e-05, 2.2267664e-05]
        np.testing.assert_allclose(y[2, :3], wanted, rtol=2e-5)


# O23: many rows


def test_o23_more_rows_than_a_grid_dimension(plan):
    rows = 70001
    if plan.name == "metal-reference":
        pytest.skip("the simulator would run 70001 threads for minutes")
    x = ((3 * np.arange(rows)[:, None] + np.arange(3)) % 11).astype(np.float32)
    y = plan.outputs(kernels.softmax, x, shapes=[x.shape])
    picks = [0, 65535, 65536, 70000]
    np.testing.assert_allclose(
        y[picks, 0], [0.0900306, 0.0900306, 0.0900306, 0.9998312], rtol=2e-5, atol=2e-6
    )
    assert all(c.within for c in kernels.catalog()["softmax"].check((x, y)))
    peaks = plan.outputs(kernels.row_max, x, shapes=[rows])
    np.testing.assert_array_equal(peaks[picks], [2, 4, 7, 10])
    np.testing.assert_array_equal(peaks, x.max(axis=1))


@tx.tile_kernel
def byte_max(x: tx.TensorView[tx.uint8, 2], out: tx.TensorView[tx.uint8, 1, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
        out(tx.coord(nest.index()), tx.shape(1)).store(tx.reduce(value, columns, tx.maximum))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [(2**31 // 4096 + 2, 4096), (2, 2**30 + 3)],
    ids=["many rows", "long rows"],
)
def test_o23_index_ranges_over_2_to_the_31_are_not_wrapped(shape):
    """Runs on lazily mapped zeros, so that no such amount of memory is held."""
    x, out = np.zeros(shape, np.uint8), np.full(shape[0], 77, np.uint8)
    x[0, 0], x[-1, -1], x[-2, -1] = 5, 9, 8
    if shape[0] == 2:
        x[0, 0] = 0
    tx.compile(byte_max, x, out, target="llvm")(x, out)
    assert (out[-1], out[-2]) == (9, 8)
    if shape[0] > 2:
        assert out[0] == 5 and not out[1:-2].any()


@pytest.mark.parametrize("target", ["llvm", "metal"])
@pytest.mark.parametrize("rows", [524287, 524288, 2**40])
def test_o23_very_large_shapes_compile_or_are_refused_by_name(target, rows):
    shapes = (rows, 4096), (rows,)
    try:
        artifact = tx.compile(kernels.row_sum, *shapes, target=target)
    except TilexError as error:
        assert rows > 524287 and ("64-bit" in str(error) or "int64" in str(error))
        return
    assert artifact.tile_ir.views[0].shape == shapes[0]
    if rows > 524288:
        assert "int64" in artifact.tirx.script()

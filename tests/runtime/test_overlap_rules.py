"""Arguments that share memory: in place where each program reads only what it writes."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.errors import ArgumentError

VIEW = tx.TensorView
F32 = tx.float32
CATALOG = tx.kernels.catalog()


@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "layernorm_no_affine", "rmsnorm", "residual_layernorm"]
)
def test_in_place_equals_out_of_place_bit_for_bit(name):
    """The result of each row depends on the whole row, so a late load would show."""
    entry = CATALOG[name]
    options = tx.CompileOptions(noalias=False, shared_tile_materialization="preserve")
    arrays = entry.arguments(9, 130, seed=4)
    tx.compile(entry.kernel, *arrays, options=options)(*arrays)
    apart = arrays[-1].copy()
    fresh = list(entry.arguments(9, 130, seed=4))
    fresh[-1] = fresh[0]
    entry.kernel(*fresh)
    np.testing.assert_array_equal(fresh[0].view(np.uint32), apart.view(np.uint32))


@tx.tile_kernel
def reverse_rows(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    last = x.extent(0) - 1
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(last - nest.index(), 0), tx.shape(1, columns)]
        out(tx.coord(nest.index(), 0), tx.shape(1, columns)).store(row)


@tx.tile_kernel
def first_column(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
    """Reads one element of its own row, and writes the row: another region of the same array."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        first = x[tx.coord(nest.index(), 0), tx.shape(1, 1)]
        zeros = tx.cast(tx.coordinate(columns), F32) * 0.0
        out(tx.coord(nest.index(), 0), tx.shape(1, columns)).store(first + zeros)


def squares(seed=0):
    return np.random.default_rng(seed).standard_normal((6, 6)).astype(np.float32)


def test_in_place_is_refused_where_a_program_reads_anothers_rows():
    x, out = squares(), np.zeros((6, 6), np.float32)
    reverse_rows(x, out)
    np.testing.assert_array_equal(out, x[::-1])
    with pytest.raises(ArgumentError, match=r"'out' and 'x'.*a program reads what another writes"):
        reverse_rows(x, x)


def test_a_refused_call_writes_nothing():
    x = squares()
    before = x.copy()
    with pytest.raises(ArgumentError):
        reverse_rows(x, x)
    np.testing.assert_array_equal(x, before)


def test_partial_overlap_is_refused():
    memory = np.zeros((7, 6), np.float32)
    with pytest.raises(ArgumentError, match="overlap in part"):
        CATALOG["softmax"].kernel(memory[:6], memory[1:])


def test_touching_arrays_do_not_overlap():
    memory = np.random.default_rng(1).standard_normal((12, 6)).astype(np.float32)
    CATALOG["softmax"].kernel(memory[:6], memory[6:])
    np.testing.assert_allclose(memory[6:].sum(axis=1), 1, rtol=1e-5)


def test_inputs_may_be_one_array():
    entry, x = CATALOG["residual_layernorm"], squares()
    out, wanted = np.zeros_like(x), np.zeros_like(x)
    entry.kernel(x, x, out)
    entry.kernel(x, x.copy(), wanted)
    np.testing.assert_array_equal(out, wanted)


def test_a_promise_of_noalias_is_checked_at_the_call():
    x = squares()
    options = tx.CompileOptions(noalias=True)
    with pytest.raises(ArgumentError, match="overlap, and noalias=True was promised"):
        CATALOG["softmax"].kernel(x, x, options=options)


def test_another_region_of_the_same_rows_is_refused_or_right():
    x = squares()
    wanted = np.repeat(x[:, :1], 6, axis=1)
    try:
        first_column(x, x)
    except ArgumentError:
        first_column(x, out := np.zeros_like(x))
        np.testing.assert_array_equal(out, wanted)
    else:
        np.testing.assert_array_equal(x, wanted)

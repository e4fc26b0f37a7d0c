"""Index arithmetic is 64-bit where an extent passes 2**31; nothing of that size is allocated."""

import re

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

COLUMNS = 4096
WIDE, NARROW = 2**31 // COLUMNS, 2**31 // COLUMNS - 1  # rows: 2**31 elements and just below


def text(rows):
    return tx.lower(kernels.row_sum, (rows, COLUMNS), (rows,)).script()


def test_2_to_the_31_elements_index_with_64_bits():
    assert f"T.Buffer((T.int64({WIDE}), T.int64({COLUMNS}))" in text(WIDE)
    assert f"T.parallel(T.int64({WIDE})" in text(WIDE)


def test_just_below_stays_at_32_bits():
    assert f"T.Buffer(({NARROW}, {COLUMNS})" in text(NARROW)
    assert "int64" not in text(NARROW).replace("tilex", "")


@pytest.mark.parametrize("target", ["llvm", "metal"])
def test_it_compiles_without_data(target):
    for rows in (WIDE, NARROW):
        artifact = tx.compile(kernels.row_sum, (rows, COLUMNS), (rows,), target=target)
        assert artifact.tile_ir.views[0].shape == (rows, COLUMNS)


@pytest.mark.parametrize(("rows", "wide"), [(2 * WIDE, True), (WIDE, False), (NARROW, False)])
def test_metal_text_has_64_bit_addresses_where_a_product_can_pass_32(rows, wide):
    """The largest index of 2**31 elements is 2**31 - 1, which TVM proves and narrows."""
    options = tx.CompileOptions(metal_subgroup_reductions=False)
    artifact = tx.compile(
        kernels.row_sum, (rows, COLUMNS), (rows,), target="metal", options=options
    )
    (address,) = set(re.findall(r"x_ptr\[(.*)\]", artifact.source))
    assert ("(long)" in address) is wide


def test_a_program_count_above_2_to_the_31_counts_too():
    @tx.tile_kernel
    def copy(x: tx.TensorView[tx.uint8, 2], out: tx.TensorView[tx.uint8, 2, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        for nest in tx.parallel(tx.shape(a, b)):
            at = tx.coord(nest.index(0), nest.index(1))
            out(at, tx.shape(1, 1)).store(x[at, tx.shape(1, 1)])

    module = tx.lower(copy, (2**16, 2**15), (2**16, 2**15))
    assert f"T.parallel(T.int64({2**31})" in module.script()

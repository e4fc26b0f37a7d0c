"""One LLVM artifact of each library kernel serves any number of rows and any width in its range."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, TilexError
from tvm_tilex.ir.interp import interpret

ROWS = (0, 1, 2, 7, 8, 9, 255)


@pytest.mark.parametrize("name", kernels.catalog())
def test_any_number_of_rows(dynamic_kernel, name):
    kernel = dynamic_kernel(name, 100, "llvm")
    for rows in (*ROWS, 1000):
        kernel.check(rows, 100, seed=rows)


@pytest.mark.parametrize("name", kernels.catalog())
def test_every_width_of_a_range(dynamic_kernel, name):
    kernel = dynamic_kernel(name, tx.dynamic("N", max=130), "llvm")
    for columns in range(1, 131):
        kernel.check((3, 8, 17)[columns % 3], columns)
    for rows in ROWS:
        kernel.check(rows, 129, seed=rows)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "row_max"])
def test_16_bit_storage(dynamic_kernel, name, dtype):
    kernel = dynamic_kernel(name, tx.dynamic("N", max=130), "llvm", dtype)
    for rows, columns in ((0, 5), (1, 1), (7, 33), (255, 130)):
        kernel.check(rows, columns)


@pytest.mark.parametrize("policy", ["fold_left", "fold_right", "ordered_tree"])
@pytest.mark.parametrize("target", ["llvm", "metal"])
def test_ordered_reductions_of_a_dynamic_width_are_bit_for_bit(policy, target):
    @tx.tile_kernel
    def ordered(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            total = tx.reduce(row * row, columns, tx.add, policy=policy)
            out(tx.coord(nest.index()), tx.shape(1)).store(total)

    most = 40
    artifact = tx.compile(
        ordered,
        ("P", tx.dynamic("N", max=most)),
        ("P",),
        target=target,
    )
    for columns in range(1, most + 1) if target == "llvm" else (1, 2, 7, 8, 31, 33, 40):
        x = np.random.default_rng(columns).standard_normal((3, columns), dtype=np.float32)
        out = np.full(3, np.nan, np.float32)
        artifact(x, out)
        (wanted,) = interpret(artifact.tile_ir, [x])
        np.testing.assert_array_equal(out, wanted)


CUBE = ("batch", "heads", "columns")


@tx.tile_kernel
def batched(
    x: tx.TensorView[tx.float32, CUBE],
    out: tx.TensorView[tx.float32, CUBE, tx.Out],
):
    """A nest over two counts; reads its own coordinates and the row's end."""
    batch, heads = tx.axis("batch", x.extent(0)), tx.axis("heads", x.extent(1))
    columns = tx.axis("columns", x.extent(2))
    for nest in tx.parallel(tx.shape(batch, heads)):
        at = tx.coord(nest.index(0), nest.index(1), 0)
        row = x[at, tx.shape(1, 1, columns)]
        end = x[tx.coord(nest.index(0), nest.index(1), columns.extent - 1), tx.shape(1, 1, 1)]
        place = tx.cast(tx.coordinate(nest.index(0) * 100 + nest.index(1)), "float32")
        value = row - tx.reduce(row, columns, tx.maximum) + end / columns.extent + place
        out(at, tx.shape(1, 1, columns)).store(value)


@pytest.mark.parametrize("target", ["llvm", "metal"])
@pytest.mark.parametrize("shape", [("B", "H", 33), ("B", 3, "N"), (2, "H", "N"), ("B", "H", "N")])
def test_nests_over_several_counts(target, shape):
    wide = tuple(tx.dynamic("N", max=70) if extent == "N" else extent for extent in shape)
    artifact = tx.compile(batched, wide, wide, target=target)
    for sizes in ({"B": 2, "H": 3, "N": 33}, {"B": 1, "H": 1, "N": 1}, {"B": 5, "H": 9, "N": 70}):
        actual = tuple(sizes.get(str(extent), extent) for extent in shape)
        x = np.random.default_rng(0).standard_normal(actual, dtype=np.float32)
        out = np.full(actual, np.nan, np.float32)
        artifact(x, out)
        (wanted,) = interpret(artifact.tile_ir, [x])
        np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)
    for empty in ("B", "H"):
        if empty in shape:
            actual = tuple(0 if e == empty else 2 if isinstance(e, str) else e for e in shape)
            artifact(np.zeros(actual, np.float32), np.zeros(actual, np.float32))


def test_the_same_array_may_be_input_and_output(dynamic_kernel):
    kernel = dynamic_kernel("softmax", tx.dynamic("N", max=130), "llvm")
    for rows, columns in ((1, 1), (5, 77), (64, 130)):
        x, separate = kernel.entry.arguments(rows, columns)
        kernel.artifact(x, separate)
        kernel.artifact(x, x)
        np.testing.assert_allclose(x, separate, rtol=1e-6)


def test_what_does_not_fit_is_refused_by_name(dynamic_kernel):
    artifact = dynamic_kernel("softmax", tx.dynamic("N", max=130), "llvm").artifact
    x = np.zeros((2, 130), np.float32)
    for other, message in (
        (np.zeros((3, 130), np.float32), "P is 3, but 2 in 'input'"),
        (np.zeros((2, 129), np.float32), "N is 129, but 130 in 'input'"),
        (np.zeros((2, 131), np.float32), "N is 131, the kernel was compiled for 1 to 130"),
        (np.zeros((2, 0), np.float32), "N is 0, the kernel was compiled for 1 to 130"),
        (np.zeros(2, np.float32), r"shape \(2,\); the kernel was compiled for \(P, N\)"),
        (np.zeros((2, 260), np.float32)[:, ::2], "strides"),
        (np.zeros((2, 130), np.float64), "float64"),
    ):
        with pytest.raises(ArgumentError, match=message):
            artifact(x, other)


def test_the_function_itself_refuses_what_it_was_not_compiled_for(dynamic_kernel):
    import tvm_ffi

    function = dynamic_kernel("softmax", tx.dynamic("N", max=130), "llvm").artifact.function
    wide = [tvm_ffi.from_dlpack(np.zeros((2, 131), np.float32)) for _ in range(2)]
    with pytest.raises(ValueError, match=r"softmax: the extent N is outside 1\.\.130"):
        function(*wide)
    uneven = [tvm_ffi.from_dlpack(np.zeros((rows, 5), np.float32)) for rows in (2, 3)]
    with pytest.raises(ValueError, match=r"shape\[0\]"):
        function(*uneven)


def test_a_row_count_range_of_the_users_own():
    rows = tx.dynamic("P", min=4, max=64)
    artifact = tx.compile(kernels.row_sum, (rows, 8), ("P",))
    x, out = np.ones((64, 8), np.float32), np.zeros(64, np.float32)
    artifact(x, out)
    assert (out == 8).all()
    for count in (3, 65):
        with pytest.raises(TilexError, match=f"P is {count}, the kernel was compiled for 4 to 64"):
            artifact(np.ones((count, 8), np.float32), np.zeros(count, np.float32))


def test_index_arithmetic_of_dynamic_rows_is_64_bit(dynamic_kernel):
    kernel = dynamic_kernel("softmax", 100, "llvm")
    root = kernel.artifact.tirx["softmax"].body
    assert str(root.loop_var.ty.dtype) == "int64"
    static = tx.compile(kernels.softmax, (3, 100), (3, 100))
    assert str(static.tirx["softmax"].body.loop_var.ty.dtype) == "int32"

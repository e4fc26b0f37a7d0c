"""Views of rank 1 to 4 and every element type; broadcasting by name; bounds policies."""

import ml_dtypes
import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.ir.types import DTYPES, BoundsPolicy

VIEW = tx.TensorView
F32 = tx.float32
NAMES = ("a", "b", "c", "d")


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def sample(shape, name):
    values = np.arange(np.prod(shape)).reshape(shape)
    return (values % 2 == 0) if name == "bool" else (values % 120).astype(numpy_dtype(name))


def copy_kernel(dtype, rank):
    def copy(x, out):
        axes = [tx.axis(NAMES[d], x.extent(d)) for d in range(rank)]
        for nest in tx.parallel(tx.shape(axes[0])):
            origin = tx.coord(nest.index(), *[0] * (rank - 1))
            region = tx.shape(1, *axes[1:])
            out(origin, region).store(x[origin, region])

    copy.__annotations__ = {"x": VIEW[dtype, rank], "out": VIEW[dtype, rank, tx.Out]}
    return tx.tile_kernel(copy)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("name", DTYPES)
def test_every_rank_and_element_type(execute, name, rank):
    shape = (3, 2, 5, 4)[:rank]
    x = sample(shape, name)
    out = np.zeros_like(x)
    execute(copy_kernel(name, rank), [x, out])
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out, x)


def test_annotations_by_name_and_by_object_are_one():
    assert VIEW["float32", 2] == VIEW[tx.float32, 2]
    assert VIEW["floating", 1, "inout", "zero"] == VIEW[tx.floating, 1, tx.InOut, BoundsPolicy.zero]
    assert VIEW["int64", 1].access is tx.In


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16"])
def test_a_floating_view_resolves_its_own_type(storage):
    @tx.tile_kernel
    def widen(x: VIEW[tx.floating, 1], out: VIEW[tx.floating, 1, tx.Out]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            value = x[tx.coord(0), tx.shape(n)]
            assert value.dtype == x.dtype
            out(tx.coord(0), tx.shape(n)).store(tx.cast(value, out.dtype))

    program = widen.capture([tx.spec((4,), storage), tx.spec((4,))])
    assert [view.dtype.name for view in program.views] == [storage, "float32"]
    assert widen.capture([tx.spec((4,))] * 2).views[0].dtype == tx.float32


def test_broadcasting_goes_by_name_not_by_position(execute):
    @tx.tile_kernel
    def outer(x: VIEW[F32, 1], y: VIEW[F32, 1], out: VIEW[F32, 2, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", y.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            u, v = x[tx.coord(0), tx.shape(a)], y[tx.coord(0), tx.shape(b)]
            product = v * u  # axes (b, a); the store lays them out as (a, b)
            assert [axis.name for axis in product.axes] == ["b", "a"]
            out(tx.coord(0, 0), tx.shape(a, b)).store(product - u)

    x, y, out = np.arange(3, dtype=np.float32), np.arange(5, dtype=np.float32), np.zeros((3, 5))
    out = out.astype(np.float32)
    execute(outer, [x, y, out])
    np.testing.assert_array_equal(out, np.outer(x, y) - x[:, None])


def test_equal_extents_under_two_names_do_not_merge(execute):
    @tx.tile_kernel
    def square(x: VIEW[F32, 1], out: VIEW[F32, 2, tx.Out]):
        a, b = tx.axis("a", 4), tx.axis("b", 4)
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            u, v = x[tx.coord(0), tx.shape(a)], x[tx.coord(0), tx.shape(b)]
            out(tx.coord(0, 0), tx.shape(a, b)).store(u - v)

    x, out = np.arange(4, dtype=np.float32), np.zeros((4, 4), np.float32)
    execute(square, [x, out])
    np.testing.assert_array_equal(out, x[:, None] - x[None, :])


def test_a_store_of_one_number_fills_the_region(execute):
    @tx.tile_kernel
    def fill(out: VIEW[tx.bfloat16, 2, tx.Out]):
        a, b = tx.axis("a", out.extent(0)), tx.axis("b", out.extent(1))
        for nest in tx.parallel(tx.shape(a)):
            out(tx.coord(nest.index(), 0), tx.shape(1, b)).store(1.5)

    out = np.zeros((3, 4), ml_dtypes.bfloat16)
    execute(fill, [out])
    assert (out == 1.5).all()


def shifted_kernel(policy):
    """Row p of ``out`` is row p + 2 of ``x`` from column 3 on; both run off the end."""

    @tx.tile_kernel
    def shifted(x: VIEW[F32, 2, policy], out: VIEW[F32, 2, tx.Out], total: VIEW[F32, 1, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        for nest in tx.parallel(tx.shape(a)):
            value = x[tx.coord(nest.index() + 2, 3), tx.shape(1, b)]
            out(tx.coord(nest.index(), 0), tx.shape(1, b)).store(value + 1.0)
            total(tx.coord(nest.index()), tx.shape(1)).store(tx.reduce(value, b, tx.maximum))

    return shifted


def test_zero_reads_zero_outside(execute):
    x = -1.0 - np.arange(20, dtype=np.float32).reshape(4, 5)
    out, total = np.full((4, 5), np.nan, np.float32), np.full(4, np.nan, np.float32)
    execute(shifted_kernel("zero"), [x, out, total])
    padded = np.pad(x, ((0, 2), (0, 3)))[2:, 3:]
    np.testing.assert_array_equal(out, padded + 1)
    np.testing.assert_array_equal(total, padded.max(axis=1))


def test_predicate_leaves_outside_elements_inactive(execute):
    x = -1.0 - np.arange(20, dtype=np.float32).reshape(4, 5)
    out, total = np.full((4, 5), 7.0, np.float32), np.full(4, np.nan, np.float32)
    execute(shifted_kernel("predicate"), [x, out, total])
    active = np.pad(np.ones_like(x), ((0, 2), (0, 3)))[2:, 3:] > 0
    padded = np.pad(x, ((0, 2), (0, 3)))[2:, 3:]
    np.testing.assert_array_equal(out, np.where(active, padded + 1, 7.0))
    np.testing.assert_array_equal(total, np.where(active, padded, -np.inf).max(axis=1))


@pytest.mark.parametrize("policy", ["zero", "predicate"])
def test_a_store_outside_writes_nothing(execute, policy):
    @tx.tile_kernel
    def scatter(x: VIEW[F32, 1], out: VIEW[F32, 1, tx.InOut, policy]):
        a = tx.axis("a", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            out(tx.coord(-2), tx.shape(a)).store(x[tx.coord(0), tx.shape(a)])

    # A row of a larger array, so that a write before or after it would show.
    x, memory = np.arange(6, dtype=np.float32), np.full((3, 3), -1, np.float32)
    row = memory[1]
    execute(scatter, [x, row])
    np.testing.assert_array_equal(memory, [[-1] * 3, [2, 3, 4], [-1] * 3])


def test_assume_is_not_checked():
    shifted_kernel("assume").capture([tx.spec((4, 5)), tx.spec((4, 5)), tx.spec((4,))])
    with pytest.raises(tx.errors.ShapeError, match="annotate the view 'zero'"):
        shifted_kernel("checked").capture([tx.spec((4, 5)), tx.spec((4, 5)), tx.spec((4,))])


def test_a_tile_is_reduced_over_any_of_its_axes(execute):
    @tx.tile_kernel
    def both(
        x: VIEW[F32, 2], by_row: VIEW[F32, 1, tx.Out], by_column: VIEW[F32, 1, tx.Out],
        everything: VIEW[F32, 1, tx.Out],
    ):  # fmt: skip
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            tile = x[tx.coord(0, 0), tx.shape(a, b)]
            sums = tx.reduce(tile, b, tx.add)
            by_row(tx.coord(0), tx.shape(a)).store(sums)
            by_column(tx.coord(0), tx.shape(b)).store(tx.reduce(tile, a, tx.minimum))
            everything(tx.coord(0), tx.shape(1)).store(tx.reduce(sums, a, tx.add))

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows, columns, total = np.zeros(3, np.float32), np.zeros(4, np.float32), np.zeros(1, np.float32)
    execute(both, [x, rows, columns, total])
    np.testing.assert_array_equal(rows, x.sum(1))
    np.testing.assert_array_equal(columns, x.min(0))
    assert total[0] == 66

"""Parallel nests: several dimensions, nesting, sequence, index arithmetic, emptiness."""

import numpy as np
import pytest

import tvm_tilex as tx

VIEW = tx.TensorView
F32 = tx.float32


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def test_a_nest_of_three_dimensions(execute):
    @tx.tile_kernel
    def last_axis_sum(x: VIEW[F32, 4], out: VIEW[F32, 3, tx.Out]):
        a, b, c = (tx.axis(n, x.extent(d)) for d, n in enumerate(("a", "b", "c")))
        columns = tx.axis("columns", x.extent(3))
        for nest in tx.parallel(tx.shape(a, b, c)):
            where = nest.index(0), nest.index(1), nest.index(2)
            row = x[tx.coord(*where, 0), tx.shape(1, 1, 1, columns)]
            out(tx.coord(*where), tx.shape(1, 1, 1)).store(tx.reduce(row, columns, tx.add))

    x, out = numbers(2, 3, 4, 5), nan(2, 3, 4)
    execute(last_axis_sum, [x, out])
    np.testing.assert_array_equal(out, x.sum(axis=3))


def test_nested_nests(execute):
    @tx.tile_kernel
    def centered(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for outer in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(outer.index(), 0), tx.shape(1, columns)]
            peak = tx.reduce(row, columns, tx.maximum)
            for inner in tx.parallel(tx.shape(columns)):
                at = tx.coord(outer.index(), inner.index())
                out(at, tx.shape(1, 1)).store(x[at, tx.shape(1, 1)] - peak)

    x, out = numbers(3, 5), nan(3, 5)
    execute(centered, [x, out])
    np.testing.assert_array_equal(out, x - x.max(axis=1, keepdims=True))


def test_nests_in_sequence_share_a_view(execute):
    @tx.tile_kernel
    def two_steps(x: VIEW[F32, 1], out: VIEW[F32, 1, tx.InOut]):
        n = tx.axis("n", x.extent(0))
        for nest in tx.parallel(tx.shape(n)):
            out(tx.coord(nest.index()), tx.shape(1)).store(x[tx.coord(nest.index()), tx.shape(1)])
        for nest in tx.parallel(tx.shape(n)):
            mirrored = tx.coord(x.extent(0) - 1 - nest.index())
            out(mirrored, tx.shape(1)).store(out[mirrored, tx.shape(1)] * 2)

    x, out = numbers(7), nan(7)
    execute(two_steps, [x, out])
    np.testing.assert_array_equal(out, 2 * x)


def test_index_arithmetic(execute):
    @tx.tile_kernel
    def permuted(x: VIEW[tx.int32, 2], out: VIEW[tx.int32, 1, tx.Out]):
        programs = tx.axis("programs", 12)
        for nest in tx.parallel(tx.shape(programs)):
            p = nest.index()
            value = x[tx.coord(p % 3, 3 - p // 3), tx.shape(1, 1)]
            out(tx.coord(11 - p), tx.shape(1)).store(value + tx.coordinate(-p * 100))

    x, out = np.arange(12, dtype=np.int32).reshape(3, 4), np.zeros(12, np.int32)
    execute(permuted, [x, out])
    p = 11 - np.arange(12)
    np.testing.assert_array_equal(out, x[p % 3, 3 - p // 3] - 100 * p)


def test_the_body_runs_once_whatever_the_extent():
    runs = []

    @tx.tile_kernel
    def counted(x: VIEW[F32, 1], out: VIEW[F32, 1, tx.Out]):
        n = tx.axis("n", x.extent(0))
        for nest in tx.parallel(tx.shape(n)):
            runs.append(nest)
            out(tx.coord(nest.index()), tx.shape(1)).store(x[tx.coord(nest.index()), tx.shape(1)])

    for extent in (0, 1, 1000):
        counted.capture([tx.spec((extent,))] * 2)
    assert len(runs) == 3


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_python_decides_on_extents_while_capturing(execute, rows):
    @tx.tile_kernel
    def by_extent(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
        n, columns = tx.axis("n", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(n)):
            at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
            value = x[at, region]
            for _ in range(x.extent(0)):
                value = value + 1.0
            out(at, region).store(value)

    x, out = numbers(rows, 4), nan(rows, 4)
    execute(by_extent, [x, out])
    np.testing.assert_array_equal(out, x + rows)


def test_an_index_of_another_dimension_of_the_nest_reads_the_right_element(execute):
    @tx.tile_kernel
    def transpose(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        for nest in tx.parallel(tx.shape(a, b)):
            value = x[tx.coord(nest.index(0), nest.index(1)), tx.shape(1, 1)]
            out(tx.coord(nest.index(1), nest.index(0)), tx.shape(1, 1)).store(value)

    x, out = numbers(3, 5), nan(5, 3)
    execute(transpose, [x, out])
    np.testing.assert_array_equal(out, x.T)

"""Dynamic extents in TileIR: capture, bounds that hold for every value, text form, interpreter."""

import random

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, CaptureError, ParseError, ShapeError, VerifyError
from tvm_tilex.ir.bounds import index_bounds, proved_below, proved_from_zero
from tvm_tilex.ir.dimensions import dimensions_of, restrict, tile_dimensions
from tvm_tilex.ir.index import (
    Dimension,
    IndexBinary,
    IndexConstant,
    ProgramCoordinate,
    evaluate_index,
)
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.verify import verify

ROWS, WIDTH = tx.dynamic("P"), tx.dynamic("N", max=300)


def captured(entry, rows=ROWS, columns=WIDTH):
    extents = {"rows": rows, "columns": columns}
    shapes = [tuple(map(extents.get, view.dimensions)) for view in entry.kernel.parameters.values()]
    return entry.kernel.capture([tx.spec(shape) for shape in shapes])


@pytest.mark.parametrize("name", kernels.catalog())
def test_library_kernels_are_captured_for_every_shape(name):
    entry = kernels.catalog()[name]
    program = captured(entry)
    verify(program)
    assert parse_program(str(program)) == program
    assert dimensions_of(program.views) == (ROWS, WIDTH)
    assert tile_dimensions(program) == {"N"}
    for rows, columns in ((0, 5), (1, 1), (3, 77), (2, 300)):
        arguments = entry.arguments(rows, columns)
        for position, found in zip(entry.outputs, interpret(program, arguments), strict=True):
            arguments[position][...] = found
        if rows:
            assert all(comparison.within for comparison in entry.check(arguments))


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy"])
def test_restricting_a_dynamic_program_gives_the_static_one(name):
    entry = kernels.catalog()[name]
    static = entry.kernel.capture(entry.specs(5, 77))
    fixed = restrict(captured(entry), {"P": 5, "N": 77})
    arguments = entry.arguments(5, 77)
    for a, b in zip(interpret(fixed, arguments), interpret(static, arguments), strict=True):
        np.testing.assert_array_equal(a, b)
    if name == "softmax":  # no arithmetic on the extent: the very same program
        assert fixed == static


def test_text_as_a_dimension_and_one_range_a_name():
    program = kernels.softmax.capture([tx.spec(("P", WIDTH)), tx.spec(("P", "N"))])
    assert dimensions_of(program.views) == (ROWS, WIDTH)
    with pytest.raises(ShapeError, match=r"N is 1\.\.300 and 1\.\.8"):
        kernels.softmax.capture([tx.spec(("P", WIDTH)), tx.spec(("P", tx.dynamic("N", max=8)))])
    with pytest.raises(ShapeError, match=r"dimension 0 .rows. is P in 'input'"):
        kernels.softmax.capture([tx.spec(("P", 4)), tx.spec(("Q", 4))])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tx.dynamic("2P"), "not an identifier"),
        (lambda: tx.dynamic("N", max=0), "no range"),
        (lambda: tx.dynamic("N", max=2**31), "no range"),
        (lambda: tx.dynamic("N", min=-1), "no range"),
        (lambda: tx.dynamic("N", max="8"), "not a name and integers"),
        (lambda: tx.spec((1.5,)), "not a tuple of integers"),
        (lambda: tx.spec(("1",)), "not an identifier"),
    ],
)
def test_bad_dimensions_are_refused(make, message):
    with pytest.raises(ShapeError, match=message) as caught:
        make()
    assert caught.value.location.file.endswith("test_dynamic_dimensions.py")


def test_a_tile_along_an_unbounded_or_possibly_empty_dimension_is_refused():
    for width in (tx.dynamic("N"), tx.dynamic("N", max=8, min=0)):
        with pytest.raises(ShapeError, match=r"needs a stated bound and an element: tx.dynamic"):
            captured(kernels.catalog()["softmax"], columns=width)


def body_of(statement):
    @tx.tile_kernel
    def kernel(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            at = tx.coord(nest.index(), 0)
            row = x[at, tx.shape(1, columns)]
            out(at, tx.shape(1, columns)).store(statement(x, row, nest.index(), columns))

    return kernel.capture([tx.spec((ROWS, WIDTH))] * 2)


@pytest.mark.parametrize(
    "statement",
    [
        lambda x, row, p, columns: row if columns.extent > 4 else -row,
        lambda x, row, p, columns: row if columns.extent == 4 else -row,
        lambda x, row, p, columns: row if columns.extent != 4 else -row,
        lambda x, row, p, columns: row if columns.extent in (1, 4) else -row,
        lambda x, row, p, columns: row if x.extent(0) == 4 else -row,
        lambda x, row, p, columns: row / float(columns.extent),
        lambda x, row, p, columns: sum(row for _ in range(columns.extent)),
        lambda x, row, p, columns: row * (1.0 / columns.extent),
        lambda x, row, p, columns: row + p,
        lambda x, row, p, columns: row + p * columns.extent,
    ],
)
def test_an_extent_has_no_python_value(statement):
    with pytest.raises(CaptureError, match=r"has no value|neither a tile nor a number"):
        body_of(statement)


def test_extents_compute_with_tiles_and_indices():
    def statement(x, row, p, columns):
        last = x[tx.coord(p, columns.extent - 1), tx.shape(1, 1)]
        return (row + last) / columns.extent + (2 * columns.extent - 1) * row

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (out,) = interpret(body_of(statement), [x])
    np.testing.assert_array_equal(out, (x + x[:, 3:]) / 4 + 7 * x)


@pytest.mark.parametrize("shift", [0, 1])
def test_an_index_past_a_dynamic_extent_is_refused(shift):
    def statement(x, row, p, columns):
        return row + x[tx.coord(p, columns.extent - shift), tx.shape(1, 1)]

    if shift:
        verify(body_of(statement))
        return
    with pytest.raises(ShapeError, match="dimension 1 is indexed from 1 to 300, its extent is N"):
        body_of(statement)


def test_an_output_that_some_size_leaves_unwritten_is_refused():
    @tx.tile_kernel
    def first(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows = tx.axis("rows", x.extent(0))
        for nest in tx.parallel(tx.shape(rows)):
            at = tx.coord(nest.index(), 0)
            out(at, tx.shape(1, 1)).store(x[at, tx.shape(1, 1)])

    with pytest.raises(ShapeError, match=r"only 0 to 0 of dimension 1 is stored"):
        first.capture([tx.spec((ROWS, WIDTH))] * 2)


def random_index(random, depth):
    if depth == 0 or random.random() < 0.2:
        return random.choice(
            [IndexConstant(random.randint(-3, 9)), ProgramCoordinate(0, 0), M, N, N]
        )
    op = random.choice("+-*/%")
    lhs = random_index(random, depth - 1)
    if op in "/%":
        return IndexBinary({"/": "//"}.get(op, op), lhs, IndexConstant(random.randint(1, 5)))
    return IndexBinary(op, lhs, random_index(random, depth - 1))


M, N = Dimension("M", 0, 6), Dimension("N", 1, 5)


def test_bounds_hold_for_every_program_and_every_extent():
    source, proved = random.Random(0), 0
    extents = {(0, 0): M}
    for _ in range(600):
        index = random_index(source, 3)
        extent, length = source.choice([M, N, 7]), source.choice([1, N, 2])
        low, high = index_bounds(index, extents)
        below = proved_below(index, length, extent, extents)
        from_zero = proved_from_zero(index, extents)
        proved += below and from_zero
        for m in range(1, 7):  # no program runs for m = 0
            for n in range(1, 6):
                sizes = {"M": m, "N": n}
                end, span = (sizes.get(str(e), e) for e in (extent, length))
                for p in range(m):
                    value = evaluate_index(index, {(0, 0): p}, sizes)
                    assert low <= value <= high, index
                    assert not from_zero or value >= 0, index
                    assert not below or value + span <= end, (str(index), length, extent)
    assert proved > 20


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        (ProgramCoordinate(0, 0), M),
        (IndexBinary("-", N, IndexConstant(1)), N),
        (IndexBinary("//", IndexBinary("-", N, IndexConstant(1)), IndexConstant(2)), N),
        (IndexBinary("//", N, IndexConstant(2)), Dimension("N", 1, 5)),
    ],
)
def test_what_must_be_provable_is(index, extent):
    assert proved_below(index, 1, extent, {(0, 0): M})
    assert proved_from_zero(index, {(0, 0): M})


def test_the_verifier_wants_every_extent_to_be_a_views():
    good = str(captured(kernels.catalog()["row_sum"]))
    verify(parse_program(good))
    with pytest.raises(VerifyError, match="rule: extent"):
        verify(parse_program(good.replace("N: 1..300", "N: 0..300")))
    with pytest.raises(VerifyError, match="rule: extent"):
        verify(parse_program(good.replace("N: 1..300", "N: 1..2147483647")))
    with pytest.raises(ParseError, match="'N' has no range"):
        parse_program(good.replace(", N: 1..300", ""))
    stray = good.replace("N: 1..300", "N: 1..300, K: 1..300").replace("columns: N", "columns: K")
    with pytest.raises(VerifyError, match=r"rule: (axis|bounds)"):
        verify(parse_program(stray))


def test_the_interpreter_binds_extents_and_refuses_others():
    program = captured(kernels.catalog()["softmax"])
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ArgumentError, match="P is 3, but 2 in 'input'"):
        interpret(program, [x, np.zeros((3, 3), np.float32)])
    with pytest.raises(ArgumentError, match="N is 301, the kernel was compiled for 1 to 300"):
        interpret(program, [np.zeros((2, 301), np.float32)])
    with pytest.raises(ArgumentError, match="N is 0"):
        interpret(program, [np.zeros((2, 0), np.float32)])
    with pytest.raises(ArgumentError, match=r"compiled for \(P, N\)"):
        interpret(program, [np.zeros(2, np.float32)])

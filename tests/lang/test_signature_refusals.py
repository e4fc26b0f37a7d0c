"""Refusals of a kernel's signature, of its specs and of a kernel without effect."""

import inspect
import re

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import ArgumentError, CaptureError, DTypeError, ShapeError

VIEW = tx.TensorView
MATRIX, ROW = ("p", "n"), ("n",)


def here(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (("float64", 2), DTypeError, "unknown dtype 'float64'; the element types are float32"),
        ((3, 2), DTypeError, "unknown dtype 3"),
        (((), 2), DTypeError, "at least one dtype"),
        ((("float32", "float99"), 2), DTypeError, "unknown dtype 'float99'"),
        (("float32", 0), CaptureError, "rank 0 is not 1 to 4"),
        (("float32", 5), CaptureError, "rank 5 is not 1 to 4"),
        (("float32", ("a", "b", "c", "d", "e")), CaptureError, "rank 5 is not 1 to 4"),
        (("float32", True), CaptureError, "takes a dtype and a rank"),
        (("float32", "2"), CaptureError, "takes a dtype and a rank"),
        ("float32", CaptureError, "takes a dtype and a rank"),
        (("float32", 2, "output"), CaptureError, "option 'output': use in, out, inout, checked"),
        (("float32", 2, None), CaptureError, "option None"),
    ],
)
def test_annotations(parameters, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        VIEW[parameters]
    assert caught.value.location.line == here(-1)
    assert type(caught.value) is error


def copy(x, out):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        region = tx.shape(one, columns)
        out(origin, region).store(x[origin, region])


def test_a_parameter_without_an_annotation():
    @tx.tile_kernel
    def bare(x: VIEW[tx.float32, 2], out):
        copy(x, out)

    with pytest.raises(CaptureError, match="bare: annotate the parameter 'out'") as caught:
        bare.capture([tx.spec((3, 8))] * 2)
    assert caught.value.location.line == here(-6)


def test_a_variadic_parameter():
    @tx.tile_kernel
    def variadic(*x: VIEW[tx.float32, 2]):
        copy(*x)

    with pytest.raises(CaptureError, match="annotate the parameter 'x'"):
        variadic.capture([tx.spec((3, 8))] * 2)


def test_a_constant_without_a_default():
    @tx.tile_kernel
    def scaled(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out], *, scale: float):
        copy(x, out)

    with pytest.raises(CaptureError, match="keyword-only parameter 'scale' needs a default"):
        scaled.capture([tx.spec((3, 8))] * 2)


def text_annotation(annotation):
    def kernel(x, out: VIEW[tx.float32, 2, tx.Out]):
        copy(x, out)

    kernel.__annotations__["x"] = annotation  # what `from __future__ import annotations` leaves
    return tx.tile_kernel(kernel)


def test_a_text_annotation_is_read():
    text_annotation("tx.TensorView['float32', 2]").capture([tx.spec((3, 8))] * 2)
    text_annotation("VIEW[tx.float32, 2]").capture([tx.spec((3, 8))] * 2)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("tx.TensorView['float99', 2]", "'x': unknown dtype 'float99'"),
        ("tx.TensorView['float32', 9]", "rank 9 is not 1 to 4"),
        ("Missing['float32', 2]", "name 'Missing' is not defined"),
        ("tx.Missing['float32', 2]", "has no attribute 'Missing'"),
        ("tx.TensorView['float32', ", "cannot be evaluated"),
    ],
)
def test_a_wrong_text_annotation_names_the_kernels_line(annotation, text):
    kernel = text_annotation(annotation)
    with pytest.raises(CaptureError, match=re.escape(text)) as caught:
        kernel.capture([tx.spec((3, 8))] * 2)
    assert caught.value.location == kernel.location
    assert str(caught.value).startswith(f"{kernel.location}: ")
    assert "\n" not in str(caught.value)


def test_a_kernel_without_a_store():
    @tx.tile_kernel
    def silent(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", 3), tx.axis("columns", 8)
        for _ in tx.parallel(tx.shape(rows)):
            tx.exp(x[tx.coord(0, 0), tx.shape(rows, columns)])

    with pytest.raises(CaptureError, match="silent: the kernel stores nothing") as caught:
        silent.capture([tx.spec((3, 8))] * 2)
    assert caught.value.location.line == here(-8)


def test_a_kernel_that_returns_from_its_nest():
    @tx.tile_kernel
    def returning(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", 3), tx.axis("columns", 8)
        for nest in tx.parallel(tx.shape(rows)):
            origin, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
            out(origin, region).store(x[origin, region])
            return

    with pytest.raises(CaptureError, match="left by break or return") as caught:
        returning.capture([tx.spec((3, 8))] * 2)
    assert caught.value.location.line == here(-7)


def test_an_operation_outside_a_nest():
    @tx.tile_kernel
    def outside(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out]):
        x[tx.coord(0, 0), tx.shape(tx.axis("rows", 3), tx.axis("columns", 8))]

    with pytest.raises(CaptureError, match=r"belong inside `for nest in tx\.parallel") as caught:
        outside.capture([tx.spec((3, 8))] * 2)
    assert caught.value.location.line == here(-4)


@pytest.mark.parametrize(
    ("stored_rows", "stored_columns", "text"),
    [(2, 8, "0 to 1 of dimension 0"), (3, 7, "0 to 6 of dimension 1")],
)
def test_an_output_that_is_not_written_whole(stored_rows, stored_columns, text):
    def partial(x, out):
        rows, columns = tx.axis("rows", stored_rows), tx.axis("columns", stored_columns)
        for nest in tx.parallel(tx.shape(rows)):
            origin, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
            out(origin, region).store(x[origin, region])

    def out_kernel(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out]):
        partial(x, out)

    def inout_kernel(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.InOut]):
        partial(x, out)

    with pytest.raises(ShapeError, match=re.escape(f"'out' view 'out' (3, 8): only {text}")):
        tx.tile_kernel(out_kernel).capture([tx.spec((3, 8))] * 2)
    tx.tile_kernel(inout_kernel).capture([tx.spec((3, 8))] * 2)


def test_an_output_that_no_store_names():
    @tx.tile_kernel
    def one_of_two(
        x: VIEW[tx.float32, 2], a: VIEW[tx.float32, 2, tx.Out], b: VIEW[tx.float32, 2, tx.Out]
    ):
        copy(x, a)

    with pytest.raises(ShapeError, match=r"'out' view 'b'.*nothing of dimension 0 is stored"):
        one_of_two.capture([tx.spec((3, 8))] * 3)


@tx.tile_kernel
def plain(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out], *, scale: float = 1.0):
    copy(x, out)


@pytest.mark.parametrize(
    ("specs", "error", "text"),
    [
        ([tx.spec((3, 8))], ArgumentError, "plain takes 2 tensors (x, out), not 1"),
        (
            [tx.spec((3,)), tx.spec((3, 8))],
            ShapeError,
            "'x' has rank 1 (3,), its annotation says 2",
        ),
        ([tx.spec((3, 8), "int32"), tx.spec((3, 8))], DTypeError, "'x' is int32, its annotation"),
        ([tx.spec((3, 8)), tx.spec((3, 9))], ShapeError, "'out' view 'out' (3, 9)"),
        ([tx.spec((4, 8)), tx.spec((3, 8))], ShapeError, "out: dimension 0 is indexed from 0 to 3"),
        ([tx.spec((3, 0)), tx.spec((3, 0))], ShapeError, "axis 'columns' has extent 0"),
    ],
)
def test_specs_that_do_not_fit(specs, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        plain.capture(specs)
    assert caught.value.location is not None
    if "its annotation" in text or "takes 2" in text or "view" in text:
        assert caught.value.location.line == here(-3)


def test_constants_that_do_not_fit():
    specs = [tx.spec((3, 8))] * 2
    with pytest.raises(ArgumentError, match=r"no compile-time constant 'sacle' \(it has scale\)"):
        plain.capture(specs, {"sacle": 2.0})
    with pytest.raises(ArgumentError, match="the constant 'scale' is a list"):
        plain.capture(specs, {"scale": [2.0]})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (((3, -1),), ShapeError, "negative extent"),
        (((3, 2.5),), ShapeError, "not a tuple of integers"),
        ((3,), ShapeError, "not a tuple of integers"),
        (((3,), "f4"), DTypeError, "unknown dtype 'f4'"),
    ],
)
def test_spec(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        tx.spec(*arguments)
    assert caught.value.location.line == here(-1)


def test_named_dimensions():
    @tx.tile_kernel
    def named(
        x: VIEW[tx.float32, MATRIX], y: VIEW[tx.float32, ROW], out: VIEW[tx.float32, MATRIX, tx.Out]
    ):
        copy(x, out)

    named.capture([tx.spec((3, 8)), tx.spec((8,)), tx.spec((3, 8))])
    with pytest.raises(
        ShapeError,
        match=re.escape("named: 'y' has the shape (9,), its dimension 0 (n) is 8 in 'x'"),
    ) as caught:
        named.capture([tx.spec((3, 8)), tx.spec((9,)), tx.spec((3, 8))])
    assert caught.value.location.line == here(-1)


def test_the_decorator_takes_a_function():
    with pytest.raises(CaptureError, match="takes a function, not int"):
        tx.tile_kernel(3)

"""Calls of a kernel with other numbers of rows run what was compiled before: counted."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import driver, kernels
from tvm_tilex.errors import (
    ArgumentError,
    CaptureError,
    LoweringError,
    MappingError,
    ShapeError,
)
from tvm_tilex.lang.rows import row_candidates


@pytest.fixture
def compilations(monkeypatch):
    """Names of the programs that TVM compiles while the test runs."""
    found = []
    stock = driver.tvm.compile

    def counted(module, *given, **named):
        found.append(next(iter(module.functions)).name_hint)
        return stock(module, *given, **named)

    monkeypatch.setattr(driver.tvm, "compile", counted)
    return found


def fresh(kernel):
    """The same kernel without anything compiled."""
    return tx.tile_kernel(kernel.function)


@pytest.mark.parametrize("name", kernels.catalog())
def test_one_compilation_for_any_number_of_rows(compilations, name, monkeypatch):
    monkeypatch.setattr(driver, "_ARTIFACTS", {})
    entry = kernels.catalog()[name]
    kernel = fresh(entry.kernel)
    for rows in (5, 1, 0, 2, 7, 8, 9, 255, 40):
        arguments = entry.arguments(rows, 40)  # and as many columns as rows
        kernel(*arguments)
        assert rows == 0 or all(comparison.within for comparison in entry.check(arguments))
    assert compilations == [name]
    kernel(*entry.arguments(5, 41))
    assert compilations == [name, name]  # a width of its own


def test_torch_calls_share_too(compilations, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(driver, "_ARTIFACTS", {})
    kernel = fresh(kernels.softmax)
    for rows in (3, 1, 0, 64, 3):
        x = torch.randn(rows, 40)
        out = torch.full_like(x, torch.nan)
        for _ in range(2):
            kernel(x, out)
        torch.testing.assert_close(out, torch.softmax(x, 1))
    assert compilations == ["softmax"]
    x = torch.randn(4, 41)[:, 1:]
    with pytest.raises(ArgumentError, match="strides"):
        kernel(x, torch.empty(4, 40))


def test_the_short_way_of_an_artifact_checks_dynamic_extents():
    torch = pytest.importorskip("torch")
    specs = kernels.catalog()["softmax"].specs(tx.dynamic("P"), tx.dynamic("N", max=64))
    artifact = tx.compile(kernels.softmax, *specs)
    for rows, columns in ((3, 40), (0, 5), (9, 64), (1, 1)):
        x = torch.randn(rows, columns)
        out = torch.full_like(x, torch.nan)
        artifact(x, out)
        torch.testing.assert_close(out, torch.softmax(x, 1))
    assert artifact.direct((torch.zeros(2, 3), torch.zeros(2, 3)))
    for x, out in (
        (torch.zeros(2, 65), torch.zeros(2, 65)),
        (torch.zeros(2, 3), torch.zeros(3, 3)),
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.zeros(2), torch.zeros(2)),
    ):
        assert not artifact.direct((x, out))
    both = torch.zeros(3, 8)
    assert not artifact.direct((both[:2], both[1:]))  # overlapping rows
    with pytest.raises(ArgumentError, match="overlap in part"):
        artifact(both[:2], both[1:])
    with pytest.raises(ArgumentError, match="N is 65, the kernel was compiled for 1 to 64"):
        artifact(torch.zeros(2, 65), torch.zeros(2, 65))


def test_calls_specialize_on_request(compilations, monkeypatch):
    monkeypatch.setattr(driver, "_ARTIFACTS", {})
    kernel, options = fresh(kernels.softmax), tx.CompileOptions(dynamic_rows=False)
    for rows in (3, 4, 3):
        x = np.zeros((rows, 8), np.float32)
        kernel(x, np.empty_like(x), options=options)
    assert compilations == ["softmax", "softmax"]


@tx.tile_kernel
def scaled(
    factor: tx.TensorView[tx.float32, 1],
    x: tx.TensorView[tx.float32, 2],
    out: tx.TensorView[tx.float32, 2, tx.Out],
):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at = tx.coord(nest.index(), 0)
        row = x[at, tx.shape(1, columns)] * factor[tx.coord(0), tx.shape(columns)]
        out(at, tx.shape(1, columns)).store(row)


def test_rows_are_found_without_names(compilations):
    for rows in (6, 5, 7, 0):  # the first call has as many rows as columns
        x = np.full((rows, 6), 2, np.float32)
        out = np.zeros_like(x)
        scaled(np.arange(6, dtype=np.float32), x, out)
        np.testing.assert_array_equal(out, x * np.arange(6))
    assert compilations == ["scaled"]


@tx.tile_kernel
def transposed(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
    """Tiles run along both dimensions, so no number of rows is free."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(tx.axis("all", 1))):
        zero = tx.coord(nest.index(), 0)
        out(zero, tx.shape(columns, rows)).store(x[zero, tx.shape(rows, columns)])


def test_a_kernel_without_free_rows_is_specialized(compilations):
    for rows in (2, 3, 2):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        out = np.zeros((4, rows), np.float32)
        transposed(x, out)
        np.testing.assert_array_equal(out, x.T)
    assert compilations == ["transposed", "transposed"]


@tx.tile_kernel
def branching(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at = tx.coord(nest.index(), 0)
        row = x[at, tx.shape(1, columns)]
        out(at, tx.shape(1, columns)).store(row * 2 if x.extent(0) == 3 else row)


def test_a_body_that_branches_on_the_rows_is_specialized():
    for rows in (2, 3, 1):
        x = np.ones((rows, 4), np.float32)
        out = np.zeros_like(x)
        branching(x, out)
        assert (out == (2 if rows == 3 else 1)).all()


def test_errors_of_a_call_are_those_of_its_shapes():
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(ShapeError, match=r"'output' has the shape \(4, 4\)"):
        kernels.softmax(x, np.zeros((4, 4), np.float32))

    with pytest.raises(ShapeError, match=r"has the shape \(P, M\), its dimension 1 .* \(P, N\)"):
        tx.compile(kernels.softmax, *(("P", tx.dynamic(name, max=8)) for name in "NM"))

    @tx.tile_kernel
    def nothing(x: tx.TensorView[tx.float32, 2]):
        tx.axis("rows", x.extent(0))

    with pytest.raises(CaptureError, match="stores nothing"):
        nothing(x)


def test_candidates_of_rows():
    named = kernels.layernorm.parameters
    shapes = [(4, 4), (4,), (4,), (4, 4)]
    assert next(row_candidates(named, shapes)) == {(0, 0), (3, 0)}
    plain = scaled.parameters
    assert list(row_candidates(plain, [(4,), (4, 4), (4, 4)])) == [
        {(0, 0), (1, 0), (2, 0)},
        {(1, 0), (2, 0)},
    ]
    assert next(row_candidates(plain, [(4,), (3, 4), (3, 4)])) == {(1, 0), (2, 0)}


PLANE = ("p", "n")


@tx.tile_kernel
def grouped(
    x: tx.TensorView[tx.float32, PLANE],
    out: tx.TensorView[tx.float32, PLANE, tx.Out],
):
    p, n = tx.axis("p", x.extent(0)), tx.axis("n", x.extent(1))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group(tx.shape(n)):
            at = tx.coord(nest.index(), 0)
            row = x[at, tx.shape(1, n)]
            out(at, tx.shape(1, n)).store(row + row)


def test_cooperative_groups_have_dynamic_rows_on_a_processor_only(compilations):
    for rows in (3, 5, 1):
        x = np.ones((rows, 8), np.float32)
        out = np.zeros_like(x)
        grouped(x, out)
        assert (out == 2).all()
    assert compilations == ["grouped"]
    for target in ("metal", "cuda"):
        with pytest.raises(MappingError, match="planned for a fixed number of programs; P is"):
            tx.compile(grouped, ("P", 8), ("P", 8), target=target)
    with pytest.raises(LoweringError, match="cooperative group over a dynamic extent"):
        wide = ("P", tx.dynamic("N", max=8))
        tx.compile(grouped, wide, wide)

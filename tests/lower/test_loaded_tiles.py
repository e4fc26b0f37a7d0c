"""LOADED keeps what was loaded, once, and computes again what was computed from it."""

import functools
import warnings

import numpy as np
import pytest
import tvm

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx.compat import TensorLoad, structural_walk, tirx

VIEW = tx.TensorView
CATALOG = kernels.catalog()


def lowered(kernel, *specs, mode="loaded"):
    options = tx.CompileOptions(shared_tile_materialization=mode)
    (function,) = tx.lower(kernel, *specs, options=options).functions.values()
    return function


def kept(function):
    """The stored value of each local tile of more than one element, by the tile's name."""
    wide, values = set(), {}

    def allocation(statement):
        if np.prod([int(extent) for extent in statement.buffer.ty.shape]) > 1:
            wide.add(statement.buffer.name)

    def store(statement):
        if statement.buffer.name in wide:
            values[statement.buffer.name] = statement.value

    structural_walk(function.body, (tirx.AllocBuffer, allocation))
    structural_walk(function.body, (tirx.BufferStore, store))
    return values


def source_of(value):
    """The view whose element a value is, converted or not; None for anything computed."""
    value = value.value if isinstance(value, tirx.Cast) else value
    return value.source.name if isinstance(value, TensorLoad) else None


# kernel -> the views of which a row is kept
ROWS = {
    "row_sum": [],
    "minmax": ["x"],
    "softmax": ["input"],
    "log_softmax": ["input"],
    "logsumexp": ["x"],
    "layernorm": ["x"],  # its weight and bias are used once
    "rmsnorm": ["x"],
    "residual_layernorm": ["x", "residual"],
    "cross_entropy": ["logits"],
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ROWS)
def test_each_row_that_is_needed_again_is_kept_once(name, dtype):
    found = kept(lowered(CATALOG[name].kernel, *CATALOG[name].specs(3, 300, dtype)))
    assert [source_of(value) for value in found.values()] == ROWS[name]
    # The conversion is kept, not the load beside it.
    assert all(isinstance(value, tirx.Cast) == (dtype != "float32") for value in found.values())


@pytest.mark.parametrize("name", ["row_sum", "minmax", "logsumexp", "rmsnorm", "cross_entropy"])
def test_it_is_preserve_where_nothing_shared_is_computed(name):
    specs = CATALOG[name].specs(3, 300, "bfloat16")
    both = [
        lowered(CATALOG[name].kernel, *specs, mode=mode).without_attr("tilex.options")
        for mode in ("loaded", "preserve")
    ]
    tvm.ir.assert_structural_equal(*both)


@tx.tile_kernel
def raw_and_converted(
    x: VIEW[tx.bfloat16, 2],
    out: VIEW[tx.bfloat16, 2, tx.Out],
    total: VIEW[tx.float32, 1, tx.Out],
):
    """A row that is stored as it was loaded and reduced as it was converted, twice."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        wide = tx.cast(row, tx.float32)
        both = tx.reduce(wide, columns, tx.add) + tx.reduce(tx.exp(wide), columns, tx.add)
        total(tx.coord(nest.index()), tx.shape(one)).store(both)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(row)


def test_a_load_with_a_use_of_its_own_is_kept_beside_its_conversion():
    found = kept(lowered(raw_and_converted, (3, 40), (3, 40), (3,)))
    assert len(found) == 2 and sum(isinstance(v, tirx.Cast) for v in found.values()) == 1


@tx.tile_kernel
def once(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
    """One reduction of something that several statements name."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        scaled = row * 2.0
        total = tx.reduce(tx.exp(scaled), columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(total)


def test_what_is_needed_once_is_not_kept():
    assert kept(lowered(once, (3, 40), (3,))) == {}


@tx.tile_kernel
def reached_twice(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 2, tx.Out]):
    """One statement names the row, two consumers need it."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        scaled = x[origin, tx.shape(one, columns)] * 2.0
        peak = tx.reduce(scaled, columns, tx.maximum)
        out(origin, tx.shape(one, columns)).store(scaled - peak)


def test_what_is_reached_twice_through_one_statement_is_kept():
    (value,) = kept(lowered(reached_twice, (3, 40), (3, 40))).values()
    assert source_of(value) == "x"
    (value,) = kept(lowered(reached_twice, (3, 40), (3, 40), mode="preserve")).values()
    assert source_of(value) is None  # the product


@functools.cache
def results(name, mode, target, dtype):
    entry = CATALOG[name]
    arguments = entry.arguments(5, 300, dtype)
    options = tx.CompileOptions(shared_tile_materialization=mode)
    artifact = tx.compile(entry.kernel, *entry.specs(5, 300, dtype), target=target, options=options)
    assert artifact.materialization is SharedTileMaterialization(mode)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no Apple GPU here")
        artifact(*arguments)
    assert all(comparison.within for comparison in entry.check(arguments))
    return [arguments[position].tobytes() for position in entry.outputs]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ROWS)
def test_results_on_a_processor(name, dtype):
    loaded = results(name, "loaded", "llvm", dtype)
    # Softmax adds exponentials where it computes them: that may round once less.
    assert loaded == results(name, "preserve", "llvm", dtype) or name == "softmax"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["softmax", "residual_layernorm", "cross_entropy"])
def test_results_on_metal(name, dtype):
    loaded = results(name, "loaded", "metal", dtype)
    # The others may get another plan, whose workers add in another order.
    assert loaded == results(name, "preserve", "metal", dtype) or name != "cross_entropy"

# ruff: noqa: F821  (the text annotations below are the specification's own style)
"""The specification's two complete sources, written line for line, capture to the right program."""

import pathlib

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.print import format_program
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import walk


@tx.tile_kernel
def softmax(input: tx.TensorView["float32", 2], output: tx.TensorView["float32", 2, "out"]):
    rows = tx.axis("rows", input.extent(0))
    one = tx.axis("one", 1)
    columns = tx.axis("columns", input.extent(1))

    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        value = input[origin, tx.shape(one, columns)]
        shifted = tx.exp(value - tx.reduce(value, columns, tx.maximum))
        output(origin, tx.shape(one, columns)).store(shifted / tx.reduce(shifted, columns, tx.add))


@tx.tile_kernel
def cross_entropy(
    logits: tx.TensorView["float32", 2],
    labels: tx.TensorView["int64", 1],
    losses: tx.TensorView["float32", 1, "out"],
):
    rows = tx.axis("rows", logits.extent(0))
    one = tx.axis("one", 1)
    columns = tx.axis("columns", logits.extent(1))

    for nest in tx.parallel(tx.shape(rows)):
        origin = tx.coord(nest.index(), 0)
        row = logits[origin, tx.shape(one, columns)]
        label = labels[tx.coord(nest.index()), tx.shape(one)]
        peak = tx.reduce(row, columns, tx.maximum)
        total = tx.reduce(tx.exp(row - peak), columns, tx.add)
        selected = tx.gather(row, label, columns)
        losses(tx.coord(nest.index()), tx.shape(one)).store(tx.log(total) + peak - selected)


SPECS = {
    "softmax": (softmax, [tx.spec((3, 8)), tx.spec((3, 8))]),
    "cross_entropy": (
        cross_entropy,
        [tx.spec((3, 8)), tx.spec((3,), "int64"), tx.spec((3,))],
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_the_program_is_the_written_one(name, golden):
    kernel, specs = SPECS[name]
    program = kernel.capture(specs)
    verify(program)
    golden(format_program(program), f"{name}.tileir")


@pytest.mark.parametrize("name", SPECS)
def test_the_library_has_the_same_program(name):
    """But for the permission, which the library's softmaxes give, to rescale their sums."""
    kernel, specs = SPECS[name]
    ours = format_program(kernels.catalog()[name].kernel.capture(specs))
    assert ours.count(" rescaled_tree\n") == (name in ("softmax", "cross_entropy"))
    assert ours.replace(" rescaled_tree\n", "\n") == format_program(kernel.capture(specs))


@pytest.mark.parametrize("name", SPECS)
def test_it_computes_the_oracle(name):
    kernel, _ = SPECS[name]
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(17, 257, seed=3))
    program = kernel.capture(entry.specs(17, 257))
    (arguments[-1],) = interpret(program, arguments)
    (comparison,) = entry.check(arguments)
    assert comparison.within, comparison
    (exact,) = interpret(program, arguments, precision="float64")
    np.testing.assert_allclose(exact, entry.expected(arguments)[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", SPECS)
def test_each_operation_remembers_its_line(name):
    kernel, specs = SPECS[name]
    lines = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    words = {
        "Load": "tx.shape(one", "Reduce": "tx.reduce(", "Gather": "tx.gather(", "Store": ".store(",
        "Parallel": "tx.parallel(", "Elementwise": ("tx.exp", "tx.log", ".store("),
    }  # fmt: skip
    seen = set()
    for statement in walk(kernel.capture(specs).body):
        kind = type(statement).__name__
        assert pathlib.Path(statement.location.file).samefile(__file__)
        text = lines[statement.location.line - 1]
        wanted = words[kind] if isinstance(words[kind], tuple) else (words[kind],)
        assert any(word in text for word in wanted), (kind, text)
        seen.add(kind)
    assert seen >= {"Load", "Reduce", "Store", "Parallel", "Elementwise"}

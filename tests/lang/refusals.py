"""Bodies of kernels that must be refused, and how a refusal is judged.

A case is the body of one program over a (3, 8) matrix. The line that must be named ends in
``# <- refused``.
"""

import inspect
import pathlib

import pytest

import tvm_tilex as tx

SPECS = (tx.spec((3, 8)), tx.spec((3, 8)), tx.spec((3, 8)))


class Refusals:
    """Collects the cases of one test module; calling it registers a body."""

    def __init__(self):
        self.cases = []

    def __call__(self, error, text):
        def register(body):
            self.cases.append(pytest.param(body, error, text, id=body.__name__))
            return body

        return register


class Program:
    """What a case may use: views x, i (int64) and out; axes; a region; a loaded tile."""

    def __init__(self, x, i, out, nest, axes):
        self.x, self.i, self.out, self.nest = x, i, out, nest
        self.rows, self.one, self.columns = axes
        self.origin = tx.coord(nest.index(), 0)
        self.row = tx.shape(self.one, self.columns)
        self.value = x[self.origin, self.row]


def kernel_of(body):
    @tx.tile_kernel
    def case(
        x: tx.TensorView[tx.float32, 2],
        i: tx.TensorView[tx.int64, 2],
        out: tx.TensorView[tx.float32, 2, tx.Out],
    ):
        axes = tx.axis("rows", x.extent(0)), tx.axis("one", 1), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(axes[0])):
            program = Program(x, i, out, nest, axes)
            body(program)
            program.out(program.origin, program.row).store(program.value)

    return case


def refused_line(function):
    lines, first = inspect.getsourcelines(function)
    (line,) = [first + n for n, text in enumerate(lines) if text.endswith("# <- refused\n")]
    return line


def check_refused(body, error, text):
    """Capture the body; the error has the type, the text and the marked line, in two lines."""
    line = refused_line(body)
    with pytest.raises(error) as caught:
        kernel_of(body).capture(SPECS)
    message = str(caught.value)
    assert type(caught.value) is error
    assert caught.value.location.line == line
    assert pathlib.Path(caught.value.location.file).samefile(inspect.getsourcefile(body))
    assert message.startswith(f"{caught.value.location}: ")
    assert text in message
    assert message.count("\n") <= 1 and len(message) <= 200

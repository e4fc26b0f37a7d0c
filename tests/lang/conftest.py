"""Runs a tile kernel on NumPy arrays, by the interpreter and by the compiled LLVM code."""

import pytest

import tvm_tilex as tx
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.ir.verify import verify


def by_interpreter(kernel, arrays, **static):
    program = kernel.capture([tx.spec(a.shape, a.dtype.name) for a in arrays], static)
    verify(program)
    written = iter(interpret(program, arrays))
    for view, array in zip(program.views, arrays, strict=True):
        if view.access is not ViewAccess.read:
            array[...] = next(written)


def by_llvm(kernel, arrays, **static):
    tx.compile(kernel, *arrays, target="llvm", **static)(*arrays)


@pytest.fixture(params=[by_interpreter, by_llvm], ids=["interpreter", "llvm"])
def execute(request):
    """Call with (kernel, arrays in call order, constants); outputs are written in place."""
    return request.param

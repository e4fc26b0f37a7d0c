"""Runs a tile kernel on NumPy arrays, by the interpreter and by the compiled LLVM code."""

import importlib.util
import sys
from pathlib import Path

import pytest

import tvm_tilex as tx
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.ir.verify import verify

# Importlib mode has no test packages: make the helper importable by a plain name.
_spec = importlib.util.spec_from_file_location("refusals", Path(__file__).parent / "refusals.py")
sys.modules["refusals"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["refusals"])


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

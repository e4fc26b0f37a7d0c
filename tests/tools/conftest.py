"""Runs the command line in this process, or as a program."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from tvm_tilex.tools.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def tilex(capsys):
    """Call with arguments: exit code, stdout and stderr of ``tilex`` in this process."""

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(int(exit_.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def program():
    """The same as a program of its own: ``python -m tvm_tilex``."""

    def run(*arguments):
        command = [sys.executable, "-m", "tvm_tilex", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


KERNELS = '''
import tvm_tilex as tx


@tx.tile_kernel
def doubled(x: tx.TensorView[tx.floating, 2], out: tx.TensorView[tx.floating, 2, tx.Out]):
    """Twice each element."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
        out(at, region).store(x[at, region] + x[at, region])


@tx.tile_kernel
def row_of(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
    columns = tx.axis("columns", x.extent(1))
    for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
        out(tx.coord(0), tx.shape(columns)).store(x[tx.coord(0, 0), tx.shape(1, columns)])


@tx.tile_kernel
def broken(x: tx.TensorView[tx.float32, 1], out: tx.TensorView[tx.float32, 1, tx.Out]):
    columns = tx.axis("columns", x.extent(0))
    for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
        tile = x[tx.coord(0), tx.shape(columns)]
        if tile > 0:
            out(tx.coord(0), tx.shape(columns)).store(tile)


not_a_kernel = 3
'''


@pytest.fixture
def file(tmp_path):
    """A Python file with kernels of the user's own."""
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    return path

"""Kernels whose rows stand in stripes, compiled for CUDA and run on the processor."""

import functools
import re

import cuda_on_cpu
import ml_dtypes
import numpy as np

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.analysis.admission import admit
from tvm_tilex.build.pipeline import before_planning
from tvm_tilex.tirx.compat import tvm

VIEW = tx.TensorView
NUMPY = {
    "float32": np.dtype("float32"),
    "float16": np.dtype("float16"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@functools.cache
def compiled(name, rows, columns, dtype="float32", target="cuda", **options):
    """A library kernel under these options."""
    entry = kernels.catalog()[name]
    specs = entry.specs(rows, columns, dtype)
    return tx.compile(entry.kernel, *specs, target=target, options=tx.CompileOptions(**options))


def kernel_of(artifact):
    """The text of the kernel itself, without the device functions before it."""
    return artifact.source[artifact.source.rindex("__global__") :]


def private(artifact):
    """Type and length of each private array of more than one element that is no vector's."""
    found = re.findall(r"alignas\(64\) (\w+) (\w+)\[(\d+)\];", kernel_of(artifact))
    return {
        name.removesuffix("_ptr"): (kind, int(length))
        for kind, name, length in found
        if int(length) > 1 and "_pack" not in name and "partials" not in name
    }


def facts_of(artifact):
    """What the planner was told of an artifact's function."""
    module = tvm.ir.transform.Sequential(before_planning(artifact.target))(artifact.tirx)
    (function,) = module.functions.values()
    return admit(function, lanes=32, kind="cuda").facts


def launched(name, rows, columns, dtype, folder, **options):
    """The outputs' bytes of one run, after comparing them with FP64."""
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(rows, columns, dtype))
    for position in entry.outputs:
        arguments[position][...] = np.nan
    artifact = compiled(name, rows, columns, dtype, **options)
    cuda_on_cpu.run(artifact, arguments, folder)
    found = entry.check(arguments)
    assert all(comparison.within for comparison in found), found
    return [arguments[position].tobytes() for position in entry.outputs]


@tx.tile_kernel
def keeps(
    x: VIEW[tx.floating, 2],
    out: VIEW[tx.float32, 2, tx.Out],
    total: VIEW[tx.float32, 1, tx.Out],
):
    """A row that two consumers read, widened."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        sum_of = tx.reduce(row, columns, tx.add)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(row)
        total(tx.coord(nest.index()), tx.shape(one)).store(sum_of)


@tx.tile_kernel
def pair(
    x: VIEW[tx.floating, 2],
    y: VIEW[tx.floating, 2],
    out: VIEW[tx.float32, 2, tx.Out],
):
    """Two rows, each with two consumers."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        a = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        b = tx.cast(y[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        first = tx.reduce(a, columns, tx.maximum)
        second = tx.reduce(b, columns, tx.maximum)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store((a - first) * (b - second))

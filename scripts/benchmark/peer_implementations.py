"""Who is measured: this package and its peers, each a factory of functions for one cell.

A factory is called with (operator, rows, columns, dtype) and returns a :class:`Run`, or None where
the implementation has no such operator. Loading one raises ImportError where it is not installed.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from row_operators import OPERATORS

__all__ = ["IMPLEMENTATIONS", "Run", "artifact_factory", "load"]


@dataclass(frozen=True)
class Run:
    """A callable of a cell.

    ``in_place`` functions take every argument and write the last one; the others take the inputs
    and return the result (the first of a tuple). ``prepare`` maps the inputs once, untimed.
    """

    function: Callable
    in_place: bool = False
    prepare: Callable = field(default=lambda inputs: inputs)
    facts: dict = field(default_factory=dict)

    def arguments(self, arguments):
        """What the function is called with, of the arguments in the library's order."""
        if self.in_place:
            return list(arguments)
        return list(self.prepare(arguments[:-1]))

    def result(self, arguments, returned):
        """The output of a call."""
        if self.in_place:
            return arguments[-1]
        return returned[0] if isinstance(returned, (tuple, list)) else returned


def _tilex(**options):
    import tvm_tilex as tx
    from tvm_tilex import kernels

    chosen = tx.CompileOptions(**options)

    def make(operator, rows, columns, dtype):
        entry = kernels.catalog()[operator]
        specs = entry.specs(rows, columns, dtype)
        artifact = tx.compile(entry.kernel, *specs, target="cuda", options=chosen)
        plan = artifact.plan
        facts = {"plan": plan.describe() if plan is not None else artifact.fallback}
        return Run(artifact, in_place=True, facts=facts)

    return make


def _torch():
    return lambda operator, *_: Run(OPERATORS[operator].function)


def _compile():
    def make(operator, *_):
        torch._dynamo.reset()  # each cell is compiled for its shape, past the recompile limit
        return Run(torch.compile(OPERATORS[operator].function, dynamic=False))

    return make


def _liger():
    softmax = importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction
    rmsnorm = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
    layernorm = importlib.import_module("liger_kernel.ops.layer_norm").LigerLayerNormFunction
    functions = {
        "softmax": lambda x: softmax.apply(x),
        "rmsnorm": lambda x, w: rmsnorm.apply(x, w, 1e-6),
        "layernorm": lambda x, w, b: layernorm.apply(x, w, b, 1e-5),
    }
    return lambda operator, *_: Run(functions[operator]) if operator in functions else None


def _quack():
    softmax = importlib.import_module("quack.softmax").softmax_fwd
    normalization = importlib.import_module("quack.rmsnorm")
    cross_entropy = importlib.import_module("quack.cross_entropy").cross_entropy_fwd

    def wide(inputs):  # its LayerNorm takes FP32 weights alone
        return [inputs[0], *(vector.float() for vector in inputs[1:])]

    runs = {
        "softmax": Run(softmax),
        "rmsnorm": Run(lambda x, w: normalization.rmsnorm_fwd(x, w, eps=1e-6)),
        "cross_entropy": Run(lambda x, y: cross_entropy(x, y)),
    }
    if hasattr(normalization, "layernorm_fwd"):
        forward = normalization.layernorm_fwd
        runs["layernorm"] = Run(lambda x, w, b: forward(x, w, bias=b, eps=1e-5), prepare=wide)
    return lambda operator, *_: runs.get(operator)


def _dlight():
    import dlight_kernels

    def make(operator, rows, columns, dtype):
        if operator not in dlight_kernels.OPERATORS:
            return None
        executable, _, _ = dlight_kernels.compiled(operator, rows, columns, dtype)
        return Run(executable["main"], in_place=True)

    return make


IMPLEMENTATIONS = {
    "tilex": _tilex,
    "tilex-ordinary": functools.partial(_tilex, dependent_launch=False),
    "torch": _torch,
    "compile": _compile,
    "liger": _liger,
    "quack": _quack,
    "dlight": _dlight,
}


@functools.cache
def load(name):
    """The factory of an implementation."""
    return IMPLEMENTATIONS[name]()


def artifact_factory(compiler, rows_of_file):
    """A factory over exported kernels of one compiler: automatic plans, built by nvcc here."""
    from cuda_measuring import compile_source, launcher

    known = {
        (row["operator"], *row["shape"], row["dtype"]): row
        for row in rows_of_file
        if row.get("compiler", "tilex") == compiler and not any(row["requested"])
    }

    def make(operator, rows, columns, dtype):
        row = known.get((operator, rows, columns, dtype))
        if row is None:
            return None
        if "refused" in row:
            raise RuntimeError(f"not compiled: {row['refused']}")
        cubin, facts = compile_source(row["source"], options=row.get("options", ()))
        if cubin is None:
            raise RuntimeError(facts["error"])
        return Run(launcher(row, cubin), in_place=True, facts=facts)

    return make

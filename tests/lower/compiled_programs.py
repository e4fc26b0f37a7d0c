"""Runs TileIR programs as compiled LLVM code; tests import it as ``compiled_programs``."""

from __future__ import annotations

import dataclasses

import numpy as np
import tvm

from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import host_target
from tvm_tilex.ir import (
    Axis,
    Combiner,
    Load,
    Parallel,
    ProgramCoordinate,
    Reduce,
    ReductionPolicy,
    Store,
    Value,
    View,
    ViewAccess,
)
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.types import numpy_dtype
from tvm_tilex.lowering import SharedTileMaterialization, lower_program
from tvm_tilex.runtime.arguments import describe, exported
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.wellformed import VerifyEachPass

__all__ = [
    "BOTH_MODES",
    "assert_equal",
    "captured",
    "compiled",
    "one_after_the_other",
    "order_float_sums",
    "outputs_of",
]

BOTH_MODES = tuple(SharedTileMaterialization)


def compiled(program, mode=SharedTileMaterialization.PRESERVE, *, noalias=True, target=None):
    """The program through ``tvm.compile`` and the registered pipeline, verified at each pass.

    Where the program doesn't ask for an order, LLVM may contract a product and a sum. The generic
    target has no fused instruction, so that what remains is comparable bit for bit.
    """
    register_pipeline()
    function = lower_program(program, mode, noalias=noalias)
    if target is None:
        precise = attrs.PRECISE in function.attrs
        target = host_target() if precise else tvm.target.Target("llvm")
    with tvm.transform.PassContext(instruments=[VerifyEachPass()]):
        module = tvm.compile(
            tvm.IRModule({program.name: function}), target=target, tir_pipeline="tilex"
        )
    return module[program.name]


def output_arrays(program, inputs):
    """One array per view: the inputs, and outputs filled as the interpreter fills them."""
    arrays = []
    for view in program.views:
        if view.access is not ViewAccess.write:
            arrays.append(np.array(inputs[view.name], order="C"))
            continue
        dtype = numpy_dtype(view.dtype)
        fill = np.nan if view.dtype.is_float else 0
        if view.dtype.is_integer:
            fill = np.iinfo(dtype).max
        arrays.append(np.full(view.shape, fill, dtype))
    return arrays


def outputs_of(program, function, inputs):
    """The written views after one call of the compiled program, in view order."""
    arrays = output_arrays(program, inputs)
    function(*(exported(describe(v.name, a)) for v, a in zip(program.views, arrays, strict=True)))
    pairs = zip(program.views, arrays, strict=True)
    return tuple(array for view, array in pairs if view.access is not ViewAccess.read)


def assert_equal(program, inputs, got, label):
    """Equal to the interpreter: the same value or a NaN in the same place.

    Which zero ``maximum`` gives for +0 and -0, and a NaN's payload, are unspecified.
    """
    for wanted, found in zip(interpret(program, inputs), got, strict=True):
        same = (wanted == found) | ((wanted != wanted) & (found != found))
        assert same.all(), f"{label}\n{program}\ninterpreter {wanted}\nLLVM {found}"


def captured(program):
    """The program with definitions before its one root moved into it, as the front end has it."""
    *before, root = program.body
    root = dataclasses.replace(root, body=(*before, *root.body))
    return dataclasses.replace(program, body=(root,))


def order_float_sums(program):
    """The program with an order for every floating-point sum that left it open."""

    def change(statement):
        if isinstance(statement, Parallel):
            return dataclasses.replace(statement, body=tuple(map(change, statement.body)))
        free = isinstance(statement, Reduce) and not statement.policy.ordered
        if free and statement.combiner is Combiner.add and statement.source.type.dtype.is_float:
            return dataclasses.replace(statement, policy=ReductionPolicy.ordered_tree)
        return statement

    return dataclasses.replace(program, body=tuple(map(change, program.body)))


def one_after_the_other(first, second):
    """One program that runs both: a kernel with several root nests."""
    second = _renamed(second)
    return dataclasses.replace(
        first, views=first.views + second.views, body=first.body + second.body
    )


# Fields that name something, and what keeps the name apart from those of another program.
_NAMES = {
    (Axis, "name"): "_second",
    (View, "name"): "_second",
    (Load, "view"): "_second",
    (Store, "view"): "_second",
    (Value, "number"): 1000,
    (Parallel, "nest"): 1000,
    (ProgramCoordinate, "nest"): 1000,
}


def _renamed(node):
    if isinstance(node, tuple):
        return tuple(map(_renamed, node))
    if not dataclasses.is_dataclass(node):
        return node
    changes = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        suffix = _NAMES.get((type(node), field.name))
        changes[field.name] = _renamed(value) if suffix is None else value + suffix
    return type(node)(**changes)

"""A whole program as one TIRx function: parameters, root loops, bodies."""

from __future__ import annotations

import math
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.ir import (
    Binding,
    Dimension,
    Extent,
    Group,
    Parallel,
    Program,
    Reduce,
    Statement,
    Store,
)
from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.walk import walk
from tvm_tilex.lowering.access import IndexSpace
from tvm_tilex.lowering.body import BodyLowering
from tvm_tilex.lowering.groups import GroupLowering, private_names
from tvm_tilex.lowering.reduce import lower_reduce
from tvm_tilex.lowering.sharing import SharedTileMaterialization, shared_values
from tvm_tilex.tirx import attrs, compat
from tvm_tilex.tirx.compat import IRBuilder, PrimFunc, tirx
from tvm_tilex.tirx.compat import builder as T
from tvm_tilex.tirx.register import register

__all__ = ["lower_program"]

_INT32_LIMIT = 2**31
_INT64_LIMIT = 2**63


def lower_program(
    program: Program,
    materialization: SharedTileMaterialization = SharedTileMaterialization.PRESERVE,
    *,
    noalias: bool = True,
) -> PrimFunc:
    """Lower a verified program to the reference TIRx function.

    Each root nest becomes one ``T.parallel`` loop over the row-major linear program number; the
    named coordinates are recovered by division. Buffers ask for no more alignment than their
    element, since views may begin anywhere. Indices are 32-bit unless an extent passes 2**31 or is
    dynamic. A dynamic extent is an int64 variable of the parameters' shapes, whose range is the
    attribute ``tilex.dimensions``: the launch is guarded by it.

    Raises
    ------
    LoweringError
        If a view is too large for 64-bit addresses, a statement stands outside every parallel
        nest (the front end captures none), or TVM's own check finds the result ill formed.
    """
    register()
    space = IndexSpace(_index_dtype(program))
    with IRBuilder() as ib, T.prim_func(s_tir=True):
        T.func_name(program.name)
        T.func_attr(_attributes(program, noalias))
        for dimension in dimensions_of(program.views):
            space.dimensions[dimension.name] = compat.name(dimension.name, T.int64())
        views = {view.name: _parameter(view, space) for view in program.views}
        shared = shared_values(program, materialization, noalias=noalias)
        body = BodyLowering(program, views, space, shared)
        for statement in program.body:
            if not isinstance(statement, Parallel):
                raise LoweringError(
                    f"{program.name}: a statement stands outside every parallel nest",
                    location=statement.location,
                )
            _root(body, statement)
    function = ib.get()
    if not tirx.analysis.verify_well_formed(function, assert_mode=False):
        raise LoweringError(f"{program.name}: the lowered function is not well formed")
    return function


def _attributes(program: Program, noalias: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"global_symbol": program.name, attrs.STAGE: "reference"}
    if noalias:
        found["tirx.noalias"] = True
    dynamic = dimensions_of(program.views)
    if dynamic:
        found[attrs.DIMENSIONS] = {d.name: [d.minimum, d.maximum] for d in dynamic}
    reductions = [s for s in walk(program) if isinstance(s, Reduce)]
    if any(s.policy.ordered or s.nan.value == "propagate" for s in reductions):
        found[attrs.PRECISE] = True
    return found


def _index_dtype(program: Program) -> str:
    for view in program.views:
        # A dynamic extent is no longer than memory; it may be 0.
        extents = [extent for extent in view.shape if isinstance(extent, int) and extent]
        if math.prod(extents) * view.dtype.bytes >= _INT64_LIMIT:
            raise LoweringError(
                f"{program.name}: {view.name!r} {view.shape} has 2**63 bytes or more"
            )
    if dimensions_of(program.views):
        return "int64"
    sizes = [math.prod(view.shape) for view in program.views]
    sizes += [
        math.prod(axis.extent for axis in s.axes) for s in walk(program) if isinstance(s, Parallel)
    ]
    return "int64" if max(sizes) >= _INT32_LIMIT else "int32"


def _parameter(view: Any, space: IndexSpace) -> Any:
    shape = tuple(map(space.extent, view.shape))
    return T.arg(view.name, T.buffer(shape, view.dtype.name, align=view.dtype.bytes))


def _root(body: BodyLowering, nest: Parallel) -> None:
    space = body.space
    annotations: dict[str, Any] = {attrs.PARALLEL: nest.nest}
    if nest.binding is not Binding.auto:
        annotations[attrs.BINDING] = nest.binding.value
    for group in (s for s in nest.body if isinstance(s, Group)):
        if any(isinstance(axis.extent, Dimension) for axis in group.axes):
            raise LoweringError(
                f"{body.program.name}: a cooperative group over a dynamic extent has no "
                "realization; compile it for a fixed one",
                location=group.location,
            )
        annotations[attrs.GROUP] = math.prod(axis.extent for axis in group.axes)
        private = private_names(group)
        if private:
            annotations[attrs.PRIVATE] = ",".join(private)
    count = space.product([axis.extent for axis in nest.axes])
    with T.parallel(space.integer(0), count, annotations=annotations) as program:
        _run(body, nest, compat.name("program", program))


def _nested(body: BodyLowering, nest: Parallel) -> None:
    space = body.space
    count = space.product([axis.extent for axis in nest.axes])
    annotations = {attrs.NESTED: nest.nest}
    with T.serial(space.integer(0), count, annotations=annotations) as program:
        _run(body, nest, compat.name("inner", program))


def _run(body: BodyLowering, nest: Parallel, program: Any) -> None:
    """Recover the named coordinates from the linear program number and lower the body."""
    space = body.space
    for dimension, axis in enumerate(nest.axes):
        # An empty nest runs no program; its coordinates must only be well formed.
        rest = space.product([_positive(inner.extent) for inner in nest.axes[dimension + 1 :]])
        coordinate = program
        if not isinstance(rest, tirx.IntImm) or rest.value > 1:
            coordinate = tirx.floordiv(program, rest)
        if dimension > 0:
            coordinate = tirx.floormod(coordinate, space.extent(_positive(axis.extent)))
        space.coordinates[nest.nest, dimension] = coordinate
        space.extents[nest.nest, dimension] = axis.extent
    for statement in nest.body:
        if isinstance(statement, Group):
            GroupLowering(body).lower(statement)
        else:
            _statement(body, statement)


def _positive(extent: Extent) -> Extent:
    return extent if isinstance(extent, Dimension) else max(1, extent)


def _statement(body: BodyLowering, statement: Statement) -> None:
    if isinstance(statement, Parallel):
        _nested(body, statement)
    elif isinstance(statement, Store):
        body.store(statement)
    elif isinstance(statement, Reduce):
        lower_reduce(body, statement)
    else:
        body.define(statement)

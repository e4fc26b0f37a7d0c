"""The loads and stores of a program as accesses of tensor views (:mod:`tvm_tilex.layout.views`).

    events: the programs of the enclosing nests, the iterations of pipelines
    local: the axes of the tile
    (n0.0, ...) x (tile axes) -> coordinates of the view, valid where they are inside it

A view's buffer is addressed by its own coordinates ``d0, d1, ...``, so that every fact holds for
whatever strides it is launched with; a dynamic dimension is a parameter of the maps. What is
proved of an access is the layout algebra's answer, found without the verifier's intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.index import (
    Dimension,
    Extent,
    Index,
    IndexBinary,
    IndexConstant,
    ProgramCoordinate,
)
from tvm_tilex.ir.program import Group, Load, Parallel, Pipeline, Program, Statement, Store, View
from tvm_tilex.ir.types import Axis as ProgramAxis
from tvm_tilex.ir.types import BoundsPolicy
from tvm_tilex.layout import Axis, Identity, IndexExpr, IndexSet, constant, coordinate, parameter
from tvm_tilex.layout import views as layout_views
from tvm_tilex.layout.expr import Expr, Parameter

__all__ = ["access_of", "accesses", "tensor_view"]

Nest = Parallel | Pipeline

_POLICIES = {
    # A checked access was proved inside when it was captured: it is assumed like a promise.
    BoundsPolicy.checked: layout_views.BoundsPolicy.assume,
    BoundsPolicy.zero: layout_views.BoundsPolicy.zero,
    BoundsPolicy.predicate: layout_views.BoundsPolicy.predicate,
    BoundsPolicy.assume: layout_views.BoundsPolicy.assume,
}


def tensor_view(view: View, bounds: BoundsPolicy | None = None) -> layout_views.TensorView:
    """Return the whole of a kernel parameter as a tensor view, under one policy."""
    axes = tuple(Axis(f"d{k}", _extent(extent)) for k, extent in enumerate(view.shape))
    space = IndexSet(axes)
    buffer = layout_views.Buffer(view.name, view.dtype.name, space)
    policy = _POLICIES[view.bounds if bounds is None else bounds]
    return layout_views.TensorView.of(buffer, Identity(space), policy)


def access_of(
    program: Program, statement: Load | Store, enclosing: tuple[Nest, ...]
) -> layout_views.Access:
    """Return what a load or store inside the nests and pipelines ``enclosing`` accesses.

    Raises
    ------
    LayoutError
        Where an index needs more than 64 bits for some program.
    """
    view = tensor_view(program.view(statement.view), statement.bounds)
    coordinates = {
        (nest.nest, number): axis for nest in enclosing for number, axis in enumerate(_axes(nest))
    }
    names = {place: f"n{place[0]}_{place[1]}" for place in coordinates}
    events = [Axis(names[place], _extent(axis.extent)) for place, axis in coordinates.items()]
    taken = {axis.name for axis in events} | {d.name for d in dimensions_of(program.views)}
    # A tile's axis may be called like an event or a dimension; an underscore tells them apart.
    local = {
        axis.name: axis.name + "_" * (axis.name in taken)
        for axis in statement.dimensions
        if axis is not None
    }
    tile = [
        Axis(local[axis.name], _extent(axis.extent))
        for axis in statement.dimensions
        if axis is not None
    ]
    values = []
    for origin, axis in zip(statement.origin, statement.dimensions, strict=True):
        start = _expression(origin, names)
        values.append(start if axis is None else start + coordinate(local[axis.name]))
    used = {d for origin in statement.origin for d in _dimensions(origin)}
    parameters = (*view.domain.parameters, *(_parameter(d) for d in used))
    domain = IndexSet((*events, *tile), (), tuple(dict.fromkeys(parameters)))
    where = IndexExpr(domain, view.domain, tuple(values))
    return layout_views.Access(view, where, tuple(names.values()))


def accesses(program: Program) -> Iterator[tuple[Load | Store, layout_views.Access]]:
    """Yield every load and store with its access, in program order."""
    for statement, enclosing in _walk(program.body, ()):
        yield statement, access_of(program, statement, enclosing)


def _walk(
    body: tuple[Statement, ...], enclosing: tuple[Nest, ...]
) -> Iterator[tuple[Load | Store, tuple[Nest, ...]]]:
    for statement in body:
        if isinstance(statement, Load | Store):
            yield statement, enclosing
        elif isinstance(statement, Parallel | Pipeline):
            yield from _walk(statement.body, (*enclosing, statement))
        elif isinstance(statement, Group):
            yield from _walk(statement.body, enclosing)


def _axes(nest: Nest) -> tuple[ProgramAxis, ...]:
    return (nest.axis,) if isinstance(nest, Pipeline) else nest.axes


def _parameter(dimension: Dimension) -> Parameter:
    return parameter(dimension.name, dimension.minimum, dimension.maximum)


def _extent(extent: Extent) -> int | Expr:
    return _parameter(extent) if isinstance(extent, Dimension) else extent


def _expression(index: Index, names: dict[tuple[int, int], str]) -> Expr:
    if isinstance(index, IndexConstant):
        return constant(index.value)
    if isinstance(index, Dimension):
        return _parameter(index)
    if isinstance(index, ProgramCoordinate):
        return coordinate(names[index.nest, index.dimension])
    assert isinstance(index, IndexBinary)
    lhs, rhs = _expression(index.lhs, names), _expression(index.rhs, names)
    if index.op in ("//", "%"):
        return lhs // rhs if index.op == "//" else lhs % rhs
    return {"+": lhs + rhs, "-": lhs - rhs, "*": lhs * rhs}[index.op]


def _dimensions(index: Index) -> Iterator[Dimension]:
    if isinstance(index, Dimension):
        yield index
    elif isinstance(index, IndexBinary):
        yield from _dimensions(index.lhs)
        yield from _dimensions(index.rhs)

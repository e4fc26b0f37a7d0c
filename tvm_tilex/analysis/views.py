"""Which local snapshots are nothing but immutable views of global memory.

A snapshot is a local buffer T with one allocation and one defining element domain

    for i in domain: T[i] = V(i)

where V only reads: loads of global buffers that the function never writes, casts, and lazy
selection over integer conditions. It may be replaced by V(j) at a load T[j] if every such load
follows the definition and has 0 <= j < extent proved on its path (:mod:`.guards`): outside the
extent T[j] would not be V(j). One load that is not proved keeps the snapshot whole. A repartition
is never a snapshot: its placement is what the source asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.buffers import BufferUses
from tvm_tilex.analysis.dimensions import Ranges
from tvm_tilex.analysis.guards import GuardedLoad, guarded_loads, statement_loads
from tvm_tilex.analysis.purity import loads
from tvm_tilex.analysis.structure import is_repartition, serial_nest
from tvm_tilex.tirx.compat import IF_THEN_ELSE, Call, Op, Range, TensorLoad, Var, tirx

__all__ = ["Snapshot", "find_snapshot"]

_INTEGER_OPERATIONS = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.EQ,
    tirx.NE,
    tirx.LT,
    tirx.LE,
    tirx.GT,
    tirx.GE,
    tirx.And,
    tirx.Or,
)


@dataclass(frozen=True)
class Snapshot:
    """A forwardable buffer: its definition at ``position`` in the body, variables and value."""

    buffer: Any
    position: int
    variables: tuple[Any, ...]
    value: Any

    def owned_loads(self, after: list[Any], root: Any) -> list[Any]:
        """Loads in the statements ``after`` at the coordinates of their own enclosing loops."""
        found = []
        outer = ((root.loop_var, _range(root)),)
        for statement in after:
            for guarded in statement_loads(statement, outer):
                load, loops = guarded.load, [var for var, _ in guarded.ranges[1:]]
                own = len(loops) == len(load.indices) and all(
                    index.same_as(var) for index, var in zip(load.indices, loops, strict=True)
                )
                if own and load.source.same_as(self.buffer):
                    found.append(load)
        return found


def find_snapshot(
    body: list[Any],
    position: int,
    uses: dict[Any, BufferUses],
    root: Any,
    dimensions: Ranges | None = None,
) -> Snapshot | str:
    """Examine statement ``position`` of a root loop's body; the text says why it stays.

    ``dimensions`` are the ranges of the function's dynamic extents.
    """
    loops, store = serial_nest(body[position])
    if store is None or store.buffer.scope() != "local":
        return "not the definition of a local buffer"
    buffer, variables = store.buffer, tuple(loop.loop_var for loop in loops)
    of = uses[buffer]
    if loops and is_repartition(loops[0]):
        return f"{buffer.name} is a repartition, which stays a value of its own"
    if not variables or of.allocations != 1 or len(of.stores) != 1 or of.escapes:
        return f"{buffer.name} is not defined by one domain of its own"
    if not _is_identity(store, loops):
        return f"{buffer.name} is not stored at its own coordinates"
    problem = _not_a_view(store.value, uses)
    if problem is not None:
        return f"{buffer.name}: {problem}"
    found = 0
    outer = ((root.loop_var, _range(root)),)
    try:
        for statement in body[position + 1 :]:
            for load in statement_loads(statement, outer):
                if not load.load.source.same_as(buffer):
                    continue
                found += 1
                if not _proved(load, dimensions):
                    return f"{buffer.name} is read at {load.load}, not proved in bounds there"
    except LookupError as error:
        return f"{buffer.name}: a {error} statement may read it"
    if found != len(of.loads):
        return f"{buffer.name} is read outside the statements that follow its definition"
    return Snapshot(buffer, position, variables, store.value)


def _proved(load: GuardedLoad, dimensions: Ranges | None) -> bool:
    return all(load.in_bounds(position, dimensions) for position in range(len(load.load.indices)))


def _range(loop: Any) -> Any:
    return Range.from_min_extent(loop.min, loop.extent)


def _is_identity(store: Any, loops: list[Any]) -> bool:
    shape = store.buffer.ty.shape
    return len(loops) == len(store.indices) == len(shape) and all(
        isinstance(index, Var)
        and index.same_as(loop.loop_var)
        and isinstance(extent, tirx.IntImm)
        and isinstance(loop.extent, tirx.IntImm)
        and isinstance(loop.min, tirx.IntImm)
        and loop.min.value == 0
        and extent.value == loop.extent.value
        for index, loop, extent in zip(store.indices, loops, shape, strict=True)
    )


def _not_a_view(value: Any, uses: dict[Any, BufferUses]) -> str | None:
    """Why ``value`` is more than a view of immutable global memory, or None."""
    for load in loads(value):
        buffer = load.source
        if buffer.scope() != "global":
            return f"it reads {buffer.name}, which is {buffer.scope()} memory"
        if uses[buffer].stores or uses[buffer].escapes:
            return f"it reads {buffer.name}, which the kernel writes"
    if len(list(guarded_loads(value))) != len(loads(value)):
        return "its paths are not known"
    return _not_free(value)


def _not_free(value: Any) -> str | None:
    if isinstance(value, (tirx.IntImm, tirx.FloatImm, Var)):
        return None
    if isinstance(value, TensorLoad):
        parts = tuple(value.indices)
    elif isinstance(value, tirx.Cast):
        parts = (value.value,)
    elif isinstance(value, tirx.Not):
        parts = (value.a,)
    elif isinstance(value, _INTEGER_OPERATIONS):
        if "float" in str(value.a.ty.dtype):
            return "it computes"
        parts = (value.a, value.b)
    elif isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == IF_THEN_ELSE:
        parts = tuple(value.args)
    else:
        return "it computes"
    return next(filter(None, map(_not_free, parts)), None)

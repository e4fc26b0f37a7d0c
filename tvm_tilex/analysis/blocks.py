"""Reads a function of blocks, as ``te`` and Relax's legalization write them, into plain nests.

    for i0, i1, k in T.grid(...):
        with T.sblock("x"):
            v0, v1, vk = T.axis.remap("SSR", [i0, i1, k])
            with T.init(): buffer[v0, v1] = identity
            buffer[v0, v1] = op(buffer[v0, v1], f(v0, v1, vk))

becomes a :class:`Nest` whose expressions are over the loop variables. Only what nobody has
scheduled is read: serial loops from 0, reductions of constant extent, one block of one store, no
predicate, every buffer stored by one nest. Anything else is a :class:`Foreign` with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.counts import Count, known_extent
from tvm_tilex.analysis.purity import impure_call, loads
from tvm_tilex.tirx.compat import PrimFunc, Var, s_tir, structural_map, tirx

__all__ = ["Blocks", "Foreign", "Loop", "Nest", "read_blocks"]


@dataclass(frozen=True)
class Foreign:
    """Why a function is not read."""

    reason: str


@dataclass(frozen=True)
class Loop:
    """One loop of a nest; ``reduces`` where its block variable is a reduction."""

    variable: Any
    extent: Any  # an int, or a variable that is known at launch
    reduces: bool

    @property
    def unit(self) -> bool:
        """Whether the loop certainly runs once."""
        return isinstance(self.extent, int) and self.extent == 1


@dataclass(frozen=True)
class Nest:
    """One store under its loops; ``initial`` is the value of a reduction before its first step."""

    name: str
    loops: tuple[Loop, ...]
    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    initial: Any | None

    @property
    def spatial(self) -> tuple[Loop, ...]:
        """The loops over independent elements."""
        return tuple(loop for loop in self.loops if not loop.reduces)

    @property
    def reduced(self) -> tuple[Loop, ...]:
        """The loops that are summed over."""
        return tuple(loop for loop in self.loops if loop.reduces)

    @property
    def count(self) -> Count:
        """Number of stored elements."""
        return Count.of(loop.extent for loop in self.spatial)


@dataclass(frozen=True)
class Blocks:
    """A function as nests in order, with the buffers that it allocates itself."""

    nests: tuple[Nest, ...]
    allocated: tuple[Any, ...]
    index_dtype: str

    def is_local(self, buffer: Any) -> bool:
        """Whether the function allocates ``buffer``."""
        return any(buffer.same_as(own) for own in self.allocated)


def read_blocks(function: PrimFunc) -> Blocks | Foreign:
    """Read a function, or say what in it is not an unscheduled nest of one block."""
    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return Foreign("it has no root block")
    block = root.block
    if len(block.iter_vars) or len(block.match_buffers) or block.init is not None:
        return Foreign("its root block is not plain")
    statements = block.body.seq if isinstance(block.body, tirx.SeqStmt) else (block.body,)
    nests: list[Nest] = []
    for statement in statements:
        nest = _read_nest(statement)
        if isinstance(nest, Foreign):
            return nest
        if any(nest.buffer.same_as(other.buffer) for other in nests):
            return Foreign(f"{nest.buffer.name} is stored by two blocks")
        nests.append(nest)
    problem = _early_read(nests) or _oversized(nests)
    if problem is not None:
        return Foreign(problem)
    dtypes = {str(loop.variable.ty.dtype) for nest in nests for loop in nest.loops}
    if len(dtypes) > 1:
        return Foreign("its loops have different integer types")
    return Blocks(tuple(nests), tuple(block.alloc_buffers), dtypes.pop() if dtypes else "int32")


def _early_read(nests: list[Nest]) -> str | None:
    """A read of a buffer before the nest that stores it, or None.

    Without one, a value that is computed later than in the source reads the same elements.
    """
    for position, nest in enumerate(nests):
        for load in loads(nest.value):
            stored = [p for p, n in enumerate(nests) if n.buffer.same_as(load.source)]
            own_state = bool(nest.reduced) and stored == [position]
            if stored and stored[0] >= position and not own_state:
                return f"block {nest.name} reads {load.source.name}, which is stored later"
    return None


def _oversized(nests: list[Nest]) -> str | None:
    for nest in nests:
        for loop in nest.loops:
            limit = 2 ** (int(str(loop.variable.ty.dtype).removeprefix("int")) - 1)
            if Count.of(other.extent for other in nest.loops).factor >= limit:
                return f"block {nest.name} has more elements than its index type"
    return None


def _read_nest(statement: Any) -> Nest | Foreign:
    loops: list[Any] = []
    while isinstance(statement, tirx.For):
        problem = _loop_problem(statement)
        if problem is not None:
            return Foreign(problem)
        loops.append(statement)
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        return Foreign(f"a {type(statement).__name__} stands where a block is expected")
    block = statement.block
    name = str(block.name_hint)
    if not (isinstance(statement.predicate, tirx.IntImm) and statement.predicate.value):
        return Foreign(f"block {name} has a predicate")
    if len(block.alloc_buffers) or len(block.match_buffers):
        return Foreign(f"block {name} allocates or renames memory")
    if not isinstance(block.body, tirx.BufferStore):
        return Foreign(f"block {name} is not one store")
    return _nest(name, loops, statement)


def _loop_problem(loop: Any) -> str | None:
    name = loop.loop_var.name
    if loop.kind != tirx.ForKind.SERIAL or loop.annotations:
        return f"loop {name} is scheduled already"
    if known_extent(loop.extent) is None:
        return f"the extent {loop.extent} of loop {name} is no integer or variable"
    if str(loop.extent.ty.dtype) != str(loop.loop_var.ty.dtype):
        return f"the extent of loop {name} has another integer type than its variable"
    from_zero = isinstance(loop.min, tirx.IntImm) and loop.min.value == 0
    unit = loop.step is None or getattr(loop.step, "value", 0) == 1
    return None if from_zero and unit else f"loop {name} does not run from 0 by 1"


def _nest(name: str, loops: list[Any], realize: Any) -> Nest | Foreign:
    block, store = realize.block, realize.block.body
    kinds: list[bool | None] = [None] * len(loops)
    for variable, value in zip(block.iter_vars, realize.iter_values, strict=True):
        kind = _KINDS.get(int(variable.iter_type))
        if kind is None:
            return Foreign(f"block {name} has a variable that is neither spatial nor reduced")
        if isinstance(value, tirx.IntImm):
            continue
        at = [i for i, loop in enumerate(loops) if value.same_as(loop.loop_var)]
        if not at or kinds[at[0]] is not None:
            return Foreign(f"block {name} binds {variable.var.name} to {value}, not to one loop")
        kinds[at[0]] = kind
    for loop, kind in zip(loops, kinds, strict=True):
        if kind is None and known_extent(loop.extent) != 1:
            return Foreign(f"loop {loop.loop_var.name} repeats block {name}")
        if kind and not isinstance(known_extent(loop.extent), int):
            return Foreign(f"the reduced extent {loop.extent} of block {name} is symbolic")
    bound = {
        variable.var: value
        for variable, value in zip(block.iter_vars, realize.iter_values, strict=True)
    }

    def over_loops(node: Any) -> Any:
        return structural_map(node, (Var, lambda v: _replaced(v, bound)), order="post")

    parts = [store.value, *store.indices]
    initial = None
    if block.init is not None:
        if not isinstance(block.init, tirx.BufferStore):
            return Foreign(f"block {name} is not initialized by one store")
        initial = over_loops(block.init.value)
        parts.append(block.init.value)
    for part in parts:
        impure = impure_call(part)
        if impure is not None:
            return Foreign(f"block {name} calls {impure}, which is not known to be pure")
    return Nest(
        name,
        tuple(
            Loop(loop.loop_var, known_extent(loop.extent), bool(kind))
            for loop, kind in zip(loops, kinds, strict=True)
        ),
        store.buffer,
        tuple(map(over_loops, store.indices)),
        over_loops(store.value),
        initial,
    )


def _replaced(variable: Any, bound: dict[Any, Any]) -> Any:
    for old, new in bound.items():
        if variable.same_as(old):
            return new
    return variable


_KINDS = {0: False, 2: True}  # tirx.IterVar.DataPar, CommReduce

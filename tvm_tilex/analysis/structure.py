"""Reads the body of a root loop as a row program: reductions, element domains, replicated state.

    root loop over programs
      Allocate      local buffer
      Replicated    store to a local scalar (or of a fixed element): every worker does it
      ReductionLoop a marked loop with a canonical update
    OrderedLoop   a marked loop whose policy fixes the order: every worker runs it whole
      Domain        perfectly nested loops over one (possibly guarded) store
      Enclosing     a static serial loop around reductions

Anything else is declined with the row of the admission table it breaks. Nothing here trusts a
marker: a marked loop is matched by :mod:`tvm_tilex.analysis.reduction`, and an element domain is
recognized by its shape alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.dimensions import Ranges, extent_range
from tvm_tilex.analysis.reduction import ReductionUpdate, match_update
from tvm_tilex.analysis.statements import Decline, foreign_statement, other_statement
from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import structural_walk, tirx

__all__ = [
    "Allocate",
    "Domain",
    "Enclosing",
    "Node",
    "OrderedLoop",
    "ReductionLoop",
    "Replicated",
    "RowProgram",
    "is_repartition",
    "nodes",
    "parts_of",
    "read_row_program",
    "serial_nest",
    "statements_of",
]


@dataclass(frozen=True)
class Allocate:
    """A buffer allocation."""

    statement: Any

    @property
    def buffer(self) -> Any:
        """The allocated buffer."""
        return self.statement.buffer


@dataclass(frozen=True)
class Replicated:
    """A store outside any element domain, to local memory: the same in every worker."""

    store: Any


@dataclass(frozen=True)
class ReductionLoop:
    """A marked reduction with its recognized update."""

    update: ReductionUpdate


@dataclass(frozen=True)
class OrderedLoop:
    """A marked loop whose policy fixes the order; it stores to local memory only.

    Keeping it serial needs no permission, so nothing about its operation is assumed.
    """

    loop: Any
    stores: tuple[Any, ...]
    conditions: tuple[Any, ...]

    @property
    def policy(self) -> str:
        """The policy that the marker states."""
        return str(attrs.annotation(self.loop, attrs.POLICY))


@dataclass(frozen=True)
class Domain:
    """Independent elements: ``loops`` from the outside in, one store, its guard or None."""

    loops: tuple[Any, ...]
    store: Any
    condition: Any | None

    @property
    def extents(self) -> tuple[int, ...]:
        """Loop extents from the outside in."""
        return tuple(int(loop.extent.value) for loop in self.loops)

    @property
    def repartition(self) -> bool:
        """Whether the source asks for a placement of its own here."""
        return is_repartition(self.loops[0]) if self.loops else False

    @property
    def count(self) -> int:
        """Number of elements; 1 where there is no loop."""
        return math.prod(self.extents)

    def coordinate(self, dtype: str) -> Any:
        """The row-major linear element coordinate over the loops' variables."""
        coordinate: Any = tirx.IntImm(dtype, 0)
        for loop in self.loops:
            extent = tirx.IntImm(dtype, int(loop.extent.value))
            coordinate = coordinate * extent + loop.loop_var
        return coordinate


@dataclass(frozen=True)
class Enclosing:
    """A static serial loop whose body holds reductions."""

    loop: Any
    body: tuple[Node, ...]

    @property
    def unit(self) -> bool:
        """Whether the loop runs exactly once, from a constant minimum with unit step."""
        return int(self.loop.extent.value) == 1


Node = Allocate | Replicated | ReductionLoop | OrderedLoop | Domain | Enclosing


@dataclass(frozen=True)
class RowProgram:
    """A root loop over independent programs and what each of them does.

    There are ``least_programs`` to ``programs`` of them: a count that is known at launch.
    """

    root: Any
    least_programs: int
    programs: int
    body: tuple[Node, ...]

    @property
    def index_dtype(self) -> str:
        """Integer type of the root's loop variable."""
        return str(self.root.loop_var.ty.dtype)


def is_repartition(loop: Any) -> bool:
    """Whether a loop is marked as the outermost of a repartition's domain."""
    return attrs.annotation(loop, attrs.REPARTITION) is not None


def nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    """Every node, those of an enclosing loop after it."""
    for node in body:
        yield node
        if isinstance(node, Enclosing):
            yield from nodes(node.body)


def parts_of(node: Node) -> tuple[Any, ...]:
    """The statements and expressions of a node that may load or store; none of an allocation."""
    if isinstance(node, Domain):
        return (node.store,) if node.condition is None else (node.store, node.condition)
    if isinstance(node, ReductionLoop):
        return (node.update.loop,)
    if isinstance(node, Replicated):
        return (node.store,)
    return (node.loop,) if isinstance(node, Enclosing | OrderedLoop) else ()


def serial_nest(statement: Any) -> tuple[list[Any], Any]:
    """Perfectly nested serial loops, and the store that they repeat; None for anything else."""
    loops: list[Any] = []
    while isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.SERIAL:
        loops.append(statement)
        statement = statement.body
    return loops, statement if isinstance(statement, tirx.BufferStore) else None


def statements_of(body: Any) -> list[Any]:
    """The statements of a sequence, nested sequences flattened."""
    if not isinstance(body, tirx.SeqStmt):
        return [body]
    return [inner for statement in body.seq for inner in statements_of(statement)]


def read_row_program(root: Any, ranges: Ranges | None = None) -> RowProgram | Decline:
    """Read a root loop, or say which rule its first unreadable statement breaks.

    ``ranges`` are those of the function's dynamic extents.
    """
    counted = extent_range(root.extent, ranges or {})
    if counted is None:
        return Decline("execution nesting", f"the number of programs {root.extent} has no range")
    body = _read(root.body)
    if isinstance(body, Decline):
        return body
    return RowProgram(root, *counted, body)


def _read(body: Any) -> tuple[Node, ...] | Decline:
    found: list[Node] = []
    for statement in statements_of(body):
        node = _read_statement(statement)
        if isinstance(node, Decline):
            return node
        found.append(node)
    return tuple(found)


def _read_statement(statement: Any) -> Node | Decline:
    if isinstance(statement, tirx.AllocBuffer):
        return Allocate(statement)
    if isinstance(statement, tirx.For):
        return _read_loop(statement)
    if isinstance(statement, tirx.BufferStore):
        if statement.buffer.scope() == "local":
            return Replicated(statement)
        return Domain((), statement, None)
    if isinstance(statement, tirx.IfThenElse):
        return _read_condition(statement)
    return other_statement(statement)


def _read_condition(statement: Any) -> Domain | Decline:
    if _reductions_in(statement):
        return Decline("control", "a reduction stands under a condition")
    guarded = _guarded_store(statement)
    if guarded is None:
        foreign = foreign_statement(statement)
        return foreign or Decline("control", "a condition guards more than one store")
    condition, store = guarded
    if store.buffer.scope() == "local":
        reason = f"{store.buffer.name} is stored conditionally"
        return Decline("distributed private storage", reason)
    return Domain((), store, condition)


def _read_loop(loop: Any) -> Node | Decline:
    if _is_nested(loop):
        return Decline("execution nesting", "a parallel nest stands inside the program")
    if attrs.annotation(loop, attrs.REDUCTION) is not None:
        if attrs.annotation(loop, attrs.POLICY) in _ORDERED:
            return _read_ordered(loop)
        update = match_update(loop)
        return update if isinstance(update, Decline) else ReductionLoop(update)
    encloses = _reductions_in(loop.body)
    if not _static(loop, from_zero=not encloses):
        return Decline("control", f"loop {loop.loop_var.name} is not static, serial and unit-step")
    if encloses:
        body = _read(loop.body)
        return body if isinstance(body, Decline) else Enclosing(loop, body)
    return _read_domain(loop)


def _read_ordered(loop: Any) -> OrderedLoop | Decline:
    stores: list[Any] = []
    conditions: list[Any] = []
    problem = _collect(loop, stores, conditions)
    return problem or OrderedLoop(loop, tuple(stores), tuple(conditions))


def _collect(statement: Any, stores: list[Any], conditions: list[Any]) -> Decline | None:
    """Gather the stores under static loops and conditions, or say what else stands there."""
    if isinstance(statement, tirx.SeqStmt):
        found = (_collect(part, stores, conditions) for part in statement.seq)
        return next(filter(None, found), None)
    if isinstance(statement, tirx.For):
        if not _static(statement):
            return Decline("control", f"loop {statement.loop_var.name} is not static")
        return _collect(statement.body, stores, conditions)
    if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
        conditions.append(statement.condition)
        return _collect(statement.then_case, stores, conditions)
    if not isinstance(statement, tirx.BufferStore):
        return other_statement(statement)
    if statement.buffer.scope() != "local":
        return Decline("global effects", f"{statement.buffer.name} is stored inside a reduction")
    stores.append(statement)
    return None


def _read_domain(loop: Any) -> Domain | Decline:
    loops = [loop]
    while isinstance(loops[-1].body, tirx.For):
        if _is_nested(loops[-1].body):
            return Decline("execution nesting", "a parallel nest stands inside the program")
        if not _static(loops[-1].body):
            return Decline("control", f"loop {loops[-1].body.loop_var.name} is not static")
        loops.append(loops[-1].body)
    guarded = _guarded_store(loops[-1].body)
    if guarded is None:
        reason = f"the body of loop {loops[-1].loop_var.name} is not one store"
        return foreign_statement(loops[-1].body) or Decline("global effects", reason)
    condition, store = guarded
    return Domain(tuple(loops), store, condition)


_ORDERED = tuple(policy.value for policy in ReductionPolicy if policy.ordered)


def _guarded_store(statement: Any) -> tuple[Any | None, Any] | None:
    """(guard, store) of a store that is possibly under one condition."""
    if isinstance(statement, tirx.BufferStore):
        return None, statement
    if not isinstance(statement, tirx.IfThenElse) or statement.else_case is not None:
        return None
    inner = _guarded_store(statement.then_case)
    if inner is None or inner[0] is not None:
        return None
    return statement.condition, inner[1]


def _is_nested(loop: Any) -> bool:
    kinds = (tirx.ForKind.PARALLEL, tirx.ForKind.THREAD_BINDING)
    return attrs.annotation(loop, attrs.NESTED) is not None or loop.kind in kinds


def _static(loop: Any, *, from_zero: bool = True) -> bool:
    return bool(
        loop.kind == tirx.ForKind.SERIAL
        and isinstance(loop.extent, tirx.IntImm)
        and loop.extent.value > 0
        and isinstance(loop.min, tirx.IntImm)
        and (loop.min.value == 0 or not from_zero)
        and (loop.step is None or getattr(loop.step, "value", 0) == 1)
    )


def _reductions_in(node: Any) -> bool:
    found: list[Any] = []

    def visit(loop: Any) -> None:
        if attrs.annotation(loop, attrs.REDUCTION) is not None:
            found.append(loop)

    structural_walk(node, (tirx.For, visit))
    return bool(found)

"""Traversal of a program: statements in order, what they define, use and address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeGuard

from tvm_tilex.ir.index import Index, IndexBinary
from tvm_tilex.ir.program import (
    Constant,
    Coordinate,
    Definition,
    Dot,
    Elementwise,
    Full,
    Gather,
    Group,
    Load,
    Operand,
    Parallel,
    Pipeline,
    Program,
    Read,
    Reduce,
    Repartition,
    Statement,
    Store,
    Value,
    Write,
)

__all__ = [
    "defined",
    "definitions",
    "indices_of",
    "is_definition",
    "operands_of",
    "result_of",
    "subexpressions",
    "users",
    "values_used",
    "walk",
    "walk_scoped",
]


_DEFINITIONS = (Load, Coordinate, Elementwise, Reduce, Gather, Repartition, Full, Dot, Read)


def walk(source: Program | Iterable[Statement]) -> Iterator[Statement]:
    """Yield every statement in program order, a nest before its body."""
    for statement, _ in walk_scoped(source):
        yield statement


def walk_scoped(
    source: Program | Iterable[Statement], enclosing: tuple[Parallel, ...] = ()
) -> Iterator[tuple[Statement, tuple[Parallel, ...]]]:
    """Yield every statement with its enclosing nests, outermost first, in program order."""
    for statement in source.body if isinstance(source, Program) else source:
        yield statement, enclosing
        if isinstance(statement, Parallel):
            yield from walk_scoped(statement.body, (*enclosing, statement))
        elif isinstance(statement, Group | Pipeline):
            yield from walk_scoped(statement.body, enclosing)


def is_definition(statement: Statement) -> TypeGuard[Definition]:
    """Whether a statement defines one value by itself (a pipeline defines several)."""
    return isinstance(statement, _DEFINITIONS)


def result_of(statement: Statement) -> Value | None:
    """Return the value that a definition defines; None for any other statement."""
    return statement.result if is_definition(statement) else None


def defined(statement: Statement) -> tuple[Value, ...]:
    """Every value that a statement introduces: a pipeline its state and its results."""
    if isinstance(statement, Pipeline):
        return (*statement.state, *statement.results)
    result = result_of(statement)
    return () if result is None else (result,)


def operands_of(statement: Statement) -> tuple[Operand, ...]:
    """Values and constants that a statement reads, in textual order, repeats included."""
    if isinstance(statement, Elementwise):
        return statement.operands
    if isinstance(statement, Reduce | Repartition):
        return (statement.source,)
    if isinstance(statement, Gather):
        return (statement.source, statement.index)
    if isinstance(statement, Store | Write):
        return (statement.value,)
    if isinstance(statement, Dot):
        return (statement.a, statement.b, statement.accumulator)
    if isinstance(statement, Pipeline):
        return (*statement.initial, *statement.next)
    return ()


def values_used(statement: Statement) -> tuple[Value, ...]:
    """Operands of a statement that are values, in textual order, repeats included."""
    return tuple(o for o in operands_of(statement) if not isinstance(o, Constant))


def indices_of(statement: Statement) -> tuple[Index, ...]:
    """Scalar index expressions of a statement: origin of an access, offset, end of a pipeline."""
    if isinstance(statement, Load | Store):
        return statement.origin
    if isinstance(statement, Coordinate):
        return (statement.offset,)
    if isinstance(statement, Pipeline) and statement.stop is not None:
        return (statement.stop,)
    return ()


def subexpressions(index: Index) -> Iterator[Index]:
    """Yield ``index`` and every expression inside it, operands before the operation."""
    if isinstance(index, IndexBinary):
        yield from subexpressions(index.lhs)
        yield from subexpressions(index.rhs)
    yield index


def definitions(program: Program) -> dict[int, Definition]:
    """Map each value number to the statement that defines it, in program order.

    The state and the results of a pipeline have no definition of their own.
    """
    return {s.result.number: s for s in walk(program) if is_definition(s)}


def users(program: Program) -> dict[int, tuple[Statement, ...]]:
    """Map each defined value number to the statements that read it, in program order.

    A statement that reads a value twice is listed once; a value that nothing reads maps to ().
    """
    found: dict[int, tuple[Statement, ...]] = {
        value.number: () for statement in walk(program) for value in defined(statement)
    }
    for statement in walk(program):
        for number in dict.fromkeys(value.number for value in values_used(statement)):
            found[number] = (*found.get(number, ()), statement)
    return found

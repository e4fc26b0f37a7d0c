"""Traversal of a program: statements in order, what they define, use and address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvm_tilex.ir.index import Index, IndexBinary
from tvm_tilex.ir.program import (
    Constant,
    Coordinate,
    Definition,
    Elementwise,
    Gather,
    Load,
    Operand,
    Parallel,
    Program,
    Reduce,
    Repartition,
    Statement,
    Store,
    Value,
)

__all__ = [
    "definitions",
    "indices_of",
    "operands_of",
    "result_of",
    "subexpressions",
    "users",
    "values_used",
    "walk",
    "walk_scoped",
]


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


def result_of(statement: Statement) -> Value | None:
    """Return the value that a statement defines; None for a store or a nest."""
    return None if isinstance(statement, Store | Parallel) else statement.result


def operands_of(statement: Statement) -> tuple[Operand, ...]:
    """Values and constants that a statement reads, in textual order, repeats included."""
    if isinstance(statement, Elementwise):
        return statement.operands
    if isinstance(statement, Reduce | Repartition):
        return (statement.source,)
    if isinstance(statement, Gather):
        return (statement.source, statement.index)
    if isinstance(statement, Store):
        return (statement.value,)
    return ()


def values_used(statement: Statement) -> tuple[Value, ...]:
    """Operands of a statement that are values, in textual order, repeats included."""
    return tuple(o for o in operands_of(statement) if not isinstance(o, Constant))


def indices_of(statement: Statement) -> tuple[Index, ...]:
    """Scalar index expressions of a statement: an access' origin or a coordinate's offset."""
    if isinstance(statement, Load | Store):
        return statement.origin
    if isinstance(statement, Coordinate):
        return (statement.offset,)
    return ()


def subexpressions(index: Index) -> Iterator[Index]:
    """Yield ``index`` and every expression inside it, operands before the operation."""
    if isinstance(index, IndexBinary):
        yield from subexpressions(index.lhs)
        yield from subexpressions(index.rhs)
    yield index


def definitions(program: Program) -> dict[int, Definition]:
    """Map each value number to the statement that defines it, in program order."""
    return {
        statement.result.number: statement
        for statement in walk(program)
        if not isinstance(statement, Store | Parallel)
    }


def users(program: Program) -> dict[int, tuple[Statement, ...]]:
    """Map each defined value number to the statements that read it, in program order.

    A statement that reads a value twice is listed once; a value that nothing reads maps to ().
    """
    found: dict[int, tuple[Statement, ...]] = {number: () for number in definitions(program)}
    for statement in walk(program):
        for number in dict.fromkeys(value.number for value in values_used(statement)):
            found[number] = (*found.get(number, ()), statement)
    return found

"""The stable text form of TileIR; :mod:`tvm_tilex.ir.parse` reads it back to an equal program.

The text names everything that takes part in equality and nothing else (no source locations), so
two verified programs are equal exactly when their texts are, except that the text also tells
-0.0 from 0.0. Defaults (``checked`` bounds, ``unordered_tree``, the ``target`` NaN policy, the
``auto`` binding) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.index import Index, IndexBinary
from tvm_tilex.ir.ops import NanPolicy, ReductionPolicy
from tvm_tilex.ir.program import (
    Binding,
    Constant,
    Coordinate,
    Definition,
    Dot,
    Elementwise,
    Full,
    Gather,
    Group,
    Load,
    Memory,
    Operand,
    Parallel,
    Pipeline,
    Program,
    Read,
    Repartition,
    Statement,
    Store,
    Value,
    View,
    Write,
)
from tvm_tilex.ir.types import Axis, BoundsPolicy

__all__ = ["format_program", "format_statement"]


def format_program(program: Program) -> str:
    """Text of a whole program, ending with a newline."""
    views = ", ".join(map(_view, program.views))
    ranges = ", ".join(f"{d.name}: {d.range}" for d in dimensions_of(program.views))
    dynamic = f" dynamic ({ranges})" if ranges else ""
    lines = [f"kernel {program.name}({views}){dynamic} {{"]
    lines.extend(_body(program.body, "  "))
    lines.append("}")
    return "\n".join(lines) + "\n"


def format_statement(statement: Statement) -> str:
    """One line of text for a statement; one with a body gives its head alone."""
    if isinstance(statement, Parallel):
        head = f"parallel n{statement.nest}({_join(statement.axes)})"
        return _with(head, (statement.binding.value, statement.binding is not Binding.auto))
    if isinstance(statement, Group):
        return f"group({_join(statement.axes)})"
    if isinstance(statement, Pipeline):
        return _pipeline(statement)
    if isinstance(statement, Memory):
        return f"memory m{statement.number}: {statement.type} {statement.scope.value}"
    if isinstance(statement, Write):
        return f"write m{statement.number} = {_operand(statement.value)}"
    if isinstance(statement, Store):
        text = f"store {_access(statement)} = {_operand(statement.value)}"
        return _with(text, (statement.bounds.value, _departs(statement.bounds)))
    return f"{statement.result}: {statement.result.type} = {_expression(statement)}"


def _body(body: tuple[Statement, ...], indent: str) -> Iterable[str]:
    for statement in body:
        if isinstance(statement, Parallel | Group | Pipeline):
            yield f"{indent}{format_statement(statement)} {{"
            yield from _body(statement.body, indent + "  ")
            if isinstance(statement, Pipeline):
                yield _step(statement, indent + "  ")
            yield f"{indent}}}{_results(statement)}"
        else:
            yield indent + format_statement(statement)


def _pipeline(statement: Pipeline) -> str:
    head = f"pipeline n{statement.nest}({statement.axis})"
    if statement.stop is not None:
        head += f" stop {statement.stop}"
    pairs = zip(statement.state, statement.initial, strict=True)
    state = ", ".join(f"{_typed(value)} = {_operand(first)}" for value, first in pairs)
    return f"{head} with {state}" if state else head


def _step(statement: Pipeline, indent: str) -> str:
    return f"{indent}next {', '.join(map(_operand, statement.next))}".rstrip()


def _results(statement: Statement) -> str:
    if not isinstance(statement, Pipeline) or not statement.results:
        return ""
    return f" -> {', '.join(map(_typed, statement.results))}"


def _typed(value: Value) -> str:
    return f"{value}: {value.type}"


def _expression(statement: Definition) -> str:
    if isinstance(statement, Full):
        return f"full {_literal(statement.value)}"
    if isinstance(statement, Read):
        return f"read m{statement.number}"
    if isinstance(statement, Dot):
        product = f"{statement.a}, {statement.b} over {statement.axis.name}"
        return f"dot {product} plus {statement.accumulator}"
    if isinstance(statement, Load):
        text = f"load {_access(statement)}"
        return _with(text, (statement.bounds.value, _departs(statement.bounds)))
    if isinstance(statement, Coordinate):
        return f"coordinate({_dimension(statement.axis)}) + {statement.offset}"
    if isinstance(statement, Elementwise):
        return f"{statement.op.value} {', '.join(map(_operand, statement.operands))}"
    if isinstance(statement, Gather):
        fill = _literal(statement.fill)
        return (
            f"gather {statement.source} over {statement.axis.name} at {statement.index} fill {fill}"
        )
    if isinstance(statement, Repartition):
        return f"repartition {statement.source}"
    return _with(
        f"reduce {statement.combiner.value} {statement.source} over {statement.axis.name}",
        (statement.policy.value, statement.policy is not ReductionPolicy.unordered_tree),
        (statement.nan.value, statement.nan is not NanPolicy.target),
    )


def _view(view: View) -> str:
    shape = ", ".join(map(str, view.shape))
    text = f"{view.name}: {view.access.value} {view.dtype}[{shape}]"
    return _with(text, (view.bounds.value, _departs(view.bounds)))


def _access(statement: Load | Store) -> str:
    origin = ", ".join(map(_index, statement.origin))
    return f"{statement.view}[{origin}]({', '.join(map(_dimension, statement.dimensions))})"


def _index(index: Index) -> str:
    """Return an index between brackets or commas, where the outermost parentheses say nothing."""
    text = str(index)
    return text[1:-1] if isinstance(index, IndexBinary) else text


def _dimension(axis: Axis | None) -> str:
    return "_" if axis is None else str(axis)


def _operand(operand: Operand) -> str:
    if isinstance(operand, Constant):
        return f"{operand.dtype}({_literal(operand.value)})"
    return str(operand)


def _literal(value: bool | int | float) -> str:
    """Return the shortest text that reads back to the same value and Python type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return float.__repr__(float(value))


def _departs(bounds: BoundsPolicy) -> bool:
    return bounds is not BoundsPolicy.checked


def _join(axes: Iterable[Axis]) -> str:
    return ", ".join(map(str, axes))


def _with(text: str, *words: tuple[str, bool]) -> str:
    """Append the words whose flag is set."""
    return " ".join([text, *(word for word, present in words if present)])

"""Path-sensitive bounds of lazily guarded accesses.

Obligation, for an access ``T[i]`` that is reached only under the predicates G of the enclosing
lazy selections, inside loops with known ranges::

    for all loop coordinates:  G  implies  0 <= i < extent

It is discharged by the loop ranges alone, by finding the inequality among G's conjuncts, or by
deriving it from G. Loads are opaque: two structurally equal loads of memory that nothing writes
are one unknown integer. A failed derivation means unknown, never false.

Two kinds of predicates are not used: those over floating-point numbers, because the prover's order
is total (neither ``x < 0`` nor ``x >= 0`` holds for a NaN), and conditions of a statement that
read memory which the statement itself stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.dimensions import Ranges
from tvm_tilex.tirx.compat import (
    IF_THEN_ELSE,
    Analyzer,
    Call,
    Op,
    Range,
    TensorLoad,
    Var,
    structural_equal,
    structural_map,
    structural_walk,
    tirx,
)

__all__ = [
    "GuardedLoad",
    "guarded_loads",
    "index_in_bounds",
    "is_data_dependent",
    "statement_loads",
]


@dataclass(frozen=True)
class GuardedLoad:
    """A load with its path: predicates of lazy selections and conditions, and loop ranges."""

    load: Any
    predicates: tuple[Any, ...]
    ranges: tuple[tuple[Any, Any], ...] = ()

    def in_bounds(self, position: int, dimensions: Ranges | None = None) -> bool:
        """Whether index ``position`` is proved inside its extent on this path.

        ``dimensions`` are the ranges of dynamic extents.
        """
        extent = self.load.source.ty.shape[position]
        index = self.load.indices[position]
        ranges = dict(self.ranges)
        for var, (least, greatest) in (dimensions or {}).items():
            first, count = (
                tirx.IntImm(str(var.ty.dtype), n) for n in (least, greatest - least + 1)
            )
            ranges[var] = Range.from_min_extent(first, count)
        return index_in_bounds(index, extent, self.predicates, ranges)


def guarded_loads(expression: Any) -> Iterator[GuardedLoad]:
    """Every load in ``expression`` with its path; conditions are evaluated unguarded."""
    yield from _visit(expression, ())


def statement_loads(
    statement: Any,
    ranges: tuple[tuple[Any, Any], ...] = (),
    predicates: tuple[Any, ...] = (),
) -> Iterator[GuardedLoad]:
    """Every load under a statement of loops, sequences, conditions and stores, with its path.

    Raises
    ------
    LookupError
        At a statement of any other kind: its loads are not known.
    """
    if isinstance(statement, tirx.For):
        bounds = Range.from_min_extent(statement.min, statement.extent)
        inner = (*ranges, (statement.loop_var, bounds))
        yield from statement_loads(statement.body, inner, predicates)
        return
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from statement_loads(part, ranges, predicates)
        return
    if isinstance(statement, tirx.IfThenElse):
        yield from _placed(statement.condition, ranges, predicates)
        lasting = not _stores_what_it_reads(statement)
        taken = (*predicates, statement.condition) if lasting else predicates
        yield from statement_loads(statement.then_case, ranges, taken)
        if statement.else_case is not None:
            refused = (*predicates, tirx.Not(statement.condition)) if lasting else predicates
            yield from statement_loads(statement.else_case, ranges, refused)
        return
    if isinstance(statement, tirx.BufferStore):
        for expression in (*statement.indices, statement.value):
            yield from _placed(expression, ranges, predicates)
        return
    if not isinstance(statement, tirx.AllocBuffer):
        raise LookupError(type(statement).__name__)


def _stores_what_it_reads(statement: Any) -> bool:
    """Whether a conditional statement may change its own condition."""
    stored: list[Any] = []
    structural_walk(statement, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    return any(
        load.load.source.same_as(buffer)
        for load in guarded_loads(statement.condition)
        for buffer in stored
    )


def _placed(
    expression: Any, ranges: tuple[tuple[Any, Any], ...], predicates: tuple[Any, ...]
) -> Iterator[GuardedLoad]:
    for found in _visit(expression, predicates):
        yield GuardedLoad(found.load, found.predicates, ranges)


def _visit(node: Any, path: tuple[Any, ...]) -> Iterator[GuardedLoad]:
    if isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == IF_THEN_ELSE:
        condition, then, otherwise = node.args
        yield from _visit(condition, path)
        yield from _visit(then, (*path, condition))
        yield from _visit(otherwise, (*path, tirx.Not(condition)))
        return
    if isinstance(node, TensorLoad):
        yield GuardedLoad(node, path)
    for child in _children(node):
        yield from _visit(child, path)


def _children(node: Any) -> tuple[Any, ...]:
    if isinstance(node, TensorLoad):
        return tuple(node.indices)
    if isinstance(node, Call):
        return tuple(node.args)
    if isinstance(node, tirx.Select):
        return (node.condition, node.true_value, node.false_value)
    if isinstance(node, (tirx.Cast, tirx.Let)):
        return (node.value, node.body) if isinstance(node, tirx.Let) else (node.value,)
    if hasattr(node, "b"):
        return (node.a, node.b)
    return (node.a,) if hasattr(node, "a") else ()


def index_in_bounds(
    index: Any, extent: Any, predicates: tuple[Any, ...], ranges: dict[Any, Any]
) -> bool:
    """Whether ``0 <= index < extent`` is proved; False means it is not known.

    ``ranges`` maps loop variables to ``tvm.ir.Range``.
    """
    opaque = _Opaque()
    index = opaque(index)
    conditions = [
        opaque(part)
        for predicate in predicates
        for part in _conjuncts(predicate)
        if not _over_floats(part)
    ]
    conditions += [weaker for c in conditions if (weaker := _at_most(c, ranges)) is not None]
    analyzer = Analyzer()
    for var, bounds in ranges.items():
        analyzer.bind(var, bounds)

    def prove() -> bool:
        return any(_between(analyzer, form, extent) for form in _forms(index, extent))

    return bool(_under(analyzer, conditions, prove))


def _at_most(condition: Any, ranges: dict[Any, Any]) -> Any | None:
    """``a < m`` for a condition ``a < n`` where n never exceeds m: the prover needs the constant.

    n may be converted to a type that holds m.
    """
    if not isinstance(condition, tirx.LT):
        return None
    bound = condition.b
    var = bound.value if isinstance(bound, tirx.Cast) else bound
    known = next((span for known, span in ranges.items() if known.same_as(var)), None)
    if known is None:
        return None
    greatest = Analyzer().simplify(known.min + known.extent - 1)
    dtype = str(bound.ty.dtype)
    bits = int(dtype.removeprefix("int")) if dtype.startswith("int") else 0
    if not isinstance(greatest, tirx.IntImm) or greatest.value >= 2 ** max(0, bits - 1):
        return None
    return condition.a < tirx.IntImm(dtype, int(greatest.value))


def _between(analyzer: Any, index: Any, extent: Any) -> bool:
    zero = tirx.IntImm(str(index.ty.dtype), 0)
    return bool(analyzer.can_prove(index >= zero) and analyzer.can_prove(index < extent))


def _forms(index: Any, extent: Any) -> Iterator[Any]:
    """The index, and the operand of its conversion: in [0, extent) the two are equal.

    That needs the extent to be representable in the type converted to.
    """
    yield index
    if isinstance(index, tirx.Cast) and isinstance(extent, tirx.IntImm):
        target, source = str(index.ty.dtype), str(index.value.ty.dtype)
        bits = int(target.removeprefix("int")) if target.startswith("int") else 0
        if bits and source.startswith("int") and int(extent.value) <= 2 ** (bits - 1):
            yield index.value


def _conjuncts(predicate: Any) -> Iterator[Any]:
    """Predicates that hold together if ``predicate`` does; negations are pushed inside."""
    if isinstance(predicate, tirx.And):
        yield from _conjuncts(predicate.a)
        yield from _conjuncts(predicate.b)
        return
    if isinstance(predicate, tirx.Not):
        inner = predicate.a
        if isinstance(inner, tirx.Not):
            yield from _conjuncts(inner.a)
            return
        if isinstance(inner, tirx.Or):
            yield from _conjuncts(tirx.Not(inner.a))
            yield from _conjuncts(tirx.Not(inner.b))
            return
        for kind, opposite in _OPPOSITES.items():
            if isinstance(inner, kind) and not _over_floats(inner):
                yield opposite(inner.a, inner.b)
                return
    yield predicate


_OPPOSITES = {
    tirx.LT: tirx.GE,
    tirx.GE: tirx.LT,
    tirx.LE: tirx.GT,
    tirx.GT: tirx.LE,
    tirx.EQ: tirx.NE,
    tirx.NE: tirx.EQ,
}


def _over_floats(predicate: Any) -> bool:
    found: list[str] = []

    def visit(node: Any) -> None:
        found.append(str(getattr(node.ty, "dtype", node.ty)))

    kinds = (tirx.FloatImm, TensorLoad, Var, Call)
    structural_walk(predicate, [(kind, visit) for kind in kinds])
    return any("float" in dtype for dtype in found)


def _under(analyzer: Any, conditions: list[Any], prove: Callable[[], bool]) -> bool:
    if not conditions:
        return prove()
    with analyzer.constraint_scope(conditions[0]):
        return _under(analyzer, conditions[1:], prove)


class _Opaque:
    """Replaces loads by fresh variables, equal loads by the same one."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Any]] = []

    def __call__(self, expression: Any) -> Any:
        return structural_map(expression, (TensorLoad, self._variable), order="pre")

    def _variable(self, load: Any) -> Any:
        for known, variable in self._known:
            if structural_equal(known, load):
                return variable
        variable = tirx.Var(f"load{len(self._known)}", str(load.ty.dtype))
        self._known.append((load, variable))
        return variable


def is_data_dependent(index: Any) -> bool:
    """Whether an index expression reads memory."""
    found: list[Any] = []
    structural_walk(index, (TensorLoad, found.append))
    return bool(found)

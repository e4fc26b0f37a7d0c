"""Layout maps as TIRx index arithmetic.

All arithmetic is 64-bit. A logical right shift works on the unsigned bit pattern; division and
modulo floor; a piece that is not chosen is not evaluated; a finite table is a constant table in
local memory, filled once (a lone expression, which can own no memory, is a balanced decision tree
over the same constants). A map is lowered only where every subexpression is proved safe in signed
64-bit range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.layout import (
    Call,
    Constant,
    Coordinate,
    Expr,
    ExprVisitor,
    LayoutMap,
    Lookup,
    Op,
    Operation,
    Parameter,
    Piece,
    prove,
)
from tvm_tilex.layout.evaluate import apply_operation
from tvm_tilex.layout.visitor import children
from tvm_tilex.tirx.compat import IRBuilder, PrimFunc, name, tirx
from tvm_tilex.tirx.compat import builder as T

__all__ = ["constant_tables", "lower_function", "lower_values"]

Tables = Mapping[tuple[int, ...], Any]

_I64 = "int64"
_U64 = "uint64"


def _integer(value: int) -> Any:
    return tirx.IntImm(_I64, value)


def _as_int64(value: Any) -> Any:
    """Return an index as a 64-bit expression."""
    if isinstance(value, int):
        return _integer(value)
    return value if str(value.ty.dtype) == _I64 else tirx.Cast(_I64, value)


class _Lowering(ExprVisitor[Any]):
    def __init__(self, values: Mapping[str, Any], tables: Tables) -> None:
        super().__init__()
        self._values = values
        self._tables = tables

    def visit_constant(self, node: Constant) -> Any:
        return _integer(node.value)

    def visit_coordinate(self, node: Coordinate) -> Any:
        return self._values[node.name]

    def visit_parameter(self, node: Parameter) -> Any:
        return self._values[node.name]

    def visit_operation(self, node: Operation, left: Any, right: Any) -> Any:
        if isinstance(node.left, Constant) and isinstance(node.right, Constant):
            return _integer(apply_operation(node.op, node.left.value, node.right.value))
        op = node.op
        if op is Op.ADD:
            return left + right
        if op is Op.SUB:
            return left - right
        if op is Op.MUL:
            return left * right
        if op is Op.DIV:
            return tirx.floordiv(left, right)
        if op is Op.MOD:
            return tirx.floormod(left, right)
        if op is Op.XOR:
            return tirx.bitwise_xor(left, right)
        if op is Op.AND:
            return tirx.bitwise_and(left, right)
        if op in (Op.SHL, Op.SHR):
            return _shift(op, left, right)
        compare = {Op.LT: tirx.LT, Op.LE: tirx.LE, Op.EQ: tirx.EQ, Op.NE: tirx.NE}[op]
        return tirx.Cast(_I64, compare(left, right))

    def visit_lookup(self, node: Lookup, indices: tuple[Any, ...]) -> Any:
        flat: Any = _integer(0)
        for extent, index in zip(node.shape, indices, strict=True):
            flat = flat * _integer(extent) + index
        if node.values in self._tables:
            return self._tables[node.values][(flat,)]
        return _table(node.values, flat, 0, len(node.values))

    def visit_call(self, node: Call, operand: Any) -> Any:
        raise LoweringError(f"transform '{node.evaluator}' has no index DAG and cannot be lowered")


def _shift(op: Op, left: Any, right: Any) -> Any:
    """Shift the unsigned bit pattern, so that a right shift never copies the sign."""
    pattern = tirx.reinterpret(_U64, left)
    constant = isinstance(right, tirx.IntImm)
    amount = tirx.IntImm(_U64, right.value) if constant else tirx.Cast(_U64, right)
    moved = (tirx.shift_left if op is Op.SHL else tirx.shift_right)(pattern, amount)
    return tirx.reinterpret(_I64, moved)


def _table(values: tuple[int, ...], index: Any, start: int, end: int) -> Any:
    """Return a balanced decision tree; a range of equal values is one leaf."""
    if all(value == values[start] for value in values[start:end]):
        return _integer(values[start])
    middle = (start + end) // 2
    lower = _table(values, index, start, middle)
    upper = _table(values, index, middle, end)
    return tirx.if_then_else(index < _integer(middle), lower, upper)


def _nodes(map: LayoutMap) -> list[Expr]:
    """Every distinct node of the map's DAG, in a fixed order."""
    stack = [root for piece in map.pieces for root in (*piece.guards, *piece.outputs)]
    seen: dict[Expr, None] = {}
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(children(node))
    return list(seen)


def constant_tables(map: LayoutMap) -> Tables:
    """Allocate and fill the map's finite tables in the function under construction.

    The result goes to :func:`lower_values`; tables of equal values share one buffer.
    """
    found: dict[tuple[int, ...], Any] = {}
    for node in _nodes(map):
        if not isinstance(node, Lookup) or node.values in found:
            continue
        table = T.alloc_buffer((_integer(len(node.values)),), _I64, scope="local")
        found[node.values] = name(f"table{len(found)}", table)
        for position, value in enumerate(node.values):
            T.buffer_store(table, _integer(value), [_integer(position)])
    return found


def _require_lowerable(map: LayoutMap) -> None:
    for node in _nodes(map):
        if isinstance(node, Call):
            raise LoweringError(
                f"transform '{node.evaluator}' has no index DAG and cannot be lowered"
            )
    totality = prove(map, 0).totality
    if not totality.proven:
        raise LoweringError(f"the map has no safe 64-bit lowering: {totality.reason}")


def lower_values(
    map: LayoutMap,
    point: Sequence[Any],
    params: Mapping[str, Any] | None = None,
    tables: Tables | None = None,
) -> tuple[Any, ...]:
    """Return one int64 TIRx expression per codomain axis.

    Parameters
    ----------
    map
        A map that is proved total (budget 0). UNKNOWN bounds or injectivity do not matter here:
        this is computation, not a claim of ownership.
    point
        One integer expression per domain axis; other widths are converted to int64.
    params
        Expressions of the declared parameters, by name.
    tables
        Buffers of :func:`constant_tables`; without them a finite table is a decision tree.

    Raises
    ------
    LoweringError
        Where a transform has no DAG, or a subexpression is not proved safe in 64 bits.
    """
    _require_lowerable(map)
    if len(point) != map.domain.rank:
        raise LoweringError(f"{len(point)} coordinates for the axes {map.domain.names}")
    values = {n: _as_int64(v) for n, v in zip(map.domain.names, point, strict=True)}
    for parameter in map.domain.parameters:
        if params is None or parameter.name not in params:
            raise LoweringError(f"parameter '{parameter.name}' has no expression")
        values[parameter.name] = _as_int64(params[parameter.name])
    lowering = _Lowering(values, tables or {})
    return tuple(_select(map.pieces, lowering, k) for k in range(map.codomain.rank))


def _select(pieces: tuple[Piece, ...], lowering: _Lowering, output: int) -> Any:
    """Return output ``output``: nested lazy choices, the last piece unconditional.

    The pieces are proved to cover the domain and to be disjoint, so the order does not matter.
    """
    value = lowering.visit(pieces[-1].outputs[output])
    for piece in reversed(pieces[:-1]):
        mine = lowering.visit(piece.outputs[output])
        for guard in reversed(piece.guards):
            held = tirx.NE(lowering.visit(guard), _integer(0))
            mine = tirx.if_then_else(held, mine, value)
        value = mine
    return value


def lower_function(map: LayoutMap, symbol: str = "layout_map") -> PrimFunc:
    """Return a TIRx function that evaluates ``map`` at ``count`` points.

    Arguments: one int64 buffer of ``count`` coordinates per domain axis, one int64 scalar per
    parameter, one int64 output buffer per codomain axis. Points must lie in the domain.

    Raises
    ------
    LoweringError
        As :func:`lower_values`.
    """
    _require_lowerable(map)
    with IRBuilder() as ib, T.prim_func(s_tir=True):
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        count = T.int64()
        inputs = [T.arg(f"in_{n}", T.buffer((count,), _I64)) for n in map.domain.names]
        params = {p.name: T.arg(p.name, T.int64()) for p in map.domain.parameters}
        outputs = [T.arg(f"out_{n}", T.buffer((count,), _I64)) for n in map.codomain.names]
        tables = constant_tables(map)
        with T.serial(_integer(0), count) as k:
            point = [buffer[k] for buffer in inputs]
            values = lower_values(map, point, params, tables)
            for buffer, value in zip(outputs, values, strict=True):
                T.buffer_store(buffer, value, [k])
    return ib.get()

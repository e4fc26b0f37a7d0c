"""The text form of expressions, index sets and maps. It parses back to an equal map."""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.expr import (
    Call,
    Constant,
    Coordinate,
    Expr,
    Lookup,
    Op,
    Operation,
    Parameter,
)
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.visitor import ExprVisitor

__all__ = ["expr_text", "index_set_text", "map_text", "nest_text", "radix_text"]

_LEVEL = {
    Op.EQ: 1, Op.NE: 1, Op.LT: 1, Op.LE: 1,
    Op.XOR: 2, Op.AND: 3, Op.SHL: 4, Op.SHR: 4,
    Op.ADD: 5, Op.SUB: 5, Op.MUL: 6, Op.DIV: 6, Op.MOD: 6,
}  # fmt: skip
_ATOM = 7
_TREE_LIMIT = 100_000


class _Printer(ExprVisitor[tuple[str, int]]):
    """Text and binding level per node; operators are left-associative."""

    def visit_constant(self, node: Constant) -> tuple[str, int]:
        return (str(node.value), _ATOM)

    def visit_coordinate(self, node: Coordinate) -> tuple[str, int]:
        return (node.name, _ATOM)

    def visit_parameter(self, node: Parameter) -> tuple[str, int]:
        return (node.name, _ATOM)

    def visit_operation(
        self, node: Operation, left: tuple[str, int], right: tuple[str, int]
    ) -> tuple[str, int]:
        level = _LEVEL[node.op]
        # Comparisons do not chain, so both sides bind tighter.
        a = left[0] if left[1] >= level + (level == 1) else f"({left[0]})"
        b = right[0] if right[1] > level else f"({right[0]})"
        return (f"{a} {node.op.value} {b}", level)

    def visit_lookup(self, node: Lookup, indices: tuple[tuple[str, int], ...]) -> tuple[str, int]:
        values = ", ".join(map(str, node.values))
        shape = ", ".join(map(str, node.shape))
        index = ", ".join(text for text, _ in indices)
        return (f"lookup([{values}], [{shape}], [{index}])", _ATOM)

    def visit_call(self, node: Call, operand: tuple[str, int]) -> tuple[str, int]:
        return (f"call({node.evaluator}, {operand[0]})", _ATOM)


class _TreeSize(ExprVisitor[int]):
    """Nodes of the tree that the text spells out; sharing is lost in text."""

    def visit_constant(self, node: Constant) -> int:
        return 1

    def visit_coordinate(self, node: Coordinate) -> int:
        return 1

    def visit_parameter(self, node: Parameter) -> int:
        return 1

    def visit_operation(self, node: Operation, left: int, right: int) -> int:
        return 1 + left + right

    def visit_lookup(self, node: Lookup, indices: tuple[int, ...]) -> int:
        return len(node.values) + sum(indices)

    def visit_call(self, node: Call, operand: int) -> int:
        return 1 + operand


def expr_text(expr: Expr) -> str:
    """Return the infix text of an expression.

    Raises
    ------
    LayoutError
        Where sharing would make the text longer than 100,000 nodes.
    """
    size = _TreeSize().visit(expr)
    if size > _TREE_LIMIT:
        raise LayoutError(f"the text form would have {size} nodes: the expression shares too much")
    return _Printer().visit(expr)[0]


def brief(expr: Expr, limit: int = 48) -> str:
    """Return the text of an expression for a message, cut to about ``limit`` characters."""
    if _TreeSize().visit(expr) > limit * 4:
        return (
            f"a large expression under '{expr.op.value}'" if isinstance(expr, Operation) else "..."
        )
    text = _Printer().visit(expr)[0]
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _axis(axis: Axis) -> str:
    start = f"{axis.lower}.." if axis.lower else ""
    extent = axis.extent if isinstance(axis.extent, int) else expr_text(axis.extent)
    return f"{axis.name}: {start}{extent}"


def index_set_text(space: IndexSet) -> str:
    """Return ``{i: 4, j: n | i < j; n in [1, 8]}``; a nonzero lower end is ``i: -3..4``."""
    text = ", ".join(_axis(axis) for axis in space.axes)
    if space.guards:
        text += " | " + " and ".join(expr_text(g) for g in space.guards)
    if space.parameters:
        declared = (f"{p.name} in [{p.lower}, {p.upper}]" for p in space.parameters)
        text += "; " + ", ".join(declared)
    return "{" + text + "}"


def nest_text(nest: Any) -> str:
    """Return a nested shape or stride, ``(4,(2,2))``; a named stride is ``1@lane+2@warp``."""
    if isinstance(nest, int):
        return str(nest)
    if nest and all(isinstance(s, tuple) and len(s) == 2 and isinstance(s[0], str) for s in nest):
        return "+".join(f"{value}@{name}" for name, value in nest)
    inner = ",".join(nest_text(item) for item in nest)
    return f"({inner},)" if len(nest) == 1 else f"({inner})"


def radix_text(map: Any) -> str:
    """Return ``shape:stride`` with `` + offset`` where there is one."""
    text = f"{nest_text(map.shape)}:{nest_text(map.stride)}"
    return f"{text} + {nest_text(map.offset)}" if map.offset else text


def _tuple(values: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def map_text(map: LayoutMap) -> str:
    """Return the text of a map; a node's name is its class in snake case."""
    from tvm_tilex.layout import composite, nodes, radix, recast

    arrow = f"{map.domain} -> {map.codomain}"
    if isinstance(map, radix.MixedRadix):
        return f"mixed_radix({arrow}, {radix_text(map)})"
    if isinstance(map, nodes.Identity):
        return f"identity({map.domain})"
    if isinstance(map, (nodes.Project, nodes.Permute)):
        kind = "project" if isinstance(map, nodes.Project) else "permute"
        return f"{kind}({map.domain}, [{', '.join(map.axes)}])"
    if isinstance(map, nodes.IndexExpr):
        values = ", ".join(expr_text(v) for v in map.expressions())
        return f"index_expr({arrow}, [{values}])"
    if isinstance(map, nodes.FiniteTable):
        return f"finite_table({arrow}, [{', '.join(_tuple(r) for r in map.values)}])"
    if isinstance(map, nodes.BitLinear):
        rows = ", ".join("[" + ", ".join(_tuple(v) for v in vs) + "]" for vs in map.basis)
        return f"bit_linear({arrow}, [{rows}], {_tuple(map.translation)})"
    if isinstance(map, composite.Translate):
        target = f", {map.target}" if map.target is not None else ""
        return f"translate({_tuple(map.offset)}, {map.map}{target})"
    if isinstance(map, composite.Compose):
        return f"compose({map.outer}, {map.inner})"
    if isinstance(map, composite.Product):
        return f"product({', '.join(str(m) for m in map.maps)})"
    if isinstance(map, composite.Transform):
        return f"transform({map.bound}, {map.map})"
    if isinstance(map, composite.Piecewise):
        pairs = zip(map.guards, map.branches, strict=True)
        parts = (f"{' and '.join(expr_text(g) for g in gs) or '1'} => {b}" for gs, b in pairs)
        return f"piecewise({map.domain}, {', '.join(parts)})"
    if isinstance(map, recast.Recast):
        return f"recast({map.factor}, {map.axis}, {map.map})"
    raise LayoutError(f"no text form for {type(map).__name__}")

"""Parser of the text form. Every malformed text gives one LayoutTextError with the column."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Compose, Piecewise, Product, Transform, Translate
from tvm_tilex.layout.errors import LayoutTextError
from tvm_tilex.layout.expr import (
    Expr,
    Op,
    Parameter,
    call,
    constant,
    coordinate,
    lookup,
    operation,
    parameter,
)
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import BitLinear, FiniteTable, Identity, IndexExpr, Permute, Project
from tvm_tilex.layout.radix import MixedRadix
from tvm_tilex.layout.recast import Recast
from tvm_tilex.layout.transforms import bind_transform

__all__ = ["parse_map"]

_OPERATIONS = {
    "add": Op.ADD, "sub": Op.SUB, "mul": Op.MUL, "div": Op.DIV, "mod": Op.MOD, "xor": Op.XOR,
    "and_": Op.AND, "shl": Op.SHL, "shr": Op.SHR, "lt": Op.LT, "le": Op.LE, "eq": Op.EQ,
    "ne": Op.NE,
}  # fmt: skip


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = files("tvm_tilex.layout").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True)


def parse_map(text: str) -> LayoutMap:
    """Return the map that ``text`` describes.

    Raises
    ------
    LayoutTextError
        Where the text does not parse, or describes something that is not a map.
    """
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        column = getattr(error, "column", 0)
        where = f"column {column}" if isinstance(column, int) and column > 0 else "the end"
        raise LayoutTextError(f"layout text: unexpected input at {where} of {text!r}") from None
    try:
        return _map(_tree(tree.children[0]))
    except LayoutTextError:
        raise
    except LayoutError as error:
        raise LayoutTextError(f"layout text: {error}") from None
    except RecursionError:
        raise LayoutTextError("layout text: nested too deeply") from None


def _tree(node: Any) -> Tree[Token]:
    assert isinstance(node, Tree)
    return node


def _int(node: Any) -> int:
    value = int(str(node.children[0]))
    return -value if node.data == "minus" else value


def _row(node: Any) -> tuple[int, ...]:
    return tuple(_int(child) for child in node.children if child is not None)


def _names(node: Any) -> tuple[str, ...]:
    return tuple(str(child) for child in node.children if child is not None)


def _nest(node: Any) -> Any:
    if node.data in ("plain", "minus"):
        return _int(node)
    if node.data == "named":
        pairs = node.children
        return tuple((str(pairs[k + 1]), _int(pairs[k])) for k in range(0, len(pairs), 2))
    return tuple(_nest(child) for child in node.children)


def _set(node: Any) -> IndexSet:
    axes, guards, params = node.children
    declared: dict[str, Parameter] = {}
    for param in params.children if params is not None else ():
        name, low, high = param.children
        declared[str(name)] = parameter(str(name), _int(low), _int(high))
    built = []
    for axis in axes.children if axes is not None else ():
        name, lower, extent = axis.children
        size = _expr(extent, declared)
        value = int(str(extent.children[0])) if extent.data == "number" else size
        built.append(Axis(str(name), value, _int(lower) if lower is not None else 0))
    return IndexSet(tuple(built), _guards(guards, declared), tuple(declared.values()))


def _guards(node: Any, declared: dict[str, Parameter]) -> tuple[Expr, ...]:
    return tuple(_expr(g, declared) for g in node.children) if node is not None else ()


def _declared(space: IndexSet) -> dict[str, Parameter]:
    return {p.name: p for p in space.parameters}


def _expr(node: Any, declared: dict[str, Parameter]) -> Expr:
    kind, parts = node.data, node.children
    if kind in ("number", "negative"):
        return constant(int(str(parts[0])) * (-1 if kind == "negative" else 1))
    if kind == "name":
        name = str(parts[0])
        return declared[name] if name in declared else coordinate(name)
    if kind == "lookup":
        index = tuple(_expr(e, declared) for e in parts[2].children if e is not None)
        return lookup(_row(parts[0]), _row(parts[1]), index)
    if kind == "call":
        arguments = tuple(_int(a) for a in parts[1:-1] if a is not None)
        return call(bind_transform(str(parts[0]), arguments), _expr(parts[-1], declared))
    return operation(_OPERATIONS[kind], _expr(parts[0], declared), _expr(parts[1], declared))


def _radix(node: Any, domain: IndexSet | None, codomain: IndexSet | None) -> MixedRadix:
    shape, stride, offset = node.children
    moved = 0 if offset is None else _nest(offset)
    return MixedRadix(_nest(shape), _nest(stride), moved, domain, codomain)  # type: ignore[arg-type]


def _map(node: Any) -> LayoutMap:
    kind, parts = str(node.data), node.children
    if kind == "bare_radix":
        return _radix(parts[0], None, None)
    if kind == "radix":
        return _radix(node, None, None)
    built: LayoutMap = _BUILDERS[kind](parts)
    return built


def _rows(node: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(_row(row) for row in node.children if row is not None)


def _index_expr(parts: Any) -> LayoutMap:
    domain = _set(parts[0])
    declared = _declared(domain)
    values = tuple(_expr(e, declared) for e in parts[2].children if e is not None)
    return IndexExpr(domain, _set(parts[1]), values)


def _bit_linear(parts: Any) -> LayoutMap:
    bases = tuple(_rows(rows) for rows in parts[2].children if rows is not None)
    return BitLinear(_set(parts[0]), _set(parts[1]), bases, _row(parts[3]))


def _transform(parts: Any) -> LayoutMap:
    arguments = tuple(_int(a) for a in parts[1:-1] if a is not None)
    return Transform(str(parts[0]), arguments, _map(parts[-1]))


def _translate(parts: Any) -> LayoutMap:
    target = _set(parts[2]) if len(parts) > 2 and parts[2] is not None else None
    return Translate(_row(parts[0]), _map(parts[1]), target)


def _piecewise(parts: Any) -> LayoutMap:
    domain = _set(parts[0])
    declared = _declared(domain)
    guards = tuple(_guards(b.children[0], declared) for b in parts[1:])
    # A branch that always applies is printed with the guard 1.
    kept = tuple(tuple(g for g in gs if g is not constant(1)) for gs in guards)
    return Piecewise(kept, tuple(_map(b.children[1]) for b in parts[1:]), domain)


def _recast(parts: Any) -> LayoutMap:
    top, bottom = parts[0].children
    try:
        factor = Fraction(_int(top), _int(bottom) if bottom is not None else 1)
    except ZeroDivisionError:
        raise LayoutTextError("layout text: recast unit with a zero denominator") from None
    return Recast(factor, _map(parts[2]), str(parts[1]))


_BUILDERS: dict[str, Any] = {
    "mixed_radix": lambda p: _radix(p[2], _set(p[0]), _set(p[1])),
    "identity": lambda p: Identity(_set(p[0])),
    "project": lambda p: Project(_set(p[0]), _names(p[1])),
    "permute": lambda p: Permute(_set(p[0]), _names(p[1])),
    "index_expr": _index_expr,
    "finite_table": lambda p: FiniteTable(_set(p[0]), _set(p[1]), _rows(p[2])),
    "bit_linear": _bit_linear,
    "translate": _translate,
    "compose": lambda p: Compose(_map(p[0]), _map(p[1])),
    "product": lambda p: Product(tuple(_map(m) for m in p)),
    "transform": _transform,
    "piecewise": _piecewise,
    "recast": _recast,
}

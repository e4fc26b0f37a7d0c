"""Integer index expressions of a peer's text as the DAG; nothing is evaluated or guessed.

Division and modulo floor (``//``, ``%``). A right shift by a constant is a floor division by a
power of two, as the arithmetic shift of the peers is; OR, minimum, maximum and selection are
written with the operations of the DAG. Everything else is refused by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from tvm_tilex.layout.bridges.literal import callee, refuse
from tvm_tilex.layout.expr import Constant, Expr, constant, eq, le, lt, ne

__all__ = ["ARITY", "OPERATIONS", "apply_operation", "index_expression"]


def shift_left(a: Expr, b: Expr) -> Expr:
    """``a * 2**b``; the product, so that bits that leave the word are an error, not lost."""
    return a * (constant(1 << b.value) if isinstance(b, Constant) else constant(1) << b)


def shift_right(a: Expr, b: Expr) -> Expr:
    """Arithmetic shift: floor division by ``2**b``."""
    return a // (constant(1 << b.value) if isinstance(b, Constant) else constant(1) << b)


def _or(a: Expr, b: Expr) -> Expr:
    return (a ^ b) ^ (a & b)


def _minimum(a: Expr, b: Expr) -> Expr:
    return b + lt(a, b) * (a - b)


def _maximum(a: Expr, b: Expr) -> Expr:
    return a + lt(a, b) * (b - a)


def _select(condition: Expr, a: Expr, b: Expr) -> Expr:
    return b + ne(condition, 0) * (a - b)


def _truncated(a: Expr, b: Expr) -> Expr:
    """Division toward zero by a positive divisor, as C has it."""
    return a // b + lt(a, 0) * ne(a % b, 0)


def _remainder(a: Expr, b: Expr) -> Expr:
    return a - b * _truncated(a, b)


OPERATIONS: Mapping[str, Callable[..., Expr]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "BitXor": lambda a, b: a ^ b,
    "BitAnd": lambda a, b: a & b,
    "BitOr": _or,
    "LShift": shift_left,
    "RShift": shift_right,
    "Lt": lt,
    "LtE": le,
    "Gt": lambda a, b: lt(b, a),
    "GtE": lambda a, b: le(b, a),
    "Eq": eq,
    "NotEq": ne,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": _or,
    "shift_left": shift_left,
    "shift_right": shift_right,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": _truncated,
    "Div": _truncated,
    "truncmod": _remainder,
    "bitwise_not": lambda a: constant(-1) - a,
    "min": _minimum,
    "max": _maximum,
    "Select": _select,
    "if_then_else": _select,
}
ARITY = {"Select": 3, "if_then_else": 3, "bitwise_not": 1}
_TRUNCATING = ("truncdiv", "Div", "truncmod")
_WIDENING = ("int32", "int64")


def index_expression(peer: str, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
    """Return the DAG of a Python expression over ``names``.

    Raises
    ------
    LayoutTextError
        For a name that is not an index variable or an operation that is not integer index
        arithmetic; the message shows it.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return constant(node.value)
    if isinstance(node, ast.Name):
        if node.id not in names:
            refuse(peer, f"'{node.id}' is not an index variable ({', '.join(names)})")
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = index_expression(peer, node.operand, names)
        return constant(-inner.value) if isinstance(inner, Constant) else -inner
    operator, operands = _parts(node)
    if operator in _WIDENING and len(operands) == 1:
        return index_expression(peer, operands[0], names)
    if operator not in OPERATIONS or len(operands) != ARITY.get(operator, 2):
        refuse(peer, f"'{ast.unparse(node)[:60]}' is not integer index arithmetic")
    return apply_operation(peer, operator, [index_expression(peer, o, names) for o in operands])


def apply_operation(peer: str, operator: str, values: list[Expr]) -> Expr:
    """Return the named operation of the peer on expressions.

    Raises
    ------
    LayoutTextError
        For a truncating division whose divisor is not a positive constant.
    """
    if operator in _TRUNCATING and not (isinstance(values[1], Constant) and values[1].value > 0):
        refuse(
            peer, f"'{operator}' truncates; its divisor '{values[1]}' must be constant, positive"
        )
    return OPERATIONS[operator](*values)


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Div):
        return type(node.op).__name__, [node.left, node.right]
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return type(node.ops[0]).__name__, [node.left, node.comparators[0]]
    if isinstance(node, ast.IfExp):
        return "Select", [node.test, node.body, node.orelse]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return "bitwise_not", [node.operand]
    if isinstance(node, ast.Call) and callee(node) == "Cast" and len(node.args) == 2:
        kind = node.args[0]
        return str(getattr(kind, "value", "")), [node.args[1]]
    if isinstance(node, ast.Call) and not node.keywords:
        return callee(node), list(node.args)
    return "", []

"""Integer index expressions of TVM and of TileLang's TVM as the DAG, by their node names.

Neither package is imported: a node is known by its class name and its attributes ``a``, ``b``,
``args``, ``op``. The same rules as in :mod:`tvm_tilex.layout.bridges.index_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_tilex.layout.bridges.index_text import ARITY, OPERATIONS, apply_operation
from tvm_tilex.layout.bridges.literal import refuse
from tvm_tilex.layout.expr import Expr, constant

__all__ = ["constant_of", "from_prim_expr"]

_BINARY = {
    "Add": "Add", "Sub": "Sub", "Mul": "Mult", "FloorDiv": "FloorDiv", "FloorMod": "Mod",
    "Div": "truncdiv", "Mod": "truncmod", "Min": "min", "Max": "max", "LT": "Lt", "LE": "LtE",
    "GT": "Gt", "GE": "GtE", "EQ": "Eq", "NE": "NotEq", "EqualOp": "Eq", "NotEqualOp": "NotEq",
    "BitwiseXor": "BitXor", "BitwiseAnd": "BitAnd", "BitwiseOr": "BitOr",
    "LShift": "LShift", "RShift": "RShift",
}  # fmt: skip
_WIDTHS = ("int32", "int64")


def constant_of(peer: str, value: Any, what: str) -> int:
    """Return the integer of a Python integer or an ``IntImm``; LayoutTextError otherwise."""
    if isinstance(value, int):
        return value
    if type(value).__name__ != "IntImm":
        refuse(peer, f"the {what} '{value}' is not an integer constant")
    return int(value.value)


def from_prim_expr(peer: str, value: Any, names: Mapping[str, Expr]) -> Expr:
    """Return the DAG of a native expression whose variables are ``names``.

    Raises
    ------
    LayoutTextError
        For a variable that is not in ``names``, or a node that is not integer index arithmetic.
    """
    kind = type(value).__name__
    if isinstance(value, int) or kind == "IntImm":
        return constant(constant_of(peer, value, "value"))
    if kind in ("Var", "PrimVar", "SizeVar"):
        if str(value.name) not in names:
            refuse(peer, f"'{value.name}' is not an index variable ({', '.join(names)})")
        return names[str(value.name)]
    if kind == "Let":
        bound = from_prim_expr(peer, value.value, names)
        return from_prim_expr(peer, value.body, {**names, str(value.var.name): bound})
    if kind == "Cast" and str(getattr(value, "dtype", None) or value.ty.dtype) in _WIDTHS:
        return from_prim_expr(peer, value.value, names)
    operator, operands = _parts(kind, value)
    if operator not in OPERATIONS or len(operands) != ARITY.get(operator, 2):
        refuse(peer, f"'{str(value)[:60]}' ({kind}) is not integer index arithmetic")
    return apply_operation(peer, operator, [from_prim_expr(peer, o, names) for o in operands])


def _parts(kind: str, value: Any) -> tuple[str, list[Any]]:
    if kind in _BINARY:
        return _BINARY[kind], [value.a, value.b]
    if kind == "Select":
        return "Select", [value.condition, value.true_value, value.false_value]
    if kind == "BitwiseNot":
        return "bitwise_not", [value.a]
    if kind == "Call":
        return str(value.op.name).rpartition(".")[2], list(value.args)
    return "", []

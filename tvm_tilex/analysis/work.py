"""How many instructions an expression is worth on a GPU, roughly."""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx.compat import Call, Op, structural_walk, tirx
from tvm_tilex.tirx.register import CHEAP, EXP_APPROXIMATE

__all__ = ["instructions"]

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min, tirx.Cast, tirx.Select)
# As NVIDIA's compiler expands them for IEEE arithmetic of FP32.
_DIVISION, _FUNCTION, _APPROXIMATION = 6, 9, 3


def instructions(expression: Any) -> int:
    """Instructions of an element, index arithmetic and memory accesses left out."""
    found = [0]

    def add(count: int, node: Any) -> None:
        if "float" in str(node.ty.dtype):
            found[0] += count

    def visit_call(call: Any) -> None:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == EXP_APPROXIMATE:
            add(_APPROXIMATION, call)
        else:
            add(1 if name in CHEAP else _FUNCTION, call)

    walks = [(kind, lambda node: add(1, node)) for kind in _ARITHMETIC]
    walks += [(tirx.Div, lambda node: add(_DIVISION, node)), (Call, visit_call)]
    structural_walk(expression, walks)
    return found[0]

"""Reading a peer's text: Python's own expression syntax, parsed but never evaluated."""

from __future__ import annotations

import ast
import warnings
from typing import Any, NoReturn

from tvm_tilex.layout.errors import LayoutTextError

__all__ = ["callee", "integer", "integers", "literal", "parse_expression", "refuse"]

_DEEPEST = 200
_TYPES = ("int8", "int16", "int32", "int64")


def refuse(peer: str, reason: str) -> NoReturn:
    """Raise LayoutTextError in the words of the peer's form."""
    raise LayoutTextError(f"{peer} layout: {reason}")


def parse_expression(peer: str, text: str) -> ast.expr:
    """Return the syntax tree of one expression; LayoutTextError where the text is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # "1or 2", not ours to comment on
            tree = ast.parse(text.strip(), mode="eval").body
        _check_depth(peer, tree)
    except SyntaxError as error:
        place = f"column {error.offset}" if error.offset else "the end"
        refuse(peer, f"unexpected input at {place} of {text.strip()[:80]!r}")
    except (RecursionError, MemoryError, ValueError):
        refuse(peer, "nested too deeply")
    return tree


def _check_depth(peer: str, tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    refuse(peer, "nested too deeply")


def literal(peer: str, node: ast.expr) -> Any:
    """Return the value of a literal of numbers, strings, lists, tuples and dicts."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        refuse(peer, f"'{ast.unparse(node)[:60]}' is not a literal")


def integer(peer: str, node: ast.expr, what: str) -> int:
    """Return an integer constant; ``int64(4)`` and ``T.int64(4)`` are the constant 4."""
    if isinstance(node, ast.Call) and callee(node) in _TYPES and len(node.args) == 1:
        return integer(peer, node.args[0], what)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -integer(peer, node.operand, what)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    refuse(peer, f"{what} '{ast.unparse(node)[:60]}' is not an integer constant")


def integers(peer: str, node: ast.expr, what: str) -> tuple[int, ...]:
    """Return the integers of a tuple or list, or a single one."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return tuple(integer(peer, item, what) for item in items)


def callee(node: ast.expr) -> str:
    """Return the last name of what is called or referred to: ``Axis.laneid`` gives ``laneid``."""
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""

"""Traversal of the expression DAG: the typed visitor, leaves, substitution."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from tvm_tilex.layout.expr import (
    Call,
    Constant,
    Coordinate,
    Expr,
    Lookup,
    Operation,
    Parameter,
    call,
    lookup,
    operation,
)

__all__ = ["ExprVisitor", "children", "leaves", "replace_node", "substitute"]

T = TypeVar("T")


class ExprVisitor(Generic[T]):
    """Typed bottom-up visitor, one call per distinct node of the DAG.

    Subclasses implement the ``visit_*`` methods; operands arrive already visited.
    """

    def __init__(self) -> None:
        self._memo: dict[Expr, T] = {}

    def visit(self, root: Expr) -> T:
        """Return the result for ``root``; iterative, so depth is not limited by the stack."""
        memo = self._memo
        if root in memo:
            return memo[root]
        stack = [root]
        while stack:
            node = stack[-1]
            pending = [child for child in children(node) if child not in memo]
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            if node not in memo:
                memo[node] = self._dispatch(node)
        return memo[root]

    def _dispatch(self, node: Expr) -> T:
        if isinstance(node, Operation):
            return self.visit_operation(node, self._memo[node.left], self._memo[node.right])
        if isinstance(node, Lookup):
            return self.visit_lookup(node, tuple(self._memo[i] for i in node.indices))
        if isinstance(node, Call):
            return self.visit_call(node, self._memo[node.operand])
        if isinstance(node, Constant):
            return self.visit_constant(node)
        if isinstance(node, Coordinate):
            return self.visit_coordinate(node)
        return self.visit_parameter(cast(Parameter, node))

    def visit_constant(self, node: Constant) -> T:
        """Handle a constant."""
        raise NotImplementedError

    def visit_coordinate(self, node: Coordinate) -> T:
        """Handle an axis coordinate."""
        raise NotImplementedError

    def visit_parameter(self, node: Parameter) -> T:
        """Handle a parameter."""
        raise NotImplementedError

    def visit_operation(self, node: Operation, left: T, right: T) -> T:
        """Handle a binary operation whose operands gave ``left`` and ``right``."""
        raise NotImplementedError

    def visit_lookup(self, node: Lookup, indices: tuple[T, ...]) -> T:
        """Handle a table read."""
        raise NotImplementedError

    def visit_call(self, node: Call, operand: T) -> T:
        """Handle a registered transform that has no DAG."""
        raise NotImplementedError


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the operands of ``node``, left to right."""
    if isinstance(node, Operation):
        return (node.left, node.right)
    if isinstance(node, Lookup):
        return node.indices
    return (node.operand,) if isinstance(node, Call) else ()


def leaves(roots: tuple[Expr, ...]) -> list[Expr]:
    """Return the distinct coordinates and parameters below ``roots`` in first-seen order."""
    seen: set[Expr] = set()
    found: list[Expr] = []
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, (Coordinate, Parameter)):
            found.append(node)
        stack.extend(reversed(children(node)))
    return found


class _Substitution(ExprVisitor[Expr]):
    def __init__(self, values: dict[str, Expr]) -> None:
        super().__init__()
        self._values = values

    def visit_constant(self, node: Constant) -> Expr:
        return node

    def visit_coordinate(self, node: Coordinate) -> Expr:
        return self._values.get(node.name, node)

    def visit_parameter(self, node: Parameter) -> Expr:
        return node

    def visit_operation(self, node: Operation, left: Expr, right: Expr) -> Expr:
        return operation(node.op, left, right)

    def visit_lookup(self, node: Lookup, indices: tuple[Expr, ...]) -> Expr:
        return lookup(node.values, node.shape, indices)

    def visit_call(self, node: Call, operand: Expr) -> Expr:
        return call(node.evaluator, operand)


def substitute(roots: tuple[Expr, ...], values: dict[str, Expr]) -> tuple[Expr, ...]:
    """Replace coordinates by name, sharing preserved; nothing is simplified."""
    visitor = _Substitution(values)
    return tuple(visitor.visit(root) for root in roots)


def replace_node(roots: tuple[Expr, ...], node: Expr, value: Expr) -> tuple[Expr, ...]:
    """Replace one node of the DAG wherever it stands; nothing is simplified."""
    visitor = _Substitution({})
    visitor._memo[node] = value
    return tuple(visitor.visit(root) for root in roots)

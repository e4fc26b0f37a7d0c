"""Facts of an index expression by cases: a comparison in it is 1 or 0.

A selection or a minimum that is written as arithmetic becomes two branches with simpler values.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Piecewise
from tvm_tilex.layout.expr import Expr, Op, Operation, constant, negate_predicate
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.verdict import LayoutProof, Verdict
from tvm_tilex.layout.visitor import children, replace_node

__all__ = ["by_cases"]

_COMPARISONS = (Op.LT, Op.LE, Op.EQ, Op.NE)


def by_cases(map: LayoutMap, flat: LayoutProof) -> dict[str, Verdict]:
    """Return bounds, injectivity and surjectivity as far as they are decided by cases.

    ``map`` must be proved total: a branch does not evaluate all that the whole does.
    """
    from tvm_tilex.layout.proof import prove

    if not isinstance(map, IndexExpr) or not flat.totality.proven:
        return {}
    values = map.pieces[0].outputs
    test = next(_comparisons(values), None)
    if test is None:
        return {}
    guards = (test, negate_predicate(test))
    try:
        branches = tuple(
            IndexExpr(
                map.domain.where(guard),
                map.codomain,
                replace_node(values, test, constant(held)),
            )
            for held, guard in zip((1, 0), guards, strict=True)
        )
        split = Piecewise(tuple((guard,) for guard in guards), branches, map.domain)
    except LayoutError:
        return {}
    proof = prove(split, 0)
    return {
        name: verdict
        for name, verdict in proof.items()
        if name != "totality" and not verdict.unknown
    }


def _comparisons(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Yield the comparisons of values that are no comparisons themselves."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack.extend(children(node))
        if isinstance(node, Operation) and node.op in _COMPARISONS and not _inner(node):
            yield node


def _inner(node: Operation) -> bool:
    return next(_comparisons((node.left, node.right)), None) is not None

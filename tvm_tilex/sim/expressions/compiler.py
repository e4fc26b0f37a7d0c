"""What the rules of one kernel's expressions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.operands import Expr
from tvm_tilex.sim.scope import Symbols
from tvm_tilex.sim.types import StructType

__all__ = ["ExpressionCompiler", "Rule"]

Rule = Callable[["ExpressionCompiler", Any], Expr]


class ExpressionCompiler:
    """Compiles expressions of one kernel by a rule for each type of syntax node.

    Attributes
    ----------
    stored
        Names of the buffer parameters that some store may reach.
    moved_pointers
        Whether a pointer variable is assigned after its declaration, so that ``stored`` may miss
        a buffer.
    """

    def __init__(
        self,
        symbols: Symbols,
        records: dict[str, StructType],
        rules: Mapping[type[ast.Node], Rule],
    ) -> None:
        self.symbols, self.records, self.rules = symbols, records, rules
        self.stored: set[str] = set()
        self.moved_pointers = False
        self.sites = 0

    def compile(self, node: ast.Node) -> Expr:
        """Return the compiled expression."""
        return self.rules[type(node)](self, node)

    def next_site(self) -> int:
        """Return the number of a new place in the text that reduces over a SIMD group."""
        self.sites += 1
        return self.sites

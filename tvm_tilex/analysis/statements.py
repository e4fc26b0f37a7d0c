"""Which row of the admission table a statement breaks that no row program holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import effect_kind
from tvm_tilex.tirx.compat import CONTROL_JUMP, Call, structural_walk, tirx

__all__ = ["Decline", "foreign_statement", "other_statement"]


@dataclass(frozen=True)
class Decline:
    """Why something is not recognized: the row of the admission table, and the fact."""

    rule: str
    reason: str


def other_statement(statement: Any) -> Decline:
    """The decline of a statement that is not allocation, loop, store or condition."""
    kind = type(statement).__name__
    if isinstance(statement, tirx.DeclBuffer):
        return Decline("manual resources", f"{statement.buffer.name} renames other memory")
    if isinstance(statement, tirx.AttrStmt):
        if statement.attr_key in ("thread_extent", "virtual_thread"):
            return Decline("execution nesting", f"threads are bound by hand ({statement.attr_key})")
        return Decline("manual resources", f"the attribute {statement.attr_key} is not understood")
    if isinstance(statement, tirx.Evaluate) and isinstance(statement.value, Call):
        name, effect = effect_kind(statement.value)
        if effect != CONTROL_JUMP:
            return Decline("contribution", f"{name} is called for an effect that is not known")
        return Decline("dynamic control", f"{name} leaves the structured control flow")
    return Decline("dynamic control", f"a {kind} statement is not part of a row program")


def foreign_statement(node: Any) -> Decline | None:
    """The decline of the first statement in ``node`` that no row program holds, or None."""
    found: list[Decline] = []
    structural_walk(node, [(kind, lambda s: found.append(other_statement(s))) for kind in _FOREIGN])
    return found[0] if found else None


_FOREIGN = (
    tirx.AssertStmt,
    tirx.AttrStmt,
    tirx.Break,
    tirx.Continue,
    tirx.DeclBuffer,
    tirx.Evaluate,
    tirx.Return,
    tirx.TilePrimitiveCall,
    tirx.While,
)

"""The admission table: when reductions of a root loop may be distributed over SIMD groups.

Each row of the specification's section 3 is a named check that returns a verdict with reason and
witness. A row that cannot be established is UNKNOWN, and only a table of PROVEN rows admits; rows
after a structure that cannot be read at all stay UNKNOWN. Markers are never trusted: everything
is rechecked on the current TIRx.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis import rows
from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.dimensions import Ranges, dimension_ranges
from tvm_tilex.analysis.facts import program_facts
from tvm_tilex.analysis.statements import Decline, other_statement
from tvm_tilex.analysis.structure import RowProgram, read_row_program, statements_of
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.layout.verdict import Verdict, VerdictKind, disproven, unknown
from tvm_tilex.plan.facts import ProgramFacts
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import PrimFunc, tirx

__all__ = ["ROWS", "Admission", "AdmissionRow", "admit"]


@dataclass(frozen=True)
class AdmissionRow:
    """One row of the table."""

    name: str
    verdict: Verdict


@dataclass(frozen=True)
class Admission:
    """Every row's verdict; the row program and its facts where all rows are PROVEN."""

    rows: tuple[AdmissionRow, ...]
    program: RowProgram | None
    facts: ProgramFacts | None

    @property
    def admitted(self) -> bool:
        """Whether every row is PROVEN."""
        return self.program is not None

    @property
    def declined(self) -> AdmissionRow | None:
        """The first row that is not PROVEN because of a fact, or None."""
        failed = [row for row in self.rows if not row.verdict.proven]
        told = [row for row in failed if row.verdict.reason != _NOT_READ]
        return next(iter(told or failed), None)


_NOT_READ = "not examined: the program's structure could not be read"

# Row name -> check; the order is the specification's.
ROWS: dict[str, Callable[[Subject], Verdict]] = {
    "target and binding": rows.target_and_binding,
    "kernel ABI": rows.kernel_abi,
    "reduction type": rows.reduction_type,
    "numerical permission": rows.numerical_permission,
    "canonical state": rows.canonical_state,
    "contribution": rows.contribution,
    "control": rows.control,
    "execution nesting": rows.execution_nesting,
    "global effects": rows.global_effects,
    "distributed private storage": rows.distributed_private_storage,
    "guarded input views": rows.guarded_input_views,
    "manual resources": rows.manual_resources,
    "dynamic control": rows.dynamic_control,
}


def admit(function: PrimFunc, *, lanes: int, kind: str) -> Admission:
    """Check every row for the function's one root loop.

    Parameters
    ----------
    function
        A reference function.
    lanes
        SIMD-group width that the target asserts.
    kind
        Target kind.
    """
    roots = statements_of(function.body)
    structure = _structure(roots, dimension_ranges(function))
    if isinstance(structure, Decline):
        return _unread(structure, function, lanes, kind)
    subject = Subject(function, structure, buffer_uses(function.body), lanes, kind)
    found = tuple(AdmissionRow(name, check(subject)) for name, check in ROWS.items())
    if any(row.verdict.kind is not VerdictKind.PROVEN for row in found):
        return Admission(found, None, None)
    return Admission(found, structure, program_facts(subject))


def _structure(roots: list[Any], ranges: Ranges) -> RowProgram | Decline:
    for statement in roots:
        if isinstance(statement, (tirx.AllocBuffer, tirx.DeclBuffer)):
            reason = f"{statement.buffer.name} is declared outside the root loop"
            return Decline("manual resources", reason)
        if not isinstance(statement, tirx.For):
            return other_statement(statement)
    if len(roots) != 1:
        return Decline("execution nesting", f"the function has {len(roots)} root loops")
    if attrs.annotation(roots[0], attrs.PARALLEL) is None:
        return Decline("execution nesting", "the root statement is not a marked parallel loop")
    if attrs.annotation(roots[0], attrs.GROUP) is not None:
        return Decline("execution nesting", "its programs are cooperative groups, not rows")
    return read_row_program(roots[0], ranges)


def _unread(decline: Decline, function: PrimFunc, lanes: int, kind: str) -> Admission:
    bare = Subject(function, None, {}, lanes, kind)
    found = []
    for name, check in ROWS.items():
        if name == decline.rule:
            verdict = disproven(decline.reason)
        elif check in (rows.target_and_binding, rows.kernel_abi):
            verdict = check(bare)
        else:
            verdict = unknown(_NOT_READ)
        found.append(AdmissionRow(name, verdict))
    return Admission(tuple(found), None, None)

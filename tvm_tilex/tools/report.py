"""Text that several commands print."""

from __future__ import annotations

import math
from collections.abc import Iterator

import click

from tvm_tilex.ir import Parallel, Program, Store
from tvm_tilex.ir.access_views import accesses
from tvm_tilex.ir.print import format_statement
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.runtime.artifact import Artifact

__all__ = [
    "access_lines",
    "admission_lines",
    "candidate_lines",
    "class_lines",
    "describe_plan",
    "heading",
]


def heading(title: str) -> None:
    """A title over a section of output."""
    click.secho(f"\n== {title} ==", bold=True)


def describe_plan(artifact: Artifact) -> str:
    """One line: how programs are mapped, and which shared tiles are kept."""
    kept = f"shared tiles: {artifact.materialization.value}"
    if artifact.materialization_reason:
        kept = f"{kept} ({artifact.materialization_reason})"
    if artifact.early_views:
        kept = f"{kept}; common views loaded early"
    planned = artifact.plan is not None and artifact.plan.dependent
    if planned or artifact.options.dependent_launch:
        kept = f"{kept}; launched before the kernel it follows has ended"
    if artifact.plan is not None:
        return f"{artifact.plan.describe()}; {kept}"
    if artifact.group_plans:
        return "\n".join(f"{plan.describe()}; {kept}" for plan in artifact.group_plans)
    programs = _programs(artifact.tile_ir)
    who = "over the processor's cores" if artifact.kind == "llvm" else "one thread each"
    why = f" ({artifact.fallback})" if artifact.fallback else ""
    return f"reference map{why}, {programs} programs {who}; {kept}"


def class_lines(artifact: Artifact) -> Iterator[str]:
    """The plan of each class of dynamic extents; nothing where there is one class."""
    if len(artifact.variants) == 1:
        return
    yield "that is for the greatest extents; by class:"
    width = max(len(variant.ranges) for variant in artifact.variants)
    for variant in artifact.variants:
        plan = f"reference map ({variant.refusal})" if variant.refusal else "reference map"
        plan = plan if variant.plan is None else variant.plan.describe()
        yield f"  {variant.ranges:<{width}}  {plan}"


def _programs(program: Program) -> str:
    """How many programs run; a formula where the launch decides."""
    roots = [root for root in program.body if isinstance(root, Parallel)]
    extents = [[axis.extent for axis in root.axes] for root in roots]
    if all(isinstance(extent, int) for nest in extents for extent in nest):
        return str(sum(map(math.prod, extents)))
    return " + ".join("*".join(map(str, nest)) for nest in extents)


def access_lines(program: Program) -> Iterator[str]:
    """Every load and store with what the layout algebra proves of it."""
    for statement, access in accesses(program):
        use = access.use
        facts = ["always inside"]
        if not use.always_valid(0).proven:
            where = " and ".join(map(str, use.validity))
            policy = statement.bounds.value
            facts = [f"{'promised' if policy == 'assume' else f'guarded ({policy})'}: {where}"]
        if isinstance(statement, Store):
            once = access.exclusive(0)
            twice = f"an element may be stored twice ({once.kind.value})"
            facts.append("no element is stored twice" if once.proven else twice)
        yield f"{format_statement(statement)}\n    {'; '.join(facts)}"


def admission_lines(artifact: Artifact) -> Iterator[str]:
    """Every row of the admission table with its verdict and reason."""
    if artifact.proof is None:
        yield f"SIMD-group maps are not considered on {artifact.kind} with these options"
        return
    yield f"considered: {artifact.proof.reason}"
    width = max(len(row.name) for row in artifact.proof.rows)
    for row in artifact.proof.rows:
        yield f"{row.name:<{width}}  {row.verdict:<9}  {row.reason}"


def candidate_lines(artifact: Artifact) -> Iterator[str]:
    """Every enumerated candidate with its score or rejection; the chosen one is marked."""
    plan = artifact.plan
    for group in artifact.group_plans:
        yield from _group_lines(group)
    if artifact.group_plans:
        return
    if plan is None:
        yield artifact.fallback or "none"
        return
    clusters = any(candidate.blocks_per_program > 1 for candidate in plan.candidates)
    staged = any(candidate.staged for candidate in plan.candidates)
    shared = any(candidate.programs_per_subgroup > 1 for candidate in plan.candidates)
    stripes = "   stripes" if staged else ""
    peeled = any(candidate.peeled for candidate in plan.candidates)
    columns = f"   S   Q   V{'   C' if clusters else ''}{'   R' if shared else ''}"
    yield f"{columns}  threads{stripes}{'  peeled' if peeled else ''}  score"
    for candidate in plan.candidates:
        sharing = (candidate.programs_per_subgroup,) if shared else ()
        shown = (*candidate.shape[: 4 if clusters else 3], *sharing)
        numbers = "".join(f"{n:>4}" for n in shown)
        threads = candidate.shape.threads(plan.lanes)
        outcome = f"{candidate.score:g}" if candidate.score is not None else candidate.rejection
        mark = " <- chosen" if candidate.shape == plan.shape else ""
        where = ("shared" if candidate.staged else "register") if staged else ""
        where = f"{where:>{10 if staged else 0}}"
        if peeled:
            where += f"{'yes' if candidate.peeled else 'no':>8}"
        yield f"{numbers}{threads:>9}{where}  {outcome}{mark}"


def _group_lines(plan: CooperativePlan) -> Iterator[str]:
    """The thread counts of a cooperative group, then its phases with their prices."""
    yield "threads  score"
    for candidate in plan.candidates:
        outcome = f"{candidate.score:g}" if candidate.score is not None else candidate.rejection
        mark = " <- chosen" if candidate.threads == plan.threads else ""
        yield f"{candidate.threads:>7}  {outcome}{mark}"
    yield "phase  realization  price"
    for number, (kind, price) in enumerate(zip(plan.realizations, plan.prices, strict=True)):
        fence = "  (fence before it)" if number in plan.fences else ""
        yield f"{number:>5}  {kind:<11}  {price:g}{fence}"
    yield from plan.notes

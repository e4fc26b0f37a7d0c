"""Which tiles a target keeps in storage, where its options leave that open."""

from __future__ import annotations

from typing import NamedTuple

from tvm_tilex.ir import IndexConstant, Load, Program, Statement, Store, Value
from tvm_tilex.ir.walk import defined, walk
from tvm_tilex.lowering import SharedTileMaterialization, bytes_moved
from tvm_tilex.plan.cost import IN_TURN
from tvm_tilex.plan.materialization import MaterializationFacts, choose_materialization
from tvm_tilex.transform.options import CompileOptions

__all__ = ["Materialization", "materializations"]

# Elements of a tile from which LOADED is considered: it won nowhere on narrower rows.
_WIDE = 8192
# Elements of a stored row for which reading rows again is considered: it won on no others.
_READ_AGAIN = range(1024, 16385)
# Policies that price what is computed again, so that materializations compare.
_COMPARABLE = ("default", "occupancy", IN_TURN)


class Materialization(NamedTuple):
    """Which tiles are kept, whether views are, whether what all programs read is loaded early."""

    tiles: SharedTileMaterialization
    keep_views: bool
    early_views: bool = False

    def __str__(self) -> str:
        return self.tiles.value + ("-early" if self.early_views else "")


def materializations(
    program: Program, kind: str, options: CompileOptions
) -> tuple[tuple[tuple[Materialization, ...], ...], str]:
    """Which shared tiles are kept, and whether views are: the target's order of preference.

    Those of one rank are planned both, and the cost decides. And the reason of a CPU's planner,
    which prefers one choice.
    """
    stated = options.shared_tile_materialization
    keep = kind == "cuda"
    if kind == "llvm":
        if stated is not None:
            return ((Materialization(stated, False),),), ""
        mode, reason = _on_processor(program, noalias=options.noalias is not False)
        return ((Materialization(mode, False),),), reason
    if stated is not None:
        return (_early(program, kind, options, (Materialization(stated, keep),)),), ""
    preserve, loaded, recompute = (
        SharedTileMaterialization[n] for n in ("PRESERVE", "LOADED", "RECOMPUTE")
    )
    kept: tuple[Materialization, ...] = (Materialization(preserve, keep),)
    staged = options.reduction_stripe_storage == "shared"
    if keep and (staged or _longest(program) >= _WIDE) and options.cost_policy in _COMPARABLE:
        kept = (Materialization(preserve, True), Materialization(loaded, True))
    kept = _early(program, kind, options, kept)
    # Rows that are kept in a stated place are kept.
    again = _stored(program) in _READ_AGAIN and options.reduction_stripe_storage is None
    if keep and again and options.cost_policy in _COMPARABLE:
        row = (Materialization(recompute, False),)
        asked = bool(options.reduction_early_views)
        kept = (*kept, *(_early(program, kind, options, row) if asked else row))
    if options.explicit_request:
        return (kept,), ""
    # Beyond the stripe bound a row is read again rather than run by one thread.
    last: tuple[tuple[Materialization, ...], ...] = ((Materialization(recompute, False),),)
    if keep:
        last = ((Materialization(preserve, False),), *last)
    return (kept, *last), ""


def _early(
    program: Program, kind: str, options: CompileOptions, kept: tuple[Materialization, ...]
) -> tuple[Materialization, ...]:
    """The choices, and each with early views where the program has any."""
    asked = options.reduction_early_views
    comparable = options.cost_policy in _COMPARABLE
    if kind != "cuda" or asked is False or not (asked or comparable):
        return kept
    if not any(_common(statement) for statement in walk(program)):
        return kept
    early = tuple(choice._replace(early_views=True) for choice in kept)
    return early if asked else (*kept, *early)


def _common(statement: Statement) -> bool:
    """Whether a tile of a view is loaded that is the same for every program."""
    if not isinstance(statement, Load) or statement.result.type.elements == 1:
        return False
    return all(isinstance(index, IndexConstant) for index in statement.origin)


def _stored(program: Program) -> int:
    """Elements of the longest tile that a program stores."""
    stored = (s.value for s in walk(program) if isinstance(s, Store))
    return max((v.type.elements for v in stored if isinstance(v, Value)), default=0)


def _longest(program: Program) -> int:
    """Elements of a program's longest tile."""
    return max((v.type.elements for s in walk(program) for v in defined(s)), default=0)


def _on_processor(program: Program, *, noalias: bool) -> tuple[SharedTileMaterialization, str]:
    preserve, again = (SharedTileMaterialization[n] for n in ("PRESERVE", "EXPENSIVE_ONLY"))
    facts = MaterializationFacts(
        kept=bytes_moved(program, preserve, noalias=noalias),
        again=bytes_moved(program, again, noalias=noalias),
    )
    choice = choose_materialization(facts)
    return (preserve if choice.keep else again), choice.reason

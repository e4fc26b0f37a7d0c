"""How the threads of a group share a matrix product: integers of each realization."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.plan.group_facts import GroupFacts, GroupRequest, PhaseFacts, PhaseKind

__all__ = ["Arrangement", "MatrixAtom", "arrange"]


@dataclass(frozen=True)
class MatrixAtom:
    """A matrix instruction of one SIMD group, as far as a planner needs it.

    ``factor`` is the element type of its factors; ``registers`` says whether its result stays
    with the threads (else in shared memory).
    """

    name: str
    rows: int
    columns: int
    depth: int
    factor: str
    registers: bool


@dataclass(frozen=True)
class Arrangement:
    """Who computes which results: ``down`` x ``across`` threads (fma) or SIMD groups (matrix).

    ``slots`` results belong to one thread where they stay with the threads, else 0.
    """

    kind: str  # "scalar", "fma" or "matrix"
    down: int = 1
    across: int = 1
    slots: int = 0
    atom: str = ""


def arrange(
    facts: GroupFacts,
    phase: PhaseFacts,
    threads: int,
    lanes: int,
    request: GroupRequest,
    atoms: tuple[MatrixAtom, ...],
) -> Arrangement:
    """The realization of a product for a thread count: matrix, else fma, else scalar.

    A demand that the product's shape does not permit falls to the next one.
    """
    assert phase.kind is PhaseKind.product
    plain = phase.rows > 0 and phase.columns > 0
    if plain and request.products in (None, "matrix") and threads % lanes == 0:
        for atom in atoms:
            found = _on_atom(facts, phase, threads // lanes, lanes, atom)
            if found is not None:
                return found
    if plain and request.products != "scalar":
        return _on_threads(phase, threads)
    return Arrangement("scalar", slots=-(-phase.count // threads))


def _on_atom(
    facts: GroupFacts, phase: PhaseFacts, subgroups: int, lanes: int, atom: MatrixAtom
) -> Arrangement | None:
    """SIMD groups over the fragments: whole rows where rows are used on, else the fewest loads."""
    fits = (
        atom.factor == phase.factor
        and phase.rows % atom.rows == 0
        and phase.columns % atom.columns == 0
        and phase.depth % atom.depth == 0
    )
    if not fits:
        return None
    tiles_down, tiles_across = phase.rows // atom.rows, phase.columns // atom.columns
    if not atom.registers:
        return Arrangement("matrix", atom=atom.name)
    best: tuple[float, int, int] | None = None
    for down in range(min(subgroups, tiles_down), 0, -1):
        across = subgroups // down
        if subgroups % down or tiles_down % down or tiles_across % across:
            continue
        # One load fills a fragment of the first factor, or two neighbouring ones of the second.
        loads = tiles_down / down + tiles_across / across / 2
        if best is None or (loads < best[0] and not _rows_used(facts, phase)):
            best = (loads, down, across)
    if best is None:
        return None
    _, down, across = best
    slots = (tiles_down // down) * (tiles_across // across) * atom.rows * atom.columns // lanes
    return Arrangement("matrix", down, across, slots, atom.name)


def _rows_used(facts: GroupFacts, product: PhaseFacts) -> bool:
    """Whether phases fold or scale the product's rows, or multiply them with another factor."""
    products = {p.aligned for p in facts.phases if p.kind is PhaseKind.product}
    for phase in facts.phases:
        folds = bool(phase.row_loads) and phase.row_aligned == product.aligned
        scales = bool(phase.row_reads) and phase.aligned == product.aligned
        if folds or scales:
            return True
        if phase.first_factor >= 0:
            factor = facts.tiles[phase.first_factor].aligned
            if factor in products and product.aligned in (factor, phase.aligned):
                return True
    return False


def _on_threads(phase: PhaseFacts, threads: int) -> Arrangement:
    """The grid with the fewest factor loads for each result that keeps the most threads busy."""
    best: tuple[tuple[int, int], Arrangement] | None = None
    for down in _divisors(phase.rows):
        for across in _divisors(phase.columns):
            if down * across > threads:
                continue
            rows, columns = phase.rows // down, phase.columns // across
            rank = (rows * columns, rows + columns)
            if best is None or rank < best[0]:
                best = (rank, Arrangement("fma", down, across, rows * columns))
    assert best is not None
    return best[1]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]

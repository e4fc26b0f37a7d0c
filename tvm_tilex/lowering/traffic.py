"""How many bytes a program's loops over tiles load and store, for one choice of what is kept."""

from __future__ import annotations

from tvm_tilex.ir import Load, Program, Reduce, Statement, Store
from tvm_tilex.ir.walk import defined, is_definition, values_used, walk
from tvm_tilex.lowering.sharing import SharedTileMaterialization, shared_values

__all__ = ["bytes_moved"]


def bytes_moved(program: Program, mode: SharedTileMaterialization, *, noalias: bool) -> int:
    """Bytes of tiles with several elements that one program loads, and stores of kept tiles.

    A reduction, a store and a kept tile make a loop each. It loads every view and every kept tile
    that its value is computed from, once: what a loop reads twice stays in a register. Stores to
    views are the same for every choice and are not counted, nor is how often a loop repeats.
    """
    shared = shared_values(program, mode, noalias=noalias)
    everything = tuple(walk(program))
    made = {value.number: s for s in everything for value in defined(s)}
    widths = {view.name: view.dtype.bytes for view in program.views}
    total = 0
    for statement in everything:
        kept = is_definition(statement) and statement.result.number in shared
        if kept and statement.result.type.elements > 1:
            total += _bytes(statement, {})
        if kept or isinstance(statement, Reduce | Store):
            total += sum(_loaded(statement, made, shared, widths).values())
    return total


def _loaded(
    root: Statement, made: dict[int, Statement], shared: frozenset[int], widths: dict[str, int]
) -> dict[int, int]:
    """Bytes of each tile that the loop of ``root`` loads, by its value's number."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    if isinstance(root, Load) and root.result.type.elements > 1:
        return {root.result.number: _bytes(root, widths)}
    waiting = list(values_used(root))
    while waiting:
        value = waiting.pop()
        source = made.get(value.number)
        if value.number in seen or source is None or not is_definition(source):
            continue
        seen.add(value.number)
        if value.number in shared:
            size = _bytes(source, {})
        elif isinstance(source, Load):
            size = _bytes(source, widths)
        elif isinstance(source, Reduce):
            continue
        else:
            waiting += values_used(source)
            continue
        if value.type.elements > 1:
            found[value.number] = size
    return found


def _bytes(statement: Statement, widths: dict[str, int]) -> int:
    """Bytes of a tile: as its view stores it, or as four bytes an element."""
    assert is_definition(statement)
    width = widths.get(statement.view, 4) if isinstance(statement, Load) else 4
    return statement.result.type.elements * width

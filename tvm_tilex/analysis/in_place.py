"""Whether one array may stand for two views of a TileIR program."""

from __future__ import annotations

from tvm_tilex.ir import BoundsPolicy, Load, Parallel, Program, ProgramCoordinate, Store
from tvm_tilex.ir.walk import walk

__all__ = ["runs_in_place"]


def runs_in_place(program: Program, written: str, other: str) -> bool:
    """Whether no element of the shared array is touched by two programs.

    Either every access is of one and the same region, or the accesses of one root nest agree on
    dimensions that single out the program: there, each is at exactly the program's coordinate.
    """
    if any(program.view(view).bounds is not BoundsPolicy.checked for view in (written, other)):
        return False
    roots = [root for root in program.body if isinstance(root, Parallel)]
    touching = [(root, found) for root in roots if (found := _accesses(root, (written, other)))]
    if len(touching) != 1:
        return False
    ((root, accesses),) = touching
    if len({(access.origin, access.dimensions) for access in accesses}) == 1:
        return True
    own = {
        coordinate.dimension
        for dimension, coordinate in enumerate(accesses[0].origin)
        if isinstance(coordinate, ProgramCoordinate)
        and coordinate.nest == root.nest
        and all(_at(access, dimension, coordinate) for access in accesses)
    }
    return all(axis.extent == 1 or d in own for d, axis in enumerate(root.axes))


def _accesses(root: Parallel, views: tuple[str, str]) -> list[Load | Store]:
    return [
        statement
        for statement in walk(root.body)
        if isinstance(statement, (Load, Store)) and statement.view in views
    ]


def _at(access: Load | Store, dimension: int, coordinate: ProgramCoordinate) -> bool:
    axis = access.dimensions[dimension]
    return access.origin[dimension] == coordinate and (axis is None or axis.extent == 1)

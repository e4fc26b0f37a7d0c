"""Components of a vector: by index, and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError, OutOfBoundsError
from tvm_tilex.sim.operands import ComponentPlace, Expr, pick
from tvm_tilex.sim.types import Type, VectorType

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["component", "swizzle"]

_SWIZZLES = ({c: k for k, c in enumerate("xyzw")}, {c: k for k, c in enumerate("rgba")})


def component(base: Expr, index: Expr, node: ast.Index) -> Expr:
    """Return ``base[index]`` of a vector; a run-time index outside it is a fault."""
    assert isinstance(base.type, VectorType)
    lanes = base.type.lanes
    run, at = base.run, index.run
    if index.constant is not None:
        position = int(index.constant)
        if not 0 <= position < lanes:
            raise MslTypeError(
                f"component {position} of {base.type}", node.line, node.column, "index"
            )
        place = base.place and ComponentPlace(base.place, lanes, (position,))
        return Expr(
            base.type.element,
            lambda machine: run(machine)[position],
            pure=base.pure,
            place=place,
            roots=base.roots,
        )

    def checked(machine: Machine) -> Any:
        found = machine.defined(at(machine), node, "a component index")
        bad = np.logical_or(np.less(found, 0), np.greater_equal(found, lanes))
        bad = np.logical_and(bad, machine.active_array())
        if bad.any():
            machine.fault(OutOfBoundsError, node, f"component index outside 0 to {lanes - 1}", bad)
        return found

    place = base.place and ComponentPlace(base.place, lanes, checked)
    return Expr(
        base.type.element,
        lambda machine: pick(run(machine), checked(machine)),
        place=place,
        roots=base.roots,
    )


def swizzle(base: Expr, node: ast.Member) -> Expr:
    """Return the named components of a vector, in the order of the letters."""
    assert isinstance(base.type, VectorType)
    letters = next((s for s in _SWIZZLES if all(c in s for c in node.name)), None)
    positions = () if letters is None else tuple(letters[c] for c in node.name)
    if not 1 <= len(positions) <= 4 or max(positions) >= base.type.lanes:
        raise MslTypeError(
            f"{base.type} has no component {node.name}", node.line, node.column, "swizzle"
        )
    run = base.run
    kind: Type = base.type.element
    if len(positions) > 1:
        kind = VectorType(base.type.element, len(positions))
    place = None
    if base.place is not None and len(set(positions)) == len(positions):
        place = ComponentPlace(base.place, base.type.lanes, positions)
    return Expr(
        kind,
        lambda machine: pick(run(machine), positions),
        pure=base.pure,
        place=place,
        roots=base.roots,
    )

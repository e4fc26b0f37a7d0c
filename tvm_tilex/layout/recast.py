"""Recast: the same storage counted in another unit.

The unit rule. A map with one zero-based codomain axis gives positions counted in elements.

* ``Recast(r, f, axis)`` with an integer ``r > 1`` counts in units of ``r`` elements. It is
  defined where ``r`` divides the extent of ``axis`` and every aligned block of ``r`` coordinates
  along ``axis`` fills one whole unit: f is ``r * k, r * k + 1, ...`` there. That is proved
  (contiguity) or the recast is refused. ``g(.., x, ..) = f(.., r * x, ..) // r``; extent and
  codomain shrink by r.
* ``Recast(1/r, f, axis)`` counts in parts, ``r`` per element:
  ``g(.., x, ..) = r * f(.., x // r, ..) + x % r``; extent and codomain grow by ``r``. It is
  always defined.

``Recast(r, Recast(1/r, f)) = f`` always; ``Recast(1/r, Recast(r, f)) = f`` where the first exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap, Piece, checks_of
from tvm_tilex.layout.expr import (
    Expr,
    coordinate,
)
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.visitor import substitute

__all__ = ["Recast"]


@dataclass(frozen=True)
class Recast(LayoutMap):
    """``map`` recounted along ``axis``; ``factor`` is ``r`` or ``1/r`` (see the module's rule)."""

    factor: Fraction
    map: LayoutMap
    axis: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", Fraction(self.factor))
        inner = self.map.domain
        if not self.axis:
            object.__setattr__(self, "axis", inner.names[-1] if inner.names else "")
        if self.axis not in inner.names:
            raise LayoutError(f"recast: '{self.axis}' is not an axis of the domain {inner.names}")
        if self.factor <= 0 or 1 not in (self.factor.numerator, self.factor.denominator):
            raise LayoutError(f"recast: unit {self.factor} is neither r nor 1/r")
        target = self.map.codomain
        if target.rank != 1 or target.guards or target.box_size is None or target.axes[0].lower:
            raise LayoutError("recast: the map needs one static zero-based codomain axis")
        extent = inner.axes[inner.names.index(self.axis)]
        if not isinstance(extent.extent, int) or extent.lower:
            raise LayoutError(f"recast: axis '{self.axis}' is not static and zero-based")
        if self.unit[0] > 1:
            self._require_units(extent.extent)
        _ = (self.domain, self.codomain)  # sizes past 64-bit range are refused here

    @property
    def unit(self) -> tuple[int, int]:
        """``(r, 1)`` or ``(1, r)``."""
        return (self.factor.numerator, self.factor.denominator)

    def _require_units(self, extent: int) -> None:
        from tvm_tilex.layout.contiguity import contiguity

        r = self.unit[0]
        if extent % r or (self.map.codomain.box_size or 0) % r:
            raise LayoutError(f"recast: {r} does not divide the extents of axis '{self.axis}'")
        answer = contiguity(self.map, self.axis, at_most=r)
        if answer.value is None or answer.value % r or not answer.verdict.proven:
            raise LayoutError(
                f"recast: axis '{self.axis}' is not proved to fill whole units of {r}"
                f" ({answer.verdict})"
            )

    @property
    def domain(self) -> IndexSet:
        """The domain with the recast axis shrunk or grown."""
        inner = self.map.domain
        up, down = self.unit
        axes = tuple(
            Axis(a.name, a.bounds()[1] // up + 1 if up > 1 else (a.bounds()[1] + 1) * down)
            if a.name == self.axis
            else a
            for a in inner.axes
        )
        return IndexSet(axes, substitute(inner.guards, self._coordinates()), inner.parameters)

    @property
    def codomain(self) -> IndexSet:
        """The codomain in the new unit."""
        axis = self.map.codomain.axes[0]
        up, down = self.unit
        size = self.map.codomain.box_size or 0
        return IndexSet((Axis(axis.name, size // up if up > 1 else size * down),))

    def _coordinates(self) -> dict[str, Expr]:
        up, down = self.unit
        x = coordinate(self.axis)
        return {self.axis: x * up if up > 1 else x // down if down > 1 else x}

    def build_pieces(self) -> tuple[Piece, ...]:
        """Rescale the coordinate and the value of each branch."""
        up, down = self.unit
        values = self._coordinates()
        rest = coordinate(self.axis) % down
        built = []
        for p in self.map.pieces:
            (value,) = substitute(p.outputs, values)
            checks = tuple(type(c)(substitute((c.value,), values)[0], c.axis) for c in p.checks)
            if up > 1:
                result = value // up
            else:
                result = value * down + rest if down > 1 else value
            built.append(
                Piece(
                    substitute(p.guards, values),
                    checks + checks_of((value,), self.map.codomain),
                    (result,),
                )
            )
        return tuple(built)

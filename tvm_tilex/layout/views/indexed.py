"""Gather and scatter: a coordinate that is read from memory, feeding a view.

The index is data, so it is no part of any layout. What the layout sees is one more coordinate,

    (result coordinates, index) -> view coordinates -> address

and the operation supplies that coordinate after it has loaded it. All reasoning about the address
map stays possible; only the value of the index is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.evaluate import ArrayEvaluation, IntArray
from tvm_tilex.layout.expr import Parameter
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.nodes import Project
from tvm_tilex.layout.views.policy import BoundsPolicy
from tvm_tilex.layout.views.view import TensorView

__all__ = ["IndexedAccess", "gather", "scatter"]


@dataclass(frozen=True)
class IndexedAccess:
    """An access of ``view`` whose coordinate along ``axis`` is loaded through ``index``.

    ``domain`` has the view's axes without ``axis``, then the index's axes not among them; an axis
    that both have runs together. An index outside the axis selects nothing: a gather gives
    ``fill``, a scatter writes nothing, and no memory is touched.
    """

    view: TensorView
    axis: str
    index: TensorView
    writes: bool = False
    fill: int | float = 0

    def __post_init__(self) -> None:
        if self.axis not in self.view.domain.names:
            raise LayoutError(f"'{self.axis}' is not an axis of the view {self.view.domain.names}")
        if self.axis in self.index.domain.names:
            raise LayoutError(f"the index has the axis '{self.axis}' that it selects along")
        if self.view.domain.guards or self.index.domain.guards:
            raise LayoutError("an indexed access needs boxes; state guards as validity")
        if "int" not in self.index.buffer.dtype:
            raise LayoutError(f"the index is {self.index.buffer.dtype}, not an integer")
        mine = {a.name: a for a in self.view.domain.axes}
        for axis in self.index.domain.axes:
            if mine.get(axis.name, axis) != axis:
                raise LayoutError(f"axis '{axis.name}' has two extents, in the view and the index")

    @property
    def domain(self) -> IndexSet:
        """The coordinates of the result (of the written values, for a scatter)."""
        kept = [a for a in self.view.domain.axes if a.name != self.axis]
        kept += [a for a in self.index.domain.axes if a not in kept]
        return IndexSet(tuple(kept), (), self._parameters)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        both = (*self.view.domain.parameters, *self.index.domain.parameters)
        return tuple(dict.fromkeys(both))

    @property
    def selection(self) -> LayoutMap:
        """(domain, index coordinate) -> view coordinates: a choice of axes, and nothing else."""
        chosen = next(a for a in self.view.domain.axes if a.name == self.axis)
        axes = (*self.domain.axes, Axis(self.axis, chosen.extent, chosen.lower))
        whole = IndexSet(axes, (), self._parameters)
        return Project(whole, self.view.domain.names)

    @property
    def addressed(self) -> TensorView:
        """The view over (domain, index coordinate): what the loaded coordinate is applied to."""
        return self.view.compose(self.selection)

    def read(self, memory: Any, index_memory: Any) -> tuple[Any, Any]:
        """Return ``(values, active)`` of a gather over ``domain``."""
        if self.writes:
            raise LayoutError("a scatter is not read")
        places, inside, active = self._places(index_memory)
        values = np.full(inside.shape, self.fill, memory.dtype)
        found, there = memory[places], inside
        if self.view.bounds is BoundsPolicy.zero:
            valid = self._valid(index_memory)
            values = np.where(inside & ~valid, memory.dtype.type(0), values)
            there = inside & valid
        return np.where(there, found, values), active

    def write(self, memory: Any, index_memory: Any, values: Any) -> None:
        """Write ``values`` (of ``domain``) where the index says.

        Raises
        ------
        LayoutError
            Where two points select one place: no order between them is defined.
        """
        if not self.writes:
            raise LayoutError("a gather is not written")
        places, inside, active = self._places(index_memory)
        chosen = inside & active & self._valid(index_memory)
        where = tuple(p[chosen] for p in places)
        linear = np.ravel_multi_index(where, memory.shape)
        if np.unique(linear).size != linear.size:
            raise LayoutError(f"scatter into {self.view.buffer.name}: two points select one place")
        memory[where] = np.broadcast_to(values, chosen.shape)[chosen]

    # -- reference evaluation --------------------------------------------------------------

    def _coordinates(self, index_memory: Any) -> tuple[dict[str, IntArray], Any, Any]:
        """Return every coordinate over the domain, the index clipped; inside; index active."""
        if not self.domain.is_static or not self.addressed.domain.is_static:
            raise LayoutError(f"an access over {self.domain} is evaluated at static extents only")
        shape = self.domain.shape
        grid = np.indices(shape, np.int64)
        known = {a.name: g + a.lower for a, g in zip(self.domain.axes, grid, strict=True)}
        loaded, active = self.index.read(index_memory)
        own = self.index.domain.axes
        where = tuple(known[a.name] - a.lower for a in own)
        index, live = loaded[where].astype(np.int64), active[where]
        axis = next(a for a in self.view.domain.axes if a.name == self.axis)
        low, high = axis.bounds()
        inside = (index >= low) & (index <= high)
        known[self.axis] = index.clip(low, max(low, high))
        return known, inside, live

    def _valid(self, index_memory: Any) -> Any:
        known, _, _ = self._coordinates(index_memory)
        valid = np.ones(self.domain.shape, np.bool_)
        for guard in self.view.validity:
            valid &= np.broadcast_to(ArrayEvaluation(known).visit(guard), valid.shape) != 0
        return valid

    def _places(self, index_memory: Any) -> tuple[tuple[IntArray, ...], Any, Any]:
        known, inside, live = self._coordinates(index_memory)
        chosen = inside & self._valid(index_memory)
        point = [known[name][chosen] for name in self.view.domain.names]
        found = self.view.address_map.apply_array(*point)
        addresses = []
        for column in found if isinstance(found, tuple) else (found,):
            full = np.zeros(chosen.shape, np.int64)
            full[chosen] = column
            addresses.append(full)
        if self.view.bounds is BoundsPolicy.predicate:
            inside = chosen
        if self.view.bounds is BoundsPolicy.assume and (inside & ~chosen).any():
            raise LayoutError(f"view of {self.view.buffer.name}: an index selects an invalid point")
        return tuple(addresses), inside, live


def gather(view: TensorView, axis: str, index: TensorView, fill: int | float = 0) -> IndexedAccess:
    """Return the access that reads ``view`` at ``axis = index``, or gives ``fill``."""
    return IndexedAccess(view, axis, index, writes=False, fill=fill)


def scatter(view: TensorView, axis: str, index: TensorView) -> IndexedAccess:
    """Return the access that writes ``view`` at ``axis = index``."""
    return IndexedAccess(view, axis, index, writes=True)

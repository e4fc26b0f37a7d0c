"""Copies of views into tiles by vectors: the element phases that move most of a group's bytes.

Before::

    for row, e in T.grid(R, N): tile[row, e] = in_bounds(row, e) ? view[.., base + e] : 0

After, with V elements a vector, g = round * T + thread, row = g // (N / V), e = V (g mod (N / V))::

    if in_bounds(row, e) and in_bounds(row, e + V - 1):
        for v in T.vectorized(V): tile[row, e + v] = view[.., base + e + v]
    else:
        for v in T.serial(V): tile[row, e + v] = in_bounds(row, e + v) ? ... : 0

Legality is :mod:`tvm_tilex.analysis.group_copies`'.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.group_copies import read_copy
from tvm_tilex.analysis.group_structure import Elements
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import as_index, serial, substitute
from tvm_tilex.transform.group_frame import GroupFrame
from tvm_tilex.transform.group_maps import LinearMap

__all__ = ["vector_copy"]


def vector_copy(
    frame: GroupFrame,
    phase: Elements,
    number: int,
    width: int,
    *,
    asynchronous: bool = False,
) -> Any | None:
    """The phase by vectors of ``width`` elements, or None where it is no copy.

    ``asynchronous`` copies are started and not waited for (CUDA).
    """
    found = read_copy(phase)
    if found is None:
        return None
    condition, load = found
    loops = phase.loops
    inner = loops[-1]
    extents = [int(loop.extent.value) for loop in loops]
    groups = (*extents[:-1], extents[-1] // width)
    linear = LinearMap(groups, frame.plan.threads, frame.worker, frame.dtype)
    shared = frame.shared[number]

    def group(coordinates: list[Any], _: Any) -> Any:
        at = {
            loop.loop_var: as_index(str(loop.loop_var.ty.dtype), coordinate)
            for loop, coordinate in zip(loops[:-1], coordinates, strict=False)
        }
        first = coordinates[-1] * frame.integer(width)

        def there(offset: Any) -> dict[Any, Any]:
            dtype = str(inner.loop_var.ty.dtype)
            return {**at, inner.loop_var: as_index(dtype, first + offset)}

        def store(value: Any, offset: Any) -> Any:
            indices = [substitute(index, there(offset)) for index in phase.store.indices]
            return frame.store(shared, value, frame.place(number, indices))

        lane = tirx.Var("v", frame.dtype)
        size = width * dtype_of(str(load.source.ty.dtype)).bytes
        if asynchronous and size in (4, 8, 16):
            zero = frame.integer(0)
            indices = [substitute(index, there(zero)) for index in phase.store.indices]
            to = shared[tuple(frame.place(number, indices))]
            fast = tirx.Evaluate(compat.copy_async(to, substitute(load, there(zero)), size))
        else:
            moved = store(substitute(load, there(lane)), lane)
            fast = serial(lane, width, moved, tirx.ForKind.VECTORIZED)
        if condition is None:
            return fast
        inside = tirx.all(
            substitute(condition, there(frame.integer(0))),
            substitute(condition, there(frame.integer(width - 1))),
        )
        each = tirx.Var("v", frame.dtype)
        slow = serial(each, width, store(substitute(phase.store.value, there(each)), each))
        return tirx.IfThenElse(inside, fast, slow)

    return linear.visit(group)

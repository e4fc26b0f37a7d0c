"""Copies of views into tiles by vectors: the element phases that move most of a group's bytes.

Before::

    for row, e in T.grid(R, N): tile[row, e] = in_bounds(row, e) ? view[.., base + e] : 0

After, with V elements a vector, g = round * T + thread, row = g // (N / V), e = V (g mod (N / V))::

    if in_bounds(row, e) and in_bounds(row, e + V - 1):
        for v in T.vectorized(V): tile[row, e + v] = view[.., base + e + v]
    else:
        for v in T.serial(V): tile[row, e + v] = in_bounds(row, e + v) ? ... : 0

A bounds condition is a conjunction of linear inequalities, so what holds at both ends of V
consecutive elements holds between them. Proof obligations: the last index of the view is the
element plus a multiple of V, the other indices do not depend on it, every other stride of the
view is a multiple of V. The base address is checked at launch.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.group_structure import Elements
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx.compat import IF_THEN_ELSE, Analyzer, Call, Op, TensorLoad, tirx
from tvm_tilex.transform.common import as_index, serial, substitute
from tvm_tilex.transform.group_frame import GroupFrame, reinterpreted
from tvm_tilex.transform.group_maps import LinearMap

__all__ = ["copied_view", "copy_width", "vector_copy"]


def copy_width(phase: Elements, max_bytes: int) -> int:
    """Elements that a copy phase may move at once: a power of two; 1 where it is no copy."""
    found = _copy(phase)
    if found is None:
        return 1
    condition, load = found
    item = dtype_of(str(load.source.ty.dtype)).bytes
    width = max(1, max_bytes // item)
    extent = int(phase.loops[-1].extent.value)
    while width > 1 and not (extent % width == 0 and _contiguous(phase, load, width)):
        width //= 2
    if condition is not None and not _linear(condition):
        return 1
    return width


def copied_view(phase: Elements) -> Any:
    """The view that a copy phase reads."""
    found = _copy(phase)
    assert found is not None
    return found[1].source


def vector_copy(
    frame: GroupFrame, phase: Elements, number: int, width: int, *, ahead: bool
) -> Any | None:
    """The phase by vectors of ``width`` elements, or None where it is no copy."""
    found = _copy(phase)
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
            return frame.store(shared, value, frame.place(number, indices, ahead=ahead))

        lane = tirx.Var("v", frame.dtype)
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


def _copy(phase: Elements) -> tuple[Any | None, Any] | None:
    """(bounds condition or None, load) of a phase that copies a view as it is."""
    if not phase.loops or phase.condition is not None:
        return None
    value = reinterpreted(phase.store.value)
    condition = None
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == IF_THEN_ELSE:
        condition, value, _ = value.args
        if loads(condition):
            return None
        value = reinterpreted(value)
    if not isinstance(value, TensorLoad) or value.source.scope() != "global":
        return None
    last = phase.store.indices[-1]
    if not last.same_as(phase.loops[-1].loop_var):
        return None
    if any(loads(index) for index in value.indices):
        return None
    return condition, value


def _contiguous(phase: Elements, load: Any, width: int) -> bool:
    inner = phase.loops[-1].loop_var
    *outer, last = load.indices
    if any(mentions(index, inner) for index in outer):
        return False
    shape = load.source.ty.shape
    if len(shape) > 1 and int(shape[-1].value) % width:
        return False
    analyzer = Analyzer()
    base = analyzer.simplify(last - inner)
    if mentions(base, inner):
        return False
    rest = analyzer.simplify(tirx.floormod(base, tirx.IntImm(str(base.ty.dtype), width)))
    return isinstance(rest, tirx.IntImm) and int(rest.value) == 0


def _linear(condition: Any) -> bool:
    """Whether a condition is a conjunction of comparisons."""
    if isinstance(condition, tirx.And):
        return _linear(condition.a) and _linear(condition.b)
    return isinstance(condition, (tirx.LT, tirx.LE, tirx.GT, tirx.GE))

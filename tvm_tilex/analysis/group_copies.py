"""Element phases that copy a view into a tile, and by how many elements at once they may.

Obligations for V elements: the last index of the view is the element plus a multiple of V, the
other indices do not depend on it, every other stride of the view is a multiple of V. Bounds are a
conjunction of linear inequalities, so what holds at both ends of V consecutive elements holds
between them. The base address is checked at launch.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.group_structure import Elements
from tvm_tilex.analysis.purity import loads, mentions
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx.compat import IF_THEN_ELSE, Analyzer, Call, Op, TensorLoad, tirx

__all__ = ["contiguous", "copy_width", "is_linear", "read_copy", "reinterpreted"]


def reinterpreted(value: Any) -> Any:
    """What a reinterpretation takes its bits from; any other value itself."""
    called = isinstance(value, Call) and isinstance(value.op, Op)
    return value.args[0] if called and value.op.name == "tirx.reinterpret" else value


def copy_width(phase: Elements, max_bytes: int) -> int:
    """Elements that a copy phase may move at once: a power of two; 1 where it is no copy."""
    found = read_copy(phase)
    if found is None:
        return 1
    condition, load = found
    item = dtype_of(str(load.source.ty.dtype)).bytes
    width = max(1, max_bytes // item)
    extent = int(phase.loops[-1].extent.value)
    while width > 1 and not (
        extent % width == 0 and contiguous(load, phase.loops[-1].loop_var, width)
    ):
        width //= 2
    if condition is not None and not is_linear(condition):
        return 1
    return width


def read_copy(phase: Elements) -> tuple[Any | None, Any] | None:
    """(bounds condition or None, load) of a phase that copies a view as it is."""
    if not phase.loops or phase.condition is not None:
        return None
    value = _bits(phase.store.value)
    condition = None
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == IF_THEN_ELSE:
        condition, value, _ = value.args
        if loads(condition):
            return None
        value = _bits(value)
    if not isinstance(value, TensorLoad) or value.source.scope() != "global":
        return None
    last = phase.store.indices[-1]
    if not last.same_as(phase.loops[-1].loop_var):
        return None
    if any(loads(index) for index in value.indices):
        return None
    return condition, value


def _bits(value: Any) -> Any:
    """What a chain of reinterpretations begins with: bfloat16 is selected by its bits."""
    inner = reinterpreted(value)
    return inner if inner is value else _bits(inner)


def contiguous(load: Any, inner: Any, width: int) -> bool:
    """Whether every ``width``-th step of ``inner`` begins a vector of so many elements."""
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


def is_linear(condition: Any) -> bool:
    """Whether a condition is a conjunction of comparisons."""
    if isinstance(condition, tirx.And):
        return is_linear(condition.a) and is_linear(condition.b)
    return isinstance(condition, (tirx.LT, tirx.LE, tirx.GT, tirx.GE))

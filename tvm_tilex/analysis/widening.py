"""Where 16-bit floats say how many bits matter: what a tile keeps, what a kernel stores.

A tile of FP32 that is stored once, as widened 16-bit floats (a view's, or rounded ones), holds no
more than those: widening is exact, so that each use may widen again. A kernel all of whose results
are rounded to 16 bits needs no last bit of FP32 on the way.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.purity import reads_own
from tvm_tilex.tirx.compat import TensorLoad, structural_walk, tirx

__all__ = ["NARROW_FLOATS", "stored_type", "stores_narrow", "viewed"]

NARROW_FLOATS = ("float16", "bfloat16")


def stored_type(store: Any) -> str:
    """The narrowest type that holds what ``store``, a tile's only one, gives it."""
    held, value = str(store.buffer.ty.dtype), store.value
    if held != "float32" or not isinstance(value, tirx.Cast):
        return held
    narrow = str(value.value.ty.dtype)
    return narrow if narrow in NARROW_FLOATS else held


def viewed(store: Any, program: Any) -> bool:
    """Whether ``store`` gives a tile elements of the program's own part of a view, as they stand.

    ``program`` is the variable that counts programs: what all of them read is nobody's own.
    """
    value = store.value
    if stored_type(store) != str(store.buffer.ty.dtype):
        value = value.value
    if not isinstance(value, TensorLoad) or value.source.scope() != "global":
        return False
    return reads_own(value, program)


def stores_narrow(body: Any) -> bool:
    """Whether everything that ``body`` stores to global memory is rounded to a 16-bit float."""
    stored: set[str] = set()

    def visit(store: Any) -> None:
        if store.buffer.scope() == "global":
            stored.add(str(store.buffer.ty.dtype))

    structural_walk(body, (tirx.BufferStore, visit))
    return bool(stored) and stored.issubset(NARROW_FLOATS)

"""Folds the maximum or minimum of 16-bit floats in pairs, widened once at the end.

Before, for the packs of V elements (V even) that a worker folds::

    for chunk: for v in T.serial(V):
        carry[0] = maximum(carry[0], widen(stripe[V * chunk + v]))

After, where the target has the packed instructions (``max.NaN.bf16x2``)::

    carry_pair[0] = a pair of the identity
    for chunk: for p in T.serial(V // 2):
        carry_pair[0] = maximum_bfloat16x2(carry_pair[0], stripe[... + 2 * p], stripe[... + 1])
    carry[0] = maximum(carry[0], maximum_of_bfloat16x2(carry_pair[0]))

Widening is exact and keeps the order, -0 before +0, and NaN: the maximum of widened elements is the
widened maximum. Every other element (of a pack that is partly owned, or computed) still goes to
``carry``, and the order of the two does not matter: a maximum is associative and commutative.

Which elements make a pair matters for speed only: two neighbours of a stripe or of a loaded vector
are the halves of one register already.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.reduction import ReductionUpdate
from tvm_tilex.analysis.widening import NARROW_FLOATS
from tvm_tilex.tirx.compat import Call, Op, TensorLoad, call, structural_map, tirx
from tvm_tilex.tirx.register import PAIR_EXTREMUM, WIDEN, WIDENED_EXTREMUM
from tvm_tilex.transform.common import sequence, serial, substitute

__all__ = ["packed_extrema"]

# Two identities: minus infinity of a maximum, infinity of a minimum.
_IDENTITY = {
    ("maximum", "bfloat16"): 0xFF80FF80,
    ("minimum", "bfloat16"): 0x7F807F80,
    ("maximum", "float16"): 0xFC00FC00,
    ("minimum", "float16"): 0x7C007C00,
}


def packed_extrema(fold: Any, update: ReductionUpdate) -> Any:
    """``fold``, the statement of a worker's part of ``update``, with its whole packs in pairs.

    Returned as it is where no pack is one of stored 16-bit floats, or where the update's own
    operator need not keep NaN.
    """
    if update.combiner not in ("maximum", "minimum") or update.operator in ("max", "min"):
        return fold
    pairs: dict[str, Any] = {}

    def paired(loop: Any) -> Any:
        load = _folded(loop, update)
        if load is None:
            return loop
        dtype = str(load.source.ty.dtype)
        if dtype not in pairs:
            name = f"{update.carry.name}_pair"
            pairs[dtype] = tirx.decl_buffer((1,), "uint32", name, scope="local", layout=None)
        return _by_pairs(loop, load, pairs[dtype], PAIR_EXTREMUM[update.combiner, dtype])

    folded = structural_map(fold, (tirx.For, paired), order="post")
    zero = tirx.IntImm("int32", 0)
    before: list[Any] = []
    after: list[Any] = []
    for dtype, pair in pairs.items():
        kind = update.combiner, dtype
        before += [
            tirx.AllocBuffer(pair),
            tirx.BufferStore(pair, tirx.IntImm("uint32", _IDENTITY[kind]), [zero]),
        ]
        widened = call(WIDENED_EXTREMUM[kind], pair[zero], dtype="float32")
        merged = update.combine(update.carry[zero], widened)
        after.append(tirx.BufferStore(update.carry, merged, [zero]))
    return sequence(*before, folded, *after)


def _folded(loop: Any, update: ReductionUpdate) -> Any | None:
    """The 16-bit element that each of an even number of iterations folds into the carry alone."""
    store = loop.body
    if not isinstance(store, tirx.BufferStore) or not store.buffer.same_as(update.carry):
        return None
    if int(loop.extent.value) % 2:
        return None
    load = _widened(store.value.args[1])
    # Elsewhere neighbours are no halves of one register.
    return load if load is not None and load.source.scope() == "local" else None


def _widened(contribution: Any) -> Any | None:
    """The stored 16-bit float that ``contribution`` widens; None for anything else."""
    if isinstance(contribution, tirx.Cast):
        element = contribution.value
    elif _calls(contribution, WIDEN):
        (element,) = contribution.args
    else:
        return None
    wide, narrow = str(contribution.ty.dtype), str(element.ty.dtype)
    stored = isinstance(element, TensorLoad)
    return element if stored and wide == "float32" and narrow in NARROW_FLOATS else None


def _calls(value: Any, op: str) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == op


def _by_pairs(loop: Any, load: Any, pair: Any, op: str) -> Any:
    dtype = str(loop.loop_var.ty.dtype)
    position, zero = tirx.Var("p", dtype), tirx.IntImm(dtype, 0)
    low = position * tirx.IntImm(dtype, 2)
    elements = (substitute(load, {loop.loop_var: at}) for at in (low, low + tirx.IntImm(dtype, 1)))
    folded = call(op, pair[zero], *elements, dtype="uint32")
    body = tirx.BufferStore(pair, folded, [zero])
    return serial(position, int(loop.extent.value) // 2, body, annotations=loop.annotations)

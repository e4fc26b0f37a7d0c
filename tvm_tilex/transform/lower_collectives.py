"""Expands SIMD-group collectives where the target has none: a butterfly of shuffles on CUDA.

Before::

    carry[0] = subgroup_add(value)

After (offsets 16, 8, 4, 2, 1)::

    carry[0] = value
    other[0] = shuffle_xor(carry[0], offset)
    carry[0] = carry[0] + other[0]

A maximum or minimum is one ``redux.sync`` from compute capability 8.0 on.

Where programs share a SIMD group, a collective names how many aligned neighbours it reduces, W::

    carry[0] = subgroup_add(value, W)

Its offsets begin at W/2 and so never leave them; ``redux.sync``, which a whole SIMD group enters,
is none of these. All lanes take part in each shuffle, whatever programs they serve.

Every lane ends with the result, as a collective's must. The shuffle is a statement of its own, so
that a NaN-aware combination never evaluates it under a condition. This is the last step before
intrinsics are lowered: until then the collective is one opaque call.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx.compat import (
    Call,
    IRModule,
    Op,
    PrimFunc,
    builder,
    call,
    structural_map,
    tirx,
)
from tvm_tilex.tirx.register import MAXIMUM, MINIMUM, SUBGROUP, WARP_EXTREMUM
from tvm_tilex.transform.common import compute_capability, sequence, tilex_pass

__all__ = ["LowerCollectives", "subgroup_collective"]

_COMBINERS = {op: combiner for combiner, op in SUBGROUP.items()}
_LANES = 32
_ALL_LANES = 0xFFFFFFFF


def subgroup_collective(combiner: str, value: Any, workers: int) -> Any:
    """The FP32 collective over a SIMD group, or over ``workers`` of its lanes where they are fewer.

    ``workers``, a power of two, are aligned neighbours.
    """
    part = (tirx.IntImm("int32", workers),) if workers < _LANES else ()
    return call(SUBGROUP[combiner], value, *part, dtype="float32")


@tilex_pass("LowerCollectives")
class LowerCollectives:
    """Expand the collectives of CUDA device functions; other targets have intrinsics."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite every store of a collective's result."""
        target = func.attrs.get("target", None) if func.attrs else None
        if target is None or target.kind.name != "cuda":
            return func
        redux = compute_capability(target) >= 80

        def expand(store: Any) -> Any:
            return _expand(store, redux)

        body = structural_map(func.body, (tirx.BufferStore, expand), order="post")
        return func.with_body(body)


def _expand(store: Any, redux: bool) -> Any:
    found = store.value
    if not (isinstance(found, Call) and isinstance(found.op, Op) and found.op.name in _COMBINERS):
        return store
    combiner = _COMBINERS[found.op.name]
    dtype = str(found.ty.dtype)
    place, indices = store.buffer, list(store.indices)
    value, *part = found.args
    reduced_lanes = int(part[0].value) if part else _LANES
    if redux and not part and combiner in WARP_EXTREMUM:
        reduced = call(WARP_EXTREMUM[combiner], value, dtype=dtype)
        return tirx.BufferStore(place, reduced, indices)
    other = tirx.decl_buffer((1,), dtype, f"{place.name}_other", scope="local", layout=None)
    zero = tirx.IntImm("int32", 0)
    steps = [tirx.AllocBuffer(other), tirx.BufferStore(place, value, indices)]
    offset = reduced_lanes // 2
    while offset:
        current = place[tuple(indices)]
        shuffled = builder.tvm_warp_shuffle_xor(
            tirx.IntImm("uint32", _ALL_LANES), current, offset, _LANES, _LANES
        )
        steps.append(tirx.BufferStore(other, shuffled, [zero]))
        steps.append(tirx.BufferStore(place, _combine(combiner, current, other[zero]), indices))
        offset //= 2
    return sequence(*steps)


def _combine(combiner: str, a: Any, b: Any) -> Any:
    if combiner == "add":
        return a + b
    return call(MAXIMUM if combiner == "maximum" else MINIMUM, a, b, dtype="float32")

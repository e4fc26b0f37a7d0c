"""Replaces local snapshots of immutable views by the views themselves.

Before::

    for i in range(4096): tile0[i] = logits[program, i]
    for k in range(4096): carry[0] = max(carry[0], tile0[k])
    ... if_then_else(0 <= label and label < 4096, tile0[label], 0)

After::

    for k in range(4096): carry[0] = max(carry[0], logits[program, k])
    ... if_then_else(0 <= label and label < 4096, logits[program, label], 0)

With ``keep_owned``, a snapshot's loads at the coordinates of their own domain stay, so that a
worker keeps its part of the view in its stripe and reads memory once; only the others (a gather)
read the view. Which is cheaper is the target's: Metal forwards, CUDA keeps.

Legality is :mod:`tvm_tilex.analysis.views`'; conditions, addresses and fills stay lazy. Reads
``tirx.noalias``, without which no view is immutable. Touches nothing else.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.dimensions import Ranges, dimension_ranges
from tvm_tilex.analysis.structure import statements_of
from tvm_tilex.analysis.views import Snapshot, find_snapshot
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, TensorLoad, structural_map, tirx
from tvm_tilex.transform.common import (
    as_index,
    is_stage,
    sequence,
    substitute,
    tilex_pass,
    with_body,
)

__all__ = ["ForwardViews"]


@tilex_pass("ForwardViews")
class ForwardViews:
    """Forward every snapshot whose loads are all proved in bounds.

    Parameters
    ----------
    keep_owned
        Whether loads at their own domain's coordinates keep reading the snapshot.
    """

    def __init__(self, keep_owned: bool = False) -> None:
        self.keep_owned = keep_owned

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the root loops of a reference function."""
        if not is_stage(func, "reference") or not attrs.noalias(func):
            return func
        body = original = func.body
        dimensions = dimension_ranges(func)
        while True:  # a snapshot of a snapshot is a view once the inner one is
            uses, roots = buffer_uses(body), statements_of(body)
            forwarded = [self._root(root, uses, dimensions) for root in roots]
            if all(new is old for new, old in zip(forwarded, roots, strict=True)):
                return func if body is original else func.with_body(body)
            body = sequence(*forwarded)

    def _root(self, root: Any, uses: Any, dimensions: Ranges) -> Any:
        if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
            return root
        body = statements_of(root.body)
        found = [
            find_snapshot(body, position, uses, root, dimensions) for position in range(len(body))
        ]
        snapshots = [
            snapshot
            for snapshot in found
            if isinstance(snapshot, Snapshot) and not self._kept(snapshot, body, uses, root)
        ]
        if not snapshots:
            return root
        for snapshot in snapshots:
            body = _forward(body, snapshot, root, keep_owned=self.keep_owned)
        return with_body(root, sequence(*body))

    def _kept(self, snapshot: Snapshot, body: list[Any], uses: Any, root: Any) -> bool:
        """Whether the snapshot has no load but those that stay."""
        if not self.keep_owned:
            return False
        owned = snapshot.owned_loads(body[snapshot.position + 1 :], root)
        return len(owned) == len(uses[snapshot.buffer].loads)


def _forward(body: list[Any], snapshot: Snapshot, root: Any, *, keep_owned: bool) -> list[Any]:
    after = [s for s in body[snapshot.position + 1 :] if s is not None]
    owned = [load for load in snapshot.owned_loads(after, root) if keep_owned]

    def view(load: Any) -> Any:
        kept = any(load.same_as(other) for other in owned)
        if not load.source.same_as(snapshot.buffer) or kept:
            return load
        indices = [
            as_index(str(variable.ty.dtype), index)
            for variable, index in zip(snapshot.variables, load.indices, strict=True)
        ]
        return substitute(snapshot.value, dict(zip(snapshot.variables, indices, strict=True)))

    result: list[Any] = []
    for position, statement in enumerate(body):
        defines = position == snapshot.position
        gone = not owned and (defines or (statement and _allocates(statement, snapshot.buffer)))
        if statement is None or gone:
            result.append(None)  # positions of later snapshots stay valid
        else:
            result.append(structural_map(statement, (TensorLoad, view), order="pre"))
    return result


def _allocates(statement: Any, buffer: Any) -> bool:
    return isinstance(statement, tirx.AllocBuffer) and statement.buffer.same_as(buffer)

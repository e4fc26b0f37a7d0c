"""Replaces local snapshots of immutable views by the views themselves.

Before::

    for i in range(4096): tile0[i] = logits[program, i]
    for k in range(4096): carry[0] = max(carry[0], tile0[k])
    ... if_then_else(0 <= label and label < 4096, tile0[label], 0)

After::

    for k in range(4096): carry[0] = max(carry[0], logits[program, k])
    ... if_then_else(0 <= label and label < 4096, logits[program, label], 0)

Legality is :mod:`tvm_tilex.analysis.views`'; conditions, addresses and fills stay lazy. Reads
``tirx.noalias``, without which no view is immutable. Touches nothing else.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.buffers import buffer_uses
from tvm_tilex.analysis.structure import statements_of
from tvm_tilex.analysis.views import Snapshot, find_snapshot
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, TensorLoad, structural_map, tirx
from tvm_tilex.transform.common import is_stage, sequence, substitute, tilex_pass, with_body

__all__ = ["ForwardViews"]


@tilex_pass("ForwardViews")
class ForwardViews:
    """Forward every snapshot whose loads are all proved in bounds."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Rewrite the root loops of a reference function."""
        if not is_stage(func, "reference") or "tirx.noalias" not in func.attrs:
            return func
        uses = buffer_uses(func.body)
        roots = [self._root(root, uses) for root in statements_of(func.body)]
        return func.with_body(sequence(*roots))

    def _root(self, root: Any, uses: Any) -> Any:
        if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
            return root
        body = statements_of(root.body)
        found = [find_snapshot(body, position, uses, root) for position in range(len(body))]
        snapshots = [snapshot for snapshot in found if isinstance(snapshot, Snapshot)]
        if not snapshots:
            return root
        for snapshot in snapshots:
            body = _forward(body, snapshot)
        return with_body(root, sequence(*body))


def _forward(body: list[Any], snapshot: Snapshot) -> list[Any]:
    def view(load: Any) -> Any:
        if not load.source.same_as(snapshot.buffer):
            return load
        return substitute(snapshot.value, dict(zip(snapshot.variables, load.indices, strict=True)))

    kept: list[Any] = []
    for position, statement in enumerate(body):
        defines = position == snapshot.position
        if statement is None or defines or _allocates(statement, snapshot.buffer):
            kept.append(None)  # positions of later snapshots stay valid
        else:
            kept.append(structural_map(statement, (TensorLoad, view), order="post"))
    return kept


def _allocates(statement: Any, buffer: Any) -> bool:
    return isinstance(statement, tirx.AllocBuffer) and statement.buffer.same_as(buffer)

"""Brings ordinary TVM reductions over rows into the canonical marked form, with permission.

Before, as ``te``, topi or Relax's legalization write it::

    for i0, k in T.grid(P, N):
        with T.sblock("sum"): ... s[v0] = s[v0] + x[v0, vk]
    for i0, i1 in T.grid(P, N):
        with T.sblock("y"): ... y[v0, v1] = x[v0, v1] / s[v0]

After::

    for program in T.parallel(P, annotations={"tilex.parallel": 0}):
        carry[0] = 0
        for k in T.serial(N, annotations={"tilex.reduction": "add", "tilex.policy": ...}):
            carry[0] = carry[0] + x[program, k]
        for i1 in T.serial(N, annotations={"tilex.domain": 1}): y[program, i1] = x[...] / carry[0]

Reads no marker and trusts none; what it writes is a claim that
:class:`~tvm_tilex.transform.prove_reductions.ProveReductions` checks again. A function that does
not fit stays as it is, the same object, and the pass's ``report`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm_tilex.analysis.blocks import Foreign, Loop, read_blocks
from tvm_tilex.analysis.purity import loads
from tvm_tilex.ir.ops import Combiner
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.plan.candidates import MAX_GRID
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    TensorLoad,
    call,
    structural_map,
    tirx,
    tvm,
)
from tvm_tilex.tirx.register import MAXIMUM, MINIMUM, register
from tvm_tilex.transform.common import sequence, serial, substitute
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.permission import Outcome, Permission
from tvm_tilex.transform.row_form import RowForm, RowNest, row_form

__all__ = ["CanonicalizeReductions", "canonicalize"]


@tvm.transform.module_pass(opt_level=0, name="tilex.CanonicalizeReductions")
class CanonicalizeReductions:
    """Rewrite every function that fits; leave the others untouched.

    Parameters
    ----------
    policy, accumulate
        See :class:`~tvm_tilex.transform.permission.Permission`. Without a policy nothing is
        touched.
    materialization
        Which intermediate tiles with several consumers keep storage.

    Attributes
    ----------
    report
        An :class:`Outcome` for every function of the last module, in order.
    """

    def __init__(
        self,
        policy: str | None = None,
        *,
        accumulate: str | None = None,
        materialization: SharedTileMaterialization = SharedTileMaterialization.PRESERVE,
    ) -> None:
        self.permission = Permission(policy, accumulate)
        self.materialization = materialization
        self.report: tuple[Outcome, ...] = ()

    def transform_module(self, mod: IRModule, ctx: Any) -> IRModule:
        """Canonicalize the PrimFuncs of a module."""
        outcomes, changed = [], {}
        for variable, function in mod.functions_items():
            if not isinstance(function, PrimFunc):
                continue
            found = canonicalize(function, self.permission, self.materialization)
            reason = found.reason if isinstance(found, Foreign) else None
            outcomes.append(Outcome(str(variable.name_hint), reason))
            if not isinstance(found, Foreign):
                changed[variable] = found
        self.report = tuple(outcomes)
        if not changed:
            return mod
        result = mod.clone()
        for variable, function in changed.items():
            result[variable] = function
        return result


def canonicalize(
    function: PrimFunc,
    permission: Permission,
    materialization: SharedTileMaterialization,
    view_loads: int = 2,
) -> PrimFunc | Foreign:
    """The function in canonical form, or why it stays as it is.

    ``view_loads`` is how many loads of an input make it worth keeping by its worker.
    """
    register()
    if function.attrs and attrs.STAGE in function.attrs:
        return Foreign("it is in canonical form already")
    scheduled = function.attrs.get("tirx.is_scheduled", 0) if function.attrs else 0
    if int(getattr(scheduled, "value", scheduled)):
        return Foreign("it is scheduled already")
    blocks = read_blocks(function)
    if isinstance(blocks, Foreign):
        return blocks
    form = row_form(blocks, materialization, view_loads)
    if isinstance(form, Foreign):
        return form
    if len(form.rows.symbols) > 1:
        return Foreign(f"its {form.rows} rows depend on several symbolic extents")
    if permission.refusal is not None:
        return Foreign(permission.refusal)
    if not attrs.noalias(function):
        return Foreign("kernel ABI: arguments may alias (tirx.noalias is not set)")
    body = _Emitter(form, permission).function()
    if isinstance(body, Foreign):
        return body
    result = function.with_body(body).with_attr(attrs.STAGE, "reference")
    if form.rows.symbols:
        (symbol,) = form.rows.symbols
        limit = MAX_GRID // form.rows.factor
        result = result.with_attr(attrs.DIMENSIONS, {str(symbol.name): [0, limit]})
    if attrs.OPTIONS not in result.attrs:
        result = result.with_attr(attrs.OPTIONS, CompileOptions().to_json())
    return result


Reader = Callable[[Any], Any]


class _Emitter:
    """The statements of one program."""

    def __init__(self, form: RowForm, permission: Permission) -> None:
        self.form = form
        self.permission = permission
        self.dtype = form.blocks.index_dtype
        self.statements: list[Any] = []
        # Stored buffers that the program holds, and how it reads one at a slot.
        self.held: list[tuple[Any, Reader]] = []
        self.views: list[tuple[Any, Reader]] = []

    def _integer(self, value: int) -> Any:
        return tirx.IntImm(self.dtype, value)

    def function(self) -> Any | Foreign:
        """The root loop over the rows."""
        for number, row in enumerate(self.form.nests):
            self._keep_views(row)
            if not row.nest.reduced:
                self._elements(row)
                continue
            problem = self._reduction(row, number)
            if problem is not None:
                return problem
        return tirx.For(
            self.form.program,
            self._integer(0),
            self.form.rows.expression(self.dtype),
            tirx.ForKind.PARALLEL,
            sequence(*self.statements),
            None,
            {attrs.PARALLEL: 0},
        )

    # Reading

    def _read(self, row: RowNest, value: Any) -> Any:
        """``value`` with loads of what the program holds replaced by reads of its own memory."""

        def place(load: Any) -> Any:
            for buffer, reader in self.held:
                if load.source.same_as(buffer):
                    return reader(self.form.slot(load, row.loops))
            for buffer, reader in self.views:
                if load.source.same_as(buffer) and self.form.at_own(load, row):
                    return reader(self.form.slot(load, row.loops))
            return load

        return structural_map(value, (TensorLoad, place), order="post")

    def _allocate(self, name: str, elements: int, dtype: str) -> Any:
        made = tirx.decl_buffer((self._integer(elements),), dtype, name, scope="local", layout=None)
        self.statements.append(tirx.AllocBuffer(made))
        return made

    def _keep_views(self, row: RowNest) -> None:
        """Load a view that several consumers read, before the first of them."""
        for buffer in self.form.views:
            if any(buffer.same_as(known) for known, _ in self.views):
                continue
            found = (load for load in loads(row.value) if load.source.same_as(buffer))
            load = next((load for load in found if self.form.at_own(load, row)), None)
            if load is None:
                continue
            fresh = [tirx.Var(loop.variable.name, self.dtype) for loop in row.loops]
            old = [loop.variable for loop in row.loops]
            loops = tuple(
                Loop(var, loop.extent, False) for var, loop in zip(fresh, row.loops, strict=True)
            )
            slot = substitute(self.form.slot(load, row.loops), dict(zip(old, fresh, strict=True)))
            kept = self._allocate(
                buffer.name, math.prod(loop.extent for loop in loops), str(buffer.ty.dtype)
            )
            value = substitute(load, dict(zip(old, fresh, strict=True)))
            self._domain(loops, tirx.BufferStore(kept, value, [slot]))
            self.views.append((buffer, lambda at, kept=kept: kept[at]))

    # Writing

    def _domain(self, loops: tuple[Loop, ...], store: Any) -> None:
        body = store
        for position, loop in reversed(list(enumerate(loops))):
            marker = {attrs.DOMAIN: len(loops)} if position == 0 else None
            body = serial(loop.variable, loop.extent, body, annotations=marker)
        self.statements.append(body)

    def _elements(self, row: RowNest) -> None:
        value, buffer = self._read(row, row.value), row.nest.buffer
        if not self.form.blocks.is_local(buffer):
            self._domain(row.loops, tirx.BufferStore(buffer, value, list(row.indices)))
            return
        made = self._allocate(buffer.name, row.elements, str(buffer.ty.dtype))
        self._domain(row.loops, tirx.BufferStore(made, value, [row.slot]))
        self.held.append((buffer, lambda at: made[at]))

    def _reduction(self, row: RowNest, number: int) -> Foreign | None:
        buffer, zero = row.nest.buffer, self._integer(0)
        stored = str(buffer.ty.dtype)
        if stored != "float32" and not (
            stored in ("float16", "bfloat16") and self.permission.accumulate == "float32"
        ):
            return Foreign(f"reduction type: {buffer.name} is {stored} state")
        matched = _update(row)
        if isinstance(matched, Foreign):
            return matched
        combiner, contribution = matched
        contribution = self._read(row, contribution)
        if stored != "float32":
            contribution = tirx.Cast("float32", contribution)
        carry = self._allocate(f"{buffer.name}_carry", 1, "float32")
        identity = Combiner[combiner].identity(DTYPES["float32"])
        self.statements.append(tirx.BufferStore(carry, tirx.FloatImm("float32", identity), [zero]))
        (loop,) = row.loops
        marker = {
            attrs.REDUCTION: combiner,
            attrs.POLICY: str(self.permission.policy),
            attrs.VALUE: number,
        }
        step = tirx.BufferStore(carry, _combine(combiner, carry[zero], contribution), [zero])
        self.statements.append(serial(loop.variable, loop.extent, step, annotations=marker))

        def result(_: Any) -> Any:
            return carry[zero] if stored == "float32" else tirx.Cast(stored, carry[zero])

        self.held.append((buffer, result))
        if not self.form.blocks.is_local(buffer):
            self._domain((), tirx.BufferStore(buffer, result(zero), list(row.indices)))
        return None


_COMBINERS = ((tirx.Add, "add"), (tirx.Max, "maximum"), (tirx.Min, "minimum"))


def _combine(combiner: str, state: Any, contribution: Any) -> Any:
    """The language's own operation: its extrema propagate NaN where the target can."""
    if combiner == "add":
        return state + contribution
    return call(MAXIMUM if combiner == "maximum" else MINIMUM, state, contribution, dtype="float32")


def _update(row: RowNest) -> tuple[str, Any] | Foreign:
    """The combiner and the contribution of a reduction's update, its initial value checked."""
    nest = row.nest
    combiner = next((name for kind, name in _COMBINERS if isinstance(row.value, kind)), None)
    if combiner is None:
        return Foreign(f"reduction type: block {nest.name} is not add, maximum or minimum")
    sides = (row.value.a, row.value.b)
    own = [isinstance(side, TensorLoad) and side.source.same_as(nest.buffer) for side in sides]
    if own.count(True) != 1:
        return Foreign(f"canonical state: block {nest.name} does not update its own state once")
    contribution = sides[own.index(False)]
    if any(load.source.same_as(nest.buffer) for load in loads(contribution)):
        return Foreign(f"contribution: block {nest.name} observes its own state")
    if not _begins_right(nest.initial, combiner, str(nest.buffer.ty.dtype)):
        return Foreign(f"canonical state: block {nest.name} starts from {nest.initial}")
    return combiner, contribution


def _begins_right(initial: Any, combiner: str, dtype: str) -> bool:
    """Whether a reduction begins at its identity, or at the largest finite number for one."""
    if not isinstance(initial, tirx.FloatImm):
        return False
    number = float(initial.value)
    if combiner == "add":
        return number == 0 and math.copysign(1.0, number) > 0
    extreme = tirx.min_value(dtype) if combiner == "maximum" else tirx.max_value(dtype)
    return number in (Combiner[combiner].identity(DTYPES["float32"]), float(extreme.value))

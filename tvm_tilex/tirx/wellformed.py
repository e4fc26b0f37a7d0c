"""What must hold of a function of ours after every pass, beyond TVM's own well-formedness."""

from __future__ import annotations

from typing import Any

from tvm_tilex.errors import VerifyError
from tvm_tilex.ir.ops import Combiner, ReductionPolicy
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, ir, structural_map, structural_walk, tirx

__all__ = ["VerifyEachPass", "verify_function"]

_STAGES = ("reference", "scheduled")


def verify_function(function: PrimFunc) -> None:
    """Check one function; functions that are not ours pass.

    Raises
    ------
    VerifyError
        If TVM finds the function ill formed, its stage is unknown, a root of a reference function
        is not a marked parallel loop, or a marker is malformed.
    """
    stage = function.attrs.get(attrs.STAGE, None) if function.attrs else None
    if stage is None:
        return
    name = str(function.attrs.get("global_symbol", "<anonymous>"))
    if str(stage) not in _STAGES:
        raise VerifyError(f"{name}: unknown stage {stage!r}")
    if not tirx.analysis.verify_well_formed(_without_pragmas(function), assert_mode=False):
        raise VerifyError(f"{name}: TVM finds the function not well formed")
    if str(stage) == "reference":
        _verify_roots(name, function.body)
    structural_walk(function.body, (tirx.For, lambda loop: _verify_loop(name, loop)))


def _without_pragmas(function: PrimFunc) -> PrimFunc:
    """Drop the pragma statements, with which TVM names a loop's variable outside of the loop."""

    def drop(statement: Any) -> Any:
        return statement.body if statement.attr_key.startswith("pragma_") else statement

    return function.with_body(structural_map(function.body, (tirx.AttrStmt, drop), order="post"))


def _verify_roots(name: str, body: Any) -> None:
    roots = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    for root in roots:
        if not isinstance(root, tirx.For) or attrs.annotation(root, attrs.PARALLEL) is None:
            raise VerifyError(f"{name}: a root statement is not a marked parallel loop")


def _verify_loop(name: str, loop: Any) -> None:
    combiner = attrs.annotation(loop, attrs.REDUCTION)
    if combiner is not None:
        policy = attrs.annotation(loop, attrs.POLICY)
        known = combiner in Combiner.__members__ and policy in ReductionPolicy.__members__
        if not known or not isinstance(attrs.annotation(loop, attrs.VALUE), int):
            raise VerifyError(f"{name}: malformed reduction marker on loop {loop.loop_var.name}")
    depth = attrs.annotation(loop, attrs.DOMAIN)
    repartition = attrs.annotation(loop, attrs.REPARTITION)
    if repartition is not None and not (depth and isinstance(repartition, int)):
        raise VerifyError(f"{name}: malformed repartition marker on loop {loop.loop_var.name}")
    if depth is None:
        return
    inner = loop
    for _ in range(depth - 1):
        inner = inner.body
        if not isinstance(inner, tirx.For):
            raise VerifyError(
                f"{name}: element domain {loop.loop_var.name} is not {depth} perfectly nested loops"
            )


@ir.instrument.pass_instrument
class VerifyEachPass:
    """TVM pass instrument that verifies every function of ours after every pass."""

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Verify; the error names the pass that ran last."""
        for function in mod.functions.values():
            if not isinstance(function, PrimFunc) or "calling_conv" in (function.attrs or {}):
                continue  # the packed entry point is TVM's own form
            try:
                verify_function(function)
            except VerifyError as error:
                raise VerifyError(f"after pass {info.name}: {error}") from None

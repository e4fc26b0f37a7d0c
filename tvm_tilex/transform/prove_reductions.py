"""Checks the admission table and writes the verdicts on the function.

Reads the function's markers (as claims), ``tilex.options`` and the target; adds ``tilex.proof``.
Changes nothing else. An explicit request whose function is not admitted is an error; automatic
mode leaves the function for the reference map and the proof says which row declined. A function
without an enabled candidate family is left untouched.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.proof_record import record
from tvm_tilex.errors import MappingError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc
from tvm_tilex.transform.common import is_stage, tilex_pass
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.realization import realization_of

__all__ = ["ProveReductions"]


@tilex_pass("ProveReductions")
class ProveReductions:
    """Prove, from the TIRx alone, that each reduction may be distributed.

    Parameters
    ----------
    target, options
        Default to the function's own ``target`` and ``tilex.options`` attributes.
    """

    def __init__(self, target: Any = None, options: CompileOptions | None = None) -> None:
        self.target = target
        self.options = options

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Add the verdicts to a reference function."""
        if not is_stage(func, "reference"):
            return func
        wanted = realization_of(func, self.target, self.options)
        if not wanted.enabled:
            return func
        admission = admit(func, lanes=wanted.target.lanes, kind=wanted.kind)
        found = record(admission, explicit=wanted.explicit, reason=wanted.reason)
        if wanted.explicit and not admission.admitted:
            row = admission.declined
            assert row is not None
            raise MappingError(
                f"{func.attrs['global_symbol']}: SIMD groups were requested, but the row "
                f"'{row.name}' declines: {row.verdict.reason}"
            )
        return func.with_attr(attrs.PROOF, found.to_json())

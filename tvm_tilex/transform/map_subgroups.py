"""Rewrites a planned function onto threadgroups, SIMD groups and lanes.

Before::

    for program in T.parallel(P):
        carry[0] = identity
        for k in T.serial(N): carry[0] = op(carry[0], f(k))      # marked
        for e in T.serial(N): out[program, e] = g(e, carry[0])

After, with S SIMD groups a program, one program a threadgroup::

    launch blockIdx.x = P, threadIdx.x = W = 32 * S
        carry[0] = identity
        for chunk: carry[0] = op(carry[0], f(W * chunk + w))
        carry[0] = subgroup(carry[0])
        if lane == 0: partials[s] = carry[0]
        barrier
        carry[0] = subgroup(partials[lane] if lane < S else identity)
        for chunk: out[program, W * chunk + w] = g(W * chunk + w, carry[0])

Both collectives are uniform; only the write of a partial is conditional (spec section 2). For
S = 1 there is neither scratch nor barrier, and Q programs share a threadgroup: a partial last
group is guarded as a whole, which is uniform in each SIMD group. Packed cooperating programs
(S > 1, Q > 1) replay the last valid row and suppress its stores instead, because the barrier must
be reached by the whole threadgroup. So do the R > 1 programs that share a SIMD group (W = 32 / R),
because all of its lanes must reach each shuffle.

With C > 1 threadgroups a program, a cluster, w counts the workers of all of them, every threadgroup
gets the partials of all, and a mailbox takes the place of the barrier: each SIMD group sends its
partial to every threadgroup, whose mailbox says when all have come
(:mod:`tvm_tilex.transform.exchange`). A barrier of the cluster, entered at the start and waited for
before the first exchange, makes sure that all mailboxes are prepared.

Reads ``tilex.plan``; admits the function again and compares the plan with its facts, so that a
stale plan is refused; proves that every element has one owner and one slot, and every place of
staged stripes one thread (:mod:`tvm_tilex.analysis.coverage`); moves it to the stage ``scheduled``.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.coverage import prove_coverage, prove_staging
from tvm_tilex.analysis.peeling import prove_peeled_coverage
from tvm_tilex.analysis.row_alignment import RowPlace
from tvm_tilex.analysis.structure import RowProgram
from tvm_tilex.analysis.widening import stores_narrow
from tvm_tilex.errors import MappingError
from tvm_tilex.plan.facts import ProgramFacts
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.planner import stale
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc
from tvm_tilex.transform.cache_hints import cache_hints
from tvm_tilex.transform.common import is_stage, tilex_pass
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.peeled_rows import PeeledRows
from tvm_tilex.transform.realization import Realization, realization_of
from tvm_tilex.transform.subgroup_mapper import SubgroupMapper, written_buffers
from tvm_tilex.transform.vector_access import VectorAccess

__all__ = ["MapSubgroups"]


@tilex_pass("MapSubgroups")
class MapSubgroups:
    """Realize the plan of an admitted function."""

    def __init__(self, target: Any = None, options: CompileOptions | None = None) -> None:
        self.target = target
        self.options = options

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
        """Map a planned reference function; others pass through."""
        if not is_stage(func, "reference") or attrs.PLAN not in func.attrs:
            return func
        plan = GroupPlan.from_json(str(func.attrs[attrs.PLAN]))
        wanted = realization_of(func, self.target, self.options)
        admission = admit(func, lanes=wanted.target.lanes, kind=wanted.kind)
        if admission.program is None or admission.facts is None:
            raise MappingError(f"{func.attrs['global_symbol']}: changed since it was planned")
        problem = stale(plan, admission.facts, wanted.target)
        if problem is not None:
            raise MappingError(f"{func.attrs['global_symbol']}: its plan does not fit: {problem}")
        facts = admission.facts
        for count in sorted({*facts.domains, *facts.reductions, *facts.stripes}):
            prove = prove_peeled_coverage if plan.peeled else prove_coverage
            covered = prove(count, plan.workers, plan.lane_elements)
            if not covered.proven:
                raise MappingError(f"{func.attrs['global_symbol']}: {covered.reason}")
        written = written_buffers(admission.program.body)
        rows = _peeled_rows(admission.program, plan, facts, wanted)
        vectors = VectorAccess(
            **wanted.vectors, written=written, rows=rows, coherent=plan.dependent
        )
        mapper = SubgroupMapper.of(
            admission.program,
            plan,
            vectors,
            unroll=wanted.options.reduction_unroll,
            cuda=wanted.kind == "cuda",
            pairs=wanted.packed_extrema,
            narrow_results=attrs.PRECISE not in func.attrs and stores_narrow(func.body),
        )
        if wanted.hints_caches:
            vectors.hints = cache_hints(
                admission.program, mapper.execution, written=written, unroll=mapper.unroll
            )
        prove_staging(mapper.stripes.packs, plan.threads, plan.lane_elements)
        mapped = func.with_body(mapper.map()).with_attr(attrs.STAGE, "scheduled")
        if vectors.alignment:
            mapped = mapped.with_attr(attrs.ALIGNMENT, vectors.alignment)
        if plan.dependent:  # and so nothing was loaded as constant
            mapped = mapped.with_attr(attrs.OVERLAPS, True)
        return mapped


def _peeled_rows(
    program: RowProgram, plan: GroupPlan, facts: ProgramFacts, wanted: Realization
) -> PeeledRows | None:
    if not plan.peeled:
        return None
    place = RowPlace(facts.row_pitch, facts.row_offset)
    root = program.root.loop_var
    return PeeledRows(root, place, plan.lane_elements, blocks=wanted.kind == "cuda")

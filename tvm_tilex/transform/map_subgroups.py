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
gets the partials of all, and the cluster's barrier takes the place of the threadgroup's. A first
barrier, entered at the start and waited for before the first exchange, makes sure that all have
started.

Reads ``tilex.plan``; admits the function again and compares the plan with its facts, so that a
stale plan is refused; proves that every element has one owner and one slot, and every place of
staged stripes one thread (:mod:`tvm_tilex.analysis.coverage`); moves it to the stage ``scheduled``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.coverage import prove_coverage, prove_staging
from tvm_tilex.analysis.rescaling import RescaledSum
from tvm_tilex.analysis.structure import (
    Allocate,
    Domain,
    Enclosing,
    Node,
    OrderedLoop,
    ReductionLoop,
    Replicated,
    RowProgram,
    nodes,
)
from tvm_tilex.analysis.widening import stored_type, stores_narrow
from tvm_tilex.errors import MappingError
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.planner import stale
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    IRModule,
    PrimFunc,
    TensorLoad,
    structural_map,
    tirx,
    wait_copies,
)
from tvm_tilex.transform.cache_hints import cache_hints
from tvm_tilex.transform.common import (
    as_index,
    ceil_divided,
    is_stage,
    launch,
    sequence,
    substitute,
    thread_axis,
    tilex_pass,
    with_body,
)
from tvm_tilex.transform.distributed_reductions import DistributedReductions
from tvm_tilex.transform.early_loads import early_loads
from tvm_tilex.transform.exchange import Exchange
from tvm_tilex.transform.execution_map import ExecutionMap, Pack
from tvm_tilex.transform.invariant_division import invariant_division
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.realization import realization_of
from tvm_tilex.transform.rescaled_sums import emit_rescaled_sum, with_rescaled_sums
from tvm_tilex.transform.stripe_storage import StripeStorage
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
            covered = prove_coverage(count, plan.workers, plan.lane_elements)
            if not covered.proven:
                raise MappingError(f"{func.attrs['global_symbol']}: {covered.reason}")
        written = _written(admission.program.body)
        vectors = VectorAccess(**wanted.vectors, written=written)
        mapper = _Mapper.of(
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
        return mapped


@dataclass
class _Mapper:
    """Emits the threadgroup's program for one plan."""

    program: RowProgram
    plan: GroupPlan
    block: Any
    cluster: Any  # the threadgroup's coordinate in its cluster
    thread: Any
    execution: ExecutionMap
    packed: Any  # q, the packed program coordinate
    vectors: VectorAccess
    unroll: int
    cuda: bool  # divide by a row's number through its reciprocal, load results early
    pairs: bool  # fold extrema of 16-bit elements in pairs
    narrow_results: bool  # every result is rounded to 16 bits
    exchange: Exchange
    stripes: StripeStorage

    @classmethod
    def of(
        cls,
        program: RowProgram,
        plan: GroupPlan,
        vectors: VectorAccess,
        *,
        unroll: int,
        cuda: bool,
        pairs: bool,
        narrow_results: bool,
    ) -> _Mapper:
        """A mapper with its thread coordinates: q = thread // W, w = thread mod W.

        On C > 1 threadgroups, w = rank * threads + thread.
        """
        dtype = program.index_dtype
        tags = ("blockIdx.x", "clusterCtaIdx.x", "threadIdx.x")
        block, cluster, thread = map(thread_axis, tags)
        index = as_index(dtype, thread.var)
        workers = tirx.IntImm(dtype, plan.workers)
        alone = plan.programs_per_group == 1
        packed = tirx.IntImm(dtype, 0) if alone else tirx.floordiv(index, workers)
        worker = index if alone else tirx.floormod(index, workers)
        rank = as_index(dtype, cluster.var)
        exchange = Exchange(plan, dtype, packed, rank, worker)
        if exchange.split:
            worker = rank * tirx.IntImm(dtype, plan.threads) + index
        execution = ExecutionMap(plan, worker, dtype, cuda, _elements_a_scalar(program))
        domains = (node for node in nodes(program.body) if isinstance(node, Domain))
        stripes = StripeStorage.of(
            plan, execution, index, domains, program=program.root.loop_var, narrow=cuda
        )
        return cls(
            program,
            plan,
            block,
            cluster,
            thread,
            execution,
            packed,
            vectors,
            unroll,
            cuda=cuda,
            pairs=pairs,
            narrow_results=narrow_results,
            exchange=exchange,
            stripes=stripes,
        )

    def map(self) -> Any:
        """The launch of all threadgroups."""
        body = self._program(self._body())
        staged = [] if self.stripes.staged is None else [self.stripes.staged]
        scratch = [tirx.AllocBuffer(buffer) for buffer in (*staged, *self.exchange.buffers)]
        whole = sequence(*scratch, self.exchange.begin(), body)
        body = launch(self.thread, self.plan.threads, whole)
        if self.exchange.split:
            body = launch(self.cluster, self.plan.blocks_per_program, body)
        return self._groups(body)

    def _groups(self, body: Any) -> Any:
        """The launch of every threadgroup; of none where no program runs."""
        if not self.plan.dynamic:
            return launch(self.block, self.plan.blocks, body)
        groups = ceil_divided(self._count, self.plan.programs_per_group)
        if self.exchange.split:
            groups = groups * self._integer(self.plan.blocks_per_program)
        launched = launch(self.block, groups, body)
        if self.program.least_programs > 0:
            return launched
        return tirx.IfThenElse(self._count > self._integer(0), launched, None)

    @property
    def _count(self) -> Any:
        """P, in the index type."""
        return self.program.root.extent if self.plan.dynamic else self._integer(self.plan.programs)

    # Program coordinates

    def _slot(self) -> Any:
        """Block * Q + q, before any bound."""
        dtype = self.program.index_dtype
        block = as_index(dtype, self.block.var)
        if self.exchange.split:
            return tirx.floordiv(block, self._integer(self.plan.blocks_per_program))
        if self.plan.programs_per_group == 1:
            return block
        return block * self._integer(self.plan.programs_per_group) + self.packed

    def _program(self, body: Any) -> Any:
        """Substitute the program coordinate; guard or replay a partial last group."""
        root, slot = self.program.root, self._slot()
        count = self._count
        guarded = self.plan.ragged and not self.plan.replays
        coordinate = tirx.min(slot, count - self._integer(1)) if self.plan.replays else slot
        body = substitute(body, {root.loop_var: root.min + coordinate})
        return tirx.IfThenElse(slot < count, body, None) if guarded else body

    def _integer(self, value: int) -> Any:
        return self.execution.integer(value)

    # Statements

    def _body(self) -> Any:
        """The program's statements; loads of its scalar results begin before the reductions."""
        whole = self.program.body
        early = early_loads(whole, _written(whole)) if self.cuda else None
        if early is None:
            return self._nodes(whole)
        before, after = early.body[: early.first_reduction], early.body[early.first_reduction :]
        return self._nodes((*before, *early.statements, *after))

    def _nodes(self, body: tuple[Any, ...]) -> Any:
        """The statements of ``body``, nodes and statements that are realized already.

        Copies into stripes overlap, with each other and with what reads no staged tile: the loads
        of early views are on their way before the wait.
        """
        statements: list[Any] = []
        waiting = False
        for node in body if self.plan.independent_subgroups else with_rescaled_sums(body):
            mapped = self._node(node) if isinstance(node, Node | RescaledSum) else node
            copies = self.vectors.copies_pending()
            if waiting and not copies and self._stages(node):
                statements.append(tirx.Evaluate(wait_copies()))
                waiting = False
            statements.append(mapped)
            waiting = waiting or copies
        if waiting:  # read in the next iteration, or after a loop
            statements.append(tirx.Evaluate(wait_copies()))
        return sequence(*statements) or _nothing()

    def _stages(self, node: Any) -> bool:
        """Whether a statement reads or writes a staged tile; one that is realized never does."""
        parts = node.loops if isinstance(node, RescaledSum) else (node,)
        return any(isinstance(part, Node) and self.stripes.stages(part) for part in parts)

    def _node(self, node: Node | RescaledSum) -> Any:
        if isinstance(node, Allocate):
            return self._allocate(node)
        if isinstance(node, Replicated):
            return node.store
        if isinstance(node, OrderedLoop):
            return node.loop
        if isinstance(node, Enclosing):
            return with_body(node.loop, self._nodes(node.body))
        if isinstance(node, ReductionLoop):
            return self._reductions.emit(node.update)
        if isinstance(node, RescaledSum):
            return emit_rescaled_sum(self._reductions, node, self._node)
        return self._domain(node)

    def _allocate(self, node: Allocate) -> Any:
        """Keep replicated storage whole; shrink distributed storage to the worker's stripe."""
        if self.stripes.holds(node.buffer):
            return self.stripes.allocate(node.buffer)
        return node.statement

    def _own(self, expression: Any, pack: Pack) -> Any:
        """Read distributed storage in the worker's own slot (the audit proved the ownership)."""

        def stripe(load: Any) -> Any:
            return self.stripes.read(load, pack) if self.stripes.holds(load.source) else load

        return structural_map(expression, (TensorLoad, stripe), order="post")

    def _domain(self, domain: Domain) -> Any:
        variables = tuple(loop.loop_var for loop in domain.loops)
        division = (
            invariant_division(domain.store.value, variables, exact=not self.narrow_results)
            if self.cuda
            else None
        )
        if division is None:
            return self._elements(domain, domain.store.value)
        fast, slow = (self._elements(domain, v) for v in (division.value, domain.store.value))
        return sequence(division.prepare, tirx.IfThenElse(division.safe, fast, slow))

    def _elements(self, domain: Domain, result: Any) -> Any:
        """Store ``result`` for every element that the worker owns."""

        def element(pack: Pack) -> Any:
            at = _unflatten(domain, pack.element, self._integer)
            value = self._own(substitute(result, at), pack)
            buffer = domain.store.buffer
            if self.stripes.holds(buffer):
                return self.vectors.pack(pack, self.stripes.write(buffer, value, pack))
            indices = [substitute(index, at) for index in domain.store.indices]
            store = tirx.BufferStore(buffer, value, indices)
            if domain.condition is not None:
                condition = self._own(substitute(domain.condition, at), pack)
                store = tirx.IfThenElse(condition, store, None)
            return self.vectors.pack(pack, store)

        mapped = self.execution.visit(domain.count, element)
        stored_outside = domain.store.buffer.scope() == "global"
        if stored_outside and self.plan.replays:
            active = self._slot() < self._count
            return tirx.IfThenElse(active, mapped, None)
        return mapped

    @property
    def _reductions(self) -> DistributedReductions:
        return DistributedReductions(
            self.execution, self.vectors, self.exchange, self._own, self.unroll, self.pairs
        )


def _unflatten(domain: Domain, element: Any, integer: Any) -> dict[Any, Any]:
    """Recover the loops' coordinates from the linear element, in their original order."""
    found: dict[Any, Any] = {}
    rest = domain.count
    for position, (loop, extent) in enumerate(zip(domain.loops, domain.extents, strict=True)):
        rest //= extent
        coordinate = element if rest == 1 else tirx.floordiv(element, integer(rest))
        if position > 0:
            coordinate = tirx.floormod(coordinate, integer(extent))
        found[loop.loop_var] = as_index(str(loop.loop_var.ty.dtype), coordinate)
    return found


def _written(body: tuple[Node, ...]) -> frozenset[Any]:
    return frozenset(node.store.buffer for node in nodes(body) if isinstance(node, Domain))


def _elements_a_scalar(program: RowProgram) -> int:
    """How many elements of the narrowest stripe or result share 32 bits."""
    domains = (node for node in nodes(program.body) if isinstance(node, Domain))
    sizes = (dtype_of(stored_type(domain.store)).bytes for domain in domains)
    return 4 // min(sizes, default=4) or 1


def _nothing() -> Any:
    return tirx.Evaluate(tirx.IntImm("int32", 0))

"""Emits a planned row program for threadgroups, SIMD groups and lanes.

What is emitted, and why it is legal, stands in :mod:`tvm_tilex.transform.map_subgroups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from tvm_tilex.analysis.widening import stored_type
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx.compat import TensorLoad, structural_map, tirx, wait_copies
from tvm_tilex.transform.common import (
    as_index,
    ceil_divided,
    launch,
    sequence,
    substitute,
    thread_axis,
    with_body,
)
from tvm_tilex.transform.distributed_reductions import DistributedReductions
from tvm_tilex.transform.early_loads import early_loads
from tvm_tilex.transform.exchange import Exchange
from tvm_tilex.transform.execution_map import ExecutionMap, Pack
from tvm_tilex.transform.invariant_division import invariant_division
from tvm_tilex.transform.rescaled_sums import emit_rescaled_sum, with_rescaled_sums
from tvm_tilex.transform.stripe_storage import StripeStorage
from tvm_tilex.transform.vector_access import VectorAccess

__all__ = ["SubgroupMapper", "written_buffers"]


@dataclass
class SubgroupMapper:
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
    ) -> SubgroupMapper:
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
        head = vectors.rows.head if vectors.rows is not None else None
        execution = ExecutionMap(plan, worker, dtype, cuda, _elements_a_scalar(program), head)
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
        early = early_loads(whole, written_buffers(whole)) if self.cuda else None
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


def written_buffers(body: tuple[Node, ...]) -> frozenset[Any]:
    """The buffers that element domains store to."""
    return frozenset(node.store.buffer for node in nodes(body) if isinstance(node, Domain))


def _elements_a_scalar(program: RowProgram) -> int:
    """How many elements of the narrowest stripe or result share 32 bits."""
    domains = (node for node in nodes(program.body) if isinstance(node, Domain))
    sizes = (dtype_of(stored_type(domain.store)).bytes for domain in domains)
    return 4 // min(sizes, default=4) or 1


def _nothing() -> Any:
    return tirx.Evaluate(tirx.IntImm("int32", 0))

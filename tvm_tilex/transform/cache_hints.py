"""How the caches should treat what a kernel loads: passed by, kept, or as it comes.

*Streamed*: what a vector loads and nobody reads again need not displace anything in the first-level
cache (``ld.global.nc.L1::no_allocate``: PTX ISA 7.4, compute capability 7.0).
*Kept*: what every program reads, weights say, should outlast the rows that pass through both caches
(``L1::evict_last`` and a ``createpolicy`` of ``L2::evict_last``: compute capability 8.0).
*Repeated*: a row that is read several times is kept until its last reading, which lets it go
(``evict_first`` in both).

Legal for memory that nothing writes while the kernel runs: the noalias contract, and no store in
the function itself. A kernel that waits for those before it loads coherently, behind the wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tvm_tilex.analysis.purity import loads, reads_own
from tvm_tilex.analysis.structure import (
    Domain,
    Enclosing,
    Node,
    OrderedLoop,
    ReductionLoop,
    RowProgram,
    nodes,
    parts_of,
)
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.occupancy import RELEASED_BYTES
from tvm_tilex.tirx.compat import Analyzer, element_bytes, structural_equal, tirx
from tvm_tilex.transform.execution_map import ExecutionMap

__all__ = ["CacheHints", "cache_hints"]

_READS_A_WRITE = 16  # bytes read for a byte written, from which on loads are streamed
_KEPT_BYTES = 65536  # that a threadgroup may ask to be kept, of 256 KiB of first-level cache


class CacheHints(NamedTuple):
    """Views that pass the first-level cache by, that the caches keep, or keep for a while.

    The last reading of a repeated one is for a result that is stored.
    """

    streamed: frozenset[Any] = frozenset()
    kept: frozenset[Any] = frozenset()
    repeated: frozenset[Any] = frozenset()


def cache_hints(
    program: RowProgram, execution: ExecutionMap, *, written: frozenset[Any], unroll: int
) -> CacheHints:
    """The hints for a program's views.

    Parameters
    ----------
    written
        The buffers that the function stores to.
    unroll
        How many chunks an iteration of a reduction's chunk loop covers.
    """
    sites = [s for s in _sites(program.body, execution, unroll) if s.count > 1]
    unwritten = [site for site in sites if site.load.source not in written]
    streamed, kept = _streamed(program, sites, unwritten), _kept(program, execution.plan, unwritten)
    repeated = _repeated(program, execution, unwritten)
    few = [view for view in repeated if not kept or repeated[view] == 2]
    return CacheHints(streamed, kept, frozenset(few))


@dataclass(frozen=True)
class _Site:
    """Where a program loads a view: ``count`` elements, ``unrolled`` if in no loop at run time."""

    load: Any
    count: int
    unrolled: bool
    result: bool = False  # for a result that is stored

    @property
    def bytes(self) -> int:
        return self.count * element_bytes(self.load.source)


def _streamed(program: RowProgram, sites: list[_Site], unwritten: list[_Site]) -> frozenset[Any]:
    """Views whose vectors of 16 bytes are loaded without a place in the first-level cache.

    A view qualifies if each program reads rows of its own, at one place of the text, in a chunk
    loop that is unrolled whole, and if the kernel writes less than 1/16 of the bytes that it reads
    of such views. Measured on an H200, as parts of a copy's bandwidth, plain and streamed:

    ==================  =====  ========
    row sums, float32   plain  streamed
    ==================  =====  ========
    32768 x 256         0.807  0.823
    16384 x 1024        0.918  0.931
    8192 x 4096         0.999  1.005
    4096 x 8192         0.993  1.002
    2048 x 16384        0.995  1.004
    1024 x 32000        0.986  0.992
    512 x 131072        1.032  1.009
    ==================  =====  ========

    Row sums of bfloat16 gain 0.2 to 2 %. The last row's chunks stay in a loop, the others' do not:
    such loops are left out for that measurement, not for a known cause. Kernels that write as much
    as they read lose 2 to 8 %; scalar loads, which come back to their sector, 1 %.
    """
    own = [site for site in sites if _is_row(site.load, program.root.loop_var)]
    outputs = [n for n in nodes(program.body) if isinstance(n, Domain) and _is_global(n.store)]
    stored = sum(node.count * element_bytes(node.store.buffer) for node in outputs)
    if stored * _READS_A_WRITE >= sum(site.bytes for site in own):
        return frozenset()
    places = Counter(site.load.source for site in sites)
    return frozenset(
        site.load.source
        for site in own
        if site in unwritten and site.unrolled and places[site.load.source] == 1
    )


def _kept(program: RowProgram, plan: GroupPlan, unwritten: list[_Site]) -> frozenset[Any]:
    """Views that are the same for every program, if a threadgroup's part of them is small.

    Measured on an H200, as parts of a copy's bandwidth, plain and kept: layernorm 32768x256 0.849
    and 0.864, 16384x1024 0.918 and 0.928, 4096x8192 0.946 and 0.956 in float32, 16384x1024 0.817
    and 0.852, 4096x8192 0.853 and 0.898 in bfloat16; rmsnorm 8192x4096 0.942 and 0.951. Parts of
    64 KiB and more lose up to 6 % (512x131072 on clusters), and L1::evict_last alone gains nothing.
    """
    common = [site for site in unwritten if not reads_own(site.load, program.root.loop_var)]
    sizes = {site.load.source: site.bytes for site in common}
    whole = sum(sizes.values()) < _KEPT_BYTES and plan.blocks_per_program == 1
    return frozenset(sizes) if whole else frozenset()


def _repeated(
    program: RowProgram, execution: ExecutionMap, unwritten: list[_Site]
) -> dict[Any, int]:
    """How often each row is read that several loops read, the last of them for a result.

    Measured on an H200 with rows that are not kept in registers, as parts of a copy's bandwidth,
    plain and hinted: softmax 4096x8192 0.938 and 0.972, rmsnorm 8192x4096 0.944 and 0.968,
    2048x16384 0.915 and 0.946 in float32, softmax 4096x8192 0.923 and 0.939, rmsnorm 8192x4096
    0.892 and 0.919 in bfloat16. Where a worker reads more than 64 bytes of a row each time, few
    are resident and 5 to 50 % are lost; three readings beside weights lose 1 to 7 %.
    """
    found: dict[Any, list[_Site]] = {}
    for site in unwritten:
        found.setdefault(site.load.source, []).append(site)
    chosen: dict[Any, int] = {}
    for view, sites in found.items():
        *first, last = sites
        rows = all(_is_row(site.load, program.root.loop_var) for site in sites)
        if not first or not rows or not last.result or any(site.result for site in first):
            continue
        part = execution.slots(last.count) * element_bytes(view)
        if part <= RELEASED_BYTES:
            chosen[view] = len(sites)
    return chosen


def _sites(body: tuple[Node, ...], execution: ExecutionMap, unroll: int) -> Iterator[_Site]:
    """Every place that loads global memory; structurally equal loads of a node are one."""
    for node in body:
        if isinstance(node, Enclosing):
            inner = _sites(node.body, execution, unroll)
            yield from (replace(site, unrolled=False) for site in inner)
            continue
        count, unrolled = _extent(node, execution, unroll)
        found: list[Any] = []
        for load in (load for part in parts_of(node) for load in loads(part)):
            known = any(structural_equal(load, other) for other in found)
            if load.source.scope() == "global" and not known:
                found.append(load)
        result = isinstance(node, Domain) and _is_global(node.store)
        yield from (_Site(load, count, unrolled, result) for load in found)


def _extent(node: Node, execution: ExecutionMap, unroll: int) -> tuple[int, bool]:
    """For how many elements a node's parts run, and whether they are unrolled whole."""
    if isinstance(node, Domain):
        return node.count, execution.unrolls(node.count)
    if isinstance(node, ReductionLoop):
        return node.update.extent, execution.unrolls(node.update.extent, unroll)
    return (int(node.loop.extent.value), False) if isinstance(node, OrderedLoop) else (1, True)


def _is_global(store: Any) -> bool:
    return bool(store.buffer.scope() == "global")


def _is_row(load: Any, program: Any) -> bool:
    """Whether an index counts programs one by one, so that no two of them load an element."""
    kind = str(program.ty.dtype)
    alike = (index for index in load.indices if str(index.ty.dtype) == kind)
    return any(isinstance(Analyzer().simplify(index - program), tirx.IntImm) for index in alike)

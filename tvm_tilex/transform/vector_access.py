"""Moves a worker's V consecutive elements as vectors where contiguity and alignment are proved.

Before, for a pack that a worker owns whole::

    for v in T.serial(V):
        out[row, first + v] = f(x[row, first + v])

After, with L = min(V, the target's vector width) elements a vector::

    for part in range(V // L):
        for lane in T.vectorized(L): x_pack[part * L + lane] = x[row, first + part * L + lane]
    for v in T.serial(V): out_pack[v] = f(x_pack[v])
    for part in range(V // L):
        for lane in T.vectorized(L): out[row, first + part * L + lane] = out_pack[...]

A pack of memory that is kept as it is moves without ``x_pack``: as vectors into a private stripe,
into a staged one by one asynchronous copy where it has 4, 8 or 16 bytes::

    tilex_copy_async_16(&staged[...], &x[row, first])

A load of 16 bytes that says how the caches should treat it is a call too
(:mod:`tvm_tilex.transform.cache_hints`), as is a single float32 that they should keep::

    tilex_load_streamed_16(&x_pack[part * L], &x[row, first + part * L])
    tilex_load_kept_16(&weight_pack[part * L], &weight[first + part * L])

Packs of peeled rows begin at a row's first aligned element (:mod:`.peeled_rows`). What begins
elsewhere there, such as weights, is put together from two neighbouring vectors::

    tilex_load_kept_16(&weight_blocks[0], &weight[first])
    tilex_load_kept_16(&weight_blocks[L], &weight[first + L])
    tilex_shifted_16(&weight_pack[part * L], &weight_blocks[0], shift)

No copy begins before what the thread itself may have stored there: memory that the function stores
to is loaded instead. Whoever emits the reads waits for the copies (:meth:`copies_pending`).

Proof obligation: the last index is ``first + v + c`` with c a multiple of V, the other indices do
not depend on v, and every other stride of the row-major buffer is a multiple of V. As first is a
multiple of V, the V elements are contiguous and begin at a multiple of V elements from the base;
the base itself is checked at launch. Of peeled rows, see :mod:`.peeled_rows`. An access under a
lazy condition is never moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.analysis.guards import guarded_loads
from tvm_tilex.analysis.purity import mentions
from tvm_tilex.tirx.compat import (
    Analyzer,
    TensorLoad,
    copy_async,
    element_bytes,
    structural_equal,
    structural_map,
    tirx,
)
from tvm_tilex.tirx.cuda_loads import (
    load_kept,
    load_kept_scalar,
    load_last,
    load_streamed,
    load_streamed_coherently,
    shifted,
)
from tvm_tilex.transform.cache_hints import CacheHints
from tvm_tilex.transform.common import sequence, serial, substitute
from tvm_tilex.transform.execution_map import Pack
from tvm_tilex.transform.peeled_rows import PeeledRows

__all__ = ["VectorAccess"]

_STAGED = "shared.dyn"
_COPIED_BYTES = (4, 8, 16)  # of one asynchronous copy
_HINTED_BYTES = 16  # of one vector whose load says how the caches should treat it


@dataclass
class VectorAccess:
    """Rewrites packs for a target's vectors of ``max_lanes`` elements and ``max_bytes`` bytes.

    Those of bfloat16 have ``max_bfloat16_lanes`` at most. ``written`` are the buffers that the
    function stores to, ``rows`` the rows of a plan that peels them; ``hints`` say how the caches
    should treat views, and ``coherent`` that earlier kernels may write them until this one has
    waited; ``alignment`` collects, by parameter name, the bytes that a base must be a multiple of.
    """

    max_lanes: int
    max_bytes: int
    max_bfloat16_lanes: int = 8
    written: frozenset[Any] = frozenset()
    rows: PeeledRows | None = None
    hints: CacheHints = field(default_factory=CacheHints)
    coherent: bool = False
    alignment: dict[str, int] = field(default_factory=dict)
    _pending: bool = False

    def pack(self, pack: Pack, statement: Any) -> Any:
        """The pack's elements of a store ``statement``, as vectors where that is proved."""
        return pack.within(self._pack(pack, statement))

    def _pack(self, pack: Pack, statement: Any) -> Any:
        if pack.lane_element is None or pack.partial:
            return pack.each(self._hinted(statement) if pack.width == 1 else statement)
        if not isinstance(statement, tirx.BufferStore):
            return pack.each(statement)
        if self._copies(pack, statement):
            return sequence(*self._copy(pack, statement))
        loads = self._loads(pack, statement.value)
        result = statement.buffer.scope() == "global"
        before = [
            self._fetch(pack, load, buffer, lambda at: [at], result=result)
            for load, buffer in loads
        ]
        value = _replace(statement.value, loads, pack.lane_element)
        after: list[Any] = []
        if self._contiguous(pack, statement.buffer, statement.indices):
            buffer = self._buffer(pack, statement.buffer)
            after = self._store(pack, statement, buffer)
            statement = tirx.BufferStore(buffer, value, [pack.lane_element])
        else:
            statement = tirx.BufferStore(statement.buffer, value, statement.indices)
        if not before and not after:
            return pack.each(statement)
        allocations = [tirx.AllocBuffer(buffer) for _, buffer in loads]
        if after:
            allocations.append(tirx.AllocBuffer(statement.buffer))
        moved = [part for parts in before for part in parts]
        return sequence(*allocations, *moved, pack.each(statement), *after)

    def _hinted(self, statement: Any) -> Any:
        """One element's statement, its loads of kept views as calls, under their guards."""

        def kept(load: Any) -> Any:
            scalar = str(load.ty.dtype) == "float32"
            return load_kept_scalar(load) if scalar and load.source in self.hints.kept else load

        if not self.hints.kept:
            return statement
        return structural_map(statement, (TensorLoad, kept), order="post")

    def _copies(self, pack: Pack, store: Any) -> bool:
        """Whether the store moves elements of memory, as they are, into a worker's stripe."""
        load, buffer = store.value, store.buffer
        if buffer.scope() == "global" or not isinstance(load, TensorLoad):
            return False
        same = str(buffer.ty.dtype) == str(load.source.ty.dtype)
        return same and self._reached(pack, load)

    def _copy(self, pack: Pack, store: Any) -> list[Any]:
        load = store.value
        width = pack.width * element_bytes(store.buffer)
        staged = store.buffer.scope() == _STAGED
        if staged and width in _COPIED_BYTES and load.source not in self.written:
            self._align(load.source, width)
            self._pending = True
            zero = tirx.IntImm(str(pack.element.ty.dtype), 0)
            to = store.buffer[tuple(_at(slot, pack, zero) for slot in store.indices)]
            first = load.source[tuple(_at(index, pack, zero) for index in load.indices)]
            return [tirx.Evaluate(copy_async(to, first, width))]

        def slots(at: Any) -> list[Any]:
            return [_at(slot, pack, at) for slot in store.indices]

        return self._fetch(pack, load, store.buffer, slots, result=False)

    def copies_pending(self) -> bool:
        """Whether copies have been started since the last question, which must be waited for."""
        pending, self._pending = self._pending, False
        return pending

    def _align(self, memory: Any, size: int) -> None:
        self.alignment[memory.name] = max(size, self.alignment.get(memory.name, 1))

    def _loads(self, pack: Pack, value: Any) -> list[tuple[Any, Any]]:
        """Distinct unconditional loads of the pack, with a private buffer for each."""
        found: list[tuple[Any, Any]] = []
        for guarded in guarded_loads(value):
            load = guarded.load
            known = any(structural_equal(load, other) for other, _ in found)
            if guarded.predicates or known:
                continue
            if self._reached(pack, load):
                found.append((load, self._buffer(pack, load.source)))
        return found

    def _reached(self, pack: Pack, load: Any) -> bool:
        """Whether vectors, or parts of two of them, hold a pack's elements of a load."""
        return self._contiguous(pack, load.source, load.indices) or self._shifted(pack, load)

    def _shifted(self, pack: Pack, load: Any) -> bool:
        """Whether they begin between two vectors, which hold them together."""
        memory = load.source
        if pack.head is None or self.rows is None or memory.scope() != "global":
            return False
        whole = self._lanes(pack, memory) * element_bytes(memory) == _HINTED_BYTES
        return whole and self.rows.shifted(pack, memory, load.indices)

    def _contiguous(self, pack: Pack, buffer: Any, indices: Any) -> bool:
        if self._lanes(pack, buffer) == 1:
            return False
        if buffer.scope() == _STAGED:
            return True  # the worker's slots of a pack are consecutive
        if buffer.scope() != "global":
            return False
        if pack.head is not None:
            return self.rows is not None and self.rows.aligned(pack, buffer, indices)
        *outer, last = indices
        if any(mentions(index, pack.lane_element) for index in outer):
            return False
        shape = buffer.ty.shape
        if len(shape) > 1 and not _multiple(shape[-1], pack.width):
            return False
        return _offset(last, pack.element) % pack.width == 0

    def _lanes(self, pack: Pack, buffer: Any) -> int:
        bfloat16 = str(buffer.ty.dtype) == "bfloat16"
        lanes = min(self.max_lanes, self.max_bfloat16_lanes) if bfloat16 else self.max_lanes
        return min(pack.width, lanes, self.max_bytes // element_bytes(buffer))

    def _buffer(self, pack: Pack, of: Any) -> Any:
        return _private(of, pack.width, "pack")

    def _fetch(
        self, pack: Pack, load: Any, buffer: Any, slots: Callable[[Any], Any], *, result: bool
    ) -> list[Any]:
        """Move the pack's elements of ``load`` to ``slots`` of a private or a staged ``buffer``.

        ``result`` says that they are for what the kernel stores.
        """
        memory = load.source
        call = self._hint(memory, result) if buffer.scope() == "local" else None
        lanes = self._lanes(pack, memory)
        if not self._contiguous(pack, memory, load.indices):
            return self._fetch_shifted(pack, load, buffer, slots, call)

        def element(at: Any) -> Any:
            return memory[tuple(_at(index, pack, at) for index in load.indices)]

        if call is not None and lanes * element_bytes(memory) == _HINTED_BYTES:
            self._align(memory, _HINTED_BYTES)
            dtype = str(pack.element.ty.dtype)
            firsts = [tirx.IntImm(dtype, lane) for lane in range(0, pack.width, lanes)]
            return [tirx.Evaluate(call(buffer[tuple(slots(at))], element(at))) for at in firsts]
        return self._move(pack, memory, lambda at: tirx.BufferStore(buffer, element(at), slots(at)))

    def _fetch_shifted(
        self, pack: Pack, load: Any, buffer: Any, slots: Callable[[Any], Any], call: Any
    ) -> list[Any]:
        """Put each vector together from the two blocks that hold it."""
        assert self.rows is not None
        memory, lanes = load.source, self._lanes(pack, load.source)
        self._align(memory, _HINTED_BYTES)
        dtype = str(pack.element.ty.dtype)
        zero, width = tirx.IntImm(dtype, 0), tirx.IntImm(dtype, lanes)
        shift = self.rows.shift(lanes)
        size = shift * tirx.IntImm(dtype, element_bytes(memory))
        found: list[Any] = []
        for part in range(0, pack.width, lanes):
            at = tirx.IntImm(dtype, part)
            first = _at(load.indices[0], pack, at) - shift
            blocks = _private(memory, 2 * lanes, "blocks")
            loads = [
                self._block(blocks, to, memory, first + to, lanes, call) for to in (zero, width)
            ]
            moved = tirx.Evaluate(shifted(buffer[tuple(slots(at))], blocks[zero], size))
            found += [tirx.AllocBuffer(blocks), *loads, moved]
        return found

    @staticmethod
    def _block(to: Any, at: Any, memory: Any, first: Any, lanes: int, call: Any) -> Any:
        """Load the block of ``lanes`` elements from ``first`` on, as the hint ``call`` says."""
        if call is not None:
            return tirx.Evaluate(call(to[at], memory[first]))
        lane = tirx.Var("lane", str(first.ty.dtype))
        store = tirx.BufferStore(to, memory[first + lane], [at + lane])
        return serial(lane, lanes, store, tirx.ForKind.VECTORIZED)

    def _hint(self, memory: Any, result: bool) -> Callable[[Any, Any], Any] | None:
        if memory in self.hints.streamed:
            return load_streamed_coherently if self.coherent else load_streamed
        if memory in self.hints.repeated:
            return load_last if result else load_kept
        return load_kept if memory in self.hints.kept else None

    def _store(self, pack: Pack, store: Any, buffer: Any) -> list[Any]:
        def move(at: Any) -> Any:
            indices = [_at(index, pack, at) for index in store.indices]
            return tirx.BufferStore(store.buffer, buffer[at], indices)

        return self._move(pack, store.buffer, move)

    def _move(self, pack: Pack, memory: Any, move: Any) -> list[Any]:
        lanes = self._lanes(pack, memory)
        if memory.scope() == "global":
            self._align(memory, lanes * element_bytes(memory))
        dtype = str(pack.element.ty.dtype)
        parts = []
        for part in range(pack.width // lanes):
            lane = tirx.Var("lane", dtype)
            at = tirx.IntImm(dtype, part * lanes) + lane if part else lane
            parts.append(serial(lane, lanes, move(at), tirx.ForKind.VECTORIZED))
        return parts


def _private(of: Any, length: int, what: str) -> Any:
    """A worker's own array of elements like those of ``of``."""
    name = f"{of.name}_{what}"
    return tirx.decl_buffer((length,), str(of.ty.dtype), name, scope="local", layout=None)


def _multiple(extent: Any, width: int) -> bool:
    """Whether an extent is known to be a multiple of ``width``."""
    return isinstance(extent, tirx.IntImm) and int(extent.value) % width == 0


def _offset(index: Any, element: Any) -> int:
    """The constant c of ``element + c``; 1, which no width divides, for any other index."""
    if structural_equal(index, element):
        return 0
    if str(index.ty.dtype) != str(element.ty.dtype):
        return 1
    distance = Analyzer().simplify(index - element)
    return int(distance.value) if isinstance(distance, tirx.IntImm) else 1


def _at(index: Any, pack: Pack, at: Any) -> Any:
    return substitute(index, {pack.lane_element: at})


def _replace(value: Any, loads: list[tuple[Any, Any]], lane_element: Any) -> Any:
    def packed(load: Any) -> Any:
        for known, buffer in loads:
            if structural_equal(known, load):
                return buffer[lane_element]
        return load

    return structural_map(value, (TensorLoad, packed), order="post")

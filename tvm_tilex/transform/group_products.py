"""Emits the matrix phases of a group: scalar loops, register-blocked FMA, matrix instructions.

    scalar      each owned result: for k: c += a[m, k] * b[k, n]
    fma         for k: the thread's rows of a and columns of b to registers, then their products
    matrix      CUDA: ldmatrix of a and b fragments, mma.m16n8k16 into the thread's results
                Metal: simdgroup_load, simdgroup_multiply_accumulate, simdgroup_store of 8x8 tiles

The positions that the matrix instructions give their operands are those of
:mod:`tvm_tilex.layout.atoms`.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.analysis.group_facts import product_loops
from tvm_tilex.analysis.group_structure import Product
from tvm_tilex.plan.group_products import Arrangement
from tvm_tilex.tirx import compat
from tvm_tilex.tirx.compat import tirx
from tvm_tilex.transform.common import sequence, serial, substitute
from tvm_tilex.transform.group_fragments import first_factor_row, second_factor_row
from tvm_tilex.transform.group_frame import GroupFrame
from tvm_tilex.transform.group_maps import ElementMap, MatrixMap, ThreadGridMap

__all__ = ["emit_product"]

_UNROLL = {"pragma_unroll": True}


def emit_product(
    frame: GroupFrame,
    phase: Product,
    arrangement: Arrangement,
    map: ElementMap,
    order: tuple[int, ...],
    own: frozenset[int],
    *,
    owned_factor: bool = False,
) -> Any:
    """The product by the planned arrangement; ``map`` distributes its results' class.

    With ``owned_factor`` the first factor is read from the registers of its owners.
    """
    if isinstance(map, ThreadGridMap):
        return _Factors(frame, phase).on_threads(map)
    if isinstance(map, MatrixMap):
        return _Factors(frame, phase).on_fragments(map, owned_factor=owned_factor)
    if arrangement.kind == "matrix":
        return _Factors(frame, phase).on_simdgroups()
    return _scalar(frame, phase, map, order, own)


def _scalar(
    frame: GroupFrame,
    phase: Product,
    map: ElementMap,
    order: tuple[int, ...],
    own: frozenset[int],
) -> Any:
    number = frame.subject.tile_number(phase.store.buffer)
    assert number is not None

    def element(coordinates: list[Any], slot: Any) -> Any:
        at = {
            phase.kept[position].loop_var: coordinate
            for position, coordinate in zip(order, coordinates, strict=True)
        }
        depth = tirx.Var("k", frame.dtype)  # one for each copy of the loop
        if phase.contracted is not None:
            at[phase.contracted.loop_var] = depth
        value = frame.rewrite(phase.store.value, at, slot, own)
        private = frame.private.get(number)
        if private is not None:
            store = tirx.BufferStore(private, value, [slot])
        else:
            indices = [substitute(index, at) for index in phase.store.indices]
            store = tirx.BufferStore(frame.shared[number], value, frame.place(number, indices))
        if phase.contracted is None:
            return store
        return serial(depth, phase.depth, store)

    emitted = map.visit(element)
    private, shared = frame.private.get(number), frame.shared.get(number)
    if private is None or shared is None:
        return emitted
    return sequence(emitted, _share(frame, map, number))


def _share(frame: GroupFrame, map: ElementMap, number: int) -> Any:
    """Copy the owners' results to shared memory, for the other readers."""

    def element(coordinates: list[Any], slot: Any) -> Any:
        place = frame.place(number, coordinates)
        return tirx.BufferStore(frame.shared[number], frame.private[number][slot], place)

    return map.visit(element)


class _Factors:
    """Addresses of the factors of a plain product: rows x depth and depth x columns."""

    def __init__(self, frame: GroupFrame, phase: Product) -> None:
        self.frame, self.phase = frame, phase
        rows, columns = product_loops(phase)
        self._rows, self._columns = rows.loop_var, columns.loop_var
        self._depth = phase.contracted.loop_var
        number = frame.subject.tile_number(phase.store.buffer)
        assert number is not None
        self.number = number

    def integer(self, value: int) -> Any:
        return self.frame.integer(value)

    def a(self, m: Any, k: Any) -> Any:
        """Element (m, k) of the first factor."""
        return self._element(self.phase.a, {self._rows: m, self._depth: k})

    def b(self, k: Any, n: Any) -> Any:
        """Element (k, n) of the second factor."""
        return self._element(self.phase.b, {self._columns: n, self._depth: k})

    def _element(self, load: Any, at: dict[Any, Any]) -> Any:
        return self.frame.rewrite(load, at)

    @property
    def a_is_row_major(self) -> bool:
        """Whether the depth runs fastest in the first factor."""
        return bool(self.phase.a.indices[-1].same_as(self._depth))

    @property
    def b_is_row_major(self) -> bool:
        """Whether the columns run fastest in the second factor."""
        return bool(self.phase.b.indices[-1].same_as(self._columns))

    def _finish(self, map: ElementMap, emitted: Any) -> Any:
        """Share the results where other threads read them."""
        if self.number not in self.frame.shared:
            return emitted
        return sequence(emitted, _share(self.frame, map, self.number))

    # Register-blocked FMA

    def on_threads(self, map: ThreadGridMap) -> Any:
        """The thread's block of results, one step of the depth at a time."""
        integer, results = self.integer, self.frame.private[self.number]
        a, b = self._registers("a", map.rows), self._registers("b", map.columns)
        k, i, j = (tirx.Var(name, self.frame.dtype) for name in ("k", "i", "j"))
        load_a = tirx.BufferStore(a, _wide(self.a(map.row(i), k)), [i])
        load_b = tirx.BufferStore(b, _wide(self.b(k, map.column(j))), [j])

        def fma(i: Any, j: Any) -> Any:
            slot = i * integer(map.columns) + j
            return tirx.BufferStore(results, results[slot] + a[i] * b[j], [slot])

        step = sequence(
            serial(i, map.rows, load_a, annotations=_UNROLL if map.unroll else None),
            serial(j, map.columns, load_b, annotations=_UNROLL if map.unroll else None),
            map.loops(fma),
        )
        body = map.guarded(serial(k, self.phase.depth, step))
        return self._finish(map, sequence(tirx.AllocBuffer(a), tirx.AllocBuffer(b), body))

    def _registers(self, name: str, count: int, dtype: str = "float32") -> Any:
        return tirx.decl_buffer(
            (self.integer(count),), dtype, f"{name}_part", scope="local", layout=None
        )

    # CUDA: mma.m16n8k16

    def on_fragments(self, map: MatrixMap, *, owned_factor: bool) -> Any:
        """Fragments of the factors by ldmatrix, then one instruction a fragment of the result."""
        integer, results = self.integer, self.frame.private[self.number]
        dtype = str(self.phase.a.source.ty.dtype)
        a = self._registers("a", 8 * map.rows, dtype)
        b = self._registers("b", 4 * map.columns, dtype)
        step, i, j = (tirx.Var(name, self.frame.dtype) for name in ("step", "i", "j"))
        k = step * integer(16)
        pair = 2 if map.columns % 2 == 0 else 1
        load_a = None
        if not owned_factor:
            load_a = self._ldmatrix(a, i * integer(8), 4, self._a_row(map.first_row(i), k))
        first = map.first_column(j * integer(pair))
        load_b = self._ldmatrix(
            b, j * integer(4 * pair), 2 * pair, self._b_row(first, k), trans=self.b_is_row_major
        )
        kind = {"float16": "fp16", "bfloat16": "bf16"}[dtype]

        def first(i: Any) -> tuple[Any, Any]:
            if not owned_factor:
                return a, i * integer(8)
            number = self.frame.subject.tile_number(self.phase.a.source)
            assert number is not None
            # Two fragments of eight columns hold one of a factor's sixteen.
            place = i * integer(self.phase.depth // 8) + step * integer(2)
            return self.frame.private[number], place * integer(4)

        def multiply(i: Any, j: Any) -> Any:
            return tirx.Evaluate(
                compat.mma_m16n8k16(kind, first(i), (b, j * integer(4)), (results, map.slot(i, j)))
            )

        body = sequence(
            serial(i, map.rows, load_a, annotations=_UNROLL) if load_a is not None else None,
            serial(j, map.columns // pair, load_b, annotations=_UNROLL),
            map.loops(multiply),
        )
        loop = serial(step, self.phase.depth // 16, body, annotations=_UNROLL)
        allocations = [tirx.AllocBuffer(buffer) for buffer in (a, b)][owned_factor:]
        return self._finish(map, sequence(*allocations, loop))

    def _a_row(self, m: Any, k: Any) -> Any:
        """The element that this lane addresses for a fragment of the first factor."""
        row, depth = first_factor_row(self.frame.lane, self.a_is_row_major)
        return self.a(m + row, k + depth)

    def _b_row(self, n: Any, k: Any) -> Any:
        """The same for two neighbouring fragments of the second factor."""
        depth, column = second_factor_row(self.frame.lane, self.b_is_row_major)
        return self.b(k + depth, n + column)

    def _ldmatrix(
        self, target: Any, slot: Any, matrices: int, element: Any, trans: bool | None = None
    ) -> Any:
        flipped = not self.a_is_row_major if trans is None else trans
        return tirx.Evaluate(compat.ldmatrix(flipped, matrices, target, slot, element))

    # Metal: simdgroup matrices

    def on_simdgroups(self) -> Any:
        """8x8 tiles of the result dealt out to the SIMD groups."""
        integer, frame = self.integer, self.frame
        rows, columns = (int(loop.extent.value) // 8 for loop in product_loops(self.phase))
        dtype = str(self.phase.a.source.ty.dtype)
        result = self._matrix("c", "float32")
        a, b = self._matrix("a", dtype), self._matrix("b", dtype)
        tile = tirx.Var("tile", frame.dtype)
        place = tile * integer(frame.plan.subgroups) + frame.subgroup
        m = tirx.floordiv(place, integer(columns)) * integer(8)
        n = tirx.floormod(place, integer(columns)) * integer(8)
        step = tirx.Var("step", frame.dtype)
        k = step * integer(8)
        c_at = frame.shared[self.number][tuple(frame.place(self.number, [m, n]))]
        c_pitch = frame.pitch(self.number)
        multiply = sequence(
            self._load(a, self.a(m, k), self.phase.a, not self.a_is_row_major),
            self._load(b, self.b(k, n), self.phase.b, not self.b_is_row_major),
            tirx.Evaluate(compat.simdgroup_multiply_accumulate(result, a, b)),
        )
        body = sequence(
            tirx.Evaluate(compat.simdgroup_load(result, c_at, c_pitch, False)),
            serial(step, self.phase.depth // 8, multiply),
            tirx.Evaluate(compat.simdgroup_store(result, c_at, c_pitch)),
        )
        count = rows * columns
        if count % frame.plan.subgroups:  # uniform in each SIMD group
            body = tirx.IfThenElse(place < integer(count), body, None)
        allocations = [tirx.AllocBuffer(buffer) for buffer in (result, a, b)]
        batches = -(-count // frame.plan.subgroups)
        return sequence(*allocations, serial(tile, batches, body))

    def _load(self, matrix: Any, element: Any, load: Any, transpose: bool) -> Any:
        number = self.frame.subject.tile_number(load.source)
        assert number is not None
        pitch = self.frame.pitch(number)
        return tirx.Evaluate(compat.simdgroup_load(matrix, element, pitch, transpose))

    def _matrix(self, name: str, dtype: str) -> Any:
        return tirx.decl_buffer(
            (self.integer(64),), dtype, f"{name}_matrix", scope="metal.simdgroup", layout=None
        )


def _wide(value: Any) -> Any:
    return value if str(value.ty.dtype) == "float32" else tirx.Cast("float32", value)

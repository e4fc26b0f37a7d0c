"""A hypothesis strategy of well-formed TileIR programs that terminate fast and never race.

Tests import it as ``random_programs`` (tests/conftest.py registers that name). Every program
passes the verifier; every store reaches different elements from different programs; integer
divisors are positive constants; floats are never cast to integers (out-of-range casts are
unspecified).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tvm_tilex.ir import (
    Axis,
    Binding,
    BoundsPolicy,
    Combiner,
    Constant,
    Coordinate,
    DType,
    ElementOp,
    Elementwise,
    Gather,
    Index,
    IndexBinary,
    IndexConstant,
    Load,
    NanPolicy,
    Parallel,
    Program,
    ProgramCoordinate,
    Reduce,
    ReductionPolicy,
    Repartition,
    Statement,
    Store,
    TileType,
    Value,
    View,
    ViewAccess,
    index_bounds,
)
from tvm_tilex.ir.infer import elementwise_type, gather_type, reduce_type
from tvm_tilex.ir.ops import OpClass
from tvm_tilex.ir.types import DTYPES

__all__ = ["inputs_for", "programs"]

T = TypeVar("T")
BOOL = DTYPES["bool"]
FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 1e-5, 3e38, 1e-45, math.inf, -math.inf, math.nan)


@st.composite
def programs(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    *,
    dtypes: Sequence[str] = tuple(DTYPES),
    policies: Sequence[ReductionPolicy] = tuple(ReductionPolicy),
    bounds: Sequence[BoundsPolicy] = tuple(BoundsPolicy),
    transcendental: bool = True,
    wrapping: bool = True,
    empty_nests: bool = True,
    max_definitions: int = 8,
    bindings: Sequence[Binding] = tuple(Binding),
) -> Program:
    """Draw a program over the given element types, policies and bounds policies.

    ``transcendental=False`` leaves out exp and its kind; ``wrapping=False`` leaves out integer
    multiplication, integer sums and narrowing casts; ``empty_nests=False`` gives every parallel
    axis a positive extent; ``bindings`` limits how nests ask to be realized.
    """
    builder = _Builder(draw, dtypes, policies, bounds)
    builder.transcendental, builder.wrapping = transcendental, wrapping
    builder.bindings = bindings
    return builder.program(0 if empty_nests else 1, max_definitions)


def inputs_for(program: Program, seed: int = 0, *, special: bool = False) -> dict[str, np.ndarray]:
    """Arrays for the views that a program reads: small numbers, with inf and NaN if ``special``."""
    rng = np.random.default_rng(seed)
    read = [view for view in program.views if view.access is not ViewAccess.write]
    return {view.name: _array(rng, view, special) for view in read}


def _array(rng: np.random.Generator, view: View, special: bool) -> np.ndarray:
    if view.dtype == BOOL:
        return rng.integers(0, 2, view.shape).astype(bool)
    if not view.dtype.is_float:
        low = 0 if view.dtype.kind == "uint" else -2
        return rng.integers(low, 7, view.shape).astype(view.dtype.name)
    array = np.asarray(rng.standard_normal(view.shape))
    if special:
        chosen = rng.choice([math.inf, -math.inf, math.nan, -0.0], view.shape)
        array = np.where(rng.random(view.shape) < 0.2, chosen, array)
    bfloat16 = view.dtype.name == "bfloat16"
    return array.astype(ml_dtypes.bfloat16 if bfloat16 else view.dtype.name)


class _Builder:
    transcendental = True
    wrapping = True
    bindings: Sequence[Binding] = tuple(Binding)

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        dtypes: Sequence[str],
        policies: Sequence[ReductionPolicy],
        bounds: Sequence[BoundsPolicy],
    ) -> None:
        self.draw = draw
        self.dtypes = tuple(DTYPES[name] for name in dtypes)
        self.policies = tuple(policies)
        self.bounds = tuple(bounds)
        self.views: list[View] = []
        self.number = 0
        self.nests: list[Parallel] = []  # enclosing, with empty bodies
        self.axes: tuple[Axis, ...] = ()

    def pick(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(list(choices)))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def program(self, least_extent: int, max_definitions: int) -> Program:
        shapes = self.pick(
            [(1,), (1, 1), (2,), (0,), (1,)]
        )  # parallel axes per nest, one inside another
        tile_axes = 3 if sum(shapes) < 2 else 2  # a store has a dimension for each, at most 4
        names = self.draw(st.permutations(["a", "columns", "one"]))[:tile_axes]
        self.axes = tuple(Axis(name, self.pick([3, 2, 4, 1, 5])) for name in names)
        extents = [3, 2, 1, 2, 3, 1, 2, 3, least_extent]
        parallel = iter(Axis(f"p{n}", self.pick(extents)) for n in range(sum(shapes)))
        nests = [
            Parallel(
                n, tuple(next(parallel) for _ in range(count)), (), self.pick(list(self.bindings))
            )
            for n, count in enumerate(shapes)
        ]
        body = self.nest(nests, [], max_definitions)
        return Program("random", tuple(self.views), body)

    def nest(
        self, remaining: list[Parallel], visible: list[Value], definitions: int
    ) -> tuple[Statement, ...]:
        """Statements around and inside the remaining nests; values of outer scopes are visible."""
        body: list[Statement] = []
        values = list(visible)
        if not remaining or self.integer(0, 1):
            count = self.integer(1, definitions)
            for _ in range(count):
                statement = self.definition(values)
                body.append(statement)
                values.append(statement.result)
        if not remaining:
            for value in self.stored(values):
                body.extend(self.store(value))
            return tuple(body)
        head = remaining[0]
        self.nests.append(head)
        inner = self.nest(remaining[1:], values, definitions)
        self.nests.pop()
        body.append(Parallel(head.nest, head.axes, inner, head.binding))
        return tuple(body)

    def stored(self, values: list[Value]) -> list[Value | Constant]:
        fresh = values[-self.integer(1, 3) :]
        constant = [self.constant(self.pick(self.dtypes))] if self.integer(0, 3) == 0 else []
        return [*fresh, *constant]

    # Definitions.

    def definition(self, values: list[Value]) -> Any:
        makers = [self.load, self.load, self.load, self.coordinate]
        if values:
            makers += (
                [self.elementwise] * 5 + [self.reduce] * 3 + [self.gather] * 2 + [self.repartition]
            )
        for _ in range(4):
            statement = self.pick(makers)(values)
            if statement is not None:
                return statement
        return self.load(values)

    def value(self, dtype: DType, axes: tuple[Axis, ...]) -> Value:
        self.number += 1
        return Value(self.number - 1, TileType(dtype, axes))

    def load(self, values: list[Value]) -> Load:
        policy = self.pick(self.bounds)
        axes = self.draw(st.permutations(self.axes))[: self.integer(0, len(self.axes))]
        holes: list[Axis | None] = [None] * self.integer(0 if axes else 1, 4 - len(axes))
        dimensions = tuple(self.draw(st.permutations([*axes, *holes])))
        origin, shape = [], []
        for axis in dimensions:
            extent = 1 if axis is None else axis.extent
            index, high = self.index()
            inside = policy in (BoundsPolicy.checked, BoundsPolicy.assume)
            slack = self.integer(0 if inside else -extent, 2)
            shift = 0 if inside else self.integer(-2, 0)
            origin.append(IndexBinary("+", index, IndexConstant(shift)) if shift else index)
            shape.append(max(1, high + extent + slack))
        view = View(f"v{len(self.views)}", self.pick(self.dtypes), tuple(shape), bounds=policy)
        self.views.append(view)
        result = self.value(view.dtype, tuple(a for a in dimensions if a is not None))
        return Load(result, view.name, tuple(origin), dimensions, policy)

    def index(self) -> tuple[Index, int]:
        """Draw an index that is never negative, with its largest value."""
        coordinates = [
            ProgramCoordinate(nest.nest, dimension)
            for nest in self.nests
            for dimension in range(len(nest.axes))
        ]
        index: Index = IndexConstant(self.integer(0, 2))
        if coordinates and self.integer(0, 3):
            index = self.pick(coordinates)
            op = self.pick(["", "+", "*", "//", "%"])
            if op:
                index = IndexBinary(op, index, IndexConstant(self.integer(1, 3)))
        return index, index_bounds(index, self.extents())[1]

    def extents(self) -> dict[tuple[int, int], int]:
        return {(n.nest, d): a.extent for n in self.nests for d, a in enumerate(n.axes)}

    def coordinate(self, values: list[Value]) -> Coordinate | None:
        integers = [dtype for dtype in self.dtypes if dtype.is_integer]
        if not integers:
            return None
        axis = self.pick([None, *self.axes])
        axes = () if axis is None else (axis,)
        return Coordinate(self.value(self.pick(integers), axes), axis, self.index()[0])

    def elementwise(self, values: list[Value]) -> Elementwise | None:
        first = self.pick(values)
        op = self.pick([op for op in ElementOp if self.takes(op, first.type.dtype)])
        if op is ElementOp.cast:
            targets = [d for d in self.dtypes if self.casts(first.type.dtype, d)]
            if not targets:
                return None
            target = self.pick(targets)
            return Elementwise(self.value(target, first.type.axes), op, (first,))
        dtype = first.type.dtype
        operands: list[Value | Constant] = [first]
        if op is ElementOp.where:
            operands.insert(0, self.operand(values, BOOL))
        divides = op in (ElementOp.floor_divide, ElementOp.floor_modulo)
        while len(operands) < op.arity:
            divisor = Constant(self.integer(1, 5), dtype)
            operands.append(divisor if divides else self.operand(values, dtype))
        shuffled = (
            operands if divides or op is ElementOp.where else self.draw(st.permutations(operands))
        )
        kind = elementwise_type(op, tuple(shuffled), dtype)
        return Elementwise(self.value(kind.dtype, kind.axes), op, tuple(shuffled))

    def takes(self, op: ElementOp, dtype: DType) -> bool:
        if op.transcendental and not self.transcendental:
            return False
        wraps = op in (ElementOp.multiply, ElementOp.negative, ElementOp.add, ElementOp.subtract)
        if wraps and dtype.is_integer and not self.wrapping:
            return False
        return {
            OpClass.FLOAT: dtype.is_float,
            OpClass.NUMERIC: dtype != BOOL,
            OpClass.INTEGER: dtype.is_integer,
            OpClass.LOGICAL: not dtype.is_float,
            OpClass.COMPARE: BOOL in self.dtypes,
            OpClass.SELECT: BOOL in self.dtypes,
            OpClass.CAST: True,
        }[op.op_class]

    def casts(self, source: DType, target: DType) -> bool:
        if source.is_float and target.is_integer:
            return False
        narrows = source.is_integer and target.is_integer and target.bits < source.bits
        changes_sign = source.kind == "int" and target.kind == "uint"
        return self.wrapping or not (narrows or changes_sign)

    def operand(self, values: list[Value], dtype: DType) -> Value | Constant:
        fitting = [value for value in values if value.type.dtype == dtype]
        if fitting and self.integer(0, 2):
            return self.pick(fitting)
        return self.constant(dtype)

    def constant(self, dtype: DType) -> Constant:
        if dtype.is_float:
            return Constant(self.pick(FLOATS), dtype)
        if dtype == BOOL:
            return Constant(self.pick([True, False]), dtype)
        return Constant(self.integer(0 if dtype.kind == "uint" else -3, 5), dtype)

    def reduce(self, values: list[Value]) -> Reduce | None:
        sums = self.wrapping
        fitting = [v for v in values if v.type.axes and v.type.dtype != BOOL]
        if not fitting:
            return None
        source = self.pick(fitting)
        axis, dtype = self.pick(source.type.axes), source.type.dtype
        adds = dtype.is_float or (sums and dtype.kind == "int")
        combiner = self.pick([c for c in Combiner if c is not Combiner.add or adds])
        kind = reduce_type(source.type, axis, combiner)
        rescales = dtype.is_float and combiner is Combiner.add
        policies = [p for p in self.policies if rescales or p is not ReductionPolicy.rescaled_tree]
        policy, nan = self.pick(policies), self.pick([NanPolicy.target, NanPolicy.propagate])
        return Reduce(self.value(dtype, kind.axes), source, axis, combiner, policy, nan)

    def gather(self, values: list[Value]) -> Gather | None:
        sources = [value for value in values if value.type.axes]
        indices = [value for value in values if value.type.dtype.is_integer]
        if not sources or not indices:
            return None
        source, index = self.pick(sources), self.pick(indices)
        axis = self.pick(source.type.axes)
        kind = gather_type(source.type, index.type, axis)
        fill = self.constant(kind.dtype).value
        return Gather(self.value(kind.dtype, kind.axes), source, index, axis, fill)

    def repartition(self, values: list[Value]) -> Repartition:
        source = self.pick(values)
        return Repartition(self.value(source.type.dtype, source.type.axes), source)

    # Stores: one leading dimension per program coordinate, so that no two programs meet.

    def store(self, value: Value | Constant) -> list[Statement]:
        coordinates = list(self.extents())
        axes = value.type.axes if isinstance(value, Value) else self.axes[:1]
        axes = tuple(self.draw(st.permutations(axes)))
        dtype = value.type.dtype if isinstance(value, Value) else value.dtype
        inside = [*self.extents().values(), *(axis.extent for axis in axes)]
        policy = self.pick(self.bounds)
        clips = policy in (BoundsPolicy.zero, BoundsPolicy.predicate)
        cut = self.integer(0, 1) if clips else 0
        shape = tuple(max(1, extent - cut) for extent in inside) or (1,)
        access = self.pick([ViewAccess.write, ViewAccess.write, ViewAccess.read_write])
        view = View(f"v{len(self.views)}", dtype, shape, access, policy)
        self.views.append(view)
        origin: tuple[Index, ...] = tuple(ProgramCoordinate(n, d) for n, d in coordinates)
        dimensions = (*([None] * len(coordinates)), *axes)
        origin += (IndexConstant(0),) * (len(shape) - len(origin))
        dimensions += (None,) * (len(shape) - len(dimensions))
        store = Store(view.name, origin, dimensions, value, policy)
        if access is ViewAccess.write or dtype == BOOL or not isinstance(value, Value):
            return [store]
        old = Load(self.value(dtype, axes), view.name, origin, dimensions, policy)
        both = (old.result, value)
        kind = elementwise_type(ElementOp.maximum, both, dtype)
        new = Elementwise(self.value(dtype, kind.axes), ElementOp.maximum, both)
        again = Store(view.name, origin, dimensions, new.result, policy)
        return [store, old, new, again]

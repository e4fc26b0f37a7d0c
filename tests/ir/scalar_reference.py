"""TileIR one program and one element at a time: dictionaries and loops in place of batches.

Only the arithmetic of one scalar operator is taken from the interpreter; indexing, broadcasting,
nests, validity, gathers and every ordered reduction are written again, literally.
"""

import itertools

import numpy as np

from tvm_tilex.ir import (
    BoundsPolicy,
    Combiner,
    Constant,
    Coordinate,
    ElementOp,
    Elementwise,
    Gather,
    Load,
    Parallel,
    Reduce,
    ReductionPolicy,
    Repartition,
    Store,
)
from tvm_tilex.ir.index import evaluate_index
from tvm_tilex.ir.interp_elementwise import apply, constant, convert
from tvm_tilex.ir.program import state_dtype
from tvm_tilex.ir.types import numpy_dtype

COMBINE = {Combiner.add: np.add, Combiner.maximum: np.maximum, Combiner.minimum: np.minimum}


def fold(op, x, policy, identity):
    """Combine the list ``x`` as the policy's docstring says, an ordered one."""
    if policy is ReductionPolicy.fold_left:
        state = identity
        for element in x:
            state = op(state, element)
        return state
    if policy is ReductionPolicy.fold_right:
        state = identity
        for element in reversed(x):
            state = op(element, state)
        return state
    if len(x) == 1:
        return x[0]
    split = 1
    while 2 * split < len(x):
        split *= 2
    return op(fold(op, x[:split], policy, identity), fold(op, x[split:], policy, identity))


def run(program, arrays, precision="float32"):
    """Run on a dictionary with an array for every view; the stored views are changed in place."""
    with np.errstate(all="ignore"):
        _body(program.body, {}, {}, arrays, precision)


def _points(axes):
    for place in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {axis.name: index for axis, index in zip(axes, place, strict=True)}


def _key(axes, point):
    return tuple(point[axis.name] for axis in axes)


def _body(body, coordinates, values, arrays, precision):
    for s in body:
        if isinstance(s, Parallel):
            for point in itertools.product(*(range(axis.extent) for axis in s.axes)):
                inner = {**coordinates, **{(s.nest, d): i for d, i in enumerate(point)}}
                _body(s.body, inner, dict(values), arrays, precision)
        elif isinstance(s, Store):
            _store(s, coordinates, values, arrays, precision)
        else:
            axes = s.result.type.axes
            values[s.result.number] = {
                _key(axes, p): _element(s, p, coordinates, values, arrays, precision)
                for p in _points(axes)
            }


def _element(s, point, coordinates, values, arrays, precision):
    """Return (scalar, active) of the result at ``point``."""
    dtype = s.result.type.dtype
    if isinstance(s, Load):
        array, place = arrays[s.view], _place(s, point, coordinates)
        if all(0 <= i < n for i, n in zip(place, array.shape, strict=True)):
            return array[place], True
        assert s.bounds in (BoundsPolicy.zero, BoundsPolicy.predicate)
        return array.dtype.type(0), s.bounds is BoundsPolicy.zero
    if isinstance(s, Coordinate):
        place = evaluate_index(s.offset, coordinates) + (point[s.axis.name] if s.axis else 0)
        return np.array(place).astype(numpy_dtype(dtype))[()], True
    if isinstance(s, Elementwise):
        read = [_read(o, point, values, precision) for o in s.operands]
        data = [np.asarray(scalar) for scalar, _ in read]
        active = all(active for _, active in read)
        if s.op is ElementOp.cast:
            first = s.operands[0]
            source = first.dtype if isinstance(first, Constant) else first.type.dtype
            return convert(data[0], source, dtype, precision)[()], active
        return apply(s.op, data, dtype, precision)[()], active
    if isinstance(s, Reduce):
        state = numpy_dtype(state_dtype(dtype), precision).type
        identity = state(s.combiner.identity(dtype))
        row = [
            _read(s.source, {**point, s.axis.name: i}, values, precision)
            for i in range(s.axis.extent)
        ]
        row = [state(scalar) if active else identity for scalar, active in row]
        total = fold(COMBINE[s.combiner], row, s.policy, identity)
        return numpy_dtype(dtype, precision).type(total), True
    if isinstance(s, Repartition):
        return _read(s.source, point, values, precision)
    assert isinstance(s, Gather)
    index, index_active = _read(s.index, point, values, precision)
    fill = constant(s.fill, dtype, precision)[()]
    if not 0 <= int(index) < s.axis.extent:
        return fill, index_active
    scalar, active = _read(s.source, {**point, s.axis.name: int(index)}, values, precision)
    return (scalar if active else fill), index_active


def _read(operand, point, values, precision):
    if isinstance(operand, Constant):
        return constant(operand.value, operand.dtype, precision)[()], True
    return values[operand.number][_key(operand.type.axes, point)]


def _place(s, point, coordinates):
    return tuple(
        evaluate_index(origin, coordinates) + (point[axis.name] if axis else 0)
        for origin, axis in zip(s.origin, s.dimensions, strict=True)
    )


def _store(s, coordinates, values, arrays, precision):
    array = arrays[s.view]
    for point in _points([axis for axis in s.dimensions if axis is not None]):
        place = _place(s, point, coordinates)
        scalar, active = _read(s.value, point, values, precision)
        if active and all(0 <= i < n for i, n in zip(place, array.shape, strict=True)):
            array[place] = scalar

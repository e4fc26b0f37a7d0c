"""Small kernels with cooperative groups, one feature each, and their NumPy formulas."""

# ruff: noqa: F821

import numpy as np

import tvm_tilex as tx


@tx.tile_kernel
def product(
    a: tx.TensorView["floating", ("m", "k"), "zero"],
    b: tx.TensorView["floating", ("k", "n"), "zero"],
    out: tx.TensorView["float32", ("m", "n"), "out", "zero"],
    *,
    tile=(16, 16, 16),
):
    """``out = a @ b`` by tiles, ragged in every dimension."""
    m, n, k = tile
    down, across = (
        tx.axis("down", -(-out.extent(0) // m)),
        tx.axis("across", -(-out.extent(1) // n)),
    )
    rows, columns, depth = tx.axis("rows", m), tx.axis("columns", n), tx.axis("depth", k)
    steps = tx.axis("steps", -(-a.extent(1) // k))
    for nest in tx.parallel(tx.shape(down, across)):
        for _ in tx.group(tx.shape(rows, columns)):
            top, left = nest.index(0) * m, nest.index(1) * n
            for step in tx.pipeline(steps, tx.full(tx.shape(rows, columns), 0.0)):
                at = step.index() * k
                (total,) = step.state
                x = a[tx.coord(top, at), tx.shape(rows, depth)]
                y = b[tx.coord(at, left), tx.shape(depth, columns)]
                step.carry(tx.dot(x, y, total))
            (total,) = step.result
            out(tx.coord(top, left), tx.shape(rows, columns)).store(total)


@tx.tile_kernel
def swapping(
    x: tx.TensorView["float32", ("p", "n")],
    out: tx.TensorView["float32", ("p", "n"), "out"],
    *,
    count=3,
):
    """Two carried tiles change places: ``count`` times a, b = b, a + b from (x, 1)."""
    p, n, steps = tx.axis("p", x.extent(0)), tx.axis("n", x.extent(1)), tx.axis("steps", count)
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group(tx.shape(n)):
            value = x[tx.coord(nest.index(), 0), tx.shape(1, n)]
            for step in tx.pipeline(steps, value, tx.full(tx.shape(n), 1.0)):
                a, b = step.state
                step.carry(b, a + b)
            a, _ = step.result
            out(tx.coord(nest.index(), 0), tx.shape(1, n)).store(a)


@tx.tile_kernel
def until_program(
    x: tx.TensorView["float32", ("p", "n")], out: tx.TensorView["float32", ("p",), "out"]
):
    """Row p sums its first min(2 p, n) elements, one iteration an element."""
    p, n = tx.axis("p", x.extent(0)), tx.axis("n", x.extent(1))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group():
            for step in tx.pipeline(n, tx.full(tx.shape(), 0.0), stop=nest.index() * 2):
                (total,) = step.state
                step.carry(total + x[tx.coord(nest.index(), step.index()), tx.shape(1, 1)])
            (total,) = step.result
            out(tx.coord(nest.index()), tx.shape(1)).store(total)


@tx.tile_kernel
def both_axes(
    x: tx.TensorView["float32", ("p", "r", "c")],
    by_row: tx.TensorView["float32", ("p", "r"), "out"],
    by_column: tx.TensorView["float32", ("p", "c"), "out"],
    *,
    policy="unordered_tree",
    op="add",
):
    """Reductions of one tile over its last axis and over its first."""
    p, r, c = tx.axis("p", x.extent(0)), tx.axis("r", x.extent(1)), tx.axis("c", x.extent(2))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group():
            value = x[tx.coord(nest.index(), 0, 0), tx.shape(1, r, c)]
            across = tx.reduce(value, c, op, policy=policy)
            down = tx.reduce(value, r, op, policy=policy)
            by_row(tx.coord(nest.index(), 0), tx.shape(1, r)).store(across)
            by_column(tx.coord(nest.index(), 0), tx.shape(1, c)).store(down)


@tx.tile_kernel
def nest_of_outputs(
    x: tx.TensorView["float32", ("p", "a", "b", "c")],
    out: tx.TensorView["float32", ("p", "a", "c"), "out"],
):
    """A rectangular nest of outputs around a reduced middle axis, normalized by its maximum."""
    p = tx.axis("p", x.extent(0))
    a, b, c = (tx.axis(name, x.extent(1 + i)) for i, name in enumerate("abc"))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group(tx.shape(a, c)):
            value = x[tx.coord(nest.index(), 0, 0, 0), tx.shape(1, a, b, c)]
            peak = tx.reduce(value, b, tx.maximum)
            total = tx.reduce(tx.exp(value - peak), b, tx.add)
            out(tx.coord(nest.index(), 0, 0), tx.shape(1, a, c)).store(total)


@tx.tile_kernel
def placed(
    x: tx.TensorView["float32", ("p", "n")],
    out: tx.TensorView["float32", ("p", "n"), "out"],
    *,
    scope="shared",
    reversed_read=False,
):
    """A tile kept by hand, read after it was changed twice."""
    p, n = tx.axis("p", x.extent(0)), tx.axis("n", x.extent(1))
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group():
            kept = tx.memory(tx.shape(n), tx.float32, scope=scope)
            kept.store(x[tx.coord(nest.index(), 0), tx.shape(1, n)])
            kept.store(kept.load() * 2.0)
            value = kept.load()
            if reversed_read:
                value = tx.gather(value, (n.extent - 1) - tx.coordinate(m_axis(n)), n)
                out(tx.coord(nest.index(), 0), tx.shape(1, m_axis(n))).store(value)
            else:
                out(tx.coord(nest.index(), 0), tx.shape(1, n)).store(value)


def m_axis(n):
    return tx.axis("m", n.extent)


@tx.tile_kernel
def batched(
    a: tx.TensorView["float32", ("p", "h", "m", "k"), "predicate"],
    b: tx.TensorView["float32", ("p", "h", "n", "k"), "predicate"],
    out: tx.TensorView["float32", ("p", "h", "m", "n"), "out"],
    *,
    depth=8,
):
    """A batch axis of all three operands; elements past the end count as zero."""
    p, h = tx.axis("p", a.extent(0)), tx.axis("h", a.extent(1))
    m, n, k = tx.axis("m", a.extent(2)), tx.axis("n", b.extent(2)), tx.axis("k", depth)
    for nest in tx.parallel(tx.shape(p)):
        for _ in tx.group(tx.shape(h, m, n)):
            x = a[tx.coord(nest.index(), 0, 0, 0), tx.shape(1, h, m, k)]
            y = b[tx.coord(nest.index(), 0, 0, 0), tx.shape(1, h, n, k)]
            result = tx.dot(x, y, tx.full(tx.shape(h, m, n), 1.0))
            out(tx.coord(nest.index(), 0, 0, 0), tx.shape(1, h, m, n)).store(result)


def until_program_formula(x):
    rows, width = x.shape
    return np.array([x[p, : min(2 * p, width)].sum(dtype=np.float64) for p in range(rows)])


def swapping_formula(x, count=3):
    a, b = x.astype(np.float64), np.ones_like(x, np.float64)
    for _ in range(count):
        a, b = b, a + b
    return a


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# name -> (kernel, constants, inputs, formulas of the outputs in float64)
def samples():
    x23, x4 = random(3, 23), random(2, 3, 40, 5)
    x3, wide = random(2, 5, 70), random(2, 70, 33)
    a, b = random(37, 50), random(50, 21, seed=1)
    left, right = random(2, 3, 5, 6), random(2, 3, 7, 6, seed=1)
    softened = np.exp(x4.astype(np.float64) - x4.max(2, keepdims=True)).sum(2)
    return {
        "product": (product, {}, (a, b), [a.astype(np.float64) @ b]),
        "swapping": (swapping, {}, (x23,), [swapping_formula(x23)]),
        "until_program": (
            until_program,
            {},
            (random(9, 12),),
            [until_program_formula(random(9, 12))],
        ),
        "both_axes": (
            both_axes,
            {},
            (x3,),
            [x3.sum(2, dtype=np.float64), x3.sum(1, dtype=np.float64)],
        ),
        "both_axes_max": (both_axes, {"op": "maximum"}, (wide,), [wide.max(2), wide.max(1)]),
        "both_axes_ordered": (
            both_axes,
            {"policy": "fold_left"},
            (x3,),
            [x3.sum(2, dtype=np.float64), x3.sum(1, dtype=np.float64)],
        ),
        "both_axes_ordered_tree": (
            both_axes,
            {"policy": "ordered_tree"},
            (x3,),
            [x3.sum(2, dtype=np.float64), x3.sum(1, dtype=np.float64)],
        ),
        "nest_of_outputs": (nest_of_outputs, {}, (x4,), [softened]),
        "placed": (placed, {}, (x23,), [2 * x23.astype(np.float64)]),
        "placed_private": (placed, {"scope": "private"}, (x23,), [2 * x23.astype(np.float64)]),
        "placed_reversed": (
            placed,
            {"reversed_read": True},
            (x23,),
            [2 * x23[:, ::-1].astype(np.float64)],
        ),
        "batched": (
            batched,
            {},
            (left, right),
            [1 + np.einsum("phmk,phnk->phmn", left.astype(np.float64), right)],
        ),
    }


def arguments(name):
    """(kernel, constants, arguments with NaN outputs, expected outputs)."""
    kernel, constants, inputs, expected = samples()[name]
    outputs = [np.full(want.shape, np.nan, np.float32) for want in expected]
    return kernel, constants, (*inputs, *outputs), outputs, expected


NAMES = tuple(samples())

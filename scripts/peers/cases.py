"""Seeded case generators: the same seed gives the same cases on every machine."""

from __future__ import annotations

import random
from math import prod

EXTENTS = [1, 2, 3, 4, 5, 6, 8]
LARGEST = 256  # points of a TVM or TileLang case, copies included


def cute_layout(rng):
    """One shape:stride of at most three digits: compact, permuted, padded, or arbitrary."""
    count = rng.choice([1, 1, 2, 2, 3])
    shape = [rng.choice(EXTENTS) for _ in range(count)]
    if rng.random() < 0.5:
        order = list(range(count))
        rng.shuffle(order)
        stride, below = [0] * count, 1
        for k in order:
            stride[k] = below
            below *= shape[k]
            if rng.random() < 0.15:
                below += rng.choice([1, 2, below])
    else:
        stride = [rng.choice([0, 1, 2, 3, 4, 6, 8, 12]) for _ in range(count)]
    if count == 1:
        return [shape[0], stride[0]]
    if count == 3 and rng.random() < 0.4:
        return [[shape[0], [shape[1], shape[2]]], [stride[0], [stride[1], stride[2]]]]
    return [shape, stride]


def cute_pairs(seed, count):
    """Pairs of plain layouts for the operators."""
    rng = random.Random(seed)
    return [{"A": cute_layout(rng), "B": cute_layout(rng)} for _ in range(count)]


def cute_signed(seed, count):
    """Plain layouts with strides of both signs."""
    rng = random.Random(f"signed {seed}")
    found = []
    for _ in range(count):
        shape, stride = cute_layout(rng)
        found.append([shape, _signed(rng, stride)])
    return found


def _signed(rng, nest):
    if isinstance(nest, list):
        return [_signed(rng, x) for x in nest]
    return nest * rng.choice([1, -1])


def cute_swizzles(seed, count):
    """Swizzled layouts with an offset, and element widths for the recast."""
    rng = random.Random(f"swizzle {seed}")
    found = []
    for _ in range(count):
        bits = rng.randint(0, 3)
        shift = rng.choice([1, -1]) * rng.randint(bits, 4)
        layout = cute_layout(rng)
        offset = rng.choice([0, 0, 1, 8, 24])
        found.append(
            {"swizzle": [bits, rng.randint(0, 4), shift], "offset": offset, "layout": layout}
        )
    return found


def triton_layout(rng, names=("register", "lane", "warp", "block"), outs=None):
    """Random GF(2) bases with names; sparse or dense, zero vectors included."""
    outs = outs or [[f"dim{k}", 1 << rng.randint(0, 4)] for k in range(rng.choice([1, 2, 2, 3]))]
    bases = []
    for name in names[: rng.randint(1, len(names))]:
        vectors = []
        for _ in range(rng.randint(0, 3)):
            kind = rng.random()
            vector = [0] * len(outs)
            if kind < 0.6:
                k = rng.randrange(len(outs))
                if outs[k][1] > 1:
                    vector[k] = 1 << rng.randrange(outs[k][1].bit_length() - 1)
            elif kind < 0.9:
                vector = [rng.randrange(size) for _, size in outs]
            vectors.append(vector)
        bases.append([name, vectors])
    return {"bases": bases, "outs": outs}


def triton_pairs(seed, count):
    """Pairs: half arbitrary, half with B spanning its outputs, so that A is solvable."""
    rng = random.Random(f"triton {seed}")
    found = []
    for number in range(count):
        a = triton_layout(rng)
        b = triton_layout(rng, outs=a["outs"])
        if number % 2:
            units = [
                [(1 << bit) if k == j else 0 for j in range(len(a["outs"]))]
                for k, (_, size) in enumerate(a["outs"])
                for bit in range(size.bit_length() - 1)
            ]
            rng.shuffle(units)
            names = ["register", "lane", "warp", "block"]
            cut = sorted(rng.randint(0, len(units)) for _ in range(3))
            spans = zip([0, *cut], [*cut, len(units)], strict=True)
            b["bases"] = [[n, units[i:j]] for n, (i, j) in zip(names, spans, strict=True)]
        sizes = [
            [name, max(1, size * rng.choice([2, 2, 4, 1]) // 2) if number % 5 == 4 else size]
            for name, size in a["outs"]
        ]
        found.append({"A": a, "B": b, "C": after(rng, sizes)})
    return found


def after(rng, ins):
    """A layout whose inputs are the given dimensions, for a composition."""
    outs = [[f"out{k}", 1 << rng.randint(1, 4)] for k in range(rng.choice([1, 2]))]
    bases = [
        [name, [[rng.randrange(n) for _, n in outs] for _ in range(size.bit_length() - 1)]]
        for name, size in ins
    ]
    return {"bases": bases, "outs": outs}


AXES = ["m", "laneid", "warpid", "tx", "P", "F", "Bank"]


def tvm_layout(rng):
    """Shard, replica, offset over named axes; every fifth case is a swizzle over m."""
    swizzled = rng.random() < 0.2
    axes = ["m"] if swizzled else rng.sample(AXES, rng.randint(1, 3))
    low = 0 if swizzled else -8

    def iters(count, extents):
        steps = [0, 1, 1, 2, 3, 4, 8, 16, 100]
        return [
            [rng.choice(extents), rng.choice([*steps, low]), rng.choice(axes)] for _ in range(count)
        ]

    case = {
        "shard": iters(rng.randint(0 if not swizzled else 1, 4), [1, 2, 3, 4, 5, 8]),
        "replica": [] if swizzled else iters(rng.choice([0, 0, 1, 2]), [1, 2, 4]),
        "offset": [[a, rng.randint(1, 40)] for a in axes if rng.random() < 0.4],
    }
    if swizzled:
        bits = rng.randint(0, 3)
        inner = rng.random() < 0.5
        atom = rng.randint(bits, 4)
        case["swizzle"] = [bits, rng.randint(0, 3), atom if inner else -atom]
    return case


def tvm_cases(seed, count):
    """TVM layouts, each with a logical shape of the same size."""
    rng = random.Random(f"tvm {seed}")
    found = []
    while len(found) < count:
        case = tvm_layout(rng)
        size, copies = (prod(n for n, _, _ in case[k]) for k in ("shard", "replica"))
        case["shape"] = factors(rng, size)
        if size * copies <= LARGEST:
            found.append(case)
    return found


def factors(rng, size):
    """Return random extents whose product is ``size``."""
    shape = []
    while size > 1 and rng.random() < 0.75:
        choice = rng.choice([n for n in range(1, size + 1) if size % n == 0])
        shape.append(choice)
        size //= choice
    return [*shape, size]


def _affine(rng, axes, shape):
    terms = [
        f"{axis}*{rng.choice([1, 2, 3, 4, 8, n])}" for axis, n in zip(axes, shape, strict=False)
    ]
    return " + ".join(terms) if terms else "0"


def _digit(rng, axis):
    k = rng.choice([2, 3, 4, 8])
    return rng.choice([f"{axis}//{k}", f"{axis}%{k}", f"({axis}//2)%{k}"])


def _expression(rng, axes, shape, free=""):
    kind = rng.random()
    names = list(axes) + ([free] if free else [])
    a, b = rng.choice(names), rng.choice(names)
    if kind < 0.3:
        return _affine(rng, names, [*shape, 4])
    if kind < 0.6:
        return f"{_digit(rng, a)}*{rng.choice([1, 2, 4, 8])} + {_digit(rng, b)}"
    if kind < 0.8:
        return f"{a}*{rng.choice([8, 16])} + ({b} ^ {_digit(rng, a)})"
    if kind < 0.9:
        return f"({_affine(rng, names, [*shape, 4])}) % {rng.choice([5, 7, 12, 16])}"
    if kind < 0.95:
        return f"({a} - {b}) // {rng.choice([2, 3])} + ({a} & {rng.choice([3, 5, 6])})"
    return f"({a} >> 1) + ({b} << 2) - {rng.choice([0, 1, 3])}"


def tilelang_cases(seed, count):
    """Layouts and fragments: affine, digits, XOR, and expressions outside the grammar."""
    rng = random.Random(f"tilelang {seed}")
    found = []
    while len(found) < count:
        rank = rng.choice([1, 2, 2, 3])
        axes = list("ijk"[:rank])
        shape = [rng.choice([1, 2, 3, 4, 6, 8, 10, 16]) for _ in axes]
        fragment = len(found) % 2 == 1
        replicate = rng.choice([1, 1, 2, 4]) if fragment else 1
        if prod(shape) * replicate > LARGEST:
            continue
        values = [_expression(rng, axes, shape) for _ in range(rng.choice([1, 1, 2]))]
        if fragment:
            free = "rep" if replicate > 1 else ""
            thread = _expression(rng, axes, shape, free)
            values.insert(0, f"{thread} + rep*{rng.choice([1, 32])}" if free else thread)
        found.append(
            {
                "kind": "fragment" if fragment else "layout",
                "shape": shape,
                "axes": axes,
                "replicate": replicate,
                "values": values,
            }
        )
    return found

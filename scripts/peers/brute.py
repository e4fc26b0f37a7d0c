"""The judge: every form evaluated point by point from its published definition.

Shares no code with the package or with any peer, and knows nothing of either.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache
from math import prod


def leaves(nest):
    """Return the integers of a nest."""
    return [x for e in nest for x in leaves(e)] if isinstance(nest, (tuple, list)) else [nest]


def size(shape):
    """Return the number of points."""
    return prod(leaves(shape))


def cute_at(shape, stride, index):
    """CuTe: colexicographic digits; the last mode is not reduced (unbounded)."""
    extents, steps = leaves(shape), leaves(stride)
    total = 0
    for number, (n, d) in enumerate(zip(extents, steps, strict=True)):
        if number == len(extents) - 1:
            return total + index * d
        total += (index % n) * d
        index //= n
    return total


def swizzle(bits, base, shift, x):
    """``x ^ ((x & mask) >> shift)``; a negative shift goes left."""
    if shift >= 0:
        return x ^ ((x & (((1 << bits) - 1) << (base + shift))) >> shift)
    return x ^ ((x & (((1 << bits) - 1) << base)) << -shift)


def cute_values(form):
    """Values in order of ``[shape, stride]``, or of a swizzle or layout applied to one."""
    if isinstance(form, dict):
        inner = cute_values(form["layout"])
        if "outer" in form:
            shape, stride = form["outer"]
            return [cute_at(shape, stride, form["offset"] + v) for v in inner]
        return [swizzle(*form["swizzle"], form["offset"] + v) for v in inner]
    shape, stride = form
    return [cute_at(shape, stride, i) for i in range(size(shape))]


def linear_values(bases, outs):
    """Triton: XOR of the vectors of the set bits; inputs row-major in the order of the dims."""
    found = []
    for point in itertools.product(*(range(1 << len(v)) for _, v in bases)):
        row = [0] * len(outs)
        for x, (_, vectors) in zip(point, bases, strict=True):
            for bit, vector in enumerate(vectors):
                if x >> bit & 1:
                    row = [a ^ b for a, b in zip(row, vector, strict=True)]
        found.append(row)
    return found


def tile_values(case):
    """TVM: per element the location without zeros, per copy, in named axes.

    ``shard``, ``replica``: lists of [extent, stride, axis], row-major; ``offset``: pairs.
    """
    found = []
    swizzled = case.get("swizzle")
    for point in itertools.product(*(range(n) for n, _, _ in case["shard"])):
        copies = []
        for copy in itertools.product(*(range(n) for n, _, _ in case["replica"])):
            where = {}
            steps = [
                *zip(point, case["shard"], strict=True),
                *zip(copy, case["replica"], strict=True),
            ]
            for digit, (_, stride, axis) in steps:
                where[axis] = where.get(axis, 0) + digit * stride
            for axis, value in case["offset"]:
                where[axis] = where.get(axis, 0) + value
            if swizzled:
                where["m"] = swizzle(*swizzled, where.get("m", 0))
            copies.append(sorted([n, v] for n, v in where.items() if v))
        found.append(sorted(copies))
    return found


def expression_values(case):
    """TileLang: thread (per copy) and index of every element, row-major; Python's own meaning."""
    code = [compile(text, "<case>", "eval") for text in case["values"]]
    names = case["axes"] + (["rep"] if case["replicate"] > 1 else [])
    extents = case["shape"] + ([case["replicate"]] if case["replicate"] > 1 else [])
    found = []
    for point in itertools.product(*map(range, extents)):
        known = dict(zip(names, point, strict=True))
        found.append([eval(c, {"__builtins__": {}}, dict(known)) for c in code])
    return found


def rank(vectors):
    """Return the GF(2) rank of integers."""
    pivots = {}
    for v in vectors:
        while v and v.bit_length() in pivots:
            v ^= pivots[v.bit_length()]
        if v:
            pivots[v.bit_length()] = v
    return len(pivots)


def tiling(values, extent):
    """Return the offsets C with ``values + C = [0, extent)``, each point once, or None.

    The least uncovered point can only be covered by the least value, so the answer is forced.
    """
    low = min(values)
    if len(set(values)) != len(values) or low:
        return None
    covered = [False] * extent
    offsets = []
    for point in range(extent):
        if covered[point]:
            continue
        offsets.append(point)
        for v in values:
            if point + v >= extent or covered[point + v]:
                return None
            covered[point + v] = True
    return offsets


def is_layout_image(offsets):
    """Whether ascending offsets from 0 are the values of some shape:stride with positive strides.

    The least positive value is a stride; its run must repeat as a block: forced at each step.
    """
    rest = list(offsets)
    while len(rest) > 1:
        step = rest[1]
        run = 1
        members = set(rest)
        while run * step in members:
            run += 1
        for n in range(run, 1, -1):
            heads = tiling_heads(rest, step, n)
            if heads is not None and is_layout_image(heads):
                return True
        return False
    return True


def tiling_heads(values, step, count):
    """Split ascending values into runs ``h, h + step, ...`` of ``count``; return the heads."""
    left = dict.fromkeys(values)
    heads = []
    for v in values:
        if v not in left:
            continue
        for k in range(count):
            if v + k * step not in left:
                return None
            del left[v + k * step]
        heads.append(v)
    return heads


PRIME = 2**31 - 1
LONGEST = 400  # the greatest value for which every digit system is tried


@lru_cache(maxsize=4096)
def left_inverse_exists(image):
    """Whether some shape:stride L has ``L(image[i]) = i``; None where that is not decided.

    Every sequence of extents whose product stays at or below the greatest value is tried (the
    last mode is unbounded); its strides are one linear system, solved modulo a prime first.
    """
    top = max(image)
    if min(image) < 0:
        return False
    if top > LONGEST:
        return None
    undecided = False
    for extents in systems(top):
        rows = [[*digits_of(x, extents), i] for i, x in enumerate(image)]
        if not _consistent(rows):
            continue
        found = _integers(rows)
        if found:
            return True
        undecided = undecided or found is None
    return None if undecided else False


def systems(top, product=1):
    """Yield extents of all digits but the last; a digit past ``top`` changes nothing."""
    yield ()
    for n in range(2, top // product + 1):
        for rest in systems(top, product * n):
            yield (n, *rest)


def digits_of(x, extents):
    """Return the digits of ``x``, the last one unbounded."""
    row = []
    for n in extents:
        x, digit = divmod(x, n)
        row.append(digit)
    return [*row, x]


def _consistent(rows):
    """Gaussian elimination modulo a prime; an inconsistent system stays so over the integers."""
    pivots = {}
    for row in rows:
        row = list(row)
        for column, base in pivots.items():
            factor = row[column]
            if factor:
                row = [(a - factor * b) % PRIME for a, b in zip(row, base, strict=True)]
        lead = next((k for k, a in enumerate(row[:-1]) if a), None)
        if lead is None:
            if row[-1]:
                return False
            continue
        scale = pow(row[lead], -1, PRIME)
        pivots[lead] = [a * scale % PRIME for a in row]
    return True


def _integers(rows):
    """Solve exactly with free unknowns at 0: True, False (never integral), None (not decided)."""
    pivots = {}
    for row in rows:
        row = [Fraction(a) for a in row]
        for column, base in pivots.items():
            factor = row[column]
            row = [a - factor * b for a, b in zip(row, base, strict=True)]
        lead = next((k for k, a in enumerate(row[:-1]) if a), None)
        if lead is None:
            if row[-1]:
                return False
            continue
        row = [a / row[lead] for a in row]
        for column, base in pivots.items():
            factor = base[lead]
            pivots[column] = [a - factor * b for a, b in zip(base, row, strict=True)]
        pivots[lead] = row
    unknowns = len(rows[0]) - 1
    if all(row[-1].denominator == 1 for row in pivots.values()):
        return True
    return False if len(pivots) == unknowns else None

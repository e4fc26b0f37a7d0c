"""Fuzz the proof procedures against the exhaustive oracle.

``python scripts/fuzz_layout.py --maps 100000 --seed 0`` draws random maps (division, modulo, XOR,
shifts, ragged and guarded domains, negative strides, constants near 2**63) and fails on the first
verdict of ``prove(budget=0)``, query answer or normal form that the oracle contradicts. It prints
the share of UNKNOWN by class of map.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter, defaultdict
from math import gcd, prod

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    Axis,
    BitLinear,
    Compose,
    IndexExpr,
    IndexSet,
    LayoutMap,
    MixedRadix,
    Piecewise,
    Product,
    Transform,
    Translate,
    alignment,
    analyze_finite,
    cardinality,
    contiguity,
    image,
    lt,
    normalize,
    parameter,
    prove,
)
from tvm_tilex.layout.expr import Expr, Op, as_expr, negate_predicate, operation
from tvm_tilex.layout.finite import OracleFailure, _member, _points, oracle_value

POINTS = 160
CLASSES = (
    "affine",
    "quasi-affine",
    "bitwise",
    "wide",
    "radix",
    "bit-linear",
    "composite",
    "piecewise",
    "restricted",
    "symbolic",
)


def random_domain(rng: random.Random, guarded: bool = False) -> IndexSet:
    while True:
        rank = rng.choice((1, 1, 2, 2, 3))
        pick = rng.choice(((1, 2, 4, 8, 16), (1, 2, 3, 5, 6, 7, 9, 10, 12), (2, 3, 4, 6, 8)))
        sizes = [rng.choice(pick) for _ in range(rank)]
        if rank == 1 and rng.random() < 0.3:
            sizes = [rng.randrange(1, 97)]
        if prod(sizes) <= POINTS:
            break
    axes = []
    for k, size in enumerate(sizes):
        lower = rng.choice((-3, 2, 5)) if rng.random() < 0.08 else 0
        axes.append(Axis("xyz"[k], size, lower))
    space = IndexSet(tuple(axes))
    if not guarded:
        return space
    try:
        return space.where(lt(linear(rng, space), rng.randrange(0, 3 * prod(sizes))))
    except LayoutError:
        return space


def linear(rng: random.Random, space: IndexSet) -> Expr:
    total: Expr = as_expr(rng.choice((0, 0, 1, -2, 7)))
    for c in space.coordinates:
        total = total + c * rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -2, -4, 0, 32))
    return total


def flat_index(rng: random.Random, space: IndexSet) -> Expr:
    total: Expr | None = None
    for axis, c in zip(space.axes, space.coordinates, strict=True):
        total = c if total is None else total * axis.extent + c
    assert total is not None
    return total


def random_expr(rng: random.Random, space: IndexSet, kind: str, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.7:
            return rng.choice(space.coordinates)
        near = (2**63 - 1, -(2**63), 2**62, 2**63 - 5, -(2**62), 2**61 + 1)
        if kind == "wide" and rng.random() < 0.6:
            return as_expr(rng.choice(near))
        return as_expr(rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, -1, -3)))
    grown = random_expr(rng, space, kind, depth - 1)
    small = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16))
    if kind == "affine":
        op = rng.choice((Op.ADD, Op.SUB, Op.MUL))
    elif kind == "bitwise":
        op = rng.choice(
            (
                Op.XOR,
                Op.XOR,
                Op.AND,
                Op.SHL,
                Op.SHR,
                Op.ADD,
                Op.DIV,
                Op.MOD,
                Op.MUL,
                Op.LT,
                Op.EQ,
                Op.SUB,
                Op.LE,
                Op.NE,
            )
        )
        small = rng.choice((1, 1, 2, 3, 4, 7, 8, 16))
    else:
        op = rng.choice(list(Op))
    if op in (Op.DIV, Op.MOD):
        divisor = as_expr(rng.choice((small, small, small, -small)))
        if rng.random() < 0.1:
            divisor = random_expr(rng, space, kind, 1)
        return operation(op, grown, divisor)
    if op in (Op.SHL, Op.SHR):
        amount = rng.choice((0, 1, 2, 3, 4, 60, 62, 63) if kind == "wide" else (0, 1, 2, 3))
        return operation(op, grown, amount)
    if op is Op.MUL and rng.random() < 0.8:
        return operation(op, grown, rng.choice((small, -small, 0)))
    other = random_expr(rng, space, kind, depth - 1) if rng.random() < 0.6 else as_expr(small)
    return operation(op, *rng.choice(((grown, other), (other, grown))))


def quasi_affine(rng: random.Random, space: IndexSet) -> Expr:
    base = rng.choice((flat_index(rng, space), linear(rng, space), rng.choice(space.coordinates)))
    total: Expr | None = None
    below = 1
    for _ in range(rng.choice((1, 2, 3))):
        radix = rng.choice((2, 3, 4, 5, 6, 8))
        upper = base // below if below > 1 else base
        digit = rng.choice((upper % radix, upper, upper // radix))
        term = digit * rng.choice((1, 2, 3, 4, 6, 8, 12, 16, -1, -3))
        total = term if total is None else total + term
        below *= radix
    assert total is not None
    return total


def fitted_codomain(rng: random.Random, domain: IndexSet, values: tuple[Expr, ...]) -> IndexSet:
    raw = IndexExpr(domain, IndexSet.box({f"o{k}": 1 for k in range(len(values))}), values)
    seen = []
    for point in _points(domain, {}):
        try:
            seen.append(oracle_value(raw, point, {}))
        except OracleFailure:
            continue
    axes = []
    for k in range(len(values)):
        low = min((v[k] for v in seen), default=0)
        high = max((v[k] for v in seen), default=0)
        low = rng.choice((min(low, 0), low)) + rng.choice((0, 0, 0, 0, 1, -1))
        high += rng.choice((0, 0, 0, 0, 1, -1))
        low = max(low, -(2**63))
        high = min(max(high, low), 2**63 - 1)
        axes.append(Axis(f"o{k}", high - low + 1, low))
    return IndexSet(tuple(axes))


def random_map(rng: random.Random, kind: str) -> LayoutMap:
    domain = random_domain(rng, guarded=rng.random() < 0.25)
    if kind == "radix":
        return random_radix(rng)
    if kind == "bit-linear":
        return random_bits(rng)
    if kind == "composite":
        return random_composite(rng)
    if kind == "symbolic":
        return random_symbolic(rng)
    if kind == "restricted":
        box = random_domain(rng)
        value = flat_index(rng, box)
        n = rng.randrange(0, prod(box.shape) + 3)
        size = max(n + rng.choice((0, 0, 0, 1, -1)), 0)
        return IndexExpr(box.where(lt(value, n)), IndexSet.box(e=size), (value,))
    count = rng.choice((1, 1, 2))
    if kind == "quasi-affine":
        values = tuple(quasi_affine(rng, domain) for _ in range(count))
    elif kind == "affine" and rng.random() < 0.6:
        values = tuple(linear(rng, domain) for _ in range(count))
    else:
        deep = rng.choice((1, 2, 3, 4))
        shape = "wide" if kind == "piecewise" else kind
        values = tuple(random_expr(rng, domain, shape, deep) for _ in range(count))
    codomain = fitted_codomain(rng, domain, values)
    plain = IndexExpr(domain, codomain, values)
    if kind != "piecewise":
        return plain
    guard = lt(linear(rng, domain), rng.randrange(-4, 40))
    other = negate_predicate(guard) if rng.random() < 0.8 else lt(as_expr(60), linear(rng, domain))
    second = IndexExpr(domain, codomain, tuple(linear(rng, domain) for _ in range(count)))
    return Piecewise(((guard,), (other,)), (plain, second))


def random_symbolic(rng: random.Random) -> LayoutMap:
    """Extents, guards and values over one or two parameters with small ranges."""
    n = parameter("n", rng.choice((0, 1, 2)), rng.choice((2, 3, 5)))
    m = parameter("m", 1, rng.choice((1, 2, 4)))
    extents = [rng.choice((n, m, n + 1, n * 2, m * 4, 3, 4, 8)) for _ in range(rng.choice((1, 2)))]
    domain = IndexSet.box({"xy"[k]: e for k, e in enumerate(extents)}, parameters=(n, m))
    coordinates = domain.coordinates
    if rng.random() < 0.4:
        left = linear(rng, IndexSet.box(x=4)) if len(extents) == 1 else linear(rng, domain)
        domain = domain.where(lt(left, rng.choice((n, m, n + m, n * 2, 5))))
    value = rng.choice(
        (
            coordinates[0],
            coordinates[-1] * rng.choice((1, 2, m, n)) + coordinates[0],
            n - 1 - coordinates[0],
            linear(rng, domain) + rng.choice((n, m, 0)),
            coordinates[0] // rng.choice((2, m)) + n,
            coordinates[0] % rng.choice((3, m)),
            (coordinates[0] ^ 1) + n,
        )
    )
    size = rng.choice((n, m, n + 1, n * 2, extents[0], extents[-1], 4, 6, 12))
    return IndexExpr(domain, IndexSet.box({"o": size}, parameters=(n, m)), (value,))


def random_radix(rng: random.Random) -> LayoutMap:
    while True:
        modes = [
            tuple(rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.choice((1, 1, 2, 3))))
            for _ in range(rng.choice((1, 2, 3)))
        ]
        if prod(n for mode in modes for n in mode) <= POINTS:
            break
    if rng.random() < 0.5:
        step, strides = 1, []
        for mode in modes:
            row = []
            for n in mode:
                row.append(step * rng.choice((1, 1, 1, 1, -1)))
                step *= n + rng.choice((0, 0, 0, 1))
            strides.append(tuple(row))
    else:
        pool = (0, 1, 2, 3, 4, 5, 6, 8, 10, -1, -2, -6, 2**61, -(2**60))
        strides = [tuple(rng.choice(pool) for _ in mode) for mode in modes]
    offset = rng.choice((0, 0, 5, -3, 2**63 - 1))
    built = MixedRadix(tuple(modes), tuple(strides), rng.choice((0, offset)))
    if rng.random() < 0.3:
        return MixedRadix(
            tuple(modes),
            tuple(strides),
            built.offset,
            None,
            IndexSet.box(index=rng.randrange(1, 40)),
        )
    return built


def random_bits(rng: random.Random) -> LayoutMap:
    while True:
        sizes = [rng.choice((1, 2, 4, 8, 16, 3, 5, 6, 7, 11)) for _ in range(rng.choice((1, 2, 3)))]
        if prod(sizes) <= POINTS:
            break
    domain = IndexSet.box({"xyz"[k]: n for k, n in enumerate(sizes)})
    width = max(sum((n - 1).bit_length() for n in sizes), 1)
    outputs = rng.choice((1, 2))
    top = 1 << rng.choice((width, width, width - 1 if width > 1 else 1, 3))
    basis = tuple(
        tuple(
            tuple(rng.randrange(top) for _ in range(outputs)) for _ in range((n - 1).bit_length())
        )
        for n in sizes
    )
    size = rng.choice((top, top, max(top - 1, 1), 2 * top))
    codomain = IndexSet.box({f"o{k}": size for k in range(outputs)})
    shift = tuple(rng.choice((0, rng.randrange(top))) for _ in range(outputs))
    return BitLinear(domain, codomain, basis, shift)


def random_composite(rng: random.Random) -> LayoutMap:
    inner = random_map(rng, rng.choice(("quasi-affine", "radix", "bit-linear", "bitwise")))
    choice = rng.randrange(4)
    if choice == 0:
        return Translate(tuple(rng.choice((0, 1, -4, 9)) for _ in inner.codomain.axes), inner)
    if choice == 1:
        small = random_radix(rng)
        if (inner.domain.box_size or 0) * (small.domain.box_size or 0) > POINTS:
            return inner
        return Product((inner, small))
    if choice == 2 and inner.codomain.rank == 1 and inner.codomain.axes[0].lower == 0:
        extent = inner.codomain.box_size or 0
        if 0 < extent < 5000:
            return Transform("xor_swizzle", rng.choice(((2, 0, 2), (1, 1, 2), (3, 0, 3))), inner)
    target = IndexSet(
        tuple(Axis(f"m{k}", a.extent, a.lower) for k, a in enumerate(inner.codomain.axes))
    )
    if (target.box_size or 0) > POINTS or not target.box_size:
        return inner
    values = (quasi_affine(rng, target),)
    return Compose(IndexExpr(target, fitted_codomain(rng, target, values), values), inner)


class Contradiction(AssertionError):
    """A verdict, answer or normal form that the oracle refutes."""


def check_facts(map: LayoutMap, kind: str, tally: dict[str, Counter[str]]) -> None:
    proof, oracle = prove(map, budget=0), analyze_finite(map)
    for name, verdict in proof.items():
        truth = getattr(oracle, name)
        tally[kind][f"{name} {verdict.kind.value}"] += 1
        if not verdict.unknown and verdict.kind is not truth.kind:
            raise Contradiction(f"{name}: {verdict} but the oracle says {truth}\n{map}")
        if verdict.disproven and verdict.witness is not None:
            check_witness(map, name, verdict.witness)


def check_witness(map: LayoutMap, name: str, witness) -> None:
    """Every reported point is a domain point and fails as it says, by the oracle's evaluator."""
    values = []
    params = dict(witness.params)
    for point in witness.points:
        if not _member(map.domain, point, params):
            raise Contradiction(f"{name}: witness {point} is outside the domain\n{map}")
        try:
            values.append(oracle_value(map, point, params))
        except OracleFailure:
            values.append(None)
    if name == "injectivity" and witness.points:
        a, b = witness.points
        if a == b or values[0] is None or values[0] != values[1]:
            raise Contradiction(f"witness {witness} does not collide\n{map}")
    if (
        name == "bounds"
        and values
        and values[0] is not None
        and _member(map.codomain, values[0], params)
    ):
        raise Contradiction(f"witness {witness} is in bounds\n{map}")
    if witness.missing is not None and witness.missing in oracle_image(map):
        raise Contradiction(f"{witness.missing} is reached\n{map}")


def oracle_image(map: LayoutMap) -> set[tuple[int, ...]]:
    """Return the values at all points that have one."""
    found = set()
    for point in _points(map.domain, {}):
        try:
            found.add(oracle_value(map, point, {}))
        except OracleFailure:
            continue
    return found


def check_queries(map: LayoutMap) -> None:
    try:
        table = {p: oracle_value(map, p, {}) for p in _points(map.domain, {})}
    except OracleFailure:
        return
    values = set(table.values())
    found = image(map, budget=0)
    if found.value is not None:
        columns = list(zip(*values, strict=True))
        spans = tuple((min(c), max(c)) for c in columns)
        if found.value.size != len(values) or found.value.intervals != spans:
            raise Contradiction(f"image {found.value}, truth {len(values)} {spans}\n{map}")
    size = cardinality(map, budget=0)
    if size.value is not None and size.value != len(values):
        raise Contradiction(f"cardinality {size.value}, truth {len(values)}\n{map}")
    members = cardinality(map.domain, budget=0)
    if members.value is not None and members.value != len(table):
        raise Contradiction(f"domain cardinality {members}, truth {len(table)}\n{map}")
    if not table:
        return
    for number, name in enumerate(map.codomain.names):
        aligned = alignment(map, name, budget=0)
        truth = gcd(*(v[number] for v in values))
        if aligned.value is not None and aligned.value != truth:
            raise Contradiction(f"alignment {aligned}, truth {truth}\n{map}")
        for k, axis in enumerate(map.domain.axes):
            if axis.lower == 0:
                check_contiguity(map, table, k, number)


def check_contiguity(map: LayoutMap, table, k: int, number: int) -> None:
    axis = map.domain.axes[k]
    answer = contiguity(map, axis.name, map.codomain.names[number], budget=0)
    if answer.value is None:
        return
    for v in range(axis.extent, 0, -1):
        if axis.extent % v == 0 and runs(table, k, number, v):
            if v != answer.value:
                raise Contradiction(f"contiguity {answer} along {axis.name}, truth {v}\n{map}")
            return


def runs(table, k: int, number: int, v: int) -> bool:
    if v == 1:
        return True
    for point in table:
        start = point[k] - point[k] % v
        block = [(*point[:k], start + j, *point[k + 1 :]) for j in range(v)]
        if any(p not in table for p in block):
            return False
        base = table[block[0]][number]
        if base % v or any(table[p][number] != base + j for j, p in enumerate(block)):
            return False
    return True


def check_normal_form(map: LayoutMap) -> None:
    normal = normalize(map)
    if normal.domain != map.domain or normal.codomain != map.codomain:
        raise Contradiction(f"normal form changes the sets\n{map}\n{normal}")
    if normal is map:
        return
    for params in settings(map):
        compare_at(map, normal, params)


def settings(map: LayoutMap) -> list[dict[str, int]]:
    """Return every assignment of the parameters."""
    names = [p.name for p in map.domain.parameters]
    spans = [range(p.lower, p.upper + 1) for p in map.domain.parameters]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*spans)]


def compare_at(map: LayoutMap, normal: LayoutMap, params: dict[str, int]) -> None:
    for point in _points(map.domain, params):
        ours = theirs = None
        try:
            theirs = oracle_value(map, point, params)
            ours = oracle_value(normal, point, params)
        except OracleFailure as failure:
            raise Contradiction(f"normal form of a partial map: {failure}\n{map}") from None
        if ours != theirs:
            raise Contradiction(f"at {point}: {theirs} became {ours}\n{map}\n{normal}")


def run(maps: int, seed: int, queries: bool = True) -> dict[str, Counter[str]]:
    """Check ``maps`` random maps; return verdict counts by class. Raises Contradiction."""
    rng = random.Random(seed)
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    done = 0
    while done < maps:
        kind = CLASSES[done % len(CLASSES)]
        try:
            map = random_map(rng, kind)
        except LayoutError:
            # Refused on construction (overlapping branches, composition past a domain).
            tally[kind]["refused"] += 1
            continue
        check_facts(map, kind, tally)
        check_normal_form(map)
        if queries and not map.domain.parameters:
            check_queries(map)
        done += 1
    return tally


def main() -> int:
    """Run the fuzzer and print shares of UNKNOWN."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--maps", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--no-queries", action="store_true")
    given = arguments.parse_args()
    start = time.perf_counter()
    tally = run(given.maps, given.seed, not given.no_queries)
    print(
        f"{given.maps} maps, seed {given.seed}: no contradiction, "
        f"{time.perf_counter() - start:.0f} s"
    )
    for kind in CLASSES:
        counts = tally[kind]
        line = []
        for fact in ("totality", "bounds", "injectivity", "surjectivity"):
            total = sum(counts[f"{fact} {v}"] for v in ("PROVEN", "DISPROVEN", "UNKNOWN"))
            line.append(f"{fact} {counts[f'{fact} UNKNOWN'] / max(total, 1):6.1%}")
        print(
            f"UNKNOWN at budget 0, {kind:12s}: "
            + ", ".join(line)
            + f", refused {counts['refused']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

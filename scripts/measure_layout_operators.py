"""Judge and time the operators of the layout algebra on random CuTe layouts.

``python scripts/measure_layout_operators.py --cases 1500 --seed 7`` draws pairs of layouts with
compact, padded and arbitrary strides (``--negative``: of either sign), compares every result with
the definition by enumeration, and prints outcomes and times per operator. It exits with 1 where a
result is wrong. The judge uses integers only, neither maps nor proofs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    CuteLayout,
    coalesce,
    complement,
    composition,
    filter,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)


def draw(rng: random.Random, negative: bool) -> CuteLayout:
    """Return a layout of one to three modes, sometimes nested."""
    rank = rng.choice([1, 1, 2, 2, 3])
    shape = [rng.choice([1, 2, 3, 4, 5, 6, 8]) for _ in range(rank)]
    if rng.random() < 0.5:
        order, steps, below = rng.sample(range(rank), rank), [0] * rank, 1
        for k in order:
            steps[k] = below
            below *= shape[k]
            if rng.random() < 0.15:
                below += rng.choice([1, 2, below])
    else:
        steps = [rng.choice([0, 1, 2, 3, 4, 6, 8, 12]) for _ in range(rank)]
    if negative:
        steps = [step * rng.choice([1, -1]) for step in steps]
    if rank == 1:
        return CuteLayout(shape[0], steps[0])
    if rank == 3 and rng.random() < 0.4:
        return CuteLayout((shape[0], tuple(shape[1:])), (steps[0], tuple(steps[1:])))
    return CuteLayout(tuple(shape), tuple(steps))


def at(layout: CuteLayout, index: int) -> int:
    """Return the digit sum; the last mode is unbounded."""
    total, pairs = 0, layout.digits
    for extent, step in pairs[:-1]:
        total += index % extent * step
        index //= extent
    return total + index * pairs[-1][1]


def values(layout: Any) -> list[int]:
    """Return all values in order."""
    if isinstance(layout, CuteLayout):
        return [at(layout, i) for i in range(layout.size())]
    return list(layout.values())


def copies_are_disjoint(block: list[int], order: list[int], found: list[int]) -> bool:
    """Whether each tile is the block moved, alike at equal places and disjoint at others."""
    moves: dict[int, int] = {}
    for k, place in enumerate(order):
        tile = found[k * len(block) : (k + 1) * len(block)]
        moved = tile[0] - block[0]
        if [x - moved for x in tile] != block or moves.setdefault(place, moved) != moved:
            return False
    sets = [{x + moved for x in block} for moved in moves.values()]
    return sum(map(len, sets)) == len(set().union(*sets))


def judged(a: CuteLayout, b: CuteLayout) -> dict[str, tuple[Callable[[], Any], Any]]:
    """Return, per operator, the call and the test of its values."""
    whole, order = values(a), values(b)
    target = 4 * len(whole)

    def tiles(image: list[int]) -> bool:
        covered = sorted(x + y for x in set(whole) for y in image)
        return covered == list(range(target)) and image == sorted(image)

    def divided(found: list[int]) -> bool:
        return sorted(found) == sorted(whole) and found[: len(order)] == [whole[x] for x in order]

    return {
        "coalesce": (lambda: coalesce(a), lambda v: v == whole),
        "filter": (lambda: filter(a), lambda v: set(v) == set(whole)),
        "composition": (
            lambda: composition(a, b, unbounded_last_mode=True),
            lambda v: v == [at(a, x) for x in order],
        ),
        "complement": (lambda: complement(a, target), tiles),
        "right_inverse": (
            lambda: right_inverse(a),
            lambda v: [at(a, x) for x in v] == list(range(len(v))),
        ),
        "left_inverse": (lambda: left_inverse(a), None),
        "logical_divide": (lambda: logical_divide(a, b), divided),
        "logical_product": (
            lambda: logical_product(a, b),
            lambda v: copies_are_disjoint(whole, order, v),
        ),
    }


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--negative", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.cases):
        a, b = draw(rng, options.negative), draw(rng, options.negative)
        for name, (call, test) in judged(a, b).items():
            start = time.perf_counter()
            try:
                result = call().layout
            except LayoutError:
                result = None
            times[name].append(time.perf_counter() - start)
            if result is None:
                outcomes[name]["refused"] += 1
                continue
            if test is None:
                right = [at(result, x) for x in values(a)] == list(range(a.size()))
            else:
                right = test(values(result))
            form = "flat" if isinstance(result, CuteLayout) else "composed"
            outcomes[name][form if right else "WRONG"] += 1
            if not right:
                print(f"WRONG {name}: A = {a}, B = {b}, result {result}")
    for name, found in outcomes.items():
        listed = ", ".join(f"{n} {kind}" for kind, n in sorted(found.items()))
        middle = statistics.median(times[name]) * 1e6
        tail = sorted(times[name])[len(times[name]) * 99 // 100] * 1e6
        print(f"{name:16} {listed:40} median {middle:6.0f} us, 99 % {tail:6.0f} us")
    return int(any(found["WRONG"] for found in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())

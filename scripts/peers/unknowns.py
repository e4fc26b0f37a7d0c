"""What ``prove(map, budget=0)`` leaves UNKNOWN on the peers' own vectors.

``python scripts/peers/unknowns.py --tables docs/layout-peers.md --list
tests/layout_peers/undecided.tsv`` needs no peer. Every undecided fact is listed with its layout.
The exact classes are mixed radix, linear over GF(2) on power-of-two boxes, and a registered swizzle
of mixed radix.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.peers import cases, ours, tables
from tvm_tilex.layout import BitLinear, Identity, MixedRadix, Permute, Transform, prove
from tvm_tilex.layout.operators import composition


def maps(seed, count):
    """Yield (suite, text, map) of every case."""
    for case in cases.cute_pairs(seed, count):
        layout = ours.cute(case["A"])
        yield "cute", str(layout), layout.to_map()
    for form in cases.cute_signed(seed, count // 3):
        layout = ours.cute(form)
        yield "cute signed", str(layout), layout.to_map()
    for form in cases.cute_swizzles(seed, count // 3):
        layout = ours.cute(form)
        yield "cute swizzled", str(layout), layout.to_map()
    for case in cases.cute_pairs(seed, count):
        made = ours.answer(composition, ours.cute(case["A"]), ours.cute(case["B"]))
        if made[0] == "value":
            layout = made[1].layout
            yield "cute composition", str(layout), layout.to_map(linear=True)
    for case in cases.triton_pairs(seed, count):
        layout = ours.triton(case["A"])
        yield "triton", str(layout), layout.map
    for case in cases.tilelang_cases(seed, count):
        layout = ours.tilelang(case)
        yield "tilelang", str(layout), layout.map
    for case in cases.tvm_cases(seed, count):
        layout = ours.tvm(case)
        yield "tvm", str(layout), layout.map
        yield "tvm over a shape", f"{layout} over {case['shape']}", layout.map_over(case["shape"])


def exact(map):
    """Whether the map is in a class with exact procedures for every fact."""
    if isinstance(map, Transform):
        return isinstance(map.map, MixedRadix)
    if isinstance(map, BitLinear):
        return not any(n & (n - 1) for n in map.domain.shape)
    return isinstance(map, (MixedRadix, Identity, Permute))


def main(argv=None):
    """Print the table; return 1 where an exact class has an undecided fact."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--list", type=Path, help="write every undecided fact to this file")
    options = parser.parse_args(argv)
    total, undecided = collections.Counter(), collections.defaultdict(collections.Counter)
    listed = []
    broken = 0
    for suite, text, map in maps(options.seed, options.cases):
        key = suite, type(map).__name__
        broken += exact(map) and any(v.unknown for _, v in prove(map, 0).items())
        total[key] += 1
        for fact, verdict in prove(map, 0).items():
            if verdict.unknown:
                undecided[key][fact] += 1
                listed.append((*key, fact, text))
    lines = ["| vectors | node | maps | UNKNOWN at budget 0 |", "|---|---|---|---|"]
    for key, count in total.items():
        facts = ", ".join(f"{f} {n}" for f, n in sorted(undecided[key].items())) or "0"
        lines.append(f"| {key[0]} | {key[1]} | {count} | {facts} |")
    text = "\n".join(lines)
    print(text)
    if options.list:
        rows = ["\t".join(entry) for entry in listed]
        options.list.write_text("\n".join(rows) + "\n", encoding="utf-8")
    if options.tables:
        tables.replace(options.tables, "unknowns", text)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

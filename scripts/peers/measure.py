"""Evaluation times on the same layouts: pycute, the CuTe DSL, TileLang's CuTe, and the package.

``python scripts/peers/measure.py --environments DIR [--tables docs/layout-peers.md]``. Each side
builds the layouts and evaluates every point in its own process, without the protocol in the
measured part; CPU time of the process, best of the repeats.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from scripts.peers import brute, cases, ours, run, tables
from scripts.peers.protocol import timed


def ours_scalar(forms, repeats):
    """Checked evaluation of one point at a time, as ``layout(i)``."""
    return timed(ours.cute, lambda x, i: x(i), lambda x: x.size(), forms, repeats)


def ours_arrays(forms, repeats):
    """All points of a layout in one call of its map."""
    sizes = [brute.size(form[0]) for form in forms]
    build, evaluate = [], []
    for _ in range(repeats):
        began = time.process_time()
        maps = [ours.cute(form).to_map(linear=True) for form in forms]
        middle = time.process_time()
        for map, size in zip(maps, sizes, strict=True):
            map.apply_array(np.arange(size))
        build.append(middle - began)
        evaluate.append(time.process_time() - middle)
    return [min(build), min(evaluate)]


def main(argv=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tables", type=Path)
    options = parser.parse_args(argv)
    forms = [case["A"] for case in cases.cute_pairs(options.seed, options.cases)]
    points = sum(brute.size(form[0]) for form in forms)
    rows = []
    for peer in run.start("cute", options.environments):
        peer.timeout = 600
        kind, value = peer.ask("time", forms=forms, repeats=options.repeats)
        version = next(iter(peer.versions.values()))
        rows.append((f"{peer.name} {version}", value if kind == "value" else kind))
        peer.close()
    rows.append(("tvm_tilex `layout(i)`", ours_scalar(forms, options.repeats)))
    rows.append(("tvm_tilex `map.apply_array`", ours_arrays(forms, options.repeats)))
    lines = [
        f"{len(forms)} layouts of seed {options.seed}, {points} points, best of {options.repeats},"
        f" CPU time, Python {platform.python_version()}.",
        "",
        "| | build all, ms | evaluate all, ms | one point, µs |",
        "|---|---|---|---|",
    ]
    for name, value in rows:
        build, evaluate = value
        each = evaluate / points * 1e6
        lines.append(f"| {name} | {build * 1e3:.1f} | {evaluate * 1e3:.1f} | {each:.2f} |")
    text = "\n".join(lines)
    print(text)
    if options.tables:
        tables.replace(options.tables, "times", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

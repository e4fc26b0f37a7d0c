"""Vectors for the test suite: cases, right values, and every known wrong answer of a peer."""

from __future__ import annotations

import gzip
import json
import zlib

from scripts.peers import brute, cases, judge
from scripts.peers.protocol import ROOT

FOLDER = ROOT / "tests" / "layout_peers"
GENERATORS = {
    "cute": cases.cute_pairs,
    "triton": cases.triton_pairs,
    "tilelang": cases.tilelang_cases,
    "tvm": cases.tvm_cases,
}


def digest(value):
    """Return a checksum of plain data, for values too long to list."""
    return zlib.crc32(json.dumps(value, separators=(",", ":")).encode())


def right_value(name, case):
    """Return the brute-force value of a case's own layout."""
    if name == "cute":
        return brute.cute_values(case["A"])
    if name == "triton":
        return brute.linear_values(case["A"]["bases"], case["A"]["outs"])
    if name == "tilelang":
        return brute.expression_values(case)
    return brute.tile_values(case)


def write(name, result):
    """Write the vectors of one suite."""
    made = GENERATORS[name](result["seed"], result["cases"])
    entries = [[case, digest(right_value(name, case))] for case in made]
    data = {
        "suite": name,
        "seed": result["seed"],
        "versions": result["versions"],
        "cases": entries,
        "known wrong": _wrong(result),
        "crashed": _crashed(result),
    }
    if name == "cute":
        swizzled = cases.cute_swizzles(result["seed"], result["cases"] // 3)
        data["swizzled"] = [[form, digest(brute.cute_values(form))] for form in swizzled]
        signed = cases.cute_signed(result["seed"], result["cases"] // 3)
        data["signed"] = [[form, digest(brute.cute_values(form))] for form in signed]
        data["operators"] = _operators(made, result)
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(data, separators=(",", ":"))
    path = FOLDER / f"{name}.json.gz"
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{path}: {path.stat().st_size} bytes")


def _wrong(result):
    """Per peer and operation: case number, kind, and the wrong answer itself."""
    found = {}
    for peer, op, number, verdict, value in result["rows"]:
        if verdict.startswith("wrong"):
            found.setdefault(peer, {}).setdefault(op, []).append([number, verdict, value])
    return found


def _crashed(result):
    found = {}
    for peer, op, number, verdict, value in result["rows"]:
        if verdict == "crashed":
            found.setdefault(peer, {}).setdefault(op, []).append([number, value])
    return found


def _operators(made, result):
    """Per operator and case, what is right: a layout that passed the judge, or None.

    The layout is a peer's where one agrees, else the package's own (it passed the same judge).
    """
    right = {op: [None] * len(made) for op in judge.ALL}
    order = {"cute_dsl": 0, "pycute": 1, "tilelang.cute": 2, "tvm_tilex": 3}
    taken = {}
    for peer, op, number, verdict, value in result["rows"]:
        if verdict != "agrees" or op not in right:
            continue
        if order[peer] < taken.get((op, number), 9):
            taken[op, number] = order[peer]
            right[op][number] = [peer, value]
    return right

"""Recorded cases of the real peers, checked without any peer installed.

The vectors (``scripts/peers/run.py --record``) hold the cases, a checksum of the brute-force value
of each, per operator a layout that passed the judge (or that there is none), and every wrong or
fatal answer of a peer. Evaluation, import and export are checked on all cases, CuTe's basic
operators on all, divides and products on a rotating sixteenth.
"""

import gzip
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tvm_tilex.layout import prove

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("cute", "triton", "tilelang", "tvm")
SHARE = 16
# Refusals of ours although an answer exists; none may be added silently.
DECLINED: dict[str, set[int]] = {}


@pytest.fixture(scope="module")
def peers():
    sys.path.insert(0, str(ROOT))
    try:
        names = ("brute", "cases", "judge", "ours", "record", "suites")
        return SimpleNamespace(**{n: importlib.import_module(f"scripts.peers.{n}") for n in names})
    finally:
        sys.path.remove(str(ROOT))


def vectors(name):
    path = Path(__file__).parent / f"{name}.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture(scope="module")
def cute():
    return vectors("cute")


@pytest.mark.parametrize("name", SUITES)
def test_vectors_are_large_enough_and_reproducible(name, peers):
    data = vectors(name)
    assert len(data["cases"]) >= 1000
    assert data["versions"] and isinstance(data["seed"], int)
    made = peers.record.GENERATORS[name](data["seed"], len(data["cases"]))
    assert [case for case, _ in data["cases"]] == made


def values_of(name, case, ours):
    if name == "cute":
        return ours.cute_values(case["A"]), ours.cute_map_roundtrip(case["A"])
    if name == "triton":
        layout = ours.triton(case["A"])
        again = ours.triton_values(ours.TritonLayout.from_map(layout.map))
        return ours.triton_values(layout), again
    if name == "tilelang":
        return ours.tilelang_case_values(case), ours.tilelang_map_roundtrip(case)
    layout = ours.tvm(case)
    return ours.tvm_locations(layout.placement), ours.tvm_map_roundtrip(layout)


@pytest.mark.parametrize("name", SUITES)
def test_evaluation_and_round_trip_of_every_case(name, peers):
    """``eval(import(L), x) = eval(L, x)`` and ``semantics(export(import(L))) = semantics(L)``."""
    for case, checksum in vectors(name)["cases"]:
        for value in values_of(name, case, peers.ours):
            assert peers.record.digest(value) == checksum, case


def test_signed_and_swizzled_forms(cute, peers):
    for form, checksum in cute["signed"] + cute["swizzled"]:
        for evaluate in (peers.ours.cute_values, peers.ours.cute_map_roundtrip):
            assert peers.record.digest(evaluate(form)) == checksum, form
        values = peers.brute.cute_values(form)
        assert peers.ours.cute(form).cosize() == max(values) - min(values) + 1


UNIQUE = (
    "coalesce", "composition", "composition (unbounded last mode)", "complement",
    "logical_divide", "zipped_divide", "tiled_divide", "flat_divide",
)  # fmt: skip


def checked(op, number, judge):
    if op in judge.OPERATORS:
        return True
    return number % SHARE == judge.ALL.index(op) % SHARE


def test_operators_agree_or_refuse_as_recorded(cute, peers):
    judge, ours = peers.judge, peers.ours
    cases = [case for case, _ in cute["cases"]]
    declined = {}
    for op, recorded in cute["operators"].items():
        for number, right in enumerate(recorded):
            case = cases[number]
            if not (checked(op, number, judge) and judge.applies(op, case)):
                continue
            kind, value = ours.cute_operator(op, case, judge.extent_of(case))
            if right is None:
                outside = judge.answer_exists(op, case) is None
                assert kind == "refused" or outside, (op, case, value)
                continue
            if kind == "refused":
                declined.setdefault(op, set()).add(number)
                continue
            if op in UNIQUE:
                assert judge.values(value) == judge.values(right[1]), (op, case, value, right)
            else:
                assert judge.verdict(op, case, kind, value) == "agrees", (op, case, value)
    assert all(found <= DECLINED.get(op, set()) for op, found in declined.items()), declined


def test_every_known_wrong_answer_is_still_wrong(cute, peers):
    """The judge says so from the recorded answer itself, and ours is not that answer."""
    cases = [case for case, _ in cute["cases"]]
    listed = 0
    for peer, operations in cute["known wrong"].items():
        assert peer != peers.ours.NAME
        for op, entries in operations.items():
            if op not in peers.judge.ALL:
                continue
            for number, kind, value in entries:
                assert peers.judge.verdict(op, cases[number], "value", value) == kind
                listed += 1
    assert listed > 1000


def test_undecided_facts_are_the_listed_ones(peers):
    """Budget 0 on a share of the vectors: exact classes decide everything, the rest is listed."""
    sys.path.insert(0, str(ROOT))
    try:
        unknowns = importlib.import_module("scripts.peers.unknowns")
    finally:
        sys.path.remove(str(ROOT))
    text = (Path(__file__).parent / "undecided.tsv").read_text(encoding="utf-8")
    listed = {tuple(line.split("\t")) for line in text.splitlines()}
    for number, (suite, layout, map) in enumerate(unknowns.maps(7, 1500)):
        if number % SHARE:
            continue
        for fact, verdict in prove(map, 0).items():
            if verdict.unknown:
                assert not unknowns.exact(map), layout
                assert (suite, type(map).__name__, fact, layout) in listed


@pytest.mark.parametrize("name", SUITES)
def test_no_answer_of_ours_is_wrong_or_fatal(name, peers):
    data = vectors(name)
    assert peers.ours.NAME not in data["known wrong"]
    assert peers.ours.NAME not in data["crashed"]


def test_conversions_of_triton_layouts(peers):
    """Compose, invert and convert, judged by their laws; refused exactly where there is none."""
    for case, _ in vectors("triton")["cases"][::2]:
        for op in ("compose", "invert", "invert_and_compose"):
            exists = peers.suites.triton_answer_exists(op, case)
            kind, value = peers.ours.triton_operator(op, case)
            found = peers.ours.triton_values(value) if kind == "value" else value
            verdict = peers.suites.triton_verdict(op, case, kind, found, exists)
            assert verdict == ("agrees" if exists else "none"), (op, case, value)


def test_tvm_layouts_over_logical_shapes(peers):
    for case, checksum in vectors("tvm")["cases"][::3]:
        layout = peers.ours.tvm(case)
        over = peers.suites.Placement(layout.map_over(case["shape"]), layout.placement.replica)
        assert peers.record.digest(peers.ours.tvm_locations(over)) == checksum, case

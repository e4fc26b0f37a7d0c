"""One suite a peer family: run every case on every peer and on the package, and judge.

A row is ``(peer, op, case number, verdict, answer)``.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from scripts.peers import brute, cases, judge, ours
from tvm_tilex.layout import prove
from tvm_tilex.layout.bridges import Placement

# After a crash of the key the listed operators would crash the same way; each costs a restart.
FOLLOWERS = {
    "logical_divide": judge.DIVIDES[1:],
    "logical_product": judge.PRODUCTS[1:],
}
ABORTING = 40  # cases whose only outcome is an abort of the process, per operator


def same(kind, value, expected):
    """Return the verdict of an answer that must equal ``expected``."""
    if kind == "crashed":
        return "crashed"
    if kind == "refused":
        return "refuses"
    return "agrees" if value == expected else "wrong: value"


def cute(peers, seed, count):
    """CuTe: evaluation, import and export of plain and swizzled layouts, and the operators."""
    pairs = cases.cute_pairs(seed, count)
    for number, case in enumerate(pairs):
        yield from _cute_forms(peers, number, case["A"], "plain")
        for peer in peers:
            yield from _cute_operators(peer, number, case)
        for op in filter(lambda op: judge.applies(op, case), judge.ALL):
            kind, value = ours.cute_operator(op, case, judge.extent_of(case))
            yield ours.NAME, op, number, judge.verdict(op, case, kind, value), value
    for number, form in enumerate(cases.cute_signed(seed, count // 3)):
        yield from _cute_forms(peers, number, form, "signed")
    swizzled = [p for p in peers if p.name in ("pycute", "cute_dsl")]
    for number, form in enumerate(cases.cute_swizzles(seed, count // 3)):
        yield from _cute_forms(swizzled, number, form, "swizzled")


def _cute_forms(peers, number, form, what):
    expected = brute.cute_values(form)
    width = max(expected) - min(expected) + 1
    for peer in peers:
        kind, value = peer.ask("evaluate", form=form)
        yield peer.name, f"evaluate {what}", number, same(kind, value, expected), value
        kind, value = peer.ask("roundtrip", form=form)
        found = value["values"] if kind == "value" else value
        yield peer.name, f"import, export {what}", number, same(kind, found, expected), found
        kind, value = peer.ask("cosize", form=form)
        yield peer.name, f"cosize {what}", number, same(kind, value, width), value
    kind, value = ours.answer(ours.cute_values, form)
    yield ours.NAME, f"evaluate {what}", number, same(kind, value, expected), value
    kind, value = ours.answer(ours.cute_map_roundtrip, form)
    yield ours.NAME, f"import, export {what}", number, same(kind, value, expected), value
    kind, value = ours.answer(lambda: ours.cute(form).cosize())
    yield ours.NAME, f"cosize {what}", number, same(kind, value, width), value


def _cute_operators(peer, number, case):
    skipped = set()
    for op in judge.ALL:
        if not judge.applies(op, case):
            continue
        if op in skipped:
            yield peer.name, op, number, "not run after a crash", None
            continue
        named = {"extent": judge.extent_of(case)} if op == "complement" else {}
        if op.startswith("composition") or op in (*judge.DIVIDES, *judge.PRODUCTS):
            named["B"] = case["B"]
        kind, value = peer.ask(op.split()[0], A=case["A"], **named)
        if kind == "refused" and value.startswith("KeyError"):
            continue  # the peer has no such operator
        if kind == "crashed":
            skipped.update(FOLLOWERS.get(op, ()))
        yield peer.name, op, number, judge.verdict(op, case, kind, value), value


WIDTHS = {"8 to 16 bits": (8, 16), "8 to 64 bits": (8, 64), "16 to 8 bits": (16, 8)}


def units(peers, seed, count):
    """The same storage in wider and narrower units, swizzles included."""
    (peer,) = peers
    forms = cases.cute_swizzles(seed, count // 2)
    forms += [case["A"] for case in cases.cute_pairs(seed, count - len(forms))]
    for number, form in enumerate(forms):
        old = brute.cute_values(form)
        for op, bits in WIDTHS.items():
            kind, value = peer.ask("recast", form=form, old_bits=bits[0], new_bits=bits[1])
            yield peer.name, op, number, units_verdict(old, kind, value, *bits), value
            kind, value = ours.answer(ours.recast_values, form, *bits)
            yield ours.NAME, op, number, units_verdict(old, kind, value, *bits), value


def units_verdict(old, kind, value, old_bits, new_bits):
    """Judge: an old value is the unit of its parts, in order; no part is lost or made."""
    if kind == "crashed":
        return "crashed"
    ratio = max(old_bits, new_bits) // min(old_bits, new_bits)
    if kind == "refused" and new_bits > old_bits:
        whole = [v // ratio for v in old if v % ratio == 0]
        return "refuses" if _parts(whole, ratio) == sorted(old) else "none"
    if kind == "refused":
        return "refuses" if 1 in (b - a for a, b in pairwise(old)) else "none"
    wide, narrow = (value, old) if new_bits > old_bits else (old, value)
    if _parts(wide, ratio) != sorted(narrow):
        return "wrong: not the same storage"
    rows = [[(i, v // ratio) for i, v in enumerate(narrow) if v % ratio == k] for k in range(ratio)]
    if any([v for _, v in row] != wide for row in rows):
        return "wrong: order of units"
    moved = [{i - j for (i, _), (j, _) in zip(row, rows[0], strict=True)} for row in rows]
    return "agrees" if all(len(d) == 1 for d in moved) else "wrong: order inside a unit"


def _parts(wide, ratio):
    return sorted(v * ratio + k for v in wide for k in range(ratio))


def triton(peers, seed, count):
    """Triton: evaluation, both directions, facts, composition and inversion."""
    (peer,) = peers
    aborts = {"invert": 0, "compose": 0, "invert_and_compose": 0}
    for number, case in enumerate(cases.triton_pairs(seed, count)):
        layout = case["A"]
        expected = brute.linear_values(layout["bases"], layout["outs"])
        kind, value = peer.ask("evaluate", layout=layout)
        yield peer.name, "evaluate", number, same(kind, value, expected), value
        kind, value = peer.ask("roundtrip", layout=layout)
        found = value["values"] if kind == "value" and value["equal"] else value
        yield peer.name, "import, export", number, same(kind, found, expected), found
        mine = ours.triton(layout)
        value = ours.triton_values(mine)
        yield ours.NAME, "evaluate", number, same("value", value, expected), value
        again = ours.triton_values(ours.TritonLayout.from_map(mine.map))
        text = ours.triton_values(ours.parse_triton(str(mine)))
        found = again if again == text else None
        yield ours.NAME, "import, export", number, same("value", found, expected), found
        yield from _triton_facts(peer, number, layout, expected)
        for op in aborts:
            yield from _triton_operator(peer, op, number, case, aborts)


def _triton_facts(peer, number, layout, expected):
    size = prod(n for _, n in layout["outs"])
    reached = len({tuple(row) for row in expected})
    want = {"surjective": reached == size, "injective": reached == len(expected)}
    kind, value = peer.ask("facts", layout=layout)
    yield peer.name, "injective, surjective", number, same(kind, value, want), value
    proof = prove(ours.triton(layout).map, 0)
    value = {k: getattr(proof, n).proven for k, n in PROOFS.items()}
    decided = all(not getattr(proof, n).unknown for n in PROOFS.values())
    yield (
        ours.NAME,
        "injective, surjective",
        number,
        same("value", value if decided else 0, want),
        value,
    )


PROOFS = {"surjective": "surjectivity", "injective": "injectivity"}


def _triton_operator(peer, op, number, case, aborts):
    exists = triton_answer_exists(op, case)
    kind, value = ours.triton_operator(op, case)
    found = ours.triton_values(value) if kind == "value" else value
    yield ours.NAME, op, number, triton_verdict(op, case, kind, found, exists), found
    if not exists:
        aborts[op] += 1
        if aborts[op] > ABORTING:
            return
    arguments = {"layout": case["B"]} if op == "invert" else {"A": case["A"]}
    if op != "invert":
        arguments["B"] = case["C" if op == "compose" else "B"]
    kind, value = peer.ask(op, **arguments)
    found = brute.linear_values(value["bases"], value["outs"]) if kind == "value" else value
    yield peer.name, op, number, triton_verdict(op, case, kind, found, exists), found


def triton_answer_exists(op, case):
    """Whether the operator has an answer, by brute force."""
    a = case["A"]
    first = brute.linear_values(a["bases"], a["outs"])
    if op == "compose":
        sizes = [1 << len(v) for _, v in case["C"]["bases"]]
        return all(x < n for row in first for x, n in zip(row, sizes, strict=True))
    if op == "invert":
        values = brute.linear_values(case["B"]["bases"], case["B"]["outs"])
        size = prod(n for _, n in case["B"]["outs"])
        return len(values) == size == len({tuple(r) for r in values})
    second = brute.linear_values(case["B"]["bases"], case["B"]["outs"])
    return {tuple(r) for r in first} <= {tuple(r) for r in second}


def triton_verdict(op, case, kind, found, exists):
    """Judge by the law: ``C(A(x))``, ``A^-1(A(x)) = x``, ``B(C(x)) = A(x)``."""
    if kind == "crashed":
        return "crashed"
    if kind == "refused":
        return "refuses" if exists else "none"
    if not exists:
        return "wrong: an answer where none exists"
    a = case["A"]
    first = brute.linear_values(a["bases"], a["outs"])
    if op == "compose":
        second = brute.linear_values(case["C"]["bases"], case["C"]["outs"])
        sizes = [1 << len(v) for _, v in case["C"]["bases"]]
        return same(kind, found, [second[flat(row, sizes)] for row in first])
    b = case["B"]
    second = brute.linear_values(b["bases"], b["outs"])
    sizes = [1 << len(v) for _, v in b["bases"]]
    if op == "invert":
        points = [unflat(i, sizes) for i in range(len(second))]
        outs = [n for _, n in b["outs"]]
        return same(kind, [found[flat(row, outs)] for row in second], points)
    return same(kind, [second[flat(row, sizes)] for row in found], first)


def flat(row, sizes):
    """Return the row-major number of a point."""
    index = 0
    for x, n in zip(row, sizes, strict=True):
        index = index * n + x
    return index


def unflat(index, sizes):
    """Return the point of a row-major number."""
    row = []
    for n in reversed(sizes):
        index, digit = divmod(index, n)
        row.insert(0, digit)
    return row


def tilelang(peers, seed, count):
    """TileLang: forward maps and both directions."""
    (peer,) = peers
    for number, case in enumerate(cases.tilelang_cases(seed, count)):
        expected = brute.expression_values(case)
        kind, value = peer.ask("evaluate_forward", case=case)
        yield peer.name, "evaluate", number, same(kind, value, expected), value
        kind, value = peer.ask("roundtrip_forward", case=case)
        found = value
        if kind == "value":
            texts = [ours.parse_tilelang(value[k]) for k in ("text", "printed")]
            readings = [ours.tilelang_values(t) for t in texts]
            found = value["values"] if readings == [value["values"]] * 2 else readings
        yield peer.name, "import, export", number, same(kind, found, expected), found
        kind, value = ours.answer(ours.tilelang_case_values, case)
        yield ours.NAME, "evaluate", number, same(kind, value, expected), value
        kind, value = ours.answer(ours.tilelang_map_roundtrip, case)
        yield ours.NAME, "import, export", number, same(kind, value, expected), value


def tvm(peers, seed, count):
    """TVM: locations over the shard and over a logical shape, span, both directions."""
    (peer,) = peers
    for number, case in enumerate(cases.tvm_cases(seed, count)):
        expected = brute.tile_values(case)
        for op in ("evaluate", "evaluate_shape"):
            kind, value = peer.ask(op, case=case)
            yield peer.name, op, number, same(kind, value, expected), value
        kind, value = peer.ask("roundtrip", case=case)
        found = value
        if kind == "value":
            agree = ours.parse_tvm(value["text"]) == ours.parse_tvm(value["printed"])
            found = value["values"] if agree else value
        yield peer.name, "import, export", number, same(kind, found, expected), found
        mine = ours.tvm(case)
        value = ours.tvm_locations(mine.placement)
        yield ours.NAME, "evaluate", number, same("value", value, expected), value
        over = Placement(mine.map_over(case["shape"]), mine.placement.replica)
        value = ours.tvm_locations(over)
        yield ours.NAME, "evaluate_shape", number, same("value", value, expected), value
        value = ours.tvm_map_roundtrip(mine)
        text = ours.tvm_locations(ours.parse_tvm(str(mine)).placement)
        found = value if value == text else [value, text]
        yield ours.NAME, "import, export", number, same("value", found, expected), found
        if case.get("swizzle"):
            width = max(dict(map(tuple, c[0])).get("m", 0) for c in expected) + 1
            kind, value = peer.ask("span", case=case)
            if kind == "value":
                kind, value = "value", [value, value >= width]
            covers = "wrong: short" if kind == "value" and not value[1] else "agrees"
            yield peer.name, "span covers", number, covers if kind == "value" else kind, value
            covered = mine.map.codomain.box_size >= width
            yield ours.NAME, "span covers", number, "agrees" if covered else "wrong: short", None


SUITES = {"cute": cute, "units": units, "triton": triton, "tilelang": tilelang, "tvm": tvm}

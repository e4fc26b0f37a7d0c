"""Forwarding of immutable views: which guards prove an index, and what stays lazy."""

from __future__ import annotations

import numpy as np
import pytest
import raw_tirx as raw

from tvm_tilex.tirx.compat import structural_equal
from tvm_tilex.transform import ForwardViews

VIEW = """
# from tvm.script import tirx as T
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(x: T.Buffer((4, 64), "float32", align=4), idx: T.Buffer((4,), "{dtype}", align=4),
          u: T.Buffer((4,), "float32", align=4), out: T.Buffer((4,), "float32", align=4)):
        T.func_attr({{"tilex.options": "{{}}", "tilex.stage": "reference"{noalias}}})
        for p in T.parallel(4, annotations={{"tilex.parallel": 0}}):
            tile = T.alloc_local((64,))
{before}
            for e in T.serial(64, annotations={{"tilex.domain": 1}}):
                tile[e] = x[p, e]
{body}
"""
NOALIAS = ', "tirx.noalias": True'


def view(body, dtype="int64", noalias=NOALIAS, before=""):
    def indented(text):
        return "\n".join(" " * 12 + line for line in text.splitlines())

    return VIEW.format(dtype=dtype, noalias=noalias, body=indented(body), before=indented(before))


def forwarded(text):
    module = ForwardViews()(raw.parse(text))
    again = ForwardViews()(module)
    assert structural_equal(again["f"], module["f"]), "a second run changes the function"
    return "alloc_local((64,))" not in module.script()


SELECT = "out[p] = T.if_then_else({guard}, tile[{index}], {other})"


def select(guard, index='T.Cast("int32", idx[p])', other="T.float32(0)"):
    return SELECT.format(guard=guard, index=index, other=other)


L = "idx[p]"
I64 = "T.int64({})".format
TILE = 'tile[T.Cast("int32", idx[p])]'
INSIDE = f"{L} >= T.int64(0) and {L} < T.int64(64)"
OUTSIDE = f"{L} < T.int64(0) or {L} >= T.int64(64)"
ITE = "T.if_then_else"
CASES = {
    "no guard": (f"out[p] = {TILE}", False),
    "complete": (select(f"{INSIDE}"), True),
    "tighter": (select(f"{L} >= T.int64(3) and {L} < T.int64(59)"), True),
    "one past": (select(f"{L} >= T.int64(0) and {L} <= T.int64(64)"), False),
    "upper bound only": (select(f"{L} < T.int64(64)"), False),
    "lower bound only": (select(f"{L} >= T.int64(0)"), False),
    "negative lower bound": (select(f"{L} >= T.int64(-1) and {L} < T.int64(64)"), False),
    "either bound": (select(f"{L} >= T.int64(0) or {L} < T.int64(64)"), False),
    "implied by a sum": (select(f"T.int64(0) <= {L} and {L} + T.int64(1) < T.int64(64)"), True),
    "another element's label": (select("idx[0] >= T.int64(0) and idx[0] < T.int64(64)"), False),
    "nested": (
        select(f"{L} >= T.int64(0)", other="T.float32(1)").replace(
            'tile[T.Cast("int32", idx[p])]',
            f"{ITE}({L} < T.int64(64), {TILE}, T.float32(2))",
        ),
        True,
    ),
    "nested, only one inside": (
        f"out[p] = {ITE}({L} >= T.int64(0), "
        f"{ITE}({L} < T.int64(64), T.float32(2), {TILE}), T.float32(0))",
        False,
    ),
    "negated else": (
        f"out[p] = {ITE}({OUTSIDE}, T.float32(0), {TILE})",
        True,
    ),
    "half negated else": (
        f"out[p] = {ITE}({L} >= T.int64(64), T.float32(0), {TILE})",
        False,
    ),
    "guarded after the cast": (
        select(f'T.Cast("int32", {L}) >= 0 and T.Cast("int32", {L}) < 64'),
        True,
    ),
    "guard on the cast, index on the label": (
        select(f'T.Cast("int32", {L}) >= 0 and T.Cast("int32", {L}) < 64', index=L),
        False,
    ),
    "shifted index": (
        select(
            f"{L} >= T.int64(0) and {L} < T.int64(63)", index=f'T.Cast("int32", {L} + T.int64(1))'
        ),
        True,
    ),
    "shifted too far": (
        select(f"{INSIDE}", index=f'T.Cast("int32", {L} + T.int64(1))'),
        False,
    ),
    "condition itself reads the tile": (
        select(f"{TILE} > T.float32(0)"),
        False,
    ),
    "condition beside a bounds guard": (
        select(f"{INSIDE} and u[p] > T.float32(0)"),
        True,
    ),
    "both branches of a NaN comparison": (
        f"out[p] = {ITE}(u[p] < T.float32(0), T.float32(1), "
        f"{ITE}(u[p] >= T.float32(0), T.float32(2), {TILE}))",
        False,
    ),
    "Select is not lazy": (
        f"out[p] = T.Select({INSIDE}, {TILE}, T.float32(0))",
        False,
    ),
    "a condition statement": (
        f"out[p] = T.float32(0)\nif {INSIDE}:\n    out[p] = {TILE}",
        True,
    ),
    "else of a condition statement": (
        f"if {OUTSIDE}:\n    out[p] = T.float32(0)\nelse:\n    out[p] = {TILE}",
        True,
    ),
    "a condition that its own statement changes": (
        's = T.alloc_local((1,), "int32")\ns[0] = T.Cast("int32", idx[p])\n'
        "if s[0] >= 0 and s[0] < 64:\n    s[0] = s[0] + 64\n    out[p] = tile[s[0]]",
        False,
    ),
    "loop domain": ("for k in T.serial(64):\n    out[p] = tile[k]", True),
    "longer loop": ("for k in T.serial(65):\n    out[p] = tile[k]", False),
    "longer loop under a guard": (
        f"for k in T.serial(65):\n    out[p] = {ITE}(k < 64, tile[k], T.float32(0))",
        True,
    ),
    "loop with a shift": ("for k in T.serial(63):\n    out[p] = tile[k + 1]", True),
    "negative coordinate": ("for k in T.serial(64):\n    out[p] = tile[k - 1]", False),
    "one of two loads unproved": (
        f"for k in T.serial(64):\n    out[p] = tile[k]\nout[p] = {TILE}",
        False,
    ),
    "escaping address": (
        "for k in T.serial(64):\n"
        '    out[p] = T.call_pure_extern("float32", "f", T.address_of(tile[k]))',
        False,
    ),
    "read inside a while": (
        's = T.alloc_local((1,), "int32")\ns[0] = 0\n'
        "while s[0] < 64:\n    out[p] = tile[s[0]]\n    s[0] = s[0] + 1",
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forwarding_needs_a_complete_guard(name):
    body, expected = CASES[name]
    assert forwarded(view(body)) is expected


def test_no_forwarding_without_noalias():
    body, _ = CASES["loop domain"]
    assert forwarded(view(body))
    assert not forwarded(view(body, noalias=""))
    assert not forwarded(view(body, noalias=', "tirx.noalias": False'))


def test_no_forwarding_of_a_written_view():
    body = "for k in T.serial(64):\n    x[p, k] = tile[63 - k]"
    assert not forwarded(view(body))


def test_a_load_before_the_definition_keeps_the_snapshot():
    body, _ = CASES["loop domain"]
    assert not forwarded(view(body, before="out[p] = tile[0]"))


def test_a_snapshot_of_a_snapshot_is_forwarded_at_once():
    """So that a second run changes nothing."""
    body = (
        "again = T.alloc_local((64,))\nfor e in T.serial(64):\n    again[e] = tile[e]\n"
        "for k in T.serial(64):\n    out[p] = again[k]"
    )
    assert forwarded(view(body))


def test_conditions_addresses_and_fills_stay_lazy():
    text = view(CASES["complete"][0])
    script = ForwardViews()(raw.parse(text)).script()
    wanted = (
        "out[p] = T.if_then_else(idx[p] >= T.int64(0) and idx[p] < T.int64(64), "
        'x[p, T.Cast("int32", idx[p])], T.float32(0.0))'
    )
    assert wanted in script


def test_an_index_of_another_type_keeps_the_view_well_typed():
    """The view's own arithmetic on its coordinate is 32-bit; a 64-bit index is cast first."""
    body = select("idx[p] >= T.int64(0) and idx[p] < T.int64(64)", index="idx[p]")
    text = view(body).replace("tile[e] = x[p, e]", "tile[e] = x[p, 63 - e]")
    script = ForwardViews()(raw.parse(text)).script()
    assert 'x[p, 63 - T.Cast("int32", idx[p])]' in script


LABELS = np.array([0, 63, -1, 64], np.int64)


@pytest.mark.parametrize("name", ["complete", "nested", "negated else", "a condition statement"])
def test_forwarded_programs_mean_the_same_on_llvm(name):
    text = view(CASES[name][0])
    x = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    arrays = x, LABELS, np.zeros(4, np.float32), np.full(4, np.nan, np.float32)
    before = raw.run_on_llvm(text, *arrays)[-1]
    after = raw.run_on_llvm(ForwardViews()(raw.parse(text)).script(), *arrays)[-1]
    np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(after[:2], [x[0, 0], x[1, 63]])
    assert set(after[2:]) <= {0, 1, 2}


def test_the_unguarded_index_keeps_its_snapshot_and_its_meaning():
    text = view(CASES["no guard"][0])
    assert "alloc_local((64,))" in ForwardViews()(raw.parse(text)).script()
    x = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    labels = np.array([0, 63, 5, 31], np.int64)
    out = raw.run_on_llvm(text, x, labels, np.zeros(4, np.float32), np.zeros(4, np.float32))[-1]
    np.testing.assert_array_equal(out, x[np.arange(4), labels])


def test_cross_entropy_reads_the_tensor_itself():
    plain, direct = raw.exported("cross_entropy"), raw.exported("cross_entropy", forward=True)
    assert "alloc_local((70,))" in plain and "alloc_local((70,))" not in direct
    assert direct.count("logits[program, columns]") == 2
    assert 'logits[program, T.Cast("int32", labels[program])]' in direct
    assert (
        "T.if_then_else(labels[program] >= T.int64(0) and labels[program] < T.int64(70)" in direct
    )


GUARD = "T.if_then_else(labels[program] >= T.int64(0) and labels[program] < T.int64(70), "
ROW = "guarded input views"


def test_the_row_refuses_half_a_guard_and_none():
    text = raw.exported("cross_entropy", forward=True)
    half = raw.edited(text, ("labels[program] >= T.int64(0) and ", ""))
    raw.assert_only_declines(raw.admission(half), ROW, "not proved inside logits")
    none = raw.edited(text, (GUARD, "T.if_then_else(program < 3, "))
    raw.assert_only_declines(raw.admission(none), ROW, "not proved inside logits")


def test_the_row_refuses_a_gather_from_memory_that_the_program_writes():
    text = raw.exported("cross_entropy", forward=True)
    written = text.rstrip() + "\n" + " " * 12 + "logits[program, 0] = T.float32(0)\n"
    found = {row.name: row.verdict for row in raw.admission(written).rows}
    assert "written" in found[ROW].reason
    assert {n for n, v in found.items() if not v.proven} == {ROW, "global effects"}

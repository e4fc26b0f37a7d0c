"""Programs that a careless analysis would admit: each would change meaning once distributed."""

from __future__ import annotations

import pytest
import raw_tirx as raw
from admission_mutations import (
    DOMAIN,
    I12,
    I16,
    MAX_UPDATE,
    SOFT_STORE,
    SUM_ALLOC,
    SUM_START,
    SUM_UPDATE,
)

from tvm_tilex.analysis.admission import admit
from tvm_tilex.errors import MappingError
from tvm_tilex.tirx import attrs

BODY = """
# from tvm.script import tirx as T
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(x: T.Buffer((4, 70), "float32", align=4), y: T.Buffer((4, 3, 80), "float32", align=4),
          idx: T.Buffer((4,), "int32", align=4)):
        T.func_attr({{"tilex.options": "{{}}", "tilex.stage": "reference", "tirx.noalias": True}})
        for p in T.parallel(4, annotations={{"tilex.parallel": 0}}):
{body}
"""
MARKS = 'annotations={"tilex.policy": "unordered_tree", "tilex.reduction": "add", "tilex.value": 1}'
REDUCE = """carry = T.alloc_local((1,))
for t in T.serial({times}):
    carry[0] = T.float32(0.0)
    for k in T.serial(70, {marks}):
        carry[0] = carry[0] + x[p, k]
{inside}
{after}"""


def program(inside: str = "", after: str = "", times: int = 3, before: str = ""):
    inside = "\n".join("    " + line for line in inside.splitlines())
    text = before + "\n" + REDUCE.format(marks=MARKS, times=times, inside=inside, after=after)
    body = "\n".join(" " * 12 + line for line in text.splitlines() if line.strip())
    return raw.admission(BODY.format(body=body))


STORE = "for e in T.serial(70):\n    y[p, {at}] = carry[0]"

# body inside a repeated loop over t -> whether one worker owns every element
REPEATED = {
    "same elements each time": (STORE.format(at="0, e"), True),
    "own row each time": (STORE.format(at="t, e"), True),
    "sliding window": (STORE.format(at="0, e + t"), False),
    "scalar per iteration": ("y[p, t, 0] = carry[0]", True),
    "index from memory": (STORE.format(at="0, e + idx[p]"), True),
    "accumulates its own elements": (
        "for e in T.serial(70):\n    y[p, 0, e] = y[p, 0, e] + carry[0]",
        True,
    ),
    "accumulates a window": (
        "for e in T.serial(70):\n    y[p, 0, e + t] = y[p, 0, e + t] + carry[0]",
        False,
    ),
    "reads what the next iteration stores": (
        "for e in T.serial(70):\n    y[p, 0, e] = y[p, 1, e] + carry[0]\n"
        "for e in T.serial(70):\n    y[p, 1, e] = carry[0]",
        False,
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_stores_inside_a_repeated_loop(name):
    inside, admitted = REPEATED[name]
    found = program(inside)
    assert found.admitted is admitted, found.declined
    if not admitted:
        assert found.declined.name == "global effects"
    else:
        assert not found.facts.unit_enclosing  # the planner keeps S = 1


def test_the_same_window_in_a_loop_that_runs_once_is_admitted():
    assert program(STORE.format(at="0, e + t"), times=1).admitted


def test_an_index_that_a_program_changes_between_two_domains_declines():
    found = program(
        before='s = T.alloc_local((1,), "int32")\ns[0] = 0',
        times=1,
        after=(
            "for e in T.serial(70):\n    y[p, 0, e + s[0]] = x[p, e]\n"
            "s[0] = 1\n"
            "for e in T.serial(70):\n    y[p, 0, e + s[0]] = y[p, 0, e + s[0]] + carry[0]"
        ),
    )
    assert (
        found.declined.name == "global effects"
        and "changing memory" in found.declined.verdict.reason
    )


OVERLAPS = {
    "other extents": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\n"
        "for a, b in T.grid(7, 10):\n    y[p, 0, b] = carry[0]",
        False,
    ),
    "one element of another owner": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\ny[p, 0, 5] = carry[0]",
        False,
    ),
    "same element twice": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\n"
        "for e in T.serial(70):\n    y[p, 0, e] = y[p, 0, e] * carry[0]",
        True,
    ),
    "read by a replicated store": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\n"
        "s = T.alloc_local((1,))\ns[0] = y[p, 0, 0]\ny[p, 1, 0] = s[0]",
        False,
    ),
    "read by a later reduction": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\n"
        "c = T.alloc_local((1,))\nc[0] = T.float32(0.0)\n"
        f"for k in T.serial(70, {MARKS}):\n"
        "    c[0] = c[0] + y[p, 0, k]\ny[p, 1, 0] = c[0]",
        False,
    ),
    "condition reads it": (
        "for e in T.serial(70):\n    y[p, 0, e] = x[p, e]\n"
        "for e in T.serial(70):\n    if y[p, 0, 69 - e] > T.float32(0):\n"
        "        y[p, 0, e] = carry[0]",
        False,
    ),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_two_accesses_of_one_address_belong_to_one_worker(name):
    after, admitted = OVERLAPS[name]
    found = program(after=after, times=1)
    assert found.admitted is admitted, found.declined
    if not admitted:
        assert found.declined.name == "global effects"


def test_a_carry_is_not_read_before_its_loop_by_a_domain():
    text = raw.edited(
        raw.exported("softmax"),
        (SUM_START, SUM_START + I12 + DOMAIN + I16 + "output[program, columns] = carry4[0]"),
    )
    raw.assert_only_declines(raw.admission(text), "canonical state", "observed")


def test_a_carry_initialized_at_another_element_declines():
    text = raw.edited(raw.exported("softmax"), (SUM_START, "carry4[program] = T.float32(0.0)"))
    raw.assert_only_declines(raw.admission(text), "canonical state", "another element")


def test_reductions_of_different_extents_may_share_a_tile():
    """Element e belongs to one worker whatever the extent, so a shorter reduction is sound."""
    second = (
        SUM_UPDATE
        + I12
        + "short = T.alloc_local((1,))"
        + I12
        + "short[0] = T.float32(0.0)"
        + I12
        + f"for k in T.serial(33, {MARKS}):"
        + I16
        + "short[0] = short[0] + tile3[k]"
    )
    found = raw.admission(raw.edited(raw.exported("softmax"), (SUM_UPDATE, second)))
    assert found.admitted and found.facts.reductions == (70, 70, 33)


def test_a_condition_may_read_the_workers_own_element_only():
    guard = "if {} > T.float32(0.5):" + I16 + "    " + SOFT_STORE
    own = raw.edited(raw.exported("softmax"), (SOFT_STORE, guard.format("tile3[columns]")))
    assert raw.admission(own).admitted
    other = raw.edited(raw.exported("softmax"), (SOFT_STORE, guard.format("tile3[69 - columns]")))
    raw.assert_only_declines(raw.admission(other), "distributed private storage", "own element")


def test_a_tile_stored_inside_an_enclosing_loop_is_striped():
    """The mapper must shrink it too: its accesses are at stripe slots."""
    found = program(
        before="tile = T.alloc_local((70,))",
        inside="for e in T.serial(70):\n    tile[e] = x[p, e] * carry[0]",
        after="for e in T.serial(70):\n    y[p, 0, e] = tile[e]",
        times=2,
    )
    assert found.admitted and found.facts.stripes == (70,)


def test_the_marker_alone_does_not_make_a_reduction():
    text = raw.edited(raw.exported("softmax"), (MAX_UPDATE, "carry1[0] = tile0[columns]"))
    raw.assert_only_declines(raw.admission(text), "reduction type", "not add, maximum or minimum")


INPUT_STORE = SUM_ALLOC, DOMAIN + I16 + "input[program, columns] = T.float32(0)" + I12 + SUM_ALLOC


def test_a_buffer_called_input_is_no_read_only_claim():
    """Nothing but the absence of stores makes a buffer immutable."""
    function = raw.realized(raw.edited(raw.exported("softmax"), INPUT_STORE))
    assert "T.alloc_local((70,))" not in function.script() or attrs.PLAN not in function.attrs
    shifted = raw.edited(
        raw.exported("softmax", forward=True),
        (
            SUM_ALLOC,
            "for late in T.serial(69):"
            + I16
            + "input[program, late + 1] = T.float32(0)"
            + I12
            + SUM_ALLOC,
        ),
    )
    raw.assert_only_declines(raw.admission(shifted), "global effects", "read at another element")


def test_a_plan_of_another_program_is_refused():
    from tvm_tilex.build.target import resolve_target
    from tvm_tilex.tirx.compat import IRModule, tvm
    from tvm_tilex.transform import ForwardViews, MapSubgroups, PlanGroups, ProveReductions

    target = resolve_target("metal")
    passes = [ForwardViews(), ProveReductions(target), PlanGroups(target)]
    run = tvm.ir.transform.Sequential(passes)
    seventeen = raw.function_of(run(raw.parse(raw.exported("softmax", 17))))
    eighteen = raw.function_of(run(raw.parse(raw.exported("softmax", 18))))
    stale = eighteen.with_attr(attrs.PLAN, str(seventeen.attrs[attrs.PLAN]))
    with pytest.raises(MappingError, match="another program"):
        MapSubgroups(target)(IRModule({"softmax": stale}))
    unchanged = MapSubgroups(target)(IRModule({"softmax": eighteen}))
    assert str(raw.function_of(unchanged).attrs[attrs.STAGE]) == "scheduled"


def test_index_types_may_differ_between_loops():
    """A 32-bit loop inside 64-bit programs is admitted, and its map is well typed."""
    text = raw.exported("row_sum", forward=True)
    text = text.replace("T.parallel(3,", "T.parallel(T.int64(3),")
    function = raw.function_of(raw.parse(text))
    assert admit(function, lanes=32, kind="metal").admitted
    mapped = raw.realized(text)
    assert str(mapped.attrs[attrs.STAGE]) == "scheduled" and attrs.PLAN in mapped.attrs
    from tvm_tilex.tirx.compat import tirx

    assert tirx.analysis.verify_well_formed(mapped, assert_mode=False)

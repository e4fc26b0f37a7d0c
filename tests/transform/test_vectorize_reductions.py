"""VectorizeReductions: what it splits into lanes, and what it leaves alone."""

import re

import pytest

from tvm_tilex.transform import VectorizeReductions

ROOT = 'for program in T.parallel(8, annotations={"tilex.parallel": 0}):\n'
MARK = '{"tilex.policy": "POLICY", "tilex.reduction": "KIND", "tilex.value": 1}'


def reduction(update, *, kind="add", policy="unordered_tree", loop="T.serial(70", identity="0.0"):
    marker = MARK.replace("POLICY", policy).replace("KIND", kind)
    return (
        ROOT
        + "    carry = T.alloc_local((1,))\n"
        + f"    carry[0] = T.float32({identity})\n"
        + f"    for k in {loop}, annotations={marker}):\n"
        + f"        {update}\n"
        + "    out[program, 0] = carry[0]\n"
    )


def split(combined, *, identity="0.0", lanes=64, elements=70):
    """The loops of ``elements`` in ``lanes`` lanes; ``combined`` is op(STATE, x[program, AT])."""
    whole = elements // lanes * lanes

    def op(state, at):
        return combined.replace("STATE", state).replace("AT", at)

    def tree(state, other):
        return combined.replace("x[program, AT]", other).replace("STATE", state)

    text = (
        ROOT
        + "    carry = T.alloc_local((1,))\n"
        + f"    carry[0] = T.float32({identity})\n"
        + f"    lanes = T.alloc_local(({lanes},))\n"
        + f"    for lane in T.vectorized({lanes}):\n"
        + f"        lanes[lane] = T.float32({identity})\n"
        + f"    for chunk in range({elements // lanes}):\n"
        + f"        for lane in T.vectorized({lanes}):\n"
        + f"            lanes[lane] = {op('lanes[lane]', f'chunk * {lanes} + lane')}\n"
        + "    for chunk in range(1):\n"
        + "        for lane in T.vectorized(4):\n"
        + f"            lanes[lane] = {op('lanes[lane]', f'{whole} + (chunk * 4 + lane)')}\n"
        + "    for lane in range(2):\n"
        + f"        lanes[lane] = {op('lanes[lane]', f'{whole + 4} + lane')}\n"
    )
    width = lanes // 2
    while width:
        loop = f"T.vectorized({width})" if width > 1 else "range(1)"
        text += f"    for lane in {loop}:\n"
        text += f"        lanes[lane] = {tree('lanes[lane]', f'lanes[lane + {width}]')}\n"
        width //= 2
    text += f"    carry[0] = {tree('carry[0]', 'lanes[0]')}\n"
    return text + "    out[program, 0] = carry[0]\n"


@pytest.mark.parametrize(
    ("kind", "identity", "combined"),
    [
        ("add", "0.0", "STATE + x[program, AT]"),
        ("maximum", '"-inf"', "T.tilex.maximum(STATE, x[program, AT])"),
        ("minimum", '"inf"', "T.tilex.minimum_propagate(STATE, x[program, AT])"),
        ("maximum", '"-inf"', "T.max(STATE, x[program, AT])"),
        ("minimum", '"inf"', "T.min(STATE, x[program, AT])"),
    ],
)
def test_an_unordered_reduction_folds_into_lanes(function, check, kind, identity, combined):
    update = "carry[0] = " + combined.replace("STATE", "carry[0]").replace("AT", "k")
    before = function(reduction(update, kind=kind, identity=identity))
    check(VectorizeReductions(), before, function(split(combined, identity=identity)))


def test_a_contribution_that_calls_a_function_takes_fewer_lanes(function, check):
    before = function(reduction("carry[0] = carry[0] + T.exp(x[program, k])"))
    after = split("STATE + T.exp(x[program, AT])", lanes=16)
    after = re.sub(r"T.exp\((lanes\[.*?\])\)", r"\1", after)
    check(VectorizeReductions(), before, function(after))


def test_comparisons_and_differences_are_not_function_calls(function, check):
    combined = "STATE + T.tilex.subtract(x[program, AT], T.float32(1))"
    before = function(
        reduction("carry[0] = " + combined.replace("STATE", "carry[0]").replace("AT", "k"))
    )
    after = re.sub(r"T.tilex.subtract\((lanes\[.*?\]), T.float32\(1\)\)", r"\1", split(combined))
    check(VectorizeReductions(), before, function(after))


UNCHANGED = {
    "fold_left": reduction("carry[0] = carry[0] + x[program, k]", policy="fold_left"),
    "fold_right": reduction("carry[0] = x[program, 69 - k] + carry[0]", policy="fold_right"),
    "ordered_tree": reduction("carry[0] = carry[0] + x[program, k]", policy="ordered_tree"),
    "carry on the right": reduction("carry[0] = x[program, k] + carry[0]"),
    "marker says maximum": reduction("carry[0] = carry[0] + x[program, k]", kind="maximum"),
    "no known update": reduction("carry[0] = carry[0] * x[program, k]"),
    "observes the carry": reduction("carry[0] = carry[0] + x[program, k] * carry[0]"),
    "lazy selection": reduction(
        "carry[0] = carry[0] + T.if_then_else(k < 60, x[program, k], T.float32(0))"
    ),
    "an effect": reduction(
        'carry[0] = carry[0] + T.call_extern("float32", "read_clock", x[program, k])'
    ),
    "three elements": reduction("carry[0] = carry[0] + x[program, k]", loop="T.serial(3"),
    "unrolled": reduction("carry[0] = carry[0] + x[program, k]", loop="T.unroll(70"),
    "begins at one": reduction("carry[0] = carry[0] + x[program, k]", loop="T.serial(1, 70"),
    "two statements": reduction(
        "carry[0] = carry[0] + x[program, k]\n        out[program, k] = x[program, k]"
    ),
    "global carry": reduction("out[0, 0] = out[0, 0] + x[program, k]"),
    "no marker": reduction("carry[0] = carry[0] + x[program, k]").replace(
        "annotations=" + MARK.replace("POLICY", "unordered_tree").replace("KIND", "add"),
        'annotations={"other": 1}',
    ),
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_what_it_does_not_recognize_stays(function, check, case):
    before = function(UNCHANGED[case])
    check(VectorizeReductions(), before, before)


def test_a_scheduled_function_and_one_of_somebody_else_stay(function, check):
    body = reduction("carry[0] = carry[0] + x[program, k]")
    scheduled = function(body, stage="scheduled")
    check(VectorizeReductions(), scheduled, scheduled)
    foreign = function(body).without_attr("tilex.stage")
    check(VectorizeReductions(), foreign, foreign)

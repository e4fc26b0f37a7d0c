"""Single edits of exported softmax and layer normalization, each breaking one row of the table."""

from __future__ import annotations

import numpy as np
from raw_tirx import Mutation

MAX_LOOP = (
    'for columns in T.serial(70, annotations={"tilex.policy": "unordered_tree", '
    '"tilex.reduction": "maximum", "tilex.value": 1}):'
)
SUM_LOOP = (
    'for columns in T.serial(70, annotations={"tilex.policy": "rescaled_tree", '
    '"tilex.reduction": "add", "tilex.value": 4}):'
)
NORM_MARKS = (
    'annotations={"tilex.policy": "unordered_tree", "tilex.reduction": "add", "tilex.value": 14}'
)
ROOT = 'for program in T.parallel(3, annotations={"tilex.parallel": 0}):'
DOMAIN = 'for columns in T.serial(70, annotations={"tilex.domain": 1}):'
I12, I16 = "\n" + " " * 12, "\n" + " " * 16
MAX_UPDATE = "carry1[0] = T.tilex.maximum(carry1[0], tile0[columns])"
SUM_UPDATE = "carry4[0] = carry4[0] + tile3[columns]"
MAX_START = 'carry1[0] = T.float32("-inf")'
SUM_START = "carry4[0] = T.float32(0.0)"
SUM_ALLOC = "carry4 = T.alloc_local((1,))"
SOFT_STORE = "output[program, columns] = tile3[columns] / carry4[0]"
EXP = "tile3[columns] = T.exp(T.tilex.subtract(tile0[columns], carry1[0]))"
NORM_STORE = "out[program, columns] = tile12[columns] * tile17[0]"
NORM_SQUARES = "carry14[0] = carry14[0] + tile12[columns] * tile12[columns]"


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normalized(x):
    x = x.astype(np.float64)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def exponentials(x):
    return np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))


def _soft(row, reason, *edits, meaning=None):
    return Mutation("softmax", row, reason, edits, meaning)


def _norm(row, reason, *edits, meaning=None):
    return Mutation("layernorm_no_affine", row, reason, edits, meaning)


MUTATIONS = {
    # target and binding (the target itself is varied in the tests)
    "inner loop bound": _soft(
        "target and binding",
        "not outermost",
        (
            MAX_LOOP,
            MAX_LOOP.replace('"tilex.policy"', '"tilex.binding": "subgroup", "tilex.policy"'),
        ),
        meaning=softmax,
    ),
    "root bound to a warp": _soft(
        "target and binding",
        "binding is 'warp'",
        (ROOT, ROOT.replace('{"tilex', '{"tilex.binding": "warp", "tilex')),
        meaning=softmax,
    ),
    # kernel ABI
    "no promise": _soft(
        "kernel ABI", "may alias", (', "tirx.noalias": True}', "}"), meaning=softmax
    ),
    "promise withdrawn": _norm(
        "kernel ABI",
        "may alias",
        ('"tirx.noalias": True', '"tirx.noalias": False'),
        meaning=normalized,
    ),
    # reduction type
    "wrong operator under the marker": _soft(
        "reduction type",
        "the update is minimum, the marker says maximum",
        (MAX_UPDATE, MAX_UPDATE.replace("maximum", "minimum")),
    ),
    "product": _norm(
        "reduction type",
        "not add, maximum or minimum",
        (NORM_SQUARES, "carry14[0] = carry14[0] * tile12[columns]"),
    ),
    "difference": _soft(
        "reduction type",
        "not add, maximum or minimum",
        (SUM_UPDATE, "carry4[0] = T.tilex.subtract(carry4[0], tile3[columns])"),
        meaning=lambda x: -softmax(x),
    ),
    **{
        f"{dtype} carry": _soft(
            "reduction type",
            f"is {dtype} state",
            (SUM_ALLOC, f'carry4 = T.alloc_local((1,), "{dtype}")'),
            (SUM_START, f"carry4[0] = T.{dtype}(0)"),
            (SUM_UPDATE, f'carry4[0] = carry4[0] + T.Cast("{dtype}", tile3[columns])'),
            (SOFT_STORE, SOFT_STORE.replace("carry4[0]", 'T.Cast("float32", carry4[0])')),
            meaning=softmax if dtype == "float64" else None,
        )
        for dtype in ("float64", "float16", "int32")
    },
    # numerical permission (both reductions of layer normalization, or one of softmax)
    "NaN propagating maximum": _soft(
        "numerical permission",
        "propagates NaN",
        (MAX_UPDATE, MAX_UPDATE.replace("maximum", "maximum_propagate")),
        meaning=softmax,
    ),
    "unknown policy": _soft(
        "numerical permission",
        "has the policy any_order",
        (SUM_LOOP, SUM_LOOP.replace("rescaled_tree", "any_order")),
    ),
    # canonical state
    "largest finite number for maximum": _soft(
        "canonical state",
        "not from the identity",
        (MAX_START, "carry1[0] = T.float32(-3.4e38)"),
        meaning=softmax,
    ),
    "zero for maximum": _soft(
        "canonical state", "not from the identity", (MAX_START, "carry1[0] = T.float32(0.0)")
    ),
    "+inf for maximum": _soft(
        "canonical state", "not from the identity", (MAX_START, 'carry1[0] = T.float32("inf")')
    ),
    "-0 for add": _soft(
        "canonical state",
        "not from the identity",
        (SUM_START, "carry4[0] = T.float32(-0.0)"),
        meaning=softmax,
    ),
    "no initialization": _norm(
        "canonical state", "stored 1 times", ("\n            carry14[0] = T.float32(0.0)", "")
    ),
    "second store afterwards": _soft(
        "canonical state",
        "stored 3 times",
        (
            "            " + DOMAIN + I16 + SOFT_STORE,
            "            carry4[0] = carry4[0] * T.float32(2)" + I12 + DOMAIN + I16 + SOFT_STORE,
        ),
        meaning=lambda x: softmax(x) / 2,
    ),
    "two updates": _soft(
        "canonical state",
        "not one store",
        (SUM_UPDATE, SUM_UPDATE + I16 + SUM_UPDATE),
        meaning=lambda x: softmax(x) / 2,
    ),
    "observed inside the loop": _soft(
        "canonical state",
        "not one store",
        (SUM_UPDATE, SUM_UPDATE + I16 + "tile3[columns] = carry4[0]"),
    ),
    "read between": _soft(
        "canonical state",
        "observed or not initialized",
        (SUM_START, SUM_START + I12 + "peek = T.alloc_local((1,))" + I12 + "peek[0] = carry4[0]"),
        meaning=softmax,
    ),
    "carry on the right": _soft(
        "canonical state",
        "first operand",
        (SUM_UPDATE, "carry4[0] = tile3[columns] + carry4[0]"),
        meaning=softmax,
    ),
    "carry with two elements": _norm(
        "canonical state",
        "not a local scalar",
        ("carry14 = T.alloc_local((1,))", "carry14 = T.alloc_local((2,))"),
        meaning=normalized,
    ),
    # contribution
    "reads the carry": _soft(
        "contribution",
        "observes the carry",
        (SUM_UPDATE, "carry4[0] = carry4[0] + tile3[columns] * carry4[0]"),
    ),
    "opaque call": _soft(
        "contribution",
        "call_extern",
        (SUM_UPDATE, 'carry4[0] = carry4[0] + T.call_extern("float32", "f", tile3[columns])'),
    ),
    "claimed purity": _norm(
        "contribution",
        "call_pure_extern",
        (
            NORM_SQUARES,
            'carry14[0] = carry14[0] + T.call_pure_extern("float32", "fabsf", tile12[columns])',
        ),
    ),
    "opaque call in a domain": _norm(
        "contribution",
        "call_extern",
        (NORM_STORE, 'out[program, columns] = T.call_extern("float32", "f", tile12[columns])'),
    ),
    "called statement": _soft(
        "contribution",
        "called for an effect",
        (SUM_UPDATE, SUM_UPDATE + I16 + 'T.evaluate(T.call_extern("int32", "f", program))'),
    ),
    # control
    "reduction under a condition": _soft(
        "control",
        "under a condition",
        (
            MAX_LOOP + I16 + MAX_UPDATE,
            "if program < 3:" + I16 + MAX_LOOP + I16 + "    " + MAX_UPDATE,
        ),
        meaning=softmax,
    ),
    "conditional update": _soft(
        "control",
        "update stands under a condition",
        (SUM_UPDATE, "if columns < 70:" + I16 + "    " + SUM_UPDATE),
        meaning=softmax,
    ),
    "dynamic extent": _soft(
        "control", "not a positive constant", (SUM_LOOP, SUM_LOOP.replace("70", "program + 1"))
    ),
    "begins at 1": _soft(
        "control",
        "begins at 1",
        (SUM_LOOP, SUM_LOOP.replace("70", "1, 70")),
    ),
    "step 2": _soft("control", "step", (SUM_LOOP, SUM_LOOP.replace("70", "0, 70, step=2"))),
    "unrolled reduction": _norm(
        "control",
        "not serial",
        (
            f"T.serial(70, {NORM_MARKS}",
            f"T.unroll(70, {NORM_MARKS}",
        ),
        meaning=normalized,
    ),
    "two stores under a condition": _soft(
        "control",
        "guards more than one",
        (DOMAIN + I16 + SOFT_STORE, "if program < 3:" + I16 + DOMAIN + I16 + "    " + SOFT_STORE),
        meaning=softmax,
    ),
    # execution nesting
    "nested parallel": _soft(
        "execution nesting",
        "parallel nest",
        (DOMAIN + I16 + SOFT_STORE, "for columns in T.parallel(70):" + I16 + SOFT_STORE),
    ),
    "marked nest": _soft(
        "execution nesting",
        "parallel nest",
        (
            DOMAIN + I16 + SOFT_STORE,
            'for columns in T.serial(70, annotations={"tilex.nested": 1}):' + I16 + SOFT_STORE,
        ),
        meaning=softmax,
    ),
    "serial root": _soft(
        "execution nesting",
        "marked parallel, but is not",
        (ROOT, ROOT.replace("T.parallel", "T.serial")),
        meaning=softmax,
    ),
    # global effects
    "stored inside the reduction": _soft(
        "global effects",
        "stored inside a reduction",
        (SUM_UPDATE, SUM_UPDATE + I16 + "output[program, columns] = tile3[columns]"),
        meaning=softmax,
    ),
    "two elements at one address": _soft(
        "global effects",
        "more than once",
        (
            SOFT_STORE,
            SOFT_STORE.replace("output[program, columns]", "output[program, columns // 2]"),
        ),
    ),
    "modular address": _norm(
        "global effects",
        "more than once",
        (NORM_STORE, NORM_STORE.replace("out[program, columns]", "out[program, columns % 35]")),
    ),
    "read at another element": _soft(
        "global effects",
        "read at another element",
        (
            SOFT_STORE,
            "output[program, columns] = tile3[columns] / carry4[0] + output[program, 69 - columns]",
        ),
    ),
    "two domains overlap": _soft(
        "global effects",
        "two domains",
        (
            SOFT_STORE,
            SOFT_STORE
            + I12
            + "for late in T.serial(69):"
            + I16
            + "output[program, late + 1] = tile3[late]",
        ),
        meaning=lambda x: np.concatenate([softmax(x)[:, :1], exponentials(x)[:, :-1]], axis=1),
    ),
    "two stores in a domain": _soft(
        "global effects",
        "not one store",
        (SOFT_STORE, SOFT_STORE + I16 + SOFT_STORE),
        meaning=softmax,
    ),
    "output elements share memory": _soft(
        "global effects",
        "not compact",
        (
            'output: T.Buffer((3, 70), "float32", align=4)',
            'output: T.Buffer((3, 70), "float32", strides=(70, 0), align=4)',
        ),
    ),
    # distributed private storage
    "reversed read": _soft(
        "distributed private storage",
        "not proved to be the worker's own",
        (SOFT_STORE, SOFT_STORE.replace("tile3[columns]", "tile3[69 - columns]")),
        meaning=lambda x: exponentials(x)[:, ::-1] / exponentials(x).sum(1, keepdims=True),
    ),
    "shifted contribution": _norm(
        "distributed private storage",
        "not proved to be the worker's own",
        (NORM_SQUARES, NORM_SQUARES.replace("tile12[columns] *", "tile12[(columns + 1) % 70] *")),
    ),
    "fixed element": _soft(
        "distributed private storage",
        "not proved to be the worker's own",
        (SOFT_STORE, SOFT_STORE.replace("tile3[columns]", "tile3[0]")),
        meaning=lambda x: np.repeat(softmax(x)[:, :1], x.shape[1], axis=1),
    ),
    "read by every worker": _norm(
        "distributed private storage",
        "read outside any element domain",
        ("tile17[0] = T.float32(1.0) /", "tile17[0] = T.float32(1.0) * tile12[0] /"),
    ),
    "stored conditionally": _soft(
        "distributed private storage",
        "stored conditionally",
        (
            SUM_ALLOC,
            "flag = T.alloc_local((1,))"
            + I12
            + "if program < 2:"
            + I16
            + "flag[0] = T.float32(0)"
            + I12
            + SUM_ALLOC,
        ),
        meaning=softmax,
    ),
    "unmarked reduction": _soft(
        "distributed private storage",
        "2 defining stores",
        (SUM_LOOP, "for columns in T.serial(70):"),
        meaning=softmax,
    ),
    # manual resources
    "shared memory": _soft(
        "manual resources",
        "placed in shared memory",
        (SUM_ALLOC, SUM_ALLOC + I12 + 'scratch = T.alloc_buffer((70,), scope="shared")'),
    ),
    "global scratch": _norm(
        "manual resources",
        "placed in global memory",
        (
            "carry14 = T.alloc_local((1,))",
            "carry14 = T.alloc_local((1,))"
            + I12
            + 'scratch = T.alloc_buffer((70,), scope="global")',
        ),
        meaning=normalized,
    ),
    "padded carry": _soft(
        "manual resources",
        "not compact",
        (
            SUM_ALLOC,
            'unused = T.alloc_buffer((4, 4), strides=(5, 1), scope="local")' + I12 + SUM_ALLOC,
        ),
        meaning=softmax,
    ),
    "second name": _soft(
        "manual resources",
        "renames other memory",
        (
            SUM_ALLOC,
            'alias = T.decl_buffer((70,), data=tile3.data, scope="local")' + I12 + SUM_ALLOC,
        ),
        meaning=softmax,
    ),
    "allocated outside": _soft(
        "manual resources",
        "outside the root loop",
        (ROOT, "scratch = T.alloc_local((70,))\n        " + ROOT),
    ),
    # dynamic control
    "while": _soft(
        "dynamic control",
        "While",
        (
            SUM_ALLOC,
            'count = T.alloc_local((1,), "int32")'
            + I12
            + "count[0] = 0"
            + I12
            + "while count[0] < 2:"
            + I16
            + "count[0] = count[0] + 1"
            + I12
            + SUM_ALLOC,
        ),
        meaning=softmax,
    ),
    "assert": _soft(
        "dynamic control",
        "Assert",
        (SUM_ALLOC, 'assert program < 3, "row"' + I12 + SUM_ALLOC),
        meaning=softmax,
    ),
    "break in the reduction": _soft(
        "dynamic control",
        "break_loop",
        (SUM_UPDATE, SUM_UPDATE + I16 + "if columns == 5:" + I16 + "    break"),
    ),
    "continue in a domain": _soft(
        "dynamic control",
        "continue_loop",
        (SOFT_STORE, "if columns == 5:" + I16 + "    continue" + I16 + SOFT_STORE),
    ),
    "return": _norm(
        "dynamic control",
        "Return",
        (NORM_STORE, NORM_STORE + I12 + "return 0"),
    ),
}

"""Which pairs of a hand-written program share an exchange, and numbers on unusual groups."""

import re

import cuda_on_cpu
import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.rescaling import count_rescaled, rescaled_sums
from tvm_tilex.build.pipeline import before_planning
from tvm_tilex.tirx.compat import tvm

COLUMNS = 515
FOUR_GROUPS = {"threads_per_group": 128, "max_reduction_striped_scalars_per_worker": 1000}


@tx.tile_kernel
def total(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        peak = tx.reduce(row, columns, tx.maximum)
        found = tx.reduce(tx.exp(row - peak), columns, tx.add, policy="rescaled_tree")
        out(tx.coord(nest.index()), tx.shape(one)).store(found)


def compiled(rows=4, columns=COLUMNS, target="metal", **options):
    chosen = tx.CompileOptions(**{**FOUR_GROUPS, **options})
    return tx.compile(
        total, tx.spec((rows, columns)), tx.spec((rows,)), target=target, options=chosen
    )


# What is proved of a text


@pytest.fixture(scope="module")
def text():
    artifact = compiled()
    module = tvm.ir.transform.Sequential(before_planning(artifact.target))(artifact.tirx)
    (function,) = module.functions.values()
    return function.script()


def admitted(text, *edits):
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    admission = admit(tvm.script.from_source(text), lanes=32, kind="metal")
    assert admission.admitted, admission.declined
    return admission.program.body


PROGRAM = "        carry1 = T.alloc_local((1,))\n"
BETWEEN = "        carry4 = T.alloc_local((1,))\n"
SCALARS = "        scalar = T.alloc_local((1,))\n        two = T.alloc_local((2,))\n"
DIFFERENCE = "T.tilex.subtract(x[program, columns], carry1[0])"
PEAK = "T.tilex.maximum(carry1[0], x[program, columns])"


def between(*lines):
    return BETWEEN, SCALARS + "".join(f"        {line}\n" for line in lines) + BETWEEN


def shifted_by(shift):
    return DIFFERENCE, f"T.tilex.subtract(x[program, columns], {shift})"


def elements(of_peak, of_sum):
    return (PEAK, f"T.tilex.maximum(carry1[0], {of_peak})"), (
        DIFFERENCE,
        f"T.tilex.subtract({of_sum}, carry1[0])",
    )


def guarded(bound):
    return f"T.if_then_else(columns < {bound}, x[program, columns], T.float32(-1))"


SCALED = "x[program, columns] * scalar[0]"
BEGINS = (PROGRAM, SCALARS + "        scalar[0] = T.float32(2)\n" + PROGRAM)
PAIRED = {
    "a difference of TIRx": [(DIFFERENCE, "x[program, columns] - carry1[0]")],
    "a maximum of TIRx": [(PEAK, "T.max(carry1[0], x[program, columns])")],
    "a scalar of the maximum": [
        between("scalar[0] = carry1[0] + T.float32(1)"),
        shifted_by("scalar[0]"),
    ],
    "a scalar stored before and after": [
        between("scalar[0] = T.float32(1)", "scalar[0] = scalar[0] + carry1[0]"),
        shifted_by("scalar[0]"),
    ],
    "guarded elements": elements(guarded(7), guarded(7)),
    "elements of a scalar": [BEGINS, *elements(SCALED, SCALED)],
}
NOT_PAIRED = {
    "two elements": [between("two[0] = carry1[0]"), shifted_by("two[0]")],
    "a scalar that is stored again behind its reading": [
        between("two[0] = T.float32(1)", "scalar[0] = carry1[0] + two[0]", "two[0] = T.float32(2)"),
        shifted_by("scalar[0]"),
    ],
    "a shift from global memory": [shifted_by("x[program, 0]")],
    "a shift of each element": [shifted_by("x[program, columns]")],
    "other guards": elements(guarded(7), guarded(8)),
    "another row": elements("x[program, columns]", "x[3 - program, columns]"),
    "another order": elements("x[program, columns]", "x[program, 514 - columns]"),
    "another extent": [
        (
            'T.serial(515, annotations={"tilex.policy": "resc',
            'T.serial(514, annotations={"tilex.policy": "resc',
        )
    ],
    "elements of a scalar that is stored between": [
        BEGINS,
        *elements(SCALED, SCALED),
        (BETWEEN, "        scalar[0] = T.float32(3)\n" + BETWEEN),
    ],
    "an ordered maximum": [('"unordered_tree"', '"fold_left"')],
    "an ordered sum": [('"rescaled_tree"', '"fold_left"')],
    "a result stored between": [
        (BETWEEN, "        out[program] = carry1[0]\n" + BETWEEN),
        ("        out[program] = carry4[0]", ""),
    ],
}


@pytest.mark.parametrize("case", PAIRED)
def test_a_written_pair_is_proved(case, text):
    assert len(rescaled_sums(admitted(text, *PAIRED[case]))) == 1


@pytest.mark.parametrize("case", NOT_PAIRED)
def test_a_written_pair_is_not_proved(case, text):
    assert count_rescaled(admitted(text, *NOT_PAIRED[case])) == 0


def test_a_pair_of_an_enclosing_loop_is_found(text):
    start = text.index(PROGRAM)
    inner = "".join(f"    {line}\n" for line in text[start:].rstrip().split("\n"))
    body = admitted(text[:start] + "        for once in T.serial(1):\n" + inner)
    assert rescaled_sums(body) == () and count_rescaled(body) == 1


# Fast math and numbers


@pytest.mark.parametrize("target", ["metal", "cuda"])
def test_fast_math_cannot_drop_the_infinite_maximum(target):
    """LLVM removes ``fabs(x) == INFINITY`` under fast math, which assumes that nothing is infinite.

    A SIMD group whose elements are all -inf (a mask) would then sum exp(-inf + inf), which is NaN.
    """
    source = compiled(target=target).source
    (line,) = re.findall(r"base_\d+\w*\[0\] = .*", source)
    assert "INF" not in line.upper() and str(0x7F800000) in line


def rows_of_magnitudes(columns):
    generator = np.random.default_rng(5)
    normal, place = generator.normal(size=columns), np.arange(columns)
    lowest = np.finfo(np.float32).min
    rows = [
        np.linspace(-100, 0, columns),
        np.linspace(0, -87, columns),
        np.where(place // 32 % 7 == 1, normal + 95, normal),
        normal * 1e-42,
        -1e7 - generator.integers(0, 20, columns),
        normal * 1e4,
        np.full(columns, lowest),
        np.where(place < columns // 2, lowest, 0),
        np.where(place // 32 % 2 == 0, -np.inf, normal),
        np.where(place == columns - 1, 0, -np.inf),
        normal * 30,
    ]
    return np.stack(rows).astype(np.float32)


GROUPS = {
    "three SIMD groups": (515, {"threads_per_group": 96}),
    "groups without elements": (33, {"threads_per_group": 128}),
    "three packed programs, the last replayed": (
        1024,
        {"threads_per_group": 192, "reduction_programs_per_group": 3},
    ),
    "seven SIMD groups, vectors": (
        700,
        {
            "threads_per_group": 448,
            "reduction_programs_per_group": 2,
            "reduction_lane_elements": 4,
        },
    ),
    "all 32": (2048, {"threads_per_group": 1024, "reduction_lane_elements": 2}),
}


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("groups", GROUPS)
def test_the_numbers_of_unusual_groups(groups, target, tmp_path):
    if target == "cuda" and not cuda_on_cpu.available():
        pytest.skip("no g++")
    columns, options = GROUPS[groups]
    x = rows_of_magnitudes(columns)
    artifact = compiled(len(x), columns, target, **options)
    assert artifact.plan.barrier_sites == 1
    out = np.full(len(x), -1, np.float32)
    if target == "metal":
        artifact.simulate(x, out)
    else:
        cuda_on_cpu.run(artifact, [x, out], tmp_path)
    wide = x.astype(float)
    expected = np.exp(wide - wide.max(-1, keepdims=True)).sum(-1)
    np.testing.assert_allclose(out, expected, rtol=1e-6)

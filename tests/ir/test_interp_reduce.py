"""Reductions of the interpreter: every policy against its literal definition."""

import math

import ml_dtypes
import numpy as np
import pytest
from scalar_reference import fold

from tvm_tilex.ir import ReductionPolicy
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program

BF16 = ml_dtypes.bfloat16
ORDERED = ["ordered_tree", "fold_left", "fold_right"]
LENGTHS = [1, 2, 3, 5, 8, 31, 33, 127, 1023, 1024, 1025, 2500]
COMBINE = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}


def reduce(x, combiner="add", policy="", **options):
    """Reduce every row of a 2-d array."""
    rows, columns = x.shape
    dtype = x.dtype.name
    program = parse_program(f"""
        kernel k(x: in {dtype}[{rows}, {columns}], y: out {dtype}[{rows}]) {{
          parallel n0(rows: {rows}) {{
            %0: {dtype}[columns: {columns}] = load x[n0.0, 0](_, columns: {columns})
            %1: {dtype}[] = reduce {combiner} %0 over columns {policy}
            store y[n0.0](_) = %1
          }}
        }}""")
    return interpret(program, [x], **options)[0]


def one_big(length=4096):
    """2**24 and then ones: adding 1 to 2**24 in float32 changes nothing."""
    x = np.ones((1, length), np.float32)
    x[0, 0] = 2.0**24
    return x


def test_the_folds_differ_where_their_order_matters():
    assert reduce(one_big(), policy="fold_left").tolist() == [16777216.0]
    assert reduce(one_big(), policy="fold_right").tolist() == [16781312.0]
    # From the right: ones add up to 4095, an odd number that 2**24 rounds to even.
    assert 2.0**24 + 4095 == 16781311.0


def test_the_ordered_tree_has_its_own_value_there():
    # Level 0 pairs 2**24 with a 1, which is lost; the other 4094 ones survive exactly.
    assert reduce(one_big(), policy="ordered_tree").tolist() == [2.0**24 + 4094]


def test_three_elements_pair_the_first_two():
    x = np.array([[1.0, 2.0**-24, 2.0**-24]], np.float32)
    assert reduce(x, policy="ordered_tree").tolist() == [1.0]
    assert reduce(x, policy="fold_right").tolist() == [1 + 2.0**-23]


@pytest.mark.parametrize("policy", ORDERED)
@pytest.mark.parametrize("length", LENGTHS)
def test_ordered_policies_equal_the_literal_recursion_bit_for_bit(policy, length):
    x = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    expected = [fold(np.add, list(row), ReductionPolicy(policy), np.float32(0)) for row in x]
    assert reduce(x, policy=policy).view(np.uint32).tolist() == [
        e.view(np.uint32) for e in expected
    ]


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("policy", [*ORDERED, ""])
def test_half_types_keep_a_float32_state_and_round_once(dtype, policy):
    x = np.full((1, 4097), 1.0, dtype)
    # A float16 state would stop at 2048, a bfloat16 state at 256.
    assert reduce(x, policy=policy)[0] == np.float32(4097).astype(dtype)


def test_seeds_pick_different_legal_orders():
    x = np.random.default_rng(1).standard_normal((1, 4096)).astype(np.float32)
    sums = {reduce(x, seed=seed).item() for seed in range(12)}
    exact = math.fsum(x[0].astype(float))
    assert len(sums) > 3
    assert all(abs(total - exact) < 4096 * 2.0**-23 for total in sums)
    assert reduce(x, seed=7).item() == reduce(x, seed=7).item()


def test_the_default_order_is_accurate():
    x = np.full((1, 1 << 16), 0.1, np.float32)
    exact = math.fsum(x[0].astype(float))
    assert abs(reduce(x).item() - exact) / exact < 1e-6
    assert abs(reduce(x, policy="fold_left").item() - exact) / exact > 1e-6


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length", LENGTHS)
def test_every_seed_reaches_every_element_once(seed, length):
    x = (2 ** np.arange(length) % 251).astype(np.int64).reshape(1, length)
    assert reduce(x, seed=seed).tolist() == [int(x.sum())]


@pytest.mark.parametrize("policy", [*ORDERED, ""])
@pytest.mark.parametrize("combiner", ["maximum", "minimum"])
@pytest.mark.parametrize("place", [0, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16], ids=["f32", "f16", "bf16"])
def test_maximum_and_minimum_propagate_nan_from_every_place(policy, combiner, place, dtype):
    x = np.tile(np.arange(8, dtype=np.float32), (2, 1)).astype(dtype)
    x[0, place] = np.nan
    y = reduce(x, combiner, policy).astype(float)
    assert math.isnan(y[0]) and y[1] == (7 if combiner == "maximum" else 0)


@pytest.mark.parametrize("policy", [*ORDERED, ""])
def test_identities_are_exact(policy):
    low = np.full((1, 33), -np.inf, np.float32)
    assert reduce(low, "maximum", policy).tolist() == [-math.inf]
    assert reduce(-low, "minimum", policy).tolist() == [math.inf]
    assert reduce(-np.arange(1, 34, dtype=np.float32)[None], "maximum", policy).tolist() == [-1.0]


def test_sums_of_infinities():
    x = np.array([[np.inf, 1, 2], [np.inf, -np.inf, 0], [-np.inf, 1, 1]], np.float32)
    y = reduce(x)
    assert y[0] == np.inf and np.isnan(y[1]) and y[2] == -np.inf


@pytest.mark.parametrize(("policy", "negative"), [("ordered_tree", True), ("fold_left", False),
                                                  ("fold_right", False), ("", False)])  # fmt: skip
def test_the_identity_plus_zero_takes_part_except_in_an_ordered_tree(policy, negative):
    x = np.full((1, 5), -0.0, np.float32)
    assert np.signbit(reduce(x, policy=policy)[0]) == negative


@pytest.mark.parametrize("policy", [*ORDERED, ""])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integer_reductions(policy, dtype):
    x = np.random.default_rng(0).integers(0, 200, (3, 77)).astype(dtype)
    assert reduce(x, "maximum", policy).tolist() == x.max(axis=1).tolist()
    assert reduce(x, "minimum", policy).tolist() == x.min(axis=1).tolist()
    if dtype is not np.uint8:
        assert reduce(x, "add", policy).tolist() == x.sum(axis=1).tolist()


@pytest.mark.parametrize("policy", [*ORDERED, ""])
def test_integer_sums_wrap(policy):
    x = np.full((1, 3), 2**30, np.int32)
    assert reduce(x, policy=policy).tolist() == [3 * 2**30 - 2**32]


@pytest.mark.parametrize("policy", [*ORDERED, ""])
def test_float64_precision_keeps_a_float64_state(policy):
    assert reduce(one_big(), policy=policy, precision="float64").tolist() == [2.0**24 + 4095]
    x = np.full((1, 1000), 0.1, np.float16)
    total = reduce(x, policy=policy, precision="float64")
    assert total.dtype == np.float64
    assert abs(total[0] - 1000 * float(np.float16(0.1))) < 1e-9


@pytest.mark.parametrize("axis", ["a", "b", "c"])
@pytest.mark.parametrize("policy", [*ORDERED, ""])
def test_any_axis_may_be_reduced(axis, policy):
    kept = [name for name in "abc" if name != axis]
    extents = {"a": 4, "b": 5, "c": 6}
    types = ", ".join(f"{name}: {extents[name]}" for name in kept)
    shape = ", ".join(str(extents[name]) for name in kept)
    program = parse_program(f"""
        kernel k(x: in int32[4, 5, 6], y: out int32[{shape}]) {{
          %0: int32[a: 4, b: 5, c: 6] = load x[0, 0, 0](a: 4, b: 5, c: 6)
          %1: int32[{types}] = reduce add %0 over {axis} {policy}
          store y[0, 0]({types}) = %1
        }}""")
    x = np.arange(120, dtype=np.int32).reshape(4, 5, 6)
    (y,) = interpret(program, [x])
    assert (y == x.sum(axis="abc".index(axis))).all()

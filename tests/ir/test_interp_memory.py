"""Views, bounds policies, gathers, nests and arguments of the interpreter."""

import math

import numpy as np
import pytest

from tvm_tilex.errors import ArgumentError, OptionError, VerifyError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program

X = np.array([[-1.0, -2.0, -3.0], [4.0, 5.0, 6.0]], np.float32)


def ragged(policy, statement, result="float32[]", store="store y[n0.0](_) = %1"):
    """Each row of 3 is loaded as a tile of 5 under ``policy``."""
    return parse_program(f"""
        kernel k(x: in float32[2, 3], y: out float32[2]) {{
          parallel n0(rows: 2) {{
            %0: float32[columns: 5] = load x[n0.0, 0](_, columns: 5) {policy}
            %1: {result} = {statement}
            {store}
          }}
        }}""")


@pytest.mark.parametrize(
    ("combiner", "zero", "predicate"),
    [
        ("add", [-6.0, 15.0], [-6.0, 15.0]),
        ("maximum", [0.0, 6.0], [-1.0, 6.0]),
        ("minimum", [-3.0, 0.0], [-3.0, 4.0]),
    ],
)
@pytest.mark.parametrize("order", ["", "ordered_tree", "fold_left", "fold_right"])
def test_zero_reads_zero_and_predicate_contributes_the_identity(combiner, zero, predicate, order):
    for policy, expected in (("zero", zero), ("predicate", predicate)):
        program = ragged(policy, f"reduce {combiner} %0 over columns {order}")
        assert interpret(program, [X])[0].tolist() == expected


def test_assume_refuses_an_access_outside_and_names_the_statement():
    program = ragged("assume", "reduce add %0 over columns")
    with pytest.raises(
        VerifyError, match=r"(?s)%0: .* = load x.*'x' \(extent 3\) is accessed at 3"
    ):
        interpret(program, [X])


def test_assume_refuses_a_store_outside():
    program = parse_program("kernel k(y: out int32[3]) {\n store y[1](a: 3) = int32(1) assume\n}")
    with pytest.raises(VerifyError, match=r"store y\[1\]\(a: 3\) = int32\(1\) assume"):
        interpret(program, [])


def test_checked_accesses_are_refused_before_anything_runs():
    with pytest.raises(VerifyError, match=r"\[rule: bounds\]"):
        interpret(ragged("", "reduce add %0 over columns"), [X])


@pytest.mark.parametrize("policy", ["zero", "predicate"])
def test_a_store_outside_writes_nothing(policy):
    program = parse_program(f"""
        kernel k(y: out int32[2, 3]) {{
          %0: int32[a: 4] = coordinate(a: 4) + 10
          store y[-1, 1](a: 4, _) = %0 {policy}
        }}""")
    y = interpret(program, [np.zeros((2, 3), np.int32)])[0]
    assert y.tolist() == [[0, 11, 0], [0, 12, 0]]


def test_validity_flows_through_elementwise_operations_to_a_store():
    program = parse_program("""
        kernel k(x: in float32[3], y: out float32[8], z: out float32[8]) {
          %0: float32[a: 4] = load x[-1](a: 4) predicate
          %1: float32[a: 4] = load x[1](a: 4) predicate
          %2: float32[a: 4] = add %0, %1
          %3: float32[a: 4] = add %2, float32(1.0)
          store y[0](a: 4) = %3
          %4: bool[a: 4] = equal %0, %0
          %5: float32[a: 4] = where %4, float32(7.0), float32(8.0)
          store z[0](a: 4) = %5
        }""")
    x, nine = np.array([1, 2, 3], np.float32), np.full(8, 9, np.float32)
    y, z = interpret(program, {"x": x, "y": nine, "z": nine})
    assert y.tolist() == [9, 1 + 3 + 1, 9, 9, 9, 9, 9, 9]
    assert z.tolist() == [9, 7, 7, 7, 9, 9, 9, 9]


def test_zero_makes_an_ordinary_value():
    program = parse_program("""
        kernel k(x: in float32[3], y: out float32[4]) {
          %0: float32[a: 4] = load x[-1](a: 4) zero
          store y[0](a: 4) = %0
        }""")
    assert interpret(program, [np.array([1, 2, 3], np.float32)])[0].tolist() == [0, 1, 2, 3]


def test_an_empty_view_is_entirely_outside():
    program = parse_program("""
        kernel k(x: in int32[0], y: out int32[2]) {
          %0: int32[a: 2] = load x[0](a: 2) zero
          store y[0](a: 2) = %0
        }""")
    assert interpret(program, [np.zeros(0, np.int32)])[0].tolist() == [0, 0]


# Gathers.

GATHER = """
kernel k(x: in float32[3, 4], i: in INDEX[3], y: out float32[3]) {
  parallel n0(rows: 3) {
    %0: float32[columns: 6] = load x[n0.0, 0](_, columns: 6) predicate
    %1: INDEX[] = load i[n0.0](_)
    %2: float32[] = gather %0 over columns at %1 fill FILL
    store y[n0.0](_) = %2
  }
}"""


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("fill", ["0.0", "-inf", "nan"])
def test_a_gather_out_of_range_or_of_an_inactive_element_gives_the_fill(dtype, fill):
    program = parse_program(GATHER.replace("INDEX", dtype).replace("FILL", fill))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index, inside in [
        (3, True),
        (4, False),
        (5, False),
        (6, False),
        (-1, False),
        (-100, False),
    ]:
        y = interpret(program, [x, np.array([0, index, 2], dtype)])[0]
        np.testing.assert_array_equal(y, [0, 4 + index if inside else float(fill), 10])


def test_a_gather_at_the_largest_integers():
    program = parse_program(GATHER.replace("INDEX", "int64").replace("FILL", "5.0"))
    x = np.zeros((3, 4), np.float32)
    assert interpret(program, [x, np.array([2**63 - 1, -(2**63), 0])])[0].tolist() == [5, 5, 0]


def test_a_gather_with_a_byte_index_over_a_longer_axis():
    program = parse_program("""
        kernel k(x: in int32[300], i: in uint8[2], y: out int32[2]) {
          %0: int32[a: 300] = load x[0](a: 300)
          %1: uint8[b: 2] = load i[0](b: 2)
          %2: int32[b: 2] = gather %0 over a at %1 fill 0
          store y[0](b: 2) = %2
        }""")
    x = np.arange(300, dtype=np.int32)
    assert interpret(program, [x, np.array([255, 7], np.uint8)])[0].tolist() == [255, 7]


def test_gather_axes_shared_with_the_source_run_together_and_new_ones_follow():
    program = parse_program("""
        kernel k(x: in int32[3, 4], i: in int64[3, 2], p: in int64[4], y: out int32[3, 2],
                 z: out int32[3, 4]) {
          %0: int32[r: 3, c: 4] = load x[0, 0](r: 3, c: 4)
          %1: int64[r: 3, k: 2] = load i[0, 0](r: 3, k: 2)
          %2: int32[r: 3, k: 2] = gather %0 over c at %1 fill -1
          store y[0, 0](r: 3, k: 2) = %2
          %3: int64[c: 4] = load p[0](c: 4)
          %4: int32[r: 3, c: 4] = gather %0 over c at %3 fill -1
          store z[0, 0](r: 3, c: 4) = %4
        }""")
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    i, p = np.array([[0, 1], [3, 3], [2, 9]]), np.array([3, 2, 1, 0])
    y, z = interpret(program, [x, i, p])
    assert y.tolist() == [[0, 1], [7, 7], [10, -1]]
    assert z.tolist() == x[:, ::-1].tolist()


# Views and nests.


def test_a_later_nest_reads_what_an_earlier_one_stored():
    program = parse_program("""
        kernel k(x: inout float32[4], y: out float32[4]) {
          parallel n0(rows: 4) {
            %0: float32[] = load x[n0.0](_)
            %1: float32[] = add %0, %0
            store x[n0.0](_) = %1
            %2: float32[] = load x[n0.0](_)
            %3: float32[] = add %2, float32(1.0)
            store x[n0.0](_) = %3
          }
          parallel n1(others: 4) {
            %4: float32[] = load x[3 - n1.0](_)
            store y[n1.0](_) = %4
          }
        }""")
    given = np.arange(4, dtype=np.float32)
    x, y = interpret(program, [given])
    assert x.tolist() == [1, 3, 5, 7] and y.tolist() == [7, 5, 3, 1]
    assert given.tolist() == [0, 1, 2, 3]


def test_a_nested_nest_sees_outer_values_and_coordinates():
    program = parse_program("""
        kernel k(x: in int32[3], y: out int32[3, 2, 4]) {
          %0: int32[] = load x[0](_)
          parallel n0(rows: 3) {
            %1: int32[] = load x[n0.0](_)
            parallel n1(parts: 2, lanes: 4) {
              %2: int32[] = coordinate(_) + ((n0.0 * 100) + ((n1.0 * 10) + n1.1))
              %3: int32[] = add %2, %1
              %4: int32[] = add %3, %0
              store y[n0.0, n1.0, n1.1](_, _, _) = %4
            }
          }
        }""")
    (y,) = interpret(program, [np.array([1000, 2000, 3000], np.int32)])
    row, part, lane = np.indices((3, 2, 4))
    assert (y == row * 100 + part * 10 + lane + 1000 * (row + 1) + 1000).all()


def test_an_empty_nest_runs_nothing():
    program = parse_program("""
        kernel k(x: in float32[0, 4], y: out float32[0, 4]) {
          parallel n0(rows: 0) {
            %0: float32[columns: 4] = load x[n0.0, 0](_, columns: 4)
            store y[n0.0, 0](_, columns: 4) = %0
          }
        }""")
    assert interpret(program, [np.zeros((0, 4), np.float32)])[0].shape == (0, 4)


def test_strided_inputs_are_read_by_their_elements():
    program = ragged("zero", "reduce add %0 over columns")
    big = np.zeros((4, 6), np.float32)
    big[::2, ::-2] = X
    assert interpret(program, [big[::2, ::-2]])[0].tolist() == [-6, 15]


PARTIAL = parse_program("""
    kernel k(a: in int32[2], y: out float32[3], b: in int32[2], n: out int32[3]) {
      %0: int32[i: 2] = load a[0](i: 2)
      %1: int32[i: 2] = load b[0](i: 2)
      %2: int32[i: 2] = subtract %0, %1
      store n[0](i: 2) = %2
      store y[0](_) = float32(1.0)
    }""")
A, B = np.array([5, 6], np.int32), np.array([1, 1], np.int32)


@pytest.mark.parametrize(
    "arrays",
    [[A, B], [A, None, B], [A, None, B, None], {"b": B, "a": A}, {"a": A, "b": B, "y": None}],
)
def test_out_views_may_be_left_out(arrays):
    y, n = interpret(PARTIAL, arrays)
    assert n.tolist() == [4, 5, 2**31 - 1]
    assert y[0] == 1 and np.isnan(y[1:]).all()


def test_a_given_out_view_keeps_what_nothing_writes_and_is_not_written_to():
    y, n = np.full(3, 7, np.float32), np.full(3, 8, np.int32)
    outputs = interpret(PARTIAL, [A, y, B, n])
    assert outputs[0].tolist() == [1, 7, 7] and outputs[1].tolist() == [4, 5, 8]
    assert y.tolist() == [7, 7, 7] and n.tolist() == [8, 8, 8]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([A], "view 'b' is in and has no array"),
        ({"a": A, "b": B, "c": B}, "there is no view 'c'"),
        ([A, None, B, None, B], "5 arrays are given for 4 views"),
        ([A, B[:1]], r"view 'b' has the shape \(2,\), not \(1,\)"),
        ([A, B.astype(np.int64)], "view 'b' holds int32, not int64"),
        ([A, np.zeros(3), B], "view 'y' holds float32, not float64"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arrays, message):
    with pytest.raises(ArgumentError, match=message):
        interpret(PARTIAL, arrays)


def test_options_have_domains():
    with pytest.raises(OptionError, match="precision is 'float16'"):
        interpret(PARTIAL, [A, B], precision="float16")
    with pytest.raises(OptionError, match="seed is -1"):
        interpret(PARTIAL, [A, B], seed=-1)


def test_float64_precision_takes_float64_arrays_and_keeps_integers():
    y, n = interpret(PARTIAL, [A, np.full(3, 0.1), B], precision="float64")
    assert y.dtype == np.float64 and y.tolist() == [1, 0.1, 0.1]
    assert n.dtype == np.int32


# Whole kernels against their formulas.

ROWS = """
kernel k(x: in {t}[{p}, {n}], labels: in int64[{p}], y: out {t}[{p}, {n}], loss: out {t}[{p}]) {{
  parallel n0(rows: {p}) {{
    %0: {t}[one: 1, columns: {n}] = load x[n0.0, 0](one: 1, columns: {n})
    %1: {t}[one: 1] = reduce maximum %0 over columns
    %2: {t}[one: 1, columns: {n}] = subtract %0, %1
    %3: {t}[one: 1, columns: {n}] = exp %2
    %4: {t}[one: 1] = reduce add %3 over columns
    %5: {t}[one: 1, columns: {n}] = divide %3, %4
    store y[n0.0, 0](one: 1, columns: {n}) = %5
    %6: int64[one: 1] = load labels[n0.0](one: 1)
    %7: {t}[one: 1] = gather %0 over columns at %6 fill 0.0
    %8: {t}[one: 1] = log %4
    %9: {t}[one: 1] = add %8, %1
    %10: {t}[one: 1] = subtract %9, %7
    store loss[n0.0](one: 1) = %10
  }}
}}"""


@pytest.mark.parametrize(("p", "n"), [(1, 1), (7, 1024), (17, 257), (64, 1), (2, 50257)])
def test_softmax_and_cross_entropy_against_float64_formulas(p, n):
    rng = np.random.default_rng(p * n)
    x = (rng.standard_normal((p, n)) * 3).astype(np.float32)
    labels = rng.integers(0, n, p)
    labels[0] = -100
    program = parse_program(ROWS.format(t="float32", p=p, n=n))
    wide = x.astype(np.float64)
    shifted = np.exp(wide - wide.max(axis=1, keepdims=True))
    total = shifted.sum(axis=1, keepdims=True)
    selected = np.where(labels == -100, 0, wide[np.arange(p), labels.clip(0)])
    loss = np.log(total[:, 0]) + wide.max(axis=1) - selected
    for precision, tolerance in (("float32", 2e-6), ("float64", 1e-14)):
        y, got = interpret(program, [x, labels], precision=precision)
        np.testing.assert_allclose(y, shifted / total, rtol=tolerance)
        np.testing.assert_allclose(got, loss, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("width", [1, 31, 33, 1025])
@pytest.mark.parametrize("policy", ["", "fold_left"])
def test_softmax_special_rows_follow_the_written_composition(width, policy):
    text = ROWS.format(t="float32", p=3, n=width)
    program = parse_program(text.replace("%3 over columns", f"%3 over columns {policy}"))
    x = np.zeros((3, width), np.float32)
    x[0], x[1, -1] = -np.inf, np.nan
    y, _ = interpret(program, [x, np.zeros(3, np.int64)])
    assert np.isnan(y[:2]).all()
    np.testing.assert_allclose(y[2], np.full(width, 1 / width), rtol=1e-6)


def test_half_storage_rounds_every_tile():
    program = parse_program(ROWS.format(t="float16", p=1, n=3))
    x = np.array([[0.1, 0.2, 0.3]], np.float16)
    y, loss = interpret(program, [x, np.array([1])])
    f16, f32 = np.float16, np.float32
    shifted = np.exp((x[0] - x[0, 2]).astype(np.float64)).astype(f32).astype(f16)
    total = f16(f32(f32(shifted[0]) + f32(shifted[1])) + f32(shifted[2]))
    assert y[0].tolist() == [f16(f32(s) / f32(total)) for s in shifted]
    assert loss.dtype == f16
    assert loss[0] == f16(math.log(total)) + x[0, 2] - x[0, 1]

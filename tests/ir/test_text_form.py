"""The printed form of TileIR: golden texts, round trips and refusals of the parser."""

import dataclasses
import math

import pytest
from hypothesis import HealthCheck, given, settings
from random_programs import programs

from tvm_tilex.errors import ParseError
from tvm_tilex.ir import (
    Axis,
    Constant,
    IndexConstant,
    Load,
    Program,
    Reduce,
    Store,
    View,
    ViewAccess,
)
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.print import format_program, format_statement
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import definitions, users, walk, walk_scoped

SOFTMAX = """\
kernel softmax(input: in float32[3, 4096], output: out float32[3, 4096]) {
  parallel n0(rows: 3) {
    %0: float32[one: 1, columns: 4096] = load input[n0.0, 0](one: 1, columns: 4096)
    %1: float32[one: 1] = reduce maximum %0 over columns
    %2: float32[one: 1, columns: 4096] = subtract %0, %1
    %3: float32[one: 1, columns: 4096] = exp %2
    %4: float32[one: 1] = reduce add %3 over columns
    %5: float32[one: 1, columns: 4096] = divide %3, %4
    store output[n0.0, 0](one: 1, columns: 4096) = %5
  }
}
"""

# Every construct and every trailing word, once.
EVERYTHING = """
# A comment.
kernel everything(a: in float16[3, 9] predicate, labels: in int64[3], state: inout bfloat16[12, 4],
                  flags: out bool[3], scratch: out int32[3, 9] zero) {
  parallel n0(rows: 3) {
    %0: float16[one: 1, columns: 4] = load a[n0.0, (n0.0 * 3) - -1](one: 1, columns: 4) predicate
    %1: int64[one: 1] = load labels[(n0.0 // 2) + (n0.0 % 2)](one: 1)
    %2: float16[one: 1] = gather %0 over columns at %1 fill -inf
    %3: float16[] = load a[0, 0](_, _) assume
    %4: int32[columns: 4] = coordinate(columns: 4) + (n0.0 * 4)
    %5: int64[] = coordinate(_) + n0.0
    %6: float16[one: 1] = reduce maximum %0 over columns fold_left propagate
    %7: float16[one: 1] = reduce add %0 over columns ordered_tree unspecified
    %8: float16[one: 1] = fma %6, %7, float16(-0.0)
    %9: bool[one: 1] = less %8, float16(nan)
    %10: float16[one: 1] = where %9, %2, float16(1e-05)
    parallel n1(parts: 4, _: 1) subgroup {
      %11: bfloat16[one: 1] = cast %10
      %12: bfloat16[one: 1] = repartition %11
      store state[(n0.0 * 4) + n1.0, 0](one: 1, _) = %12
    }
    store flags[n0.0](one: 1) = bool(true)
    store scratch[n0.0, -2](_, columns: 4) = %4 zero
  }
}
"""


def test_text_of_every_construct(golden):
    program = parse_program(EVERYTHING)
    verify(program)
    golden(format_program(program), "everything.tileir")


def test_text_is_a_fixed_point():
    assert format_program(parse_program(SOFTMAX)) == SOFTMAX


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_text_parses_back_to_an_equal_program(program):
    verify(program)
    text = format_program(program)
    back = parse_program(text)
    assert back == program
    assert format_program(back) == text  # equality takes -0.0 for 0.0; the text does not


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 0.1, 1e-45, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 3, -7, 2**70],
)
def test_float_literals_round_trip_exactly(value):
    back = _stored_constant(value, "float32")
    assert (back, type(back), math.copysign(1, back)) == (
        value,
        type(value),
        math.copysign(1, value),
    )


def test_nan_literal_round_trips():
    assert math.isnan(_stored_constant(math.nan, "float16"))


@pytest.mark.parametrize("value", [True, False])
def test_bool_literals_keep_their_type(value):
    assert _stored_constant(value, "bool") is value


def _stored_constant(value, dtype):
    constant = Constant(value, DTYPES[dtype])
    view = View("x", DTYPES[dtype], (1,), ViewAccess.write)
    program = Program(
        "k", (view,), (Store("x", (IndexConstant(0),), (None,), constant, view.bounds),)
    )
    return parse_program(format_program(program)).body[0].value.value


@pytest.mark.parametrize(
    "word", ["load", "store", "parallel", "zero", "_", "n0", "inf", "true", "größe"]
)
def test_any_identifier_names_a_kernel_a_view_or_an_axis(word):
    text = SOFTMAX.replace("softmax", word).replace("output", word).replace("columns", word)
    program = parse_program(text)
    assert program.name == word and program.views[1].name == word
    assert Axis(word, 4096) in definitions(program)[0].dimensions
    assert format_program(program) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%0, %1", "%0, %9", r"line 5, column \d+: %9 is not defined above"),
        ("%0 over columns", "%0 over rows", "%0 has no axis 'rows'"),
        ("subtract", "substract", "'substract' is none of exp, exp2"),
        ("reduce maximum", "reduce product", "'product' is none of add, maximum, minimum"),
        ("%0 over columns", "%0 over columns sideways", "'sideways' is none of unordered_tree"),
        ("%0 over columns", "%0 over columns propagate fold_left", "'fold_left' is none of"),
        ("input: in", "input: from", "'from' is none of in, out, inout"),
        ("in float32", "in float33", "unknown dtype 'float33'"),
        ("= %5", "=", "line 10, column 3: '}' is not expected here"),
        ("[n0.0, 0]", "[n0.0 * 2 + 1, 0]", r"'\+' is not expected here"),
        ("%1: float32[one: 1]", "%1: float32[one: 1, one: 1]", "names an axis twice"),
        ("rows: 3", "rows: -3", "negative extent"),
        ("softmax", "so²ftmax", "'so²ftmax' is not an identifier"),
        ("}\n}", "}", "ends before the kernel's closing brace"),
    ],
)
def test_parser_names_place_and_reason(old, new, message):
    with pytest.raises(ParseError, match=message):
        parse_program(SOFTMAX.replace(old, new, 1) if old != "}\n}" else SOFTMAX[:-2])


def test_locations_are_the_text_lines_when_a_file_is_given():
    program = parse_program(SOFTMAX, file="softmax.tileir")
    assert [statement.location.line for statement in walk(program)] == list(range(2, 10))
    assert program == parse_program(SOFTMAX)


def test_walk_is_in_program_order_with_enclosing_nests():
    program = parse_program(EVERYTHING)
    depths = [len(enclosing) for _, enclosing in walk_scoped(program)]
    assert depths == [0] + [1] * 12 + [2, 2, 2] + [1, 1]
    assert [type(s).__name__ for s in walk(program)][-2:] == ["Store", "Store"]


def test_definitions_and_users():
    program = parse_program(SOFTMAX)
    assert isinstance(definitions(program)[0], Load) and isinstance(definitions(program)[4], Reduce)
    found = {
        n: [format_statement(s).split(" = ")[-1] for s in s] for n, s in users(program).items()
    }
    assert found[0] == ["reduce maximum %0 over columns", "subtract %0, %1"]
    assert found[3] == ["reduce add %3 over columns", "divide %3, %4"]
    assert found[5] == ["%5"]


def test_a_value_read_twice_by_one_statement_has_one_user():
    program = parse_program(SOFTMAX.replace("%0, %1", "%0, %0"))
    assert len(users(program)[0]) == 2 and users(program)[1] == ()


def test_nodes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse_program(SOFTMAX).body[0].nest = 1

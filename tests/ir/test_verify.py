"""The TileIR verifier: a good program, and for each rule single edits of it that break the rule."""

import dataclasses

import pytest

from tvm_tilex.errors import VerifyError
from tvm_tilex.ir import (
    Axis,
    Constant,
    DType,
    ElementOp,
    Elementwise,
    IndexBinary,
    IndexConstant,
    Program,
    ProgramCoordinate,
    TileType,
    Value,
)
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.ir.verify import verify

GOOD = """\
kernel good(x: in float32[3, 8], labels: in int64[3], bytes: in uint8[3, 8], y: out float32[3, 8]) {
  parallel n0(rows: 3) {
    %0: float32[one: 1, columns: 8] = load x[n0.0, 0](one: 1, columns: 8)
    %1: int64[one: 1] = load labels[n0.0](one: 1)
    %2: float32[one: 1] = reduce add %0 over columns
    %3: float32[one: 1, columns: 8] = divide %0, %2
    %4: float32[one: 1] = gather %3 over columns at %1 fill 0.0
    %5: float32[one: 1, columns: 8] = fma %3, %4, float32(1)
    %6: uint8[columns: 8] = load bytes[n0.0, 0](_, columns: 8)
    %7: uint8[] = reduce maximum %6 over columns
    %8: int32[columns: 8] = coordinate(columns: 8) + n0.0
    %9: bool[columns: 8] = less %8, int32(3)
    %10: float32[one: 1, columns: 8] = where %9, %5, %0
    parallel n1(parts: 2) {
      %11: float32[lanes: 4] = load x[n0.0, n1.0 * 4](_, lanes: 4)
      store y[n0.0, n1.0 * 4](_, lanes: 4) = %11
    }
    store y[n0.0, 0](one: 1, columns: 8) = %5
    store y[n0.0, 0](_, columns: 8) = float32(0.0)
  }
}
"""
# where: the axes of the condition come first.
GOOD = GOOD.replace("%10: float32[one: 1, columns: 8]", "%10: float32[columns: 8, one: 1]")


def test_a_good_program_is_accepted():
    verify(parse_program(GOOD))


MUTATIONS = [
    # rule, old text, new text, message
    ("name", "labels: in int64[3]", "x: in int64[3]", "two views are named 'x'"),
    ("view", "bytes: in uint8[3, 8]", "bytes: in uint8[3, -8]", "'bytes' has the shape"),
    ("view", "labels: in int64[3]", "labels: in int64[]", "'labels' has the shape"),
    ("nest", "parallel n1", "parallel n0", "n0 is taken"),
    ("axis", "rows: 3", "columns: 3", "'columns' has the extents 3 and 8"),
    ("axis", "(_, lanes: 4) = %11", "(_, one: 4) = %11", "'one' has the extents 1 and 4"),
    ("extent", "lanes: 4", "lanes: 0", "'lanes' is empty"),
    (
        "ssa",
        "    parallel n1",
        "    %0: int32[] = coordinate(_) + 0\n    parallel n1",
        "defined twice",
    ),
    ("type", "%2: float32[one: 1]", "%2: float32[columns: 8]", r"not float32\[columns: 8\]"),
    ("type", "%2: float32[one: 1]", "%2: float16[one: 1]", r"type float32\[one: 1\], not float16"),
    ("type", "%10: float32[columns: 8, one: 1]", "%10: float32[one: 1, columns: 8]", "not float32"),
    ("type", "%1: int64[one: 1] = load", "%1: int32[one: 1] = load", "type int64"),
    (
        "type",
        "%8: int32[columns: 8] = coordinate",
        "%8: float32[columns: 8] = coordinate",
        "integer",
    ),
    ("type", "divide %0, %2", "divide %0, %1", "operands are float32, int64"),
    ("type", "divide %0, %2", "floor_divide %0, %2", "takes integer operands, not float32"),
    ("type", "divide %0, %2", "divide %0, %2, %2", "takes 2 operands, not 3"),
    ("type", "where %9", "where %8", "condition is int32, not bool"),
    ("type", "at %1 fill", "at %2 fill", "the index is float32, not an integer"),
    ("type", "reduce maximum %6", "reduce add %6", "a sum of uint8 wraps"),
    (
        "type",
        "    parallel n1",
        "    %12: bool[] = reduce maximum %9 over columns\n    parallel n1",
        "not bool",
    ),
    ("constant", "float32(1)", "float32(true)", "True is no float32 literal"),
    ("constant", "int32(3)", "int32(2147483648)", "is no int32 literal"),
    ("constant", "int32(3)", "int32(3.0)", "3.0 is no int32 literal"),
    ("constant", "fill 0.0", "fill false", "False is no float32 literal"),
    ("access", "load x[n0.0, 0]", "load z[n0.0, 0]", "there is no view 'z'"),
    ("access", "load x[n0.0, 0]", "load y[n0.0, 0]", "'y' is out, so it cannot be loaded"),
    ("access", "store y[n0.0, 0](_, c", "store x[n0.0, 0](_, c", "'x' is in, so it cannot be st"),
    ("access", "load labels[n0.0]", "load labels[n0.0, 0]", "'labels' has rank 1"),
    ("access", "load labels[n0.0](one: 1)", "load labels[n0.0](one: 1, _)", "'labels' has rank 1"),
    ("access", "(_, columns: 8) = float32", "(one: 1, one: 1) = float32", "along two dimensions"),
    ("store", "(_, lanes: 4) = %11", "(_, parts: 2) = %11", "the access has other axes"),
    (
        "store",
        "store y[n0.0, 0](one: 1, columns: 8) = %5",
        "store y[n0.0, 0](_, _) = %7",
        "a uint8",
    ),
    ("index", "load labels[n0.0]", "load labels[n1.0]", "n1.0 is no coordinate of an enclosing"),
    ("index", "load labels[n0.0]", "load labels[n0.1]", "n0.1 is no coordinate of an enclosing"),
    ("index", "+ n0.0", "+ (n0.0 // n0.0)", "is not a positive constant"),
    ("index", "+ n0.0", "+ (n0.0 % 0)", "is not a positive constant"),
    ("index", "+ n0.0", "+ (n0.0 * 9223372036854775807)", "past 64 bits"),
    ("bounds", "load x[n0.0, 0]", "load x[n0.0, 1]", r"'x' \(extent 8\) is accessed at 1..8"),
    ("bounds", "load x[n0.0, 0]", "load x[n0.0 - 1, 0]", r"'x' \(extent 3\) is accessed at -1..1"),
    ("bounds", "store y[n0.0, n1.0 * 4]", "store y[n0.0, n1.0 * 5]", "is accessed at 0..8"),
    ("bounds", "rows: 3", "rows: 4", r"\(extent 3\) is accessed at 0..3"),
]


@pytest.mark.parametrize(("rule", "old", "new", "message"), MUTATIONS)
def test_one_edit_breaks_one_rule(rule, old, new, message):
    assert old in GOOD
    with pytest.raises(VerifyError, match=rf"(?s){message}.*\[rule: {rule}\]$"):
        verify(parse_program(GOOD.replace(old, new)))


def test_the_error_names_the_statement_and_its_line():
    text = GOOD.replace("divide %0, %2", "divide %0, %1")
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(text, file="good.tileir"))
    first, second = str(caught.value).splitlines()
    assert first.startswith("good.tileir:6: %3: float32[one: 1, columns: 8] = divide %0, %1")
    assert second.endswith("[rule: type]") and caught.value.location.line == 6


def test_use_after_the_nest_of_the_definition_is_refused():
    text = GOOD.replace("(_, columns: 8) = float32(0.0)", "(_, lanes: 4) = %11")
    with pytest.raises(VerifyError, match=r"%11 is out of scope here \[rule: ssa\]"):
        verify(parse_program(text))


def test_nothing_stored_is_refused():
    text = "kernel k(x: in float32[3]) {\n  %0: float32[] = load x[0](_)\n}\n"
    with pytest.raises(VerifyError, match=r"^kernel k: nothing is stored \[rule: effect\]"):
        verify(parse_program(text))


def test_statements_outside_any_nest_are_accepted():
    text = "kernel k(y: out float32[3]) {\n  store y[0](a: 3) = float32(1.0)\n}\n"
    verify(parse_program(text))


@pytest.mark.parametrize("edit", ["load x[n0.0, 0]", "store y[n0.0, 0](one: 1, columns: 8)"])
@pytest.mark.parametrize("bounds", ["zero", "predicate", "assume"])
def test_only_checked_accesses_are_proved(edit, bounds):
    line = next(line for line in GOOD.splitlines() if edit in line)
    moved = line.replace("[n0.0, 0]", "[n0.0, 5]") + " " + bounds
    verify(parse_program(GOOD.replace(line, moved)))


def test_an_empty_nest_claims_no_bounds():
    verify(parse_program(GOOD.replace("rows: 3", "rows: 0").replace("x[n0.0, 0]", "x[n0.0, 7]")))


# Edits that the text form cannot say.


def _edit(program: Program, number: int, **changes) -> Program:
    """Replace fields of the statement that defines ``%number`` in the outer nest."""
    nest = program.body[0]
    body = tuple(
        dataclasses.replace(s, **changes)
        if getattr(s, "result", None) and s.result.number == number
        else s
        for s in nest.body
    )
    return dataclasses.replace(program, body=(dataclasses.replace(nest, body=body),))


FLOAT = DTYPES["float32"]
ONE, COLUMNS = Axis("one", 1), Axis("columns", 8)


@pytest.mark.parametrize(
    ("rule", "number", "changes", "message"),
    [
        ("ssa", 2, {"source": Value(5, TileType(FLOAT, (ONE, COLUMNS)))}, "not defined before"),
        ("ssa", 2, {"source": Value(0, TileType(FLOAT, (COLUMNS, ONE)))}, "but defined as"),
        ("type", 2, {"axis": Axis("rows", 3)}, "lacks the axis rows: 3"),
        ("type", 2, {"axis": Axis("columns", 4)}, "lacks the axis columns: 4"),
        ("type", 4, {"axis": Axis("rows", 3)}, "lacks the axis rows: 3"),
        ("ssa", 0, {"result": Value(-1, TileType(FLOAT, (ONE, COLUMNS)))}, "twice or negative"),
        (
            "index",
            8,
            {"offset": IndexBinary("^", IndexConstant(1), IndexConstant(1))},
            "no index op",
        ),
        ("index", 8, {"offset": ProgramCoordinate(0, 1)}, "n0.1 is no coordinate"),
        (
            "type",
            0,
            {"result": Value(0, TileType(DType("float8", "float", 8), (ONE, COLUMNS)))},
            "'float8' is no element type",
        ),
    ],
)
def test_one_edit_of_the_nodes_breaks_one_rule(rule, number, changes, message):
    program = _edit(parse_program(GOOD), number, **changes)
    with pytest.raises(VerifyError, match=rf"(?s){message}.*\[rule: {rule}\]$"):
        verify(program)


def test_a_numpy_scalar_is_no_literal():
    np = pytest.importorskip("numpy")
    constant = Constant(np.float32(1), FLOAT)
    program = _edit(parse_program(GOOD), 5, operands=(constant, constant, constant))
    with pytest.raises(VerifyError, match=r"\[rule: constant\]"):
        verify(program)


@pytest.mark.parametrize("name", ["", "two words", "1st"])
def test_names_are_identifiers(name):
    program = parse_program(GOOD)
    with pytest.raises(VerifyError, match=r"is not an identifier \[rule: name\]"):
        verify(dataclasses.replace(program, name=name))
    view = dataclasses.replace(program.views[0], name=name)
    with pytest.raises(VerifyError, match=r"is not an identifier \[rule: name\]"):
        verify(dataclasses.replace(program, views=(view, *program.views[1:])))


def test_a_nest_names_an_axis_once():
    program = parse_program(GOOD)
    nest = dataclasses.replace(program.body[0], axes=(Axis("rows", 3), Axis("rows", 3)))
    with pytest.raises(VerifyError, match=r"name one axis twice \[rule: nest\]"):
        verify(dataclasses.replace(program, body=(nest,)))


def test_an_operator_has_its_arity():
    program = parse_program(GOOD)
    operands = program.body[0].body[3].operands
    broken = _edit(program, 3, op=ElementOp.fma)
    assert isinstance(program.body[0].body[3], Elementwise) and len(operands) == 2
    with pytest.raises(VerifyError, match=r"fma: takes 3 operands, not 2 \[rule: type\]"):
        verify(broken)
